// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_main.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
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
#include "common/data/dataset.h"
#include "common/job/cluster_spec.h"
#include "common/job/job_file.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/process/daemon.h"
#include "common/process/flags.h"
#include "common/process/host_memory.h"
#include "common/process/json_log.h"
#include "common/process/version.h"
#include "common/process/watchdog.h"
#include "common/rpc/timeouts.h"
#include "common/trace/trace.h"
#include "common/trace/trace_parts.h"
#include "glog/logging.h"
#include "worker/backend/cpu/blas_core.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/device.h"
#include "worker/input/batch_pipeline.h"
#include "worker/input/hooked_source.h"
#include "worker/job_data.h"
#include "worker/job_resolution.h"
#include "worker/leaver.h"
#include "worker/offline/evaluator_task.h"
#include "worker/offline/offline.h"
#include "worker/trainer/declaration.h"
#include "worker/trainer/result.h"
#include "worker/trainer/trainer.h"
#include "worker/worker_config.h"
#include "worker/worker_http.h"
#include "worker/workshop.h"

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

// Returns the declared job, before this worker joins it. Waits until there is
// one; returns nullopt to the chief that must declare it.
// Errors: those of Cluster::Connect; CANCELLED when the job has ended in order.
absl::StatusOr<std::optional<proto::Job>> AskForJob(
    const WorkerConfig& config) {
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

Cluster::Options ConnectOptions(const WorkerConfig& config,
                                Tracer* cluster_tracer) {
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

Trainer::Options TrainerOptions(const WorkerConfig& config,
                                const Workshop& workshop,
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
absl::Status StartTrace(WorkerConfig* config, Leaver* leaver) {
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
int Train(const WorkerConfig& config, const WorkerHooks& hooks,
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
int Evaluate(const WorkerConfig& config, const Registries& registries,
             Leaver* leaver, Readiness* readiness, Tracer* cluster_tracer) {
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
  WorkerResources resources;
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
  absl::StatusOr<WorkerConfig> config = ReadWorkerConfig();
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
  const absl::Status restarted = RestartWithBetterBlasCore(argv);
  const std::optional<int> exit_code =
      BeginDaemon(argc, argv, kDescription, FlagGroups());
  if (exit_code.has_value()) return *exit_code;
  LOG_IF(WARNING, !restarted.ok()) << restarted.message();
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
