// SPDX-License-Identifier: Apache-2.0
#include "cli/certs.h"

#include <algorithm>
#include <iostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/certificate_folder.h"
#include "common/job/cluster_spec.h"
#include "common/process/daemon.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast certs --out=FOLDER --training=NAME --cluster_spec=FILE [flags]

Creates a certificate authority, and a certificate for each task of a cluster and for
an operator, for development: FOLDER/ps-0 is the --tls_dir of ps task 0.

Run again, it creates what is missing, for example after a cluster has grown, or with
--renew new certificates for all tasks. An existing authority (FOLDER/ca.crt,
FOLDER/ca.key) is used and never overwritten. With ca.key one can impersonate any
task: keep it away from the machines of the cluster.

  holdfast certs --out=tls --training=mnist --cluster_spec=cluster.json
  holdfast status --cluster_spec=cluster.json --tls_dir=tls/operator-0

Exits 0 when all certificates exist, 1 when something could not be written, 2 for wrong flags.

)";

constexpr int kMaxDays = 3650;

struct CertsFlags {
  std::string out;
  std::string training;
  std::string cluster_spec;
  int days = 365;
  bool renew = false;
};

FlagSet MakeFlagSet(CertsFlags* flags) {
  FlagSet set;
  set.Add(
      "out", "FOLDER", &flags->out,
      "Folder for the certificates; created if it does not exist. Required.");
  set.Add(
      "training", "NAME", &flags->training,
      "Name of the training: lower-case letters, digits and '-'. Tasks only\n"
      "talk to tasks of the same name. Required.");
  set.Add("cluster_spec", "FILE", &flags->cluster_spec,
          "The cluster, as for the daemons: a JSON file, or the JSON itself.\n"
          "Required.");
  set.Add("days", "NUMBER", &flags->days,
          "How long certificates are valid, 1 to 3650. Default: 365.");
  set.Add(
      "renew", "", &flags->renew,
      "Replace existing certificates, too. Running daemons load the new ones\n"
      "by themselves.");
  return set;
}

absl::StatusOr<CertificateFolderOptions> MakeOptions(const CertsFlags& flags) {
  for (const auto& [name, value] :
       {std::pair<const char*, const std::string&>("out", flags.out),
        {"training", flags.training},
        {"cluster_spec", flags.cluster_spec}}) {
    if (value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " is required; --help describes it"));
    }
  }
  if (flags.days < 1 || flags.days > kMaxDays) {
    return absl::InvalidArgumentError(
        absl::StrCat("--days=", flags.days, ": must be from 1 to ", kMaxDays));
  }
  ClusterFlags cluster_flags;
  cluster_flags.cluster_spec = flags.cluster_spec;
  const auto cluster = ResolveCluster(cluster_flags, "");
  if (!cluster.ok()) {
    return absl::InvalidArgumentError(cluster.status().message());
  }
  CertificateFolderOptions options;
  options.path = flags.out;
  options.training = flags.training;
  options.tasks = TasksWithOperator(*cluster);
  options.lifetime = absl::Hours(24) * flags.days;
  options.renew = flags.renew;
  return options;
}

}  // namespace

int CertsCommand(const std::vector<std::string>& args) {
  CertsFlags flags;
  const FlagSet set = MakeFlagSet(&flags);
  if (std::count(args.begin(), args.end(), "--help") > 0) {
    std::cout << kUsage << "Flags:\n" << set.Help();
    return kExitDone;
  }
  const absl::Status parsed = set.Parse(args);
  const auto options = parsed.ok()
                           ? MakeOptions(flags)
                           : absl::StatusOr<CertificateFolderOptions>(parsed);
  const auto made = options.ok()
                        ? MakeCertificateFolder(*options)
                        : absl::StatusOr<std::vector<TaskId>>(options.status());
  if (!made.ok()) {
    std::cerr << "holdfast certs: " << made.status().message() << std::endl;
    return absl::IsInvalidArgument(made.status()) ? kExitUsage : kExitFailed;
  }
  for (const TaskId& task : *made) {
    std::cout << CertificateFolderOf(options->path, task) << std::endl;
  }
  std::cout << made->size() << " certificates made, "
            << options->tasks.size() - made->size() << " kept" << std::endl;
  return kExitDone;
}

std::vector<CommandWords> CertsWords() {
  CertsFlags flags;
  return {{"certs", MakeFlagSet(&flags).Names()}};
}

}  // namespace holdfast
