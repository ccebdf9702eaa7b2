// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_main.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "client/failure.h"
#include "client/phase_meter.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/data/data_cache.h"
#include "common/data/dataset.h"
#include "common/data/typed_array.h"
#include "common/job/cluster_spec.h"
#include "common/job/job_file.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/process/daemon.h"
#include "common/process/flags.h"
#include "common/process/host_memory.h"
#include "common/process/http_server.h"
#include "common/process/json_log.h"
#include "common/process/machine_limits.h"
#include "common/process/version.h"
#include "common/process/watchdog.h"
#include "common/rpc/timeouts.h"
#include "common/trace/trace.h"
#include "common/trace/trace_parts.h"
#include "glog/logging.h"
#include "worker/backend/cpu/blas_core.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/device.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/proof.h"
#include "worker/input/batch_pipeline.h"
#include "worker/input/hooked_source.h"
#include "worker/input/image_augmenter.h"
#include "worker/job_data.h"
#include "worker/job_resolution.h"
#include "worker/leaver.h"
#include "worker/model/replicated.h"
#include "worker/offline/evaluator_task.h"
#include "worker/offline/offline.h"
#include "worker/precision.h"
#include "worker/trainer/batch_rows.h"
#include "worker/trainer/declaration.h"
#include "worker/trainer/result.h"
#include "worker/trainer/scores.h"
#include "worker/trainer/trainer.h"
#include "worker/worker_http.h"

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
ABSL_FLAG(
    std::string, trace, "",
    "File to which this worker writes a timeline of its work when it ends: "
    "Chrome trace JSON, for ui.perfetto.dev. %t in the path stands for the "
    "task. Default: no trace.");

ABSL_FLAG(
    std::string, checkpoint_dir, "",
    "With --job_name=evaluator: the checkpoint directory of the ps, whose "
    "checkpoints are evaluated while the job runs.");
ABSL_FLAG(std::string, checkpoint, "",
          "Evaluate the model of a checkpoint instead of training, without a "
          "cluster: the folder of a checkpoint, or a checkpoint directory, "
          "whose newest durable checkpoint is used.");
ABSL_FLAG(std::vector<std::string>, data, {},
          "With --checkpoint: the files to evaluate or predict on, in the "
          "format of the data that the job is evaluated on "
          "(docs/evaluation.md). Default: the data that --job is evaluated "
          "on.");
ABSL_FLAG(std::string, predictions, "",
          "With --checkpoint: write the model's predictions for each example "
          "to this CSV file, instead of evaluating.");
ABSL_FLAG(bool, int8, false,
          "With --checkpoint: also evaluate with weights rounded to 8-bit "
          "integers.");

namespace holdfast {
namespace {

constexpr char kDescription[] =
    R"(trains a job's model, together with other workers, on variables held by
ps daemons.

  ps_worker --job=mnist.textproto --task_index=0 \
      --ps_hosts=localhost:2222 --worker_hosts=localhost:2230

or, with --checkpoint, evaluates a trained model (`holdfast eval`).

Exit codes (docs/operating/exit_codes.md): 0 the job is done; 1 it failed; 2 the
flags, the job file or the data are wrong, or the place in the cluster is taken;
138 the worker may be started again: it was told to stop, was fenced, or could
not reach the others.)";

const std::vector<FlagGroup>& FlagGroups() {
  static const auto* const groups = new std::vector<FlagGroup>{
      {"Training", {"job", "seed", "result_file", "trace"}},
      {"Resources",
       {"device", "tf32", "intra_op_threads", "input_threads",
        "data_cache_dir"}},
      {"Evaluation",
       {"checkpoint_dir", "checkpoint", "data", "predictions", "int8"}},
  };
  return *groups;
}

// A step that takes longer is logged.
constexpr absl::Duration kLongStep = absl::Seconds(30);
// How long an evaluator waits for the coordinator's response to its leave.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(10);
constexpr int kMaxThreads = 1024;
constexpr int kMaxDefaultInputThreads = 4;

// The resources that a worker may use on its machine.
struct Resources {
  Device device;
  DeviceOptions device_options;
  DataOptions reading;
  std::string result_file;
};

// The configuration in the flags and the job file, checked for consistency.
struct Config : Resources {
  ClusterSpec cluster;
  TaskId task;
  uint32_t replica = 0;
  bool is_chief = false;
  Credentials credentials;
  SameHostFlags same_host;
  // The digest of the job before its open fields are resolved, by which the
  // coordinator checks that all workers have the same job.
  std::string job_digest;
  proto::Job job;
  Replicas replicas;
  std::optional<HttpServer::Options> http;
  std::optional<HttpServer::Options> status_port;
  // Null if nothing is traced.
  Tracer* tracer = nullptr;

