// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_config.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/data/data_cache.h"
#include "common/process/machine_limits.h"
#include "glog/logging.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/precision.h"

ABSL_FLAG(std::string, job, "", "Path of the job file (textproto). Required.");
ABSL_FLAG(std::optional<uint64_t>, seed, std::nullopt,
          "Seed of initial values and of the order of examples. Default: the "
          "job file's. Must be the same for all workers.");
ABSL_FLAG(int, intra_op_threads, 1,
          "Threads within an operation of the model. A different number "
          "gives results that differ in the last bits.");
ABSL_FLAG(
    std::string, device, "auto",
    "Where the model is computed: cpu; cuda:N (the GPU with this number, from "
    "0); cuda:N,M (a replica of the model on each GPU; every batch is divided "
    "among them); or auto: the first GPU, or the CPU if no GPU can be used.");
ABSL_FLAG(bool, tf32, false,
          "Let matrix products on GPUs round their factors to TensorFloat-32: "
          "several times as fast, with 10 bits of mantissa instead of 23.");
ABSL_FLAG(int, input_threads, 0,
          "Threads that make batches, and parse CSV when the worker starts, 1 "
          "to 1024. 0: one per core of the machine (or container) beyond "
          "--intra_op_threads, 1 to 4.");
ABSL_FLAG(
    std::string, data_cache_dir, "",
    "Folder for parsed CSV rows and unpacked compressed files: written by one "
    "worker of the host, mapped by all, reused after a restart. For data "
    "larger than memory. Default: everything is kept in memory.");
ABSL_FLAG(
    std::string, result_file, "",
    "File to which the chief writes the result of a finished job, as JSON; "
    "another worker writes it if the chief was lost. Default: the result is "
    "only logged.");

namespace holdfast {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxDefaultInputThreads = 4;

absl::Status CheckThreads(absl::string_view flag, int threads) {
  if (threads >= 1 && threads <= kMaxThreads) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", threads, ": must be from 1 to ", kMaxThreads));
}

// Checked at the start, because the file is written at the end of the job,
// which is too late to learn of a mistake.
absl::Status CheckResultFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const std::filesystem::path folder =
      std::filesystem::absolute(path).parent_path();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--result_file=", path, ": this is a folder; name a file in it"));
  }
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--result_file=", path, ": there is no folder ",
                     folder.string(), "; create it, or name another file"));
  }
  return absl::OkStatus();
}

void Log(const std::string& line) { LOG(INFO) << line; }

// Returns null if the flag is not set.
absl::StatusOr<std::unique_ptr<DataCache>> OpenDataCache(
    const std::string& folder) {
  if (folder.empty()) return nullptr;
  auto cache = DataCache::Open(folder, Log);
  if (cache.ok()) return cache;
  return absl::Status(
      cache.status().code(),
      absl::StrCat("--data_cache_dir: ", cache.status().message()));
}

absl::Status CheckJobOfTask(const TaskId& task) {
  if (task.job == kWorkerJob || task.job == kChiefJob) return absl::OkStatus();
  if (task.job == kEvaluatorJob) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(task.ToString(),
                   ": this program is for the jobs \"worker\", \"chief\" and "
                   "\"evaluator\"; a ps is run by ps_server"));
}

// Unencrypted data must not leave this machine.
absl::Status CheckPsAddresses(const ClusterSpec& cluster) {
  const absl::Status status = cluster.CheckPsAreLocal();
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(),
                   "; encrypt with --tls_dir, or allow that with --insecure"));
}

}  // namespace

absl::Status ReadResources(WorkerResources* resources) {
  resources->device_options.threads = absl::GetFlag(FLAGS_intra_op_threads);
  resources->device_options.tf32 = absl::GetFlag(FLAGS_tf32);
  resources->reading.threads = absl::GetFlag(FLAGS_input_threads);
  if (resources->reading.threads == 0) {
    resources->reading.threads =
        std::clamp(AvailableCores() - resources->device_options.threads, 1,
                   kMaxDefaultInputThreads);
  }
  absl::Status status =
      CheckThreads("intra_op_threads", resources->device_options.threads);
  if (!status.ok()) return status;
  status = CheckThreads("input_threads", resources->reading.threads);
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(auto data_cache,
                            OpenDataCache(absl::GetFlag(FLAGS_data_cache_dir)));
  resources->reading.cache = std::move(data_cache);
  resources->result_file = absl::GetFlag(FLAGS_result_file);
  return CheckResultFile(resources->result_file);
}

absl::StatusOr<WorkerConfig> ReadWorkerConfig() {
  HOLDFAST_ASSIGN_OR_RETURN(auto resolved, TaskFromFlags(kWorkerJob));
  WorkerConfig config{WorkerResources(), std::move(resolved.cluster),
                      std::move(resolved.task)};
  if (auto status = CheckJobOfTask(config.task); !status.ok()) return status;
  if (!config.evaluates()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto replica,
                              config.cluster.ReplicaIndex(config.task));
    config.replica = replica;
    config.is_chief = config.replica == 0;
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto connections,
                            ConnectionsFromFlags(config.task));
  if (!connections.credentials.secure() && !connections.insecure) {
    auto status = CheckPsAddresses(config.cluster);
    if (!status.ok()) return status;
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto http,
                            HttpFromFlags(/*everywhere=*/connections.insecure));
  config.http = http;
  HOLDFAST_ASSIGN_OR_RETURN(const auto status_port,
                            StatusFromFlags(connections));
  config.status_port = status_port;
  config.credentials = std::move(connections.credentials);
  HOLDFAST_ASSIGN_OR_RETURN(auto same_host, SameHostFromFlags());
  config.same_host = std::move(same_host);

  auto status = ReadResources(&config);
  if (!status.ok()) return status;

  const std::string path = absl::GetFlag(FLAGS_job);
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "--job is required: the path of the job file");
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto job, LoadJobFile(path));
  config.job = std::move(job);
  if (const auto seed = absl::GetFlag(FLAGS_seed)) config.job.set_seed(*seed);
  config.job_digest = JobDigest(config.job);
  const auto replicas =
      ResolveConsistency(config.job, config.cluster.num_replicas());
  if (!replicas.ok()) {
    return absl::Status(replicas.status().code(),
                        absl::StrCat(path, ": ", replicas.status().message()));
  }
  config.replicas = *replicas;
  config.device_options.precision = PrecisionOf(config.job);
  config.device_options.activations = RoundsActivations(config.job);

  HOLDFAST_ASSIGN_OR_RETURN(
      auto device, ChooseDevice(absl::GetFlag(FLAGS_device), CheckCudaDevice));
  config.device = std::move(device);
  return config;
}

}  // namespace holdfast
