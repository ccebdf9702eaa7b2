// SPDX-License-Identifier: Apache-2.0
#include "ps_server/server.h"

#include <atomic>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/nonce.h"
#include "common/base/status_macros.h"
#include "common/base/strand.h"
#include "common/base/thread_pool.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/job/job_phase.h"
#include "common/process/json_log.h"
#include "common/process/process_name.h"
#include "common/process/watchdog.h"
#include "common/rpc/task_report.h"
#include "common/trace/trace.h"
#include "common/trace/trace_parts.h"
#include "glog/logging.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/disk/directory_archive.h"
#include "ps_server/disk/directory_shard_disk.h"
#include "ps_server/job_observer.h"
#include "ps_server/job_recovery.h"
#include "ps_server/last_checkpoint.h"
#include "ps_server/listen_address.h"
#include "ps_server/membership.h"
#include "ps_server/own_trace.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/ps_reporter.h"
#include "ps_server/same_host.h"
#include "ps_server/service/call_recorder.h"
#include "ps_server/service/coordinator_service.h"
#include "ps_server/service/health_service.h"
#include "ps_server/service/rpc_server.h"
#include "ps_server/service/shard_links.h"
#include "ps_server/service/shard_service.h"
#include "ps_server/shard/shard.h"
#include "ps_server/status_port.h"

namespace holdfast {
namespace {

// How often the machines' clocks tick.
constexpr absl::Duration kTick = absl::Milliseconds(50);
// How often the coordinator is told the figures of its own ps.
constexpr absl::Duration kOwnReportPeriod = absl::Seconds(1);
// How long a ps that is told to stop tries to tell the coordinator.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(3);
// How long a ps that is shutting down waits for what was given to the disk.
constexpr absl::Duration kDiskPatience = absl::Seconds(5);

// Versions of the values that one client may read in place at a time: two that
// it keeps, the one on which it computes and the next (Neighbors::kMaxKept in
// client/neighbors.h), and two that it is copying, for instance for an
// evaluation.
constexpr uint64_t kLentVersions = 4;

// Work of one thread, and waits of the job, that take so long are logged.
constexpr absl::Duration kLongWork = absl::Seconds(5);
constexpr absl::Duration kLongWait = absl::Seconds(10);
// A thread that works this long without a break counts as stuck.
constexpr absl::Duration kStuck = absl::Seconds(60);

std::string MakeReceiptSecret() {
  std::random_device random;
  std::string secret;
  while (secret.size() < Receipts::kKeyBytes) {
    secret.push_back(static_cast<char>(random()));
  }
  return secret;
}

absl::Status OfFlag(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(flag, ": ", status.message()));
}

// What Wait returns for a job that has ended.
absl::Status ResultOf(const proto::JobState& state) {
  return IsOrderlyEnd(state.phase()) ? absl::OkStatus()
                                     : absl::AbortedError(state.reason());
}

}  // namespace

// Members are in the order in which they are made; Stop goes backwards.
class Server::Impl {
 public:
  Impl(Options options, std::string listen_address)
      : options_(std::move(options)),
        listen_address_(std::move(listen_address)),
        name_(options_.task.ToString()) {}
  ~Impl() { StopParts(absl::ZeroDuration()); }

  absl::Status Start();
  uint16_t status_port() const { return status_port_number_; }
  absl::Status Wait();
  std::string end() const {
    absl::MutexLock lock(&mutex_);
    return end_;
  }
  void Stop(const std::string& reason);
  // Stops all parts. Calls in progress get up to `drain` for their answers. May
  // be called repeatedly.
  void StopParts(absl::Duration drain);
  // Whether a thread that uses this object is still waiting for the disk.
  bool disk_hangs() const { return disk_hangs_; }

 private:
  bool coordinates() const { return options_.task.index == 0; }
  std::string CoordinatorAddress() const {
    return *options_.cluster.Address({kPsJob, 0});
  }
  absl::Status OpenDirectory();
  void MakeShard();
  absl::Status MakeCoordinator();
  void StartTicking();
  void StartWatchdog();
  absl::Status StartHttp();
  absl::Status StartStatusPort();
  void Join();

  // Thread-safe.
  proto::PsReport Report() const;
  // Run on the strands.
  void TickCoordinator();
  void TickShard();