  bool evaluates() const { return task.job == kEvaluatorJob; }
};

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

// Sets everything except the device.
absl::Status ReadResources(Resources* resources) {
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

absl::StatusOr<Config> ReadConfig() {
  HOLDFAST_ASSIGN_OR_RETURN(auto resolved, TaskFromFlags(kWorkerJob));
  Config config{Resources(), std::move(resolved.cluster),
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

// Returns the declared job, before this worker joins it. Waits until there is
// one; returns nullopt to the chief that must declare it.
// Errors: those of Cluster::Connect; CANCELLED when the job has ended in order.
absl::StatusOr<std::optional<proto::Job>> AskForJob(const Config& config) {
  Cluster::Options options{.cluster = config.cluster};
  options.task = config.task;
  options.only_reads = true;
  options.credentials = config.credentials;
  options.same_host = false;
  options.connect_timeout = StartTimeout(config.job.timeouts());
  options.recovery_timeout = RecoveryTimeout(config.job.timeouts());
  options.on_waiting = [](const std::string& what) {
    LOG(INFO) << "waiting for " << what;
  };
  HOLDFAST_ASSIGN_OR_RETURN(auto cluster, Cluster::Connect(std::move(options)));
  const absl::Time deadline = SteadyNow() + StartTimeout(config.job.timeouts());
  // A job that continues is restored only once its workers have joined.
  HOLDFAST_ASSIGN_OR_RETURN(auto found, cluster->GetDeclaredJob(deadline));
  if (found.has_value()) {
    proto::Declaration declaration;
    *declaration.mutable_job() = *std::move(found);
    return DeclaredJobFile(declaration);
  }
  if (config.is_chief) return std::nullopt;
  const absl::Status status = cluster->AwaitVariables(deadline);
  if (IsOrderlyEnd(cluster->state().phase())) {
    return absl::CancelledError("the job has ended");
  }
  if (!status.ok()) return status;
  return DeclaredJobFile(cluster->declaration());
}

// The data and the model: everything that a worker has before it connects to
// the cluster.
struct Workshop {
  std::optional<JobData> data;
  // Absent if examples are not changed.
  std::optional<ImageAugmenter> augmenter;
  // The test set. Null if the job has none, or if the worker does not evaluate.
  std::unique_ptr<Dataset> test_set;
  // Indexed by replica. The first, which reads the others' memory, is destroyed
  // first.
  std::vector<std::unique_ptr<Backend>> backends;
  std::unique_ptr<Model> model;
  // For evaluations during training, if there is a test set.
  std::unique_ptr<Backend> evaluation_backend;
  std::unique_ptr<Model> evaluation_model;

  const Dataset& train_set() const { return data->train_set(); }

  ~Workshop() {
    model.reset();
    for (std::unique_ptr<Backend>& backend : backends) backend.reset();
  }
};

absl::Status ReadData(const Config& config, Workshop* workshop) {
  HOLDFAST_ASSIGN_OR_RETURN(auto data,
                            JobData::Open(config.job.data(), config.reading));
  workshop->data = std::move(data);
  if (!config.is_chief) return absl::OkStatus();
  HOLDFAST_ASSIGN_OR_RETURN(auto test_set, workshop->data->OpenTestSet());
  workshop->test_set = std::move(test_set);
  return absl::OkStatus();
}

absl::Status MakeBackends(const Config& config, Workshop* workshop) {
  DeviceOptions options = config.device_options;
  options.pinned = std::make_shared<PinnedRanges>();
  const auto make = [&](const Place& place, std::unique_ptr<Backend>* backend) {
    HOLDFAST_ASSIGN_OR_RETURN(auto made, CreateBackend(place, options));
    *backend = std::move(made);
    (*backend)->SetTracer(config.tracer);
    return absl::OkStatus();
  };
  std::vector<Backend*> backends;
  std::vector<std::string> names;
  for (const Place& place : config.device.places) {
    HOLDFAST_RETURN_IF_ERROR(make(place, &workshop->backends.emplace_back()));
    backends.push_back(workshop->backends.back().get());
    names.push_back(place.has_value() ? absl::StrCat("cuda:", *place) : "cpu");
  }
  HOLDFAST_RETURN_IF_ERROR(ProvePeers(backends, names));
  if (workshop->test_set == nullptr) return absl::OkStatus();
  return make(config.device.places.front(), &workshop->evaluation_backend);
}

// Creates a model for the examples and labels of `data`.
absl::Status MakeModel(const Config& config, const ModelRegistry& registry,
                       const Dataset& data,
                       const std::vector<Backend*>& backends,
                       std::unique_ptr<Model>* model) {
  const auto make = [&](const ExampleSpec& examples) {
    return CreateReplicatedModel(config.job.model(), examples,
                                 config.job.seed(), backends, registry);
  };
  auto made = make(data.spec());
  if (made.ok()) {
    *model = *std::move(made);
    return absl::OkStatus();
  }
  // If the model would also accept fewer classes, a label in the data may be
  // wrong.
  ExampleSpec any_classes = data.spec();
  any_classes.num_classes.reset();
  if (data.GreatestLabelPlace().empty() || !make(any_classes).ok()) {
    return made.status();
  }
  return absl::Status(made.status().code(),
                      absl::StrCat(made.status().message(), ", by the ",
                                   data.GreatestLabelPlace()));
}

absl::Status MakeAugmenter(const Config& config, Workshop* workshop) {
  const proto::Data& data = config.job.data();
  if (!data.has_augmentation()) return absl::OkStatus();
  ImageAugmenter::Options options;
  options.seed = config.job.seed();
  options.max_shift = data.augmentation().shift();
  options.horizontal_flip = data.augmentation().horizontal_flip();
  // The scaled value of a pixel of 0, which does not depend on the factor.
  const Dataset::Options inputs = Dataset::OptionsOf(data);
  options.fill = InputScaling{1, inputs.mean, inputs.stddev}.Of(0);
  auto made =
      ImageAugmenter::Create(workshop->train_set().spec().shape, options);
  if (made.ok()) workshop->augmenter = *made;
  return made.ok() ? absl::OkStatus()
                   : absl::Status(made.status().code(),
                                  absl::StrCat("data.augmentation: ",
                                               made.status().message()));
}

absl::Status MakeModels(const Config& config, const ModelRegistry& registry,
                        Workshop* workshop) {
  std::vector<Backend*> backends;
  for (const auto& backend : workshop->backends) {
    backends.push_back(backend.get());
  }
  absl::Status status = MakeModel(config, registry, workshop->train_set(),
                                  backends, &workshop->model);
  if (!status.ok()) return status;
  // Every worker checks this, because each may have to evaluate in the chief's
  // place.
  status = CheckScores(config.job.evaluation(), workshop->model->Outputs(),
                       workshop->train_set().spec());
  if (!status.ok() || workshop->test_set == nullptr) return status;
  const bool more_classes = workshop->test_set->spec().num_classes >
                            workshop->train_set().spec().num_classes;
  return MakeModel(config, registry,
                   more_classes ? *workshop->test_set : workshop->train_set(),
                   {workshop->evaluation_backend.get()},
                   &workshop->evaluation_model);
}

absl::StatusOr<std::unique_ptr<BatchPipeline>> StartBatches(
    const Config& config, const Workshop& workshop,
    const ExampleSource* examples) {
  BatchPipeline::Options options;
  options.batch_size = config.job.batch_size();
  options.short_last_batch = config.job.data().short_last_batch();
  options.seed = config.job.seed();
  options.shuffle = ShuffleOf(config.job.data());
  options.by_ticket = config.replicas.by_ticket();
  options.seats_per_step = config.replicas.seats();
  options.seats.clear();
  for (uint32_t seat = config.replica; seat < config.replicas.seats();
       seat += config.replicas.total) {
    options.seats.push_back(seat);
  }
  if (config.job.data().has_prefetch()) {
    options.prefetch = config.job.data().prefetch();
  }
  options.threads = config.reading.threads;
  options.table_fields = FieldsOf(*workshop.model);
  // Memory from which copies to a GPU can begin directly.
  options.allocate = [backend = workshop.backends.front().get()](int64_t size) {
    return backend->AllocateHost(size);
  };
  if (workshop.augmenter.has_value()) options.augmenter = &*workshop.augmenter;
  return BatchPipeline::Start(examples, options);
}

Cluster::Options ConnectOptions(const Config& config, Tracer* cluster_tracer) {
  Cluster::Options options{.cluster = config.cluster};
  options.task = config.task;
  options.credentials = config.credentials;
  options.same_host = config.same_host.enabled;
  options.same_host_dir = config.same_host.directory;
  options.job_digest = config.job_digest;
  options.connect_timeout = StartTimeout(config.job.timeouts());
  options.recovery_timeout = RecoveryTimeout(config.job.timeouts());
  options.tracer = config.tracer;
  options.cluster_tracer = cluster_tracer;
  options.on_waiting = [](const std::string& what) {
    LOG(INFO) << "waiting for " << what;
  };
  return options;
}

Trainer::Options TrainerOptions(const Config& config, const Workshop& workshop,
                                proto::Declaration declaration) {
  Trainer::Options options;
  options.task = config.task;
  options.replica = config.replica;
  options.is_chief = config.is_chief;
  options.declaration = std::move(declaration);
  options.start_timeout = StartTimeout(config.job.timeouts());
  options.step_timeout = StepTimeout(config.job.timeouts());
  options.recovery_timeout = RecoveryTimeout(config.job.timeouts());
  if (config.job.has_micro_batches()) {
    options.micro_batches = config.job.micro_batches();
  }
  options.evaluation = config.job.evaluation();
  if (config.cluster.jobs().count(kEvaluatorJob) > 0) {
    options.evaluation.clear_every_steps();
  }
  proto::TrainingResult& result = options.result;
  result.set_job(config.job.name());
  result.set_version(kVersion);
  result.set_ps(config.cluster.num_ps());
  result.set_workers(config.cluster.num_replicas());
  result.set_seed(config.job.seed());
  if (const int64_t skipped = workshop.train_set().skipped_rows();
      skipped > 0) {
    result.set_skipped_rows(static_cast<double>(skipped));
  }
  const std::string cores = absl::StrJoin(
      workshop.backends, " + ", [](std::string* out, const auto& backend) {
        absl::StrAppend(out, backend->Describe().core);
      });
  if (config.device.places.front().has_value()) {
    result.mutable_gpu()->set_name(cores);
  } else {
    result.mutable_cpu()->set_blas_core(cores);
    result.mutable_cpu()->set_threads(config.device_options.threads);
  }
  options.result_file = config.result_file;
  return options;
}

// The step or ticket on which the worker works, and since when, for the
// watchdog. Thread-safe.
class StepInHand {
 public:
  void Begin(GlobalStep step) {
    absl::MutexLock lock(&mutex_);
    step_ = step;
    since_ = SteadyNow();
  }
  // Notes that the step was abandoned, because the job was rolled back.
  void Drop() {
    absl::MutexLock lock(&mutex_);
    step_.reset();
  }
  std::optional<Watchdog::Wait> Wait() const {
    absl::MutexLock lock(&mutex_);
    if (!step_.has_value()) return std::nullopt;
    return Watchdog::Wait{
        absl::StrCat("the end of step or ticket ", step_->value()),
        SteadyNow() - since_};
  }

 private:
  mutable absl::Mutex mutex_;
  std::optional<GlobalStep> step_ ABSL_GUARDED_BY(mutex_);
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
};

// Starts the trace if --trace is set.
absl::Status StartTrace(Config* config, Leaver* leaver) {
  if (absl::GetFlag(FLAGS_trace).empty()) return absl::OkStatus();
  const std::string task =
      absl::StrCat(config->task.job, "-", config->task.index);
  auto trace = TraceFile::Create(
      absl::StrReplaceAll(absl::GetFlag(FLAGS_trace), {{"%t", task}}),
      {.process = config->replica, .process_name = config->task.ToString()});
  if (!trace.ok()) {
    return absl::Status(trace.status().code(),
                        absl::StrCat("--trace: ", trace.status().message()));
  }
  config->tracer = leaver->KeepTrace(*std::move(trace));
  config->tracer->NameThread("trainer");
  return absl::OkStatus();
}

int Fail(const absl::Status& status, int exit_code = kExitFailed) {
  LOG(ERROR) << status.message();
  return exit_code;
}

// Reports an error in the job file. Returns the exit code.
int JobFileError(const absl::Status& status) {
  return UsageError(absl::Status(
      status.code(),
      absl::StrCat(absl::GetFlag(FLAGS_job), ": ", status.message())));
}

// Returns the exit code.
int Train(const Config& config, const WorkerHooks& hooks,
          const Workshop& workshop, Leaver* leaver, Readiness* readiness,
          PhaseMeter* meter, Tracer* cluster_tracer) {
  auto declaration =
      MakeDeclaration(config.job, workshop.model->Variables(), config.replicas,
                      workshop.train_set().num_examples());
  if (!declaration.ok()) return JobFileError(declaration.status());
  absl::Status tables = AddTables(config.job, workshop.model->Tables(),
                                  workshop.train_set().spec(), &*declaration);
  if (!tables.ok()) return JobFileError(tables);
  *declaration->mutable_job() =
      DeclareJob(config.job, workshop.train_set().spec());
  const ExampleSource* const plain = &workshop.train_set();
  const HookedSource hooked(plain, hooks.before_example);
  auto batches =
      StartBatches(config, workshop, hooks.before_example ? &hooked : plain);
  if (!batches.ok()) return Fail(batches.status());
  const SteadyClock clock;
  Cluster::Options connect = ConnectOptions(config, cluster_tracer);
  connect.data_digest = workshop.train_set().digest();
  connect.report = [meter] { return meter->Report(); };
  connect.declaration = *declaration;
  HostMemory* const host_memory = workshop.backends.front()->host_memory();
  connect.host_memory = host_memory;
  auto cluster = Cluster::Connect(std::move(connect));
  if (!cluster.ok()) {
    return Fail(cluster.status(), ExitCodeOfJoin(cluster.status()));
  }
  leaver->SetCluster(cluster->get());
  readiness->SetCluster(cluster->get());
  const absl::Cleanup gone = [readiness] { readiness->SetCluster(nullptr); };

  Trainer::Parts parts;
  parts.cluster = cluster->get();
  parts.model = workshop.model.get();
  parts.batches = batches->get();
  parts.test_set = workshop.test_set.get();
  std::unique_ptr<Dataset> late_test_set;
  parts.read_test_set = [&]() -> absl::StatusOr<const ExampleSource*> {
    HOLDFAST_ASSIGN_OR_RETURN(auto read, workshop.data->OpenTestSet());
    late_test_set = std::move(read);
    return late_test_set.get();
  };
  parts.evaluation_model = workshop.evaluation_model.get();
  parts.meter = meter;
  parts.clock = &clock;
  parts.tracer = config.tracer;
  parts.host_memory = host_memory;
  Trainer::Options options =
      TrainerOptions(config, workshop, *std::move(declaration));
  StepInHand in_hand;
  options.before_step = [&](GlobalStep step) {
    in_hand.Begin(step);
    SetLogStep(step.value());
    if (hooks.before_step) {
      hooks.before_step(config.job.seed(), config.replica, step);
    }
  };
  Watchdog watchdog([](const std::string& text) { LOG(WARNING) << text; });
  watchdog.Add(kLongStep, [&in_hand, &cluster = **cluster] {
    if (cluster.rolled_back()) in_hand.Drop();
    return in_hand.Wait();
  });
  watchdog.Start();
  const absl::Status status = Trainer(parts, options).Run();
  leaver->EndsByItself();
  if (absl::IsAlreadyExists(status)) return Fail(status, kExitUsage);
  if (!status.ok()) {
    return Fail(status, IsWorkersOwn(status, (*cluster)->state())
                            ? kExitRestart
                            : kExitFailed);
  }
  const proto::JobState state = (*cluster)->state();
  LOG(INFO) << (state.phase() == proto::STOPPED ? state.reason()
                                                : "the job is done");
  return kExitDone;
}

// Evaluates checkpoints until the job ends. Returns the exit code.
int Evaluate(const Config& config, const Registries& registries, Leaver* leaver,
             Readiness* readiness, Tracer* cluster_tracer) {
  EvaluatorTask::Options options;
  options.job = config.job;
  options.checkpoint_dir = absl::GetFlag(FLAGS_checkpoint_dir);
  options.reading = config.reading;
  options.place = config.device.places.front();
  options.device = config.device_options;
  auto evaluator = EvaluatorTask::Open(options, registries.models);
  if (absl::IsResourceExhausted(evaluator.status())) {
    return Fail(evaluator.status());
  }
  if (!evaluator.ok()) return UsageError(evaluator.status());
  auto cluster = Cluster::Connect(ConnectOptions(config, cluster_tracer));
  if (!cluster.ok()) {
    return Fail(cluster.status(), ExitCodeOfJoin(cluster.status()));
  }
  leaver->SetCluster(cluster->get());
  readiness->SetCluster(cluster->get());
  const absl::Cleanup gone = [readiness] { readiness->SetCluster(nullptr); };
  const absl::Status status = (*evaluator)->Run(cluster->get());
  leaver->EndsByItself();
  const proto::JobState state = (*cluster)->state();
  const absl::Status left = (*cluster)->Leave("", SteadyNow() + kLeaveTimeout);
  LOG_IF(WARNING, !left.ok()) << "failed to leave the cluster: " << left;
  if (status.ok() || IsOrderlyEnd(state.phase())) {
    LOG(INFO) << (state.phase() == proto::STOPPED ? state.reason()
                                                  : "the job is done");
    return kExitDone;
  }
  return Fail(status, IsWorkersOwn(status, state) ? kExitRestart : kExitFailed);
}

// Passes a signal on to a thread that waits for it, and blocks it in this one.
void PassOn(int signal, siginfo_t*, void* context) {
  sigaddset(&static_cast<ucontext_t*>(context)->uc_sigmask, signal);
  kill(getpid(), signal);
}

// BeginDaemon blocks the stop signals in all threads that start later, but
// OpenBLAS has started some before main(), and the kernel may deliver a signal
// to one of these, which would end the process.
void KeepStopSignalsFromEarlyThreads() {
  struct sigaction action = {};
  action.sa_sigaction = PassOn;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT}) {
    PCHECK(sigaction(signal, &action, nullptr) == 0);
  }
}

// Runs the evaluation or prediction of --checkpoint. Returns the exit code.
int RunOffline(const Registries& registries) {
  const auto fail = [](const absl::Status& status) {
    const bool wrong_use =
        absl::IsInvalidArgument(status) || absl::IsNotFound(status);
    return wrong_use ? UsageError(status) : Fail(status);
  };
  Resources resources;
  absl::Status status = ReadResources(&resources);
  if (!status.ok()) return UsageError(status);
  OfflineOptions options;
  options.checkpoint = absl::GetFlag(FLAGS_checkpoint);
  options.data = absl::GetFlag(FLAGS_data);
  if (const std::string path = absl::GetFlag(FLAGS_job); !path.empty()) {
    auto job = LoadJobFile(path);
    if (!job.ok()) return UsageError(job.status());
    options.job = *std::move(job);
  }
  const auto device =
      ChooseDevice(absl::GetFlag(FLAGS_device), CheckCudaDevice);
  if (!device.ok()) return UsageError(device.status());
  options.place = device->places.front();
  options.device = resources.device_options;
  options.reading = resources.reading;
  options.reading.registry = &registries.datasets;

  const bool int8 = absl::GetFlag(FLAGS_int8);
  if (const std::string output = absl::GetFlag(FLAGS_predictions);
      !output.empty()) {
    if (int8) {
      return UsageError(absl::InvalidArgumentError(
          "--int8 is for evaluations, not for --predictions"));
    }
    status = PredictWithCheckpoint(options, output, registries.models);
    return status.ok() ? kExitDone : fail(status);
  }
  const auto evaluation = EvaluateCheckpoint(options, int8, registries.models);
  if (!evaluation.ok()) return fail(evaluation.status());
  const auto json = ResultToJson(*evaluation);
  if (!json.ok()) return Fail(json.status());
  if (resources.result_file.empty()) {
    std::cout << *json << std::flush;
    return kExitDone;
  }
  status = WriteFileAtomically(resources.result_file, *json);
  return status.ok() ? kExitDone : Fail(status);
}

int RunWorker(const Registries& registries, const WorkerHooks& hooks,
              Leaver* leaver) {
  absl::StatusOr<Config> config = ReadConfig();
  if (!config.ok()) return UsageError(config.status());
  absl::Status status = StartTrace(&*config, leaver);
  if (!status.ok()) return UsageError(status);
  LogVersion();
  LOG(INFO) << config->task << (config->is_chief ? ", the chief," : "")
            << " of " << config->cluster.num_replicas() << " workers and "
            << config->cluster.num_ps() << " ps; job " << config->job.name();

  Readiness readiness;
  // Started before the data are read, which may take long.
  const SteadyClock clock;
  Tracer cluster_tracer(
      {.max_spans = kMaxClusterTraceSpans, .on_demand = true});
  PhaseMeter meter(&clock, &cluster_tracer);
  const Scrape scrape(config->task, config->device, &meter);
  HttpServers servers;
  status = StartHttp({config->task, config->http, config->status_port},
                     readiness, scrape, &servers);
  if (!status.ok()) return StartError(status);

  const Device& device = config->device;
  LOG_IF(WARNING, device.second_choice) << device.why;
  LOG_IF(INFO, !device.second_choice && !device.why.empty()) << device.why;

  config->reading.registry = &registries.datasets;
  if (config->evaluates()) {
    return Evaluate(*config, registries, leaver, &readiness, &cluster_tracer);
  }
  status = ResolveJob([&] { return AskForJob(*config); }, config->reading,
                      &config->job);
  if (absl::IsCancelled(status)) {
    LOG(INFO) << status.message();
    return kExitDone;
  }
  if (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) {
    return UsageError(status);
  }
  if (!status.ok()) return Fail(status, ExitCodeOfJoin(status));
  Workshop workshop;
  status = ReadData(*config, &workshop);
  if (absl::IsResourceExhausted(status)) return Fail(status);
  if (!status.ok()) return UsageError(status);
  meter.SetSkippedRows(workshop.train_set().skipped_rows());
  status = MakeBackends(*config, &workshop);
  if (absl::IsInvalidArgument(status)) return UsageError(status);
  if (!status.ok()) return Fail(status);
  status = MakeAugmenter(*config, &workshop);
  status.Update(MakeModels(*config, registries.models, &workshop));
  if (!status.ok()) return JobFileError(status);
  return Train(*config, hooks, workshop, leaver, &readiness, &meter,
               &cluster_tracer);
}

}  // namespace

int WorkerMain(int argc, char** argv, const Registries& registries,
               const WorkerHooks& hooks) {
  RestartWithBetterBlasCore(argv);
  const std::optional<int> exit_code =
      BeginDaemon(argc, argv, kDescription, FlagGroups());
  if (exit_code.has_value()) return *exit_code;
  KeepStopSignalsFromEarlyThreads();
  if (!absl::GetFlag(FLAGS_checkpoint).empty()) {
    const StopSignals signals(
        [](const std::string&) { std::_Exit(kExitInterrupted); });
    return RunOffline(registries);
  }
  Leaver leaver;
  const StopSignals signals(
      [&leaver](const std::string& signal) { leaver.Stop(signal); });
  const int code = RunWorker(registries, hooks, &leaver);
  leaver.EndsByItself();
  return code;
}

}  // namespace holdfast
