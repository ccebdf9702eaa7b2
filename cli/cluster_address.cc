// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_address.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/certificate_folder.h"
#include "cli/run_directory.h"
#include "common/base/status_macros.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

// A spec must have a worker. This one is never called.
constexpr char kNobody[] = "worker.invalid:1";

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

absl::Status FlagError(absl::string_view flag, const std::string& value,
                       const absl::Status& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": ", why.message()));
}

// Errors: INVALID_ARGUMENT unless exactly one flag is given, or none but
// TF_CONFIG.
absl::Status CheckOneIsGiven(const ClusterAddress& address,
                             absl::string_view tf_config) {
  std::vector<std::string> given;
  if (!address.ps.empty()) given.push_back("--ps");
  if (!address.cluster_spec.empty()) given.push_back("--cluster_spec");
  if (!address.run_dir.empty()) given.push_back("--run_dir");
  if (given.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::StrJoin(given, " and "),
                     " both name a cluster; give one of them"));
  }
  if (given.empty() && tf_config.empty()) {
    return absl::InvalidArgumentError(
        "no cluster is named: give --ps=HOST:PORT of ps task 0, "
        "--cluster_spec=FILE, or --run_dir=FOLDER of `holdfast local`, or set "
        "TF_CONFIG");
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterSpec> ClusterOfRunDirectory(const std::string& path) {
  const std::string spec = RunDirectory::ClusterSpecPathOf(path);
  if (!Exists(spec)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--run_dir=", path,
                     ": is not the run directory of `holdfast local`, which "
                     "has a cluster.json"));
  }
  if (!Exists(RunDirectory::PidPathOf(path, "ps-0"))) {
    return absl::NotFoundError(
        absl::StrCat("--run_dir=", path,
                     ": no run is going on there; `holdfast checkpoint list ",
                     path, "/checkpoints` shows what it has saved"));
  }
  ClusterFlags flags;
  flags.cluster_spec = spec;
  return ResolveCluster(flags, "");
}

absl::StatusOr<ClusterSpec> ClusterOf(const ClusterAddress& address,
                                      absl::string_view tf_config) {
  if (!address.ps.empty()) {
    auto cluster = ClusterSpec::FromHosts(address.ps, kNobody, "");
    if (!cluster.ok()) return FlagError("ps", address.ps, cluster.status());
    return cluster;
  }
  if (!address.run_dir.empty()) return ClusterOfRunDirectory(address.run_dir);
  ClusterFlags flags;
  flags.cluster_spec = address.cluster_spec;
  auto cluster = ResolveCluster(flags, tf_config);
  // If the file does not exist, the flag is wrong.
  if (!cluster.ok()) {
    return absl::InvalidArgumentError(cluster.status().message());
  }
  return cluster;
}

// Folder of the operator's certificate; empty if the cluster has no TLS.
std::string TlsDirOf(const ClusterAddress& address) {
  if (!address.tls_dir.empty() || address.run_dir.empty()) {
    return address.tls_dir;
  }
  // Certificates stay in the folder even if the next run is not encrypted.
  if (!RunDirectory::IsEncrypted(address.run_dir)) return "";
  return CertificateFolderOf(RunDirectory::TlsPathOf(address.run_dir),
                             {kOperatorJob, 0});
}

}  // namespace

void ClusterAddress::AddTo(FlagSet* set) {
  set->Add(
      "ps", "HOST:PORT", &ps,
      "Address of ps task 0. In a list, separated by commas, it is the first.");
  set->Add("cluster_spec", "FILE", &cluster_spec,
           "The cluster, as for the daemons: a JSON file, or the JSON itself.");
  set->Add("run_dir", "FOLDER", &run_dir,
           "The run directory of `holdfast local`, with the certificates of\n"
           "its --tls.");
  set->Add(
      "tls_dir", "FOLDER", &tls_dir,
      "Folder with ca.crt, tls.crt and tls.key of an operator, for a cluster\n"
      "with TLS. Default: no TLS, or the certificates of --run_dir.");
  set->Add("timeout", "DURATION", &timeout,
           "How long to try to reach the ps. Default: 5s.");
}

absl::StatusOr<Cluster::Options> ResolveClusterAddress(
    const ClusterAddress& address, absl::string_view tf_config) {
  HOLDFAST_RETURN_IF_ERROR(CheckOneIsGiven(address, tf_config));
  if (address.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--timeout=", absl::FormatDuration(address.timeout),
                     ": must be more than 0"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster, ClusterOf(address, tf_config));
  auto first =
      ClusterSpec::FromHosts(*cluster.Address({kPsJob, 0}), kNobody, "");
  if (!first.ok()) return first.status();
  Cluster::Options options{.cluster = *std::move(first)};
  if (const std::string tls_dir = TlsDirOf(address); !tls_dir.empty()) {
    auto credentials = Credentials::FromFolder(tls_dir);
    if (!credentials.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tls_dir: ", credentials.status().message()));
    }
    options.credentials = *std::move(credentials);
  }
  options.connect_timeout = address.timeout;
  options.fail_fast = true;
  options.same_host = false;  // commands read no values
  return options;
}

absl::StatusOr<std::unique_ptr<Cluster>> ConnectAsOperator(
    const ClusterAddress& address) {
  const char* tf_config = std::getenv("TF_CONFIG");
  HOLDFAST_ASSIGN_OR_RETURN(
      auto options,
      ResolveClusterAddress(address, tf_config == nullptr ? "" : tf_config));
  options.on_waiting = [](const std::string& what) {
    std::cerr << "waiting for " << what << std::endl;
  };
  return Cluster::Connect(std::move(options));
}

}  // namespace holdfast