  // Says that the ps has nothing more to do, and makes Wait return `result`.
  // Only the first call counts.
  void End(const absl::Status& result) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records how the job has ended.
  void NoteEnd(const proto::JobState& state) ABSL_LOCKS_EXCLUDED(mutex_);
  bool has_ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return result_.has_value();
  }
  // Tells the shard what the coordinator has said, because the coordinator may
  // no longer be able to do so itself. Only the coordinator decides that the
  // job is over.
  void EndShard(const proto::JobState& verdict);
  // Sets disk_hangs_ if the disk cannot be stopped in time.
  void StopDisk();

  const Options options_;
  const std::string listen_address_;
  const std::string name_;
  const SteadyClock clock_;

  mutable absl::Mutex mutex_;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
  std::string end_ ABSL_GUARDED_BY(mutex_) = "the job is done";
  // Set by Stop: the reason, and when to end even if some task has not been
  // told.
  std::optional<std::string> stop_reason_ ABSL_GUARDED_BY(mutex_);
  absl::Time stop_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // The recovery timeout in the job's declaration, once the shard has the
  // declaration.
  std::optional<absl::Duration> job_recovery_timeout_ ABSL_GUARDED_BY(mutex_);

  // Outlives everything that reports.
  PsReporter reporter_;

  // The nonce of this life of the ps. Only the coordinator is told.
  const uint64_t nonce_ = options_.nonce != 0 ? options_.nonce : MakeNonce();

  // Set if there is a checkpoint directory.
  std::optional<CheckpointDirectory> directory_;
  std::unique_ptr<FileLock> directory_lock_;  // task 0

  // Record the ps's part of traces of the whole cluster.
  Tracer tracer_{{.max_spans = kMaxClusterTraceSpans, .on_demand = true}};
  CallRecorder recorder_{&tracer_};

  // Made before the shard, whose values are in its arena.
  SameHost same_host_;

  ThreadPool update_threads_{options_.update_threads, "update"};
  // Used only on its strand, as is the coordinator.
  Strand shard_strand_{"shard"};
  std::unique_ptr<DirectoryShardDisk> shard_disk_;
  std::optional<Shard> shard_;

  // Made before everything that makes calls through its queue.
  std::optional<RpcServer> rpc_{std::in_place};

  // Set only in task 0.
  std::optional<Strand> coordinator_strand_;
  std::unique_ptr<ShardLinks> links_;
  std::unique_ptr<DirectoryArchive> archive_;
  std::optional<Coordinator> coordinator_;
  std::optional<OwnTrace> own_trace_;
  std::unique_ptr<JobObserver> observer_;
  // When the coordinator is next told the figures of its own ps; other ps
  // report with their leases.
  absl::Time next_own_report_ = absl::InfinitePast();

  // Set in all other tasks.
  std::optional<Membership> membership_;

  std::optional<Watchdog> watchdog_;
  bool disk_hangs_ = false;

  // Whether the shard had its variables at its last tick.
  std::atomic<bool> ready_{false};
  std::unique_ptr<HttpServer> http_;

  std::unique_ptr<StatusPort> status_port_;
  uint16_t status_port_number_ = 0;
};

absl::Status Server::Impl::OpenDirectory() {
  if (options_.checkpoint_dir.empty()) {
    return absl::OkStatus();
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto directory,
      CheckpointDirectory::Open(options_.checkpoint_dir, PosixFileSystem()));
  directory_ = std::move(directory);
  if (!coordinates()) return absl::OkStatus();
  HOLDFAST_ASSIGN_OR_RETURN(auto lock, AwaitLock(*directory_, name_));
  directory_lock_ = std::move(lock);
  return absl::OkStatus();
}

void Server::Impl::MakeShard() {
  SameHostOptions same_host;
  same_host.name = name_;
  same_host.enabled = options_.same_host;
  same_host.directory = options_.same_host_dir;
  same_host.secure = options_.credentials.secure();
  same_host.clock = &clock_;
  same_host_ = StartSameHost(same_host);
  Shard::Options shard;
  shard.index = options_.task.index;
  shard.num_ps = options_.cluster.num_ps();
  shard.nonce = nonce_;
  shard.memory_limit_bytes = options_.memory_limit_bytes;
  shard.update_threads = &update_threads_;
  shard.arena = same_host_.arena.get();
  if (Neighbors* const neighbors = same_host_.neighbors.get()) {
    shard.on_values = [neighbors](uint64_t bytes, size_t max_versions) {
      neighbors->set_max_lent(kLentVersions * bytes, max_versions);
    };
  }
  if (directory_.has_value()) {
    shard_disk_ = std::make_unique<DirectoryShardDisk>(*directory_, shard.index,
                                                       &shard_strand_);
  }
  shard_.emplace(shard, &clock_, shard_disk_.get());
}

