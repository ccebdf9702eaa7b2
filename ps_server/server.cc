#include "ps_server/server.h"

#include <atomic>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/clock.h"
#include "common/json_log.h"
#include "common/log_event.h"
#include "common/process_figures.h"
#include "common/process_name.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "common/strand.h"
#include "common/task_report.h"
#include "common/thread_pool.h"
#include "common/watchdog.h"
#include "glog/logging.h"
#include "proto/coordinator.grpc.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/disk/directory_archive.h"
#include "ps_server/disk/directory_shard_disk.h"
#include "ps_server/listen_address.h"
#include "ps_server/machine_queries.h"
#include "ps_server/membership.h"
#include "ps_server/metrics/ps_metrics.h"
#include "ps_server/page/status_pages.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/service/coordinator_service.h"
#include "ps_server/service/health_service.h"
#include "ps_server/service/rpc_server.h"
#include "ps_server/service/shard_links.h"
#include "ps_server/service/shard_service.h"
#include "ps_server/shard/shard.h"
#include "ps_server/shard/shard_figures.h"
#include "ps_server/tensorboard/tensor_board.h"

namespace holdfast {
namespace {

// How often the machines are told the time.
constexpr absl::Duration kTick = absl::Milliseconds(50);
// How long a ps that is told to stop tries to say so to the coordinator.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(3);
// How long a ps that ends waits for what the disk was given.
constexpr absl::Duration kDiskPatience = absl::Seconds(5);

// Work of one thread, and waits of the job, that are told in the log.
constexpr absl::Duration kLongWork = absl::Seconds(5);
constexpr absl::Duration kLongWait = absl::Seconds(10);
// Work after which a thread counts as stuck.
constexpr absl::Duration kStuck = absl::Seconds(60);
// How long one question for a checkpoint is parked.
constexpr absl::Duration kCheckpointPark = absl::Seconds(2);

// How long a checkpoint directory may be held by somebody else before that is
// an error, and how often it is looked at meanwhile.
constexpr absl::Duration kLockPatience = absl::Seconds(5);
constexpr absl::Duration kLockPause = absl::Milliseconds(100);

uint64_t MakeNonce() {
  std::random_device random;
  const uint64_t high = random();
  return (high << 32 | random()) | 1;
}

std::string MakeReceiptSecret() {
  std::random_device random;
  std::string secret;
  while (secret.size() < Receipts::kKeyBytes) {
    secret.push_back(static_cast<char>(random()));
  }
  return secret;
}

bool Ended(const proto::JobState& state) {
  return state.phase() == proto::DONE || state.phase() == proto::FAILED;
}

absl::Status OfFlag(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(flag, ": ", status.message()));
}

// What Wait returns for a job that has ended.
absl::Status ResultOf(const proto::JobState& state) {
  return state.phase() == proto::DONE ? absl::OkStatus()
                                      : absl::AbortedError(state.reason());
}

}  // namespace

