// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"

namespace holdfast::c_api {
namespace {

using Options = std::map<std::string, std::string>;

constexpr absl::string_view kConnectOptions[] = {
    "chief_hosts", "cluster_spec",     "connect_timeout", "data_digest",
    "fail_fast",   "insecure",         "job_digest",      "job_name",
    "ps_hosts",    "recovery_timeout", "same_host",       "same_host_dir",
    "task_index",  "tf_config",        "tls_dir",         "trace",
    "worker_hosts"};

std::string Get(const Options& options, const std::string& name) {
  const auto found = options.find(name);
  return found == options.end() ? "" : found->second;
}

absl::Status Wrong(absl::string_view name, absl::string_view value,
                   absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("option ", name, ": \"", value, "\" is ", why));
}

absl::Status ReadSeconds(const Options& options, const std::string& name,
                         absl::Duration* into) {
  const auto found = options.find(name);
  if (found == options.end()) return absl::OkStatus();
  double seconds;
  if (!absl::SimpleAtod(found->second, &seconds) || !(seconds >= 0) ||
      seconds > 1e6) {
    return Wrong(name, found->second, "not a number of seconds, 0 to 1e6");
  }
  *into = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status ReadSameHost(const Options& options, bool* into) {
  const auto found = options.find("same_host");
  if (found == options.end()) return absl::OkStatus();
  *into = found->second == "auto";
  if (*into || found->second == "off") return absl::OkStatus();
  return Wrong("same_host", found->second, "neither \"auto\" nor \"off\"");
}

absl::StatusOr<ResolvedTask> ReadTask(const Options& options,
                                      absl::string_view tf_config) {
  ClusterFlags flags;
  flags.cluster_spec = Get(options, "cluster_spec");
  flags.ps_hosts = Get(options, "ps_hosts");
  flags.worker_hosts = Get(options, "worker_hosts");
  flags.chief_hosts = Get(options, "chief_hosts");
  flags.job_name = Get(options, "job_name");
  const std::string index = Get(options, "task_index");
  if (!index.empty()) {
    int64_t number;
    if (!absl::SimpleAtoi(index, &number)) {
      return Wrong("task_index", index, "not a number");
    }
    flags.task_index = number;
    if (flags.job_name.empty()) flags.job_name = kWorkerJob;
  }
  if (flags.job_name == kClientJob) {
    HOLDFAST_ASSIGN_OR_RETURN(auto cluster, ResolveCluster(flags, tf_config));
    return ResolvedTask{std::move(cluster), TaskId{kClientJob, 0}};
  }
  auto resolved = ResolveTask(flags, tf_config);
  if (resolved.ok() && resolved->task.job == kPsJob) {
    return absl::InvalidArgumentError(absl::StrCat(
        resolved->task.ToString(),
        " does not train: connect as a worker, the chief or an evaluator, or, "
        "only to read, set job_name to \"client\""));
  }
  return resolved;
}

absl::Status ReadCredentials(const Options& options, Place* place) {
  Cluster::Options& connect = place->connect;
  HOLDFAST_ASSIGN_OR_RETURN(const auto insecure, BoolOf(options, "insecure"));
  const std::string folder = Get(options, "tls_dir");
  if (folder.empty()) {
    const absl::Status status = connect.cluster.CheckPsAreLocal();
    if (insecure || status.ok()) return absl::OkStatus();
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(),
                     "; encrypt with tls_dir, or allow that with insecure"));
  }
  absl::StatusOr<Credentials> credentials = Credentials::FromFolder(folder);
  if (!credentials.ok()) {
    return absl::Status(
        credentials.status().code(),
        absl::StrCat("option tls_dir: ", credentials.status().message(),
                     "; `holdfast certs` makes such folders"));
  }
  const Identity& identity = credentials->identity();
  const bool reads_only = connect.task.job == kClientJob;
  if (reads_only ? identity.task.job != kOperatorJob
                 : identity.task != connect.task) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option tls_dir: ", folder, "/tls.crt is the certificate of ",
        identity.ToUri(), ", and this is ",
        reads_only ? "an operator's" : connect.task.ToString()));
  }
  connect.credentials = *std::move(credentials);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ReadOptions(absl::Span<const holdfast_option> options,
                                    absl::Span<const absl::string_view> known) {
  Options read;
  for (const holdfast_option& option : options) {
    if (option.name == nullptr || option.value == nullptr) {
      return absl::InvalidArgumentError(
          "an option's name and value must not be NULL");
    }
    if (std::find(known.begin(), known.end(), option.name) == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no option \"", option.name,
                       "\"; there are: ", absl::StrJoin(known, ", ")));
    }
    if (!read.emplace(option.name, option.value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("option ", option.name, " is given twice"));
    }
  }
  return read;
}

absl::StatusOr<bool> BoolOf(const Options& options, const std::string& name) {
  const auto found = options.find(name);
  if (found == options.end() || found->second == "false") return false;
  if (found->second == "true") return true;
  return Wrong(name, found->second, "neither \"true\" nor \"false\"");
}

absl::StatusOr<Place> ReadPlace(absl::Span<const holdfast_option> options,
                                absl::string_view tf_config) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto read,
                            ReadOptions(options, kConnectOptions));
  const auto given = read.find("tf_config");
  if (given != read.end()) tf_config = given->second;
  HOLDFAST_ASSIGN_OR_RETURN(auto task, ReadTask(read, tf_config));
  Place place{Cluster::Options{std::move(task.cluster)}};
  Cluster::Options& connect = place.connect;
  connect.task = std::move(task.task);
  const bool evaluates = connect.task.job == kEvaluatorJob;
  if (connect.task.job != kClientJob && !evaluates) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto replica,
                              connect.cluster.ReplicaIndex(connect.task));
    place.replica = replica;
  }
  absl::Status status = ReadCredentials(read, &place);
  status.Update(ReadSeconds(read, "connect_timeout", &connect.connect_timeout));
  status.Update(
      ReadSeconds(read, "recovery_timeout", &connect.recovery_timeout));
  status.Update(ReadSameHost(read, &connect.same_host));
  connect.same_host_dir = Get(read, "same_host_dir");
  const absl::StatusOr<bool> fail_fast = BoolOf(read, "fail_fast");
  status.Update(fail_fast.status());
  if (!status.ok()) return status;
  connect.fail_fast = *fail_fast;
  connect.job_digest = Get(read, "job_digest");
  // An evaluator's data differ from the training data.
  if (!evaluates) connect.data_digest = Get(read, "data_digest");
  place.trace = absl::StrReplaceAll(
      Get(read, "trace"),
      {{"%t", absl::StrCat(connect.task.job, "-", connect.task.index)}});
  return place;
}

}  // namespace holdfast::c_api