absl::Status Server::Impl::Start() {
  if (absl::Status status = OpenDirectory(); !status.ok()) {
    return OfFlag("--checkpoint_dir", status);
  }
  MakeShard();
  Machines machines;
  machines.shard = &*shard_;
  machines.shard_strand = &shard_strand_;
  machines.recorder = &recorder_;
  machines.neighbors = same_host_.neighbors.get();
  if (coordinates()) {
    HOLDFAST_RETURN_IF_ERROR(MakeCoordinator());
    if (options_.cluster.num_ps() == 1) {
      machines.coordinator = &*coordinator_;
      machines.coordinator_strand = &*coordinator_strand_;
    }
  }
  RpcMethods methods = ShardMethods(machines, same_host_.why_not);
  methods.merge(coordinates()
                    ? CoordinatorMethods(&*coordinator_, &*coordinator_strand_,
                                         &recorder_)
                    : NoCoordinatorMethods(
                          name_, absl::StrCat(TaskId{kPsJob, 0}.ToString(),
                                              " at ", CoordinatorAddress())));
  methods.merge(HealthMethods(options_.task, methods));
  RpcServer::Options rpc;
  rpc.address = listen_address_;
  rpc.credentials = options_.credentials;
  rpc.threads = options_.rpc_threads;
  int port;
  HOLDFAST_RETURN_IF_ERROR(rpc_->Start(rpc, std::move(methods), &port));
  LOG(INFO) << name_ << " listening on " << listen_address_;
  StartTicking();
  StartWatchdog();
  HOLDFAST_RETURN_IF_ERROR(StartHttp());
  HOLDFAST_RETURN_IF_ERROR(StartStatusPort());
  if (!coordinates()) Join();
  return absl::OkStatus();
}

absl::Status Server::Impl::StartHttp() {
  if (!options_.http.has_value()) return absl::OkStatus();
  const auto alive = [this] {
    for (const Strand* strand :
         {&shard_strand_, coordinates() ? &*coordinator_strand_ : nullptr}) {
      if (strand != nullptr && strand->busy_for() > kStuck) {
        return absl::UnavailableError(
            absl::StrCat("a thread has been busy for ",
                         absl::FormatDuration(strand->busy_for())));
      }
    }
    return absl::OkStatus();
  };
  const auto ready = [this] {
    return ready_ ? absl::OkStatus()
                  : absl::UnavailableError("there are no variables yet");
  };
  auto server = HttpServer::Start(*options_.http, HealthPages(alive, ready));
  if (!server.ok()) return OfFlag("--http_port", server.status());
  http_ = *std::move(server);
  LOG(INFO) << name_ << " serves HTTP on port " << http_->port();
  return absl::OkStatus();
}

absl::Status Server::Impl::StartStatusPort() {
  if (!options_.status_port.has_value()) return absl::OkStatus();
  StatusPort::Options options;
  options.http = *options_.status_port;
  options.task = options_.task;
  options.coordinator_address = CoordinatorAddress();
  options.neighbors = same_host_.neighbors.get();
  if (coordinates()) {
    options.coordinator = &*coordinator_;
    options.coordinator_strand = &*coordinator_strand_;
  }
  auto port = StatusPort::Start(options, &reporter_, &*rpc_);
  if (!port.ok()) return OfFlag("--status_port", port.status());
  status_port_ = *std::move(port);
  status_port_number_ = status_port_->port();
  return absl::OkStatus();
}