// Members stand in the order in which they are made; Stop goes back.
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
  void Stop(const std::string& reason);
  // Calls that are under way get `drain` for their answers. May be repeated.
  void StopParts(absl::Duration drain);
  // The disk still has one of the threads, which uses this object.
  bool disk_hangs() const { return disk_hangs_; }

 private:
  bool coordinates() const { return options_.task.index == 0; }
  std::string CoordinatorAddress() const {
    return *options_.cluster.Address({kPsJob, 0});
  }
  absl::Status OpenDirectory();
  // Task 0: what the directory says of the job.
  absl::StatusOr<proto::Journal> TakeUpJournal();
  void MakeShard();
  absl::Status MakeCoordinator();
  // What the directory knows of the job's course; empty where that is lost.
  proto::History TakeUpHistory(const proto::Journal& journal);
  void StartTicking();
  void StartWatchdog();
  absl::Status StartHttp();
  absl::Status StartStatusPort();
  void Join();

  // What Prometheus is told, on the status port's thread.
  Metrics Scrape() ABSL_LOCKS_EXCLUDED(mutex_);
  // What this ps is busy with, as of the shard's last tick: it does not wait
  // for a shard that is at work.
  proto::PsReport Report() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Run on the strands.
  void TickCoordinator();
  void LogEvents();
  void TickShard();

  // The ps has no more to do: Wait returns `result`. The first call counts.
  void End(const absl::Status& result) ABSL_LOCKS_EXCLUDED(mutex_);
  bool has_ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return result_.has_value();
  }
  // Has a checkpoint taken, and waits until it is on disk, or `deadline`.
  absl::Status SaveBefore(absl::Time deadline);
  absl::StatusOr<proto::CheckpointResponse> AskForCheckpoint(
      const proto::CheckpointRequest& request, absl::Time deadline);
  // Tells the shard what the coordinator has said, for it may not be able to
  // say so itself any more. Nobody else decides that the job is over.
  void EndShard(const proto::JobState& verdict);
  // Sets disk_hangs_ when it cannot be done in time.
  void StopDisk();

  const Options options_;
  const std::string listen_address_;
  const std::string name_;
  const SteadyClock clock_;

  mutable absl::Mutex mutex_;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
  // Set by Stop; when to end even if somebody has not been told.
  std::optional<std::string> stop_reason_ ABSL_GUARDED_BY(mutex_);
  absl::Time stop_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // As the job's declaration says, once the shard has it.
  std::optional<absl::Duration> job_recovery_timeout_ ABSL_GUARDED_BY(mutex_);

  // As of the shard's last tick.
  ShardFigures shard_figures_ ABSL_GUARDED_BY(mutex_);

  // Of this process' life. Only the coordinator is told.
  const uint64_t nonce_ = options_.nonce != 0 ? options_.nonce : MakeNonce();

  // Where there is a checkpoint directory.
  std::optional<CheckpointDirectory> directory_;
  std::unique_ptr<FileLock> directory_lock_;  // task 0

  ThreadPool update_threads_{options_.update_threads, "update"};
  // Used on its strand alone, as is the coordinator.
  Strand shard_strand_{"shard"};
  std::unique_ptr<DirectoryShardDisk> shard_disk_;
  std::optional<Shard> shard_;

  // Before what makes calls by way of its queue.
  std::optional<RpcServer> rpc_{std::in_place};

  // In task 0 only.
  std::optional<Strand> coordinator_strand_;
  std::unique_ptr<ShardLinks> links_;
  std::unique_ptr<DirectoryArchive> archive_;
  std::optional<Coordinator> coordinator_;
  proto::JobPhase logged_phase_ = proto::STARTING;
  // The number of the last event in the log.
  uint64_t logged_event_ = 0;
  // Null: nothing is written for TensorBoard.
  std::unique_ptr<TensorBoard> tensor_board_;

  // In all other tasks.
  std::optional<Membership> membership_;

  // What the job waits for, and since when; looked at once a second.
  absl::Time next_look_ = absl::InfinitePast();
  std::string job_waits_for_ ABSL_GUARDED_BY(mutex_);
  absl::Time job_waits_since_ ABSL_GUARDED_BY(mutex_);
  uint64_t job_waits_in_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Watchdog> watchdog_;
  bool disk_hangs_ = false;

  // The shard has its variables, as of its last tick.
  std::atomic<bool> ready_{false};
  std::unique_ptr<HttpServer> http_;

  // For pages; where there is a coordinator.
  std::optional<MachineQueries<Coordinator>> queries_;
  std::unique_ptr<HttpServer> status_port_;
  uint16_t status_port_number_ = 0;
};

absl::Status Server::Impl::OpenDirectory() {
  if (options_.checkpoint_dir.empty()) {
    return absl::OkStatus();
  }
  absl::StatusOr<CheckpointDirectory> directory =
      CheckpointDirectory::Open(options_.checkpoint_dir, PosixFileSystem());
  if (!directory.ok()) return directory.status();
  directory_ = *std::move(directory);
  if (!coordinates()) return absl::OkStatus();
  // A predecessor that is just ending lets go of it by itself.
  const absl::Time deadline = SteadyNow() + kLockPatience;
  auto lock = directory_->Lock(absl::StrCat(name_, " (", ProcessName(), ")"));
  while (absl::IsAlreadyExists(lock.status()) && SteadyNow() < deadline) {
    LOG_FIRST_N(INFO, 1) << name_ << " waits: " << lock.status().message();
    absl::SleepFor(kLockPause);
    lock = directory_->Lock(absl::StrCat(name_, " (", ProcessName(), ")"));
  }
  if (!lock.ok()) return lock.status();
  directory_lock_ = *std::move(lock);
  return absl::OkStatus();
}

