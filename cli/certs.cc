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

Makes a certificate authority, and a certificate for each task of a cluster and for
an operator, for development: FOLDER/ps-0 is what --tls_dir of ps task 0 takes.

Run again, it makes what is missing, as for a cluster that has grown, and with
--renew new certificates for all. The authority (FOLDER/ca.crt, FOLDER/ca.key) is
used as it is, and never written over. Who has ca.key may act as any task: keep it
away from the machines of the cluster.

  holdfast certs --out=tls --training=mnist --cluster_spec=cluster.json
  holdfast status --cluster_spec=cluster.json --tls_dir=tls/operator-0

Exits 0 when all is there, 1 when something could not be written, 2 for wrong flags.

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
  set.Add("out", "FOLDER", &flags->out, "Made when it is not there. Needed.");
  set.Add(
      "training", "NAME", &flags->training,
      "Of lower-case letters, digits and '-'. Tasks speak only to those of\n"
      "the same name. Needed.");
  set.Add("cluster_spec", "FILE", &flags->cluster_spec,
          "The cluster, as for the daemons: a file with JSON, or JSON itself.\n"
          "Needed.");
  set.Add("days", "NUMBER", &flags->days,
          "How long certificates are valid, 1 to 3650. Default: 365.");
  set.Add("renew", "", &flags->renew,
          "New certificates also where there are some. Daemons that run take\n"
          "them by themselves.");
  return set;
}

absl::StatusOr<CertificateFolderOptions> MakeOptions(const CertsFlags& flags) {
  for (const auto& [name, value] :
       {std::pair<const char*, const std::string&>("out", flags.out),
        {"training", flags.training},
        {"cluster_spec", flags.cluster_spec}}) {
    if (value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " is needed; --help tells of it"));
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