absl::Status Server::Impl::MakeCoordinator() {
  coordinator_strand_.emplace("coordinator");
  ShardLinksOptions links;
  links.queue = rpc_->queue();
  links.credentials = options_.credentials;
  links.local_ps = options_.task.index;
  links.local_shard = &*shard_;
  links.local_strand = &shard_strand_;
  links.coordinator_strand = &*coordinator_strand_;
  links.recorder = &recorder_;
  links_ = MakeShardLinks(links);

  Coordinator::Options coordinator;
  coordinator.num_ps = options_.cluster.num_ps();
  coordinator.num_workers = options_.cluster.num_replicas();
  coordinator.has_chief = options_.cluster.jobs().count(kChiefJob) > 0;
  coordinator.lease = options_.lease;
  coordinator.start_timeout = options_.start_timeout;
  coordinator.step_timeout = options_.step_timeout;
  coordinator.memory_limit_bytes = options_.memory_limit_bytes;
  coordinator.address = CoordinatorAddress();
  coordinator.recovery_timeout = options_.recovery_timeout;
  coordinator.shard_nonce = nonce_;
  coordinator.warm_start = options_.warm_start;
  coordinator.process = ProcessName();
  coordinator.date = [] { return DateNow(); };
  coordinator.receipt_secret = MakeReceiptSecret();
  if (directory_.has_value()) {
    HOLDFAST_ASSIGN_OR_RETURN(auto journal,
                              RecoverJournal(*directory_, options_.warm_start));
    coordinator.journal = std::move(journal);
    coordinator.checkpoint_folder =
        [directory = *directory_](const proto::CheckpointName& name) {
          const std::string folder = directory.Folder(name);
          std::error_code failed;
          const auto absolute = std::filesystem::absolute(folder, failed);
          return failed ? folder : absolute.string();
        };
    if (options_.warm_start_slots) {
      HOLDFAST_ASSIGN_OR_RETURN(
          auto from,
          FindWarmSlots(*directory_, coordinator.journal, options_.warm_start));
      coordinator.warm_slots_from = std::move(from);
    }
    coordinator.history =
        RecoverHistory(*directory_, coordinator.journal, name_);
    archive_ = std::make_unique<DirectoryArchive>(
        *directory_,
        coordinator.journal.generation() == 0
            ? std::nullopt
            : std::optional<proto::Journal>(coordinator.journal),
        &*coordinator_strand_);
  } else {
    coordinator.incarnations_from = MakeNonce() >> 24 << 20;
  }
  JobObserver::Options observer;
  if (!coordinator.history.events().empty()) {
    observer.known_event = coordinator.history.events().rbegin()->number();
  }
  observer.tensorboard_dir = options_.tensorboard_dir;
  coordinator_.emplace(coordinator, &clock_, links_.get(), archive_.get());
  own_trace_.emplace(&*coordinator_, &tracer_);
  auto started = JobObserver::Start(observer, &*coordinator_);
  if (!started.ok()) return OfFlag("--tensorboard_dir", started.status());
  observer_ = *std::move(started);
  return absl::OkStatus();
}

void Server::Impl::StartTicking() {
  shard_strand_.TickEvery(kTick, [this] { TickShard(); });
  if (coordinates()) {
    coordinator_strand_->TickEvery(kTick, [this] { TickCoordinator(); });
  }
}

void Server::Impl::StartWatchdog() {
  watchdog_.emplace([name = name_](const std::string& text) {
    LOG(WARNING) << name << " " << text;
  });
  const auto watch = [this](const Strand& strand, const std::string& what) {
    watchdog_->Add(kLongWork, [&strand, what] {
      return Watchdog::Wait{what, strand.busy_for()};
    });
  };
  watch(shard_strand_, "the shard's thread, which is busy");
  if (coordinates()) {
    watch(*coordinator_strand_, "the coordinator's thread, which is busy");
    watchdog_->Add(kLongWait, [this] { return observer_->wait(); });
  }
  watchdog_->Start();
}

void Server::Impl::Join() {
  Membership::Options options;
  options.silence_after_done = options_.lease;
  options.start_timeout = options_.start_timeout;
  options.session.task = options_.task;
  options.session.queue = rpc_->queue();
  options.session.coordinator = CoordinatorAddress();
  options.session.credentials = options_.credentials;
  options.session.address = *options_.cluster.Address(options_.task);
  options.session.num_ps = options_.cluster.num_ps();
  options.session.num_workers = options_.cluster.num_replicas();
  options.session.memory_limit_bytes = options_.memory_limit_bytes;
  options.session.nonce = nonce_;
  options.session.tracer = &tracer_;
  options.recovery_timeout = options_.recovery_timeout;
  options.session.report = [this] {
    TaskReport report;
    report.ps = Report();
    return report;
  };
  options.session.job_patience = [this] {
    absl::MutexLock lock(&mutex_);
    return job_recovery_timeout_;
  };
  membership_.emplace(std::move(options), [this](const Membership::End& end) {
    if (end.verdict.has_value()) {
      EndShard(*end.verdict);
      NoteEnd(*end.verdict);
    }
    End(end.status);
  });
}