absl::StatusOr<proto::Journal> Server::Impl::TakeUpJournal() {
  absl::StatusOr<proto::Journal> journal = directory_->ReadJournal();
  if (!absl::IsNotFound(journal.status())) return journal;
  const auto checkpoints = directory_->List();
  if (!checkpoints.ok()) return checkpoints.status();
  if (!checkpoints->empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory_->path(), " holds ", checkpoints->size(),
        " checkpoints and no journal: use another directory (and --warm_start, "
        "to begin with the values of one of them)"));
  }
  if (!options_.warm_start.empty()) {
    const auto reader = CheckpointReader::OpenFolder(options_.warm_start,
                                                     directory_->file_system());
    if (!reader.ok()) {
      return absl::Status(reader.status().code(),
                          absl::StrCat("--warm_start=", options_.warm_start,
                                       ": ", reader.status().message()));
    }
  }
  proto::Journal fresh;
  fresh.set_directory_nonce(MakeNonce());
  return fresh;
}

void Server::Impl::MakeShard() {
  Shard::Options shard;
  shard.index = options_.task.index;
  shard.num_ps = options_.cluster.num_ps();
  shard.nonce = nonce_;
  shard.memory_limit_bytes = options_.memory_limit_bytes;
  shard.update_threads = &update_threads_;
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
  if (coordinates()) {
    if (absl::Status status = MakeCoordinator(); !status.ok()) return status;
    if (options_.cluster.num_ps() == 1) {
      machines.coordinator = &*coordinator_;
      machines.coordinator_strand = &*coordinator_strand_;
    }
  }
  RpcMethods methods = ShardMethods(machines);
  methods.merge(coordinates()
                    ? CoordinatorMethods(&*coordinator_, &*coordinator_strand_)
                    : NoCoordinatorMethods(
                          name_, absl::StrCat(TaskId{kPsJob, 0}.ToString(),
                                              " at ", CoordinatorAddress())));
  methods.merge(HealthMethods(options_.task, methods));
  RpcServer::Options rpc;
  rpc.address = listen_address_;
  rpc.credentials = options_.credentials;
  rpc.threads = options_.rpc_threads;
  int port;
  if (absl::Status status = rpc_->Start(rpc, std::move(methods), &port);
      !status.ok()) {
    return status;
  }
  LOG(INFO) << name_ << " listening on " << listen_address_;
  StartTicking();
  StartWatchdog();
  if (absl::Status status = StartHttp(); !status.ok()) return status;
  if (absl::Status status = StartStatusPort(); !status.ok()) return status;
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
            absl::StrCat("a thread has been at work for ",
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
  HttpServer::Pages pages;
  if (coordinates()) {
    queries_.emplace("the coordinator", &*coordinator_, &*coordinator_strand_);
    pages =
        StatusPages({[this](const proto::GetStatusRequest& request) {
                       return queries_->Ask(&Coordinator::GetStatus, request);
                     },
                     [this](const proto::GetEventsRequest& request) {
                       return queries_->Ask(&Coordinator::GetEvents, request);
                     },
                     [this](const proto::GetHistoryRequest& request) {
                       return queries_->Ask(&Coordinator::GetHistory, request);
                     }});
  } else {
    const TaskId ps0{kPsJob, 0};
    pages = ElsewherePages(
        options_.task.ToString(),
        absl::StrCat(ps0.ToString(), " (", CoordinatorAddress(), ")"));
  }
  pages["/metrics"] = [this](const HttpServer::Request&) {
    return HttpServer::Answer{200, Scrape().ToText(), Metrics::kContentType};
  };
  auto server = HttpServer::Start(*options_.status_port, std::move(pages));
  if (!server.ok()) return OfFlag("--status_port", server.status());
  status_port_ = *std::move(server);
  status_port_number_ = status_port_->port();
  LOG(INFO) << name_ << " shows its status by "
            << (options_.status_port->tls.has_value() ? "HTTPS, to operators,"
                                                      : "HTTP")
            << " on port " << status_port_number_;
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
    absl::StatusOr<proto::Journal> journal = TakeUpJournal();
    if (!journal.ok()) return journal.status();
    coordinator.journal = *std::move(journal);
    coordinator.history = TakeUpHistory(coordinator.journal);
    archive_ = std::make_unique<DirectoryArchive>(
        *directory_,
        coordinator.journal.generation() == 0
            ? std::nullopt
            : std::optional<proto::Journal>(coordinator.journal),
        &*coordinator_strand_);
  } else {
    coordinator.incarnations_from = MakeNonce() >> 24 << 20;
  }
  // Those of earlier lives are in their logs.
  if (!coordinator.history.events().empty()) {
    logged_event_ = coordinator.history.events().rbegin()->number();
  }
  coordinator_.emplace(coordinator, &clock_, links_.get(), archive_.get());
  if (!options_.tensorboard_dir.empty()) {
    auto board = TensorBoard::Start(
        PosixFileSystem(), options_.tensorboard_dir,
        absl::StrReplaceAll(ProcessName(), {{":", "."}}), logged_event_);
    if (!board.ok()) return OfFlag("--tensorboard_dir", board.status());
    tensor_board_ = *std::move(board);
  }
  return absl::OkStatus();
}

proto::History Server::Impl::TakeUpHistory(const proto::Journal& journal) {
  // A directory that has just been made has none.
  if (journal.generation() == 0) return {};
  const absl::StatusOr<proto::History> history = directory_->ReadHistory();
  if (!history.ok()) {
    LOG(WARNING) << name_ << " goes on without the history of the job: "
                 << history.status();
    return {};
  }
  if (history->directory_nonce() != journal.directory_nonce()) {
    LOG(WARNING) << name_ << " goes on without the history of the job: that in "
                 << directory_->path() << " belongs to another directory";
    return {};
  }
  return *history;
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
  watch(shard_strand_, "the shard's thread, which is at work");
  if (coordinates()) {
    watch(*coordinator_strand_, "the coordinator's thread, which is at work");
    watchdog_->Add(kLongWait, [this]() -> std::optional<Watchdog::Wait> {
      absl::MutexLock lock(&mutex_);
      if (job_waits_for_.empty()) return std::nullopt;
      return Watchdog::Wait{job_waits_for_, SteadyNow() - job_waits_since_};
    });
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
    if (end.verdict.has_value()) EndShard(*end.verdict);
    End(end.status);
  });
}

void Server::Impl::LogEvents() {
  const EventLog& log = coordinator_->events();
  if (log.last_number() == logged_event_) return;
  const proto::GetEventsResponse unseen = log.After(logged_event_);
  for (const proto::Event& event : unseen.events()) {
    LogEvent(event);
  }
  logged_event_ = log.last_number();
}

Metrics Server::Impl::Scrape() {
  PsSnapshot snapshot;
  snapshot.task = options_.task;
  snapshot.process = ReadProcessFigures();
  snapshot.rpc = rpc_->figures();
  {
    absl::MutexLock lock(&mutex_);
    snapshot.shard = shard_figures_;
  }
  if (queries_.has_value()) {
    auto status =
        queries_->Ask(&Coordinator::GetStatus, proto::GetStatusRequest());
    if (status.ok()) snapshot.status = *std::move(status);
  }
  return PsMetrics(snapshot);
}

proto::PsReport Server::Impl::Report() const {
  ShardFigures figures;
  {
    absl::MutexLock lock(&mutex_);
    figures = shard_figures_;
  }
  proto::PsReport report = ToReport(figures);
  report.mutable_memory()->set_resident(ReadProcessFigures().resident_bytes);
  return report;
}