proto::PsReport Server::Impl::Report() const {
  const Neighbors* const neighbors = same_host_.neighbors.get();
  return reporter_.Report(neighbors != nullptr
                              ? std::make_optional(neighbors->figures())
                              : std::nullopt);
}

void Server::Impl::TickCoordinator() {
  coordinator_->Tick();
  own_trace_->Look();
  if (const absl::Time now = SteadyNow(); now >= next_own_report_) {
    next_own_report_ = now + kOwnReportPeriod;
    coordinator_->OnOwnReport(Report());
  }
  observer_->Look();
  // The ps also does not end before a waiting operator has the trace of the
  // last steps.
  if (coordinator_->finished() && !coordinator_->trace_held()) {
    NoteEnd(coordinator_->state());
    End(ResultOf(coordinator_->state()));
    return;
  }
  // A task that does not leave after the end of the job cannot keep this ps
  // from being stopped.
  absl::MutexLock lock(&mutex_);
  if (!has_ended() && SteadyNow() > stop_deadline_) {
    result_ = absl::AbortedError(*stop_reason_);
  }
}

void Server::Impl::TickShard() {
  shard_->Tick();
  SetLogGeneration(shard_->generation().value());
  SetLogStep(shard_->version().value());
  ready_ = HasVariables(shard_->state().phase());
  const proto::Timeouts& timeouts = shard_->declaration().timeouts();
  const ShardFigures figures = shard_->figures();
  reporter_.SetShard(figures);
  if (timeouts.has_recovery_seconds()) {
    absl::MutexLock lock(&mutex_);
    job_recovery_timeout_ = absl::Seconds(timeouts.recovery_seconds());
  }
  if (!coordinates() && IsEnd(shard_->state().phase())) {
    NoteEnd(shard_->state());
    End(ResultOf(shard_->state()));
  }
}

void Server::Impl::EndShard(const proto::JobState& verdict) {
  proto::EndRequest request;
  request.mutable_sender()->mutable_task()->set_job(kPsJob);
  request.mutable_sender()->set_receiver_nonce(nonce_);
  *request.mutable_state() = verdict;
  shard_strand_.Post([this, request = std::move(request)]() mutable {
    request.mutable_sender()->set_generation(shard_->generation().value());
    shard_->End(request, [](const absl::StatusOr<proto::EndResponse>&) {});
  });
}

void Server::Impl::NoteEnd(const proto::JobState& state) {
  absl::MutexLock lock(&mutex_);
  if (state.phase() == proto::STOPPED) end_ = state.reason();
}

void Server::Impl::End(const absl::Status& result) {
  absl::MutexLock lock(&mutex_);
  if (!has_ended()) result_ = result;
}

void Server::Impl::Stop(const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (stop_reason_.has_value()) return;
    stop_reason_ = reason;
    // Every live task renews its lease within a third of the lease's duration,
    // and learns of the stop then.
    stop_deadline_ = SteadyNow() + 0.4 * options_.lease;
  }
  if (directory_.has_value()) {
    if (coordinates()) {
      coordinator_strand_->Post(
          [this, reason] { coordinator_->OnToldToStop(reason); });
    }
    End(absl::CancelledError(reason));
  } else if (coordinates()) {
    coordinator_strand_->Post([this, reason] { coordinator_->Fail(reason); });
  } else {
    End(absl::AbortedError(reason));
  }
}