void Server::Impl::TickCoordinator() {
  coordinator_->Tick();
  LogEvents();
  if (const absl::Time now = SteadyNow(); now >= next_look_) {
    next_look_ = now + absl::Seconds(1);
    // As other ps do with their leases.
    coordinator_->OnOwnReport(Report());
    if (tensor_board_ != nullptr) tensor_board_->Look(&*coordinator_);
    coordinator_->GetStatus({}, [&](const auto& status) {
      absl::MutexLock lock(&mutex_);
      // Of what is waited for in another generation, the wait is another one.
      if (status->waiting_for() == job_waits_for_ &&
          status->generation() == job_waits_in_) {
        return;
      }
      job_waits_since_ = now;
      job_waits_for_ = status->waiting_for();
      job_waits_in_ = status->generation();
    });
  }
  const proto::JobState& state = coordinator_->state();
  if (state.phase() != logged_phase_) {
    logged_phase_ = state.phase();
    LOG(INFO) << "the job is " << proto::JobPhase_Name(state.phase())
              << (state.reason().empty() ? "" : ": ") << state.reason();
  }
  if (coordinator_->finished()) {
    End(ResultOf(state));
    return;
  }
  // Whoever does not leave after the end of the job cannot keep this ps from
  // being stopped.
  absl::MutexLock lock(&mutex_);
  if (!has_ended() && SteadyNow() > stop_deadline_) {
    result_ = absl::AbortedError(*stop_reason_);
  }
}

void Server::Impl::TickShard() {
  shard_->Tick();
  SetLogGeneration(shard_->generation().value());
  SetLogStep(shard_->version().value());
  const proto::JobPhase phase = shard_->state().phase();
  ready_ = phase == proto::TRAINING || phase == proto::DONE;
  const proto::Timeouts& timeouts = shard_->declaration().timeouts();
  {
    const ShardFigures figures = shard_->figures();
    absl::MutexLock lock(&mutex_);
    shard_figures_ = figures;
    if (timeouts.has_recovery_seconds()) {
      job_recovery_timeout_ = absl::Seconds(timeouts.recovery_seconds());
    }
  }
  if (!coordinates() && Ended(shard_->state())) End(ResultOf(shard_->state()));
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

void Server::Impl::End(const absl::Status& result) {
  absl::MutexLock lock(&mutex_);
  if (!has_ended()) result_ = result;
}

void Server::Impl::Stop(const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (stop_reason_.has_value()) return;
    stop_reason_ = reason;
    // Whoever lives renews its lease, and hears of it, within a third of that.
    stop_deadline_ = SteadyNow() + 0.4 * options_.lease;
  }
  if (directory_.has_value()) {
    End(absl::CancelledError(reason));
  } else if (coordinates()) {
    coordinator_strand_->Post([this, reason] { coordinator_->Fail(reason); });
  } else {
    End(absl::AbortedError(reason));
  }
}