absl::Status Server::Impl::Wait() {
  absl::Status result;
  std::optional<std::string> stop_reason;
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Impl::has_ended));
    result = *result_;
    stop_reason = stop_reason_;
  }
  const bool steps_down = absl::IsCancelled(result);
  if (steps_down) {
    const CheckpointCall call =
        coordinates()
            ? LocalCheckpointCall(&*coordinator_, &*coordinator_strand_)
            : RemoteCheckpointCall(CoordinatorAddress(), options_.credentials);
    if (absl::Status saved = SaveCheckpoint(call, SteadyNow() + options_.grace);
        !saved.ok()) {
      LOG(WARNING) << name_ << " stops without a last checkpoint: " << saved;
    }
  }
  // Without a stop reason the shard was told of the end, and the ps need not
  // leave.
  if (membership_.has_value() && stop_reason.has_value()) {
    const auto verdict = membership_->Leave(steps_down ? "" : *stop_reason,
                                            SteadyNow() + kLeaveTimeout);
    if (verdict.has_value()) EndShard(*verdict);
  }
  // If the job may go on, calls that are parked here are made again to the ps
  // that takes this one's place: the sooner this one is gone, the sooner that
  // one can start.
  const bool job_ended = result.ok() || absl::IsAborted(result);
  StopParts(job_ended ? options_.drain_timeout : absl::ZeroDuration());
  return result;
}

// Stops each part before those that it uses.
void Server::Impl::StopParts(absl::Duration drain) {
  status_port_.reset();
  http_.reset();
  watchdog_.reset();
  membership_.reset();
  if (rpc_.has_value()) rpc_->Shutdown(drain);
  if (coordinator_strand_.has_value()) coordinator_strand_->Stop();
  if (observer_ != nullptr) observer_->LookOnceMore();
  links_.reset();
  rpc_.reset();
  shard_strand_.Stop();
  // A client that sees the end of its link writes to its gradients again.
  same_host_.neighbors.reset();
  StopDisk();
}

void Server::Impl::StopDisk() {
  if (disk_hangs_) return;
  const bool rests =
      (observer_ == nullptr || observer_->Stop(kDiskPatience)) &&
      (archive_ == nullptr || archive_->Stop(kDiskPatience)) &&
      (shard_disk_ == nullptr || shard_disk_->Stop(kDiskPatience));
  if (rests) {
    observer_.reset();
    archive_.reset();
    shard_disk_.reset();
    return;
  }
  disk_hangs_ = true;
  LOG(ERROR) << name_ << ": the disk does not respond: "
             << (directory_.has_value() ? directory_->path() : "")
             << (observer_ == nullptr || options_.tensorboard_dir.empty()
                     ? ""
                     : " or " + options_.tensorboard_dir)
             << "; the last writes may or may not be on it";
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Options options) {
  const std::string name = options.task.ToString();
  if (options.task.job != kPsJob) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     " is not a task of job \"ps\", and ps_server runs no "
                     "others; a worker is run by ps_worker"));
  }
  if (!options.warm_start.empty() && options.checkpoint_dir.empty()) {
    return absl::InvalidArgumentError("--warm_start needs --checkpoint_dir");
  }
  if (options.warm_start_slots && options.warm_start.empty()) {
    return absl::InvalidArgumentError("--warm_start_slots needs --warm_start");
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto own,
                            options.cluster.Address(options.task));

  if (options.credentials.secure() &&
      options.credentials.identity().task != options.task) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has the certificate of another task: ",
                     options.credentials.identity().ToUri()));
  }

  const std::string where =
      options.listen_address.empty() ? own : options.listen_address;
  const absl::string_view hint =
      options.listen_address.empty()
          ? "; the address is that of the task in the cluster, unless "
            "--listen_address names another"
          : "; the address is that of --listen_address";
  const auto cannot_listen = [&](const absl::Status& why) {
    return absl::Status(why.code(),
                        absl::StrCat(name, " cannot listen on ", where, ": ",
                                     why.message(), hint));
  };
  const absl::StatusOr<std::string> address =
      ListenAddress(where, options.insecure || options.credentials.secure());
  if (!address.ok()) return cannot_listen(address.status());
  auto impl = std::make_unique<Impl>(std::move(options), *address);
  if (absl::Status status = impl->Start(); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(name, ": ", status.message()));
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
  impl_->StopParts(absl::ZeroDuration());
  // A thread that waits for the disk cannot be ended, so what it uses must
  // outlive it.
  if (impl_->disk_hangs()) static_cast<void>(impl_.release());
}

uint16_t Server::status_port() const { return impl_->status_port(); }
absl::Status Server::Wait() { return impl_->Wait(); }
std::string Server::end() const { return impl_->end(); }
void Server::Stop(const std::string& reason) { impl_->Stop(reason); }

}  // namespace holdfast