absl::StatusOr<proto::CheckpointResponse> Server::Impl::AskForCheckpoint(
    const proto::CheckpointRequest& request, absl::Time deadline) {
  if (!coordinates()) {
    const auto stub = proto::Coordinator::NewStub(
        MakeChannel(CoordinatorAddress(), /*ps=*/0, ChannelKind::kControl,
                    options_.credentials));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(deadline));
    proto::CheckpointResponse response;
    const absl::Status status =
        FromGrpcStatus(stub->Checkpoint(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  // Shared with the answer, which may come when nobody waits any more.
  struct Call {
    absl::Notification answered;
    absl::StatusOr<proto::CheckpointResponse> response =
        absl::DeadlineExceededError("no answer");
  };
  const auto call = std::make_shared<Call>();
  coordinator_strand_->Post([this, request, call] {
    coordinator_->Checkpoint(request, [call](auto response) {
      call->response = std::move(response);
      call->answered.Notify();
    });
  });
  if (!call->answered.WaitForNotificationWithTimeout(deadline - SteadyNow())) {
    return absl::DeadlineExceededError("no answer");
  }
  return call->response;
}

absl::Status Server::Impl::SaveBefore(absl::Time deadline) {
  proto::CheckpointRequest request;
  request.set_wait_ms(absl::ToInt64Milliseconds(kCheckpointPark));
  for (;;) {
    const auto response = AskForCheckpoint(request, deadline);
    if (!response.ok()) return response.status();
    if (response->durable_step() >= response->step() ||
        Ended(response->state())) {
      return absl::OkStatus();
    }
    if (!response->error().empty()) {
      return absl::UnavailableError(response->error());
    }
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("step ", response->step(), " is not on disk yet"));
    }
    request.set_step(response->step());
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
    if (absl::Status saved = SaveBefore(SteadyNow() + options_.grace);
        !saved.ok()) {
      LOG(WARNING) << name_ << " stops without a last checkpoint: " << saved;
    }
  }
  // A shard that was told of the end has no reason to leave.
  if (membership_.has_value() && stop_reason.has_value()) {
    const auto verdict = membership_->Leave(steps_down ? "" : *stop_reason,
                                            SteadyNow() + kLeaveTimeout);
    if (verdict.has_value()) EndShard(*verdict);
  }
  // Where the job may go on, calls that are parked here are made again at
  // whoever takes its place: the sooner it is gone, the sooner there is
  // somebody.
  const bool job_ended = result.ok() || absl::IsAborted(result);
  StopParts(job_ended ? options_.drain_timeout : absl::ZeroDuration());
  return result;
}

// Each part before those that it uses.
void Server::Impl::StopParts(absl::Duration drain) {
  status_port_.reset();
  http_.reset();
  watchdog_.reset();
  membership_.reset();
  if (rpc_.has_value()) rpc_->Shutdown(drain);
  if (coordinator_strand_.has_value()) coordinator_strand_->Stop();
  // What has happened since the last tick.
  if (coordinator_.has_value()) LogEvents();
  if (tensor_board_ != nullptr) tensor_board_->Look(&*coordinator_);
  links_.reset();
  rpc_.reset();
  shard_strand_.Stop();
  StopDisk();
}

void Server::Impl::StopDisk() {
  if (disk_hangs_) return;
  const bool rests =
      (tensor_board_ == nullptr || tensor_board_->Stop(kDiskPatience)) &&
      (archive_ == nullptr || archive_->Stop(kDiskPatience)) &&
      (shard_disk_ == nullptr || shard_disk_->Stop(kDiskPatience));
  if (rests) {
    tensor_board_.reset();
    archive_.reset();
    shard_disk_.reset();
    return;
  }
  disk_hangs_ = true;
  LOG(ERROR) << name_ << ": a disk does not answer, that of "
             << (directory_.has_value() ? directory_->path() : "")
             << (tensor_board_ != nullptr ? " or " : "")
             << options_.tensorboard_dir
             << "; what it was given last may be written or not";
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Options options) {
  const std::string name = options.task.ToString();
  if (options.task.job != kPsJob) {
    return absl::InvalidArgumentError(absl::StrCat(
        name,
        " is not a task of job \"ps\", which is all that ps_server "
        "runs; a worker is run by ps_worker"));
  }
  if (!options.warm_start.empty() && options.checkpoint_dir.empty()) {
    return absl::InvalidArgumentError("--warm_start needs --checkpoint_dir");
  }
  const absl::StatusOr<std::string> own = options.cluster.Address(options.task);
  if (!own.ok()) return own.status();

  if (options.credentials.secure() &&
      options.credentials.identity().task != options.task) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has the certificate of another task: ",
                     options.credentials.identity().ToUri()));
  }

  const std::string where =
      options.listen_address.empty() ? *own : options.listen_address;
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
  // A thread that waits for the disk cannot be ended, and what it uses must
  // outlive it.
  if (impl_->disk_hangs()) static_cast<void>(impl_.release());
}

uint16_t Server::status_port() const { return impl_->status_port(); }
absl::Status Server::Wait() { return impl_->Wait(); }
void Server::Stop(const std::string& reason) { impl_->Stop(reason); }

}  // namespace holdfast
