// SPDX-License-Identifier: Apache-2.0
#include "tests/world/world.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "common/job/task_id.h"
#include "glog/logging.h"

namespace holdfast::sim {

WorkerLife LifeOf(const proto::Sender& sender) {
  return {{sender.task().job(), sender.task().index()},
          Incarnation(sender.incarnation())};
}

WorkerLife LifeOf(const proto::WorkerLife& life) {
  return {{life.worker().job(), life.worker().index()},
          Incarnation(life.incarnation())};
}

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// ---- Processes ----

World::World(const Job& job, Scheduler* scheduler, MakeWorker make_worker)
    : job_(job),
      scheduler_(scheduler),
      make_worker_(std::move(make_worker)),
      oracle_(&job_),
      disk_(this),
      exchanges_(this),
      nodes_(kFirstWorker),
      processes_(kFirstWorkerProcess),
      shard_disks_(kMaxPs),
      shards_(kMaxPs),
      ps_sessions_(kMaxPs) {
  // Logs nothing: lost tasks and new generations are usual here.
  FLAGS_minloglevel = google::GLOG_FATAL;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].history = Mix(node, 0);
  }
  nodes_[kDisk].alive = true;
  nodes_[kOperator].alive = true;
  for (Process ps = 0; ps < kFirstWorkerProcess; ++ps) {
    processes_[ps].index = ps;
  }
  SetNumPs(job.num_ps);
}

World::~World() { closed_ = true; }

void World::SetNumPs(uint32_t num_ps) {
  CHECK_LE(num_ps, kMaxPs);
  num_ps_ = num_ps;
}

std::vector<Node> World::NodesOf(Process process) {
  if (process == 0) return {kCoordinator, ShardNode(0), kExchanges};
  if (process < kFirstWorkerProcess) return {ShardNode(process)};
  return {kFirstWorker + process - kFirstWorkerProcess};
}

Process World::ProcessOf(Node node) {
  if (node == kCoordinator || node == kExchanges) return 0;
  if (node < kDisk) return node - ShardNode(0);
  return node < kFirstWorker ? -1 : kFirstWorkerProcess + node - kFirstWorker;
}

std::string World::NameOfNode(Node node) {
  if (node == kCoordinator) return "coordinator";
  if (node == kDisk) return "disk";
  if (node == kOperator) return "operator";
  if (node == kExchanges) return "ps 0";
  if (node < kDisk) return absl::StrCat("shard ", node - ShardNode(0));
  return absl::StrCat("worker ", node - kFirstWorker);
}

std::string World::NameOfProcess(Process process) const {
  return process < kFirstWorkerProcess ? absl::StrCat("ps ", process)
                                       : NameOfNode(NodesOf(process).front());
}

Process World::AddWorker(uint32_t index) {
  nodes_.emplace_back();
  nodes_.back().history = Mix(nodes_.size() - 1, 0);
  processes_.emplace_back();
  processes_.back().index = index;
  return processes_.size() - 1;
}

void World::Start(Process process) {
  ProcessState& state = processes_[process];
  state.alive = true;
  state.paused = false;
  state.nonce = next_nonce_++;
  for (const Node node : NodesOf(process)) {
    nodes_[node].alive = true;
    ++nodes_[node].life;
    nodes_[node].history = Mix(nodes_[node].history, Mix(1, state.nonce));
    nodes_[node].depth = MaxDepth();
  }
  if (scheduler_->tracing()) {
    scheduler_->Trace(absl::StrCat(NameOfProcess(process),
                                   " starts, with nonce ", state.nonce));
  }
  if (process < kFirstWorkerProcess) return StartPs(process, state.nonce);
  state.worker = make_worker_(this, process, state.index, state.nonce);
  state.worker->Start();
}

void World::StartPs(uint32_t ps, uint64_t nonce) {
  if (job_.archive) shard_disks_[ps] = disk_.OpenShardDisk(ps);
  Shard::Options shard;
  shard.index = ps;
  shard.num_ps = num_ps_;
  shard.nonce = nonce;
  shard.memory_limit_bytes = job_.memory_limit_bytes;
  shards_[ps] = std::make_unique<Shard>(shard, this, shard_disks_[ps].get());
  if (ps > 0) {
    Session::Hooks hooks;
    hooks.on_sender = [](const proto::Sender&) {};
    hooks.on_news = [](const proto::RenewLeaseResponse&) {};
    // A late message of an earlier life has taken the place of this one.
    hooks.on_refused = [this, ps](const absl::Status& status) {
      if (!absl::IsAborted(status)) {
        Violate(absl::StrCat("ps ", ps, " is refused: ", status.ToString()));
      }
      Exit(ps, /*for_good=*/false);
    };
    ps_sessions_[ps] = std::make_unique<Session>(
        this, ShardNode(ps), RegisterRequestOf(*this, kPsJob, ps, nonce),
        std::move(hooks));
    return ps_sessions_[ps]->Start();
  }
  admitted_.clear();
  Coordinator::Options options;
  options.num_ps = num_ps_;
  options.num_workers = job_.num_workers;
  options.lease = job_.lease;
  options.resend_after = job_.resend_after;
  options.memory_limit_bytes = job_.memory_limit_bytes;
  options.shard_nonce = nonce;
  options.receipt_secret = "no worker knows it";
  options.receipt_secret.resize(16);
  if (job_.archive) {
    archive_ = disk_.OpenArchive();
    options.journal = disk_.journal();
    options.history = disk_.history();
  }
  coordinator_ =
      std::make_unique<Coordinator>(options, this, this, archive_.get());
}

void World::Crash(Process process) {
  ProcessState& state = processes_[process];
  state.alive = false;
  const std::vector<Node> nodes = NodesOf(process);
  const auto is_of = [&](Node node) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  };
  for (const Node node : nodes) {
    nodes_[node].alive = false;
    nodes_[node].history = Mix(nodes_[node].history, 2);
    nodes_[node].missed.clear();
  }
  timers_.erase(
      std::remove_if(timers_.begin(), timers_.end(),
                     [&](const Timer& timer) { return is_of(timer.node); }),
      timers_.end());
  if (process < kFirstWorkerProcess) {
    if (process == 0) coordinator_ = nullptr;
    shards_[process] = nullptr;
    ps_sessions_[process] = nullptr;
  }
  state.worker = nullptr;
  scheduler_->OnCrash(process);
  // Connections break; messages on their way to other processes arrive.
  std::vector<std::unique_ptr<Message>> kept;
  std::vector<std::unique_ptr<Message>> broken;
  for (std::unique_ptr<Message>& message : messages_) {
    const bool is_inner =
        is_of(message->from) && IsLocal(message->from, message->to);
    const bool dropped = !message->stray && (is_of(message->to) || is_inner) &&
                         scheduler_->Breaks(*message);
    (dropped ? broken : kept).push_back(std::move(message));
  }
  messages_ = std::move(kept);
  for (const std::unique_ptr<Message>& message : broken) {
    if (message->is_request && !is_of(message->from)) {
      message->Fail(this, absl::UnavailableError("the connection is broken"));
    }
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    OpenCall& call = *calls_[i];
    if (is_of(call.to) && !is_of(call.from) && call.taken_by != 0) {
      call.Fail(this, absl::UnavailableError("the connection is broken"));
    }
  }
}

void World::Exit(Process process, bool for_good) {
  exits_.emplace_back(process, for_good);
}

void World::Pause(Process process) { processes_[process].paused = true; }

void World::Wake(Process process) {
  processes_[process].paused = false;
  for (const Node node : NodesOf(process)) {
    const int life = nodes_[node].life;
    for (auto& event : std::exchange(nodes_[node].missed, {})) {
      if (!nodes_[node].alive || nodes_[node].life != life) return;
      event();
    }
  }
}

void World::SetSteps(uint64_t steps) {
  job_.declaration.set_total_steps(steps);
  finished_ = false;
}

bool World::Misbehaves(uint32_t worker, Misdeed misdeed) {
  if (worker == 1 && job_.misdeed == misdeed && !misdeed_done_) return true;
  if (!job_.faulty) return false;
  switch (misdeed) {
    case Misdeed::kAcknowledgesAll:
      return true;
    case Misdeed::kOffersUnheld:
    case Misdeed::kAppliesUnheld:
    case Misdeed::kWrongScalars:
      return Random(4) == 1;
    default:
      return false;
  }
}

// ---- Messages ----

bool World::IsLocal(Node from, Node to) {
  return from == kDisk || to == kDisk ||
         (ProcessOf(from) == 0 && ProcessOf(to) == 0);
}

void World::Put(std::unique_ptr<Message> message, Node from, Node to,
                const std::string& rpc, bool is_request, OpenCall* call) {
  NodeState& sender = nodes_[from];
  message->serial = ++next_serial_;
  message->from = from;
  message->to = to;
  message->rpc = &rpc;
  message->is_request = is_request;
  message->order = ++sender.sent;
  message->depth += sender.depth + 1;
  message->id = Mix(Mix(sender.history, message->order), Mix(to, is_request));
  messages_.push_back(std::move(message));
  scheduler_->OnSent(messages_.back().get(), call);
}

Message* World::Repeat(const Message& request) {
  std::unique_ptr<Message> copy = request.Repeat();
  copy->serial = ++next_serial_;
  copy->id = Mix(request.id, 3);
  copy->from = request.from;
  copy->to = request.to;
  copy->rpc = request.rpc;
  copy->is_request = true;
  copy->depth = request.depth;
  copy->order = request.order;
  copy->stray = true;
  messages_.push_back(std::move(copy));
  return messages_.back().get();
}

const Message* World::Find(uint64_t serial) const {
  for (const auto& message : messages_) {
    if (message->serial == serial) return message.get();
  }
  return nullptr;
}

std::unique_ptr<Message> World::TakeOut(const Message* message) {
  for (auto it = messages_.begin(); it != messages_.end(); ++it) {
    if (it->get() != message) continue;
    std::unique_ptr<Message> taken = std::move(*it);
    messages_.erase(it);
    return taken;
  }
  LOG(FATAL) << "no such message";
}

void World::Deliver(const Message* given) {
  std::shared_ptr<Message> message = TakeOut(given);
  if (scheduler_->tracing()) scheduler_->TraceDelivery(*message);
  last_to_ = message->to;
  NodeState& node = nodes_[message->to];
  node.history = Mix(node.history, message->id);
  node.depth = std::max(node.depth, message->depth);
  const Process process = ProcessOf(message->to);
  if (process >= 0 && processes_[process].paused) {
    node.missed.push_back([this, message] { message->Deliver(this); });
    return;
  }
  message->Deliver(this);
}

void World::Fail(const Message* given, const absl::Status& status) {
  std::unique_ptr<Message> message = TakeOut(given);
  message->Fail(this, status);
  if (message->is_request) return;
  message->id = Mix(message->id, 4);
  messages_.push_back(std::move(message));
}

std::string World::Describe(const Message& message) {
  return absl::StrCat(message.is_request ? "" : "answer to ", *message.rpc,
                      ": ", NameOfNode(message.from), " -> ",
                      NameOfNode(message.to), " {", message.Text(), "}");
}

void World::Send(uint32_t ps, const ShardRequest& request,
                 Reply<ShardResponse> reply) {
  std::visit(
      [&](const auto& message) {
        using Request = std::decay_t<decltype(message)>;
        Call<Request>(kCoordinator, ShardNode(ps), message,
                      OfMethod<Request>(std::move(reply)));
      },
      request);
}

// ---- Time ----

void World::After(Node node, absl::Duration delay,
                  std::function<void()> event) {
  timers_.push_back(
      {now_ + delay, next_timer_++, node, nodes_[node].life, std::move(event)});
  scheduler_->OnTimer(timers_.back().due);
}

void World::RunTimers() {
  std::vector<Timer> due;
  const auto first_due = std::stable_partition(
      timers_.begin(), timers_.end(),
      [&](const Timer& timer) { return timer.due > now_; });
  due.assign(std::make_move_iterator(first_due),
             std::make_move_iterator(timers_.end()));
  timers_.erase(first_due, timers_.end());
  for (Timer& timer : due) {
    NodeState& node = nodes_[timer.node];
    if (!node.alive || node.life != timer.life) continue;
    const Process process = ProcessOf(timer.node);
    if (process >= 0 && processes_[process].paused) {
      node.missed.push_back(std::move(timer.event));
    } else {
      last_to_ = timer.node;
      timer.event();
    }
  }
}

void World::Tick() {
  last_to_ = kNobody;
  if (coordinator_ != nullptr) {
    coordinator_->Tick();
    CheckNobodyWasAdmitted();
  }
  for (const auto& shard : shards_) {
    if (shard != nullptr) shard->Tick();
  }
  for (Observer* observer : observers_) observer->OnTick();
}

void World::MixIntoHistory(Node node, uint64_t what) {
  nodes_[node].history = Mix(nodes_[node].history, what);
}

void World::MixIntoHistories(uint64_t what) {
  for (NodeState& node : nodes_) node.history = Mix(node.history, what);
}

uint64_t World::MaxDepth() const {
  uint64_t depth = 0;
  for (const NodeState& node : nodes_) depth = std::max(depth, node.depth);
  for (const auto& m : messages_) depth = std::max(depth, m->depth);
  return depth;
}

void World::SetDepths(uint64_t depth) {
  for (NodeState& node : nodes_) node.depth = depth;
}

void World::AfterEvent() {
  // [E4] A ps that was told that the job is STOPPED exits, regardless of what a
  // later life of the coordinator asks of it.
  for (uint32_t ps = 1; ps < num_ps_; ++ps) {
    if (shards_[ps] != nullptr && coordinator_ != nullptr &&
        shards_[ps]->state().phase() == proto::STOPPED &&
        phase() != proto::STOPPED) {
      Exit(ps, /*for_good=*/false);
    }
  }
  for (const auto& [process, for_good] : std::exchange(exits_, {})) {
    if (!processes_[process].alive) continue;
    if (scheduler_->tracing()) {
      scheduler_->Trace(absl::StrCat(NameOfProcess(process), " exits"));
    }
    Crash(process);
    scheduler_->OnExit(process, for_good);
  }
  calls_.erase(std::remove_if(calls_.begin(), calls_.end(),
                              [&](const auto& call) {
                                const NodeState& from = nodes_[call->from];
                                return call->answered || !from.alive ||
                                       from.life != call->from_life;
                              }),
               calls_.end());
  if (checks_shards_) {
    for (uint32_t ps = 0; ps < num_ps_; ++ps) {
      if (last_to_ == ShardNode(ps) || last_to_ == kNobody) CheckShard(ps);
    }
  }
  if (std::exchange(is_short_handed_, false)) CheckEnoughWorkers();
  CheckEnd();
}

// ---- The promises ----

void World::CheckGeneration(uint64_t generation,
                            const std::string& rpc) {  // [R5]
  if (!job_.archive || generation <= disk_.journal().generation()) return;
  Violate(absl::StrCat(rpc, " names generation ", generation,
                       ", the journal is in ", disk_.journal().generation()));
}

void World::CheckState(const proto::JobState& state,
                       const std::string& rpc) {  // [R10]
  if (state.phase() != proto::DONE) return;
  if (!state.has_reporter()) {
    Violate(absl::StrCat(rpc, " says DONE, but nothing writes the result"));
  }
  if (!job_.archive) return;
  if (std::string broken = oracle_.CheckFinal(disk_); !broken.empty()) {
    Violate(absl::StrCat(rpc, " says DONE: ", broken));
  }
}

void World::CheckDurable(uint64_t step, const std::string& rpc) {
  if (step <= disk_.durable_step()) return;
  Violate(absl::StrCat(rpc, " says that step ", step, " is durable"));
}

// [L1]
void World::CheckIncarnation(const proto::RegisterRequest& request,
                             uint64_t incarnation) {
  const TaskId task = LifeOf(request.sender()).worker;
  uint64_t& last = last_incarnation_[task];
  uint64_t& known =
      incarnations_[{nodes_[kCoordinator].life, task, request.nonce()}];
  // A late message of a process that was replaced counts as another process.
  // Every life of the coordinator of a job that is over begins with the same
  // incarnations.
  if (incarnation != known && incarnation <= last &&
      !(job_.archive && disk_.journal().finished())) {
    Violate(absl::StrCat(task.ToString(), " gets incarnation ", incarnation,
                         " after ", last));
  }
  known = incarnation;
  last = std::max(last, incarnation);
}

// [L1] An admission is the answer to a call that has just come in: a process
// whose call is parked may have died.
void World::CheckNobodyWasAdmitted() {
  if (coordinator_ != nullptr && Incarnations() != admitted_) {
    Violate("a task was admitted by a call that was parked");
  }
}

std::map<TaskId, uint64_t> World::Incarnations() const {
  std::map<TaskId, uint64_t> incarnations;
  const proto::GetStatusResponse status = Status();
  for (const proto::TaskStatus& task : status.tasks()) {
    if (task.incarnation() == 0) continue;  // ps 0 is never admitted
    incarnations[{task.task().job(), task.task().index()}] = task.incarnation();
  }
  return incarnations;
}

proto::GetStatusResponse World::Status() const {
  proto::GetStatusResponse status;
  coordinator_->GetStatus({}, [&](auto response) { status = *response; });
  return status;
}

void World::CheckShard(uint32_t ps) {
  if (shards_[ps] == nullptr || everything_.empty()) return;
  proto::PullRequest request = everything_[ps];
  request.mutable_sender()->set_generation(shards_[ps]->generation().value());
  shards_[ps]->Pull(request, [&](const absl::StatusOr<PullReply>& reply) {
    if (!reply.ok() || reply->tensors.empty()) return;
    Check(oracle_.CheckPulled(ps, request, *reply));
  });
}

void World::NotePlacement(const proto::RestoreRequest& request) {
  slices_.assign(request.slices().begin(), request.slices().end());
  everything_.assign(kMaxPs, proto::PullRequest());
  for (proto::PullRequest& request : everything_) {
    request.mutable_sender()->mutable_task()->set_job("client");
  }
  for (const proto::Slice& slice : slices_) {
    proto::ReadRange& range = *everything_[slice.ps()].add_ranges();
    range.set_variable(slice.variable());
    range.set_begin(slice.begin());
    range.set_size(slice.size());
  }
  for (uint32_t ps = 0; HasRows(job_) && ps < num_ps_; ++ps) {
    *everything_[ps].add_ranges() = RangeOfRows(RowsOn(job_, ps, num_ps_));
  }
}

Values World::ReadAll() {
  Values values;
  for (const proto::Variable& variable : job_.declaration.variables()) {
    values[variable.name()].resize(NumElements(variable));
  }
  for (uint32_t ps = 0; ps < num_ps_; ++ps) {
    proto::PullRequest request = everything_.at(ps);
    request.mutable_sender()->set_generation(
        coordinator_->generation().value());
    shards_[ps]->Pull(request, [&](const absl::StatusOr<PullReply>& reply) {
      if (!reply.ok()) return Violate(reply.status().ToString());
      for (const TensorPiece& piece :
           TensorsOf(job_, request, reply->tensors)) {
        if (piece.rows.has_value()) continue;
        piece.data.CopyTo(&values[piece.variable][piece.begin]);
      }
    });
  }
  return values;
}

void World::CheckEnoughWorkers() {
  if (coordinator_ == nullptr) return;
  uint32_t alive = 0;
  const proto::GetStatusResponse status = Status();
  for (const proto::TaskStatus& task : status.tasks()) {
    if (task.task().job() == kWorkerJob && task.alive()) ++alive;
  }
  // The last step may be made of the tickets that are left.
  const auto& last = oracle_.steps().rbegin()->first;
  if (last.second + 1 == job_.steps() && job_.by_ticket()) return;
  if (alive < job_.declaration.lost_workers().min_replicas()) {
    Violate(absl::StrCat("a step was made with ", alive, " workers"));
  }
}

// For a job that is done: the history that is shown to people is the course
// that counts.
void World::CheckHistory() {
  coordinator_->GetHistory(
      {}, [this](const absl::StatusOr<proto::GetHistoryResponse>& history) {
        uint64_t last = 0;
        for (const proto::HistoryPoint& point : history->points()) {
          if (point.step() <= last) {
            Violate(absl::StrCat("the history has step ", point.step(),
                                 " after ", last));
          }
          last = point.step();
        }
        if (last != job_.end()) {
          Violate(absl::StrCat("the history ends at step ", last));
        }
      });
}

// From here on, E2 holds.
void World::OnStop(const proto::StopRequest& request) {
  const uint64_t generation = coordinator_->generation().value();
  if (request.has_generation() && request.generation() < generation) return;
  oracle_.OnStopAsked(generation, Status().global_step());
}

// All shards are at the step that is on disk, and stay there.
void World::CheckStopped() {
  const uint64_t step = Status().global_step();
  const Generation generation = coordinator_->generation();
  if (job_.archive) {
    if (std::string broken =
            oracle_.CheckStopped(disk_, generation.value(), step);
        !broken.empty()) {
      Violate(absl::StrCat("the job is STOPPED at step ", step, ": ", broken));
    }
  }
  // Without a checkpoint, asynchronous shards may be at any version.
  if (!job_.archive && job_.asynchronous()) return;
  for (uint32_t ps = 0; ps < num_ps_; ++ps) {
    if (shards_[ps] == nullptr || shards_[ps]->generation() != generation) {
      continue;
    }
    // A shard that was about to be restored has no version.
    const uint64_t version = shards_[ps]->version().value();
    if (version != step && version != 0) {
      Violate(absl::StrCat("the job is STOPPED at step ", step, ", but ps ", ps,
                           " is at version ", version));
    }
  }
}

void World::CheckEnd() {
  if (coordinator_ == nullptr || finished_) return;
  if (phase() == proto::STOPPED) CheckStopped();
  if (phase() == proto::FAILED) {
    const std::string& reason = coordinator_->state().reason();
    if (job_.fails_with.empty() ||
        !absl::StrContains(reason, job_.fails_with)) {
      return Violate(absl::StrCat("the job FAILED: ", reason));
    }
    finished_ = coordinator_->finished();
    return;
  }
  if (!coordinator_->finished()) return;
  if (phase() == proto::STOPPED && job_.archive) {
    return scheduler_->OnStopped();
  }
  finished_ = true;
  if (phase() == proto::STOPPED) return;
  CheckHistory();
  if (job_.archive) return Check(oracle_.CheckFinal(disk_));
  Check(oracle_.CheckFinal(coordinator_->generation().value()));
  for (uint32_t ps = 0; ps < num_ps_; ++ps) {
    if (shards_[ps] == nullptr) continue;
    if (shards_[ps]->version().value() != job_.end()) {
      Violate(absl::StrCat("ps ", ps, " ended at version ",
                           shards_[ps]->version().value()));
    }
  }
}

uint64_t World::Fingerprint() const {
  uint64_t all = absl::ToUnixSeconds(now_);
  for (const NodeState& node : nodes_) {
    all = Mix(all, Mix(node.history, node.depth * 2 + node.alive));
  }
  uint64_t in_flight = 0;
  for (const auto& message : messages_) {
    in_flight += Mix(Mix(message->id, message->depth), message->hold);
  }
  return Mix(all, in_flight);
}

uint64_t World::EndFingerprint() const {
  uint64_t all = Mix(violation_.size(), disk_.journal().generation());
  for (const proto::CheckpointName& named : disk_.journal().checkpoints()) {
    const Disk::Name name = Disk::NameOf(named);
    all = Mix(all, Mix(name.first, name.second));
    if (!disk_.IsWhole(name)) continue;
    for (const auto& [array, values] : disk_.Read(name)) {
      for (const float value : values) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        all = Mix(all, bits);
      }
    }
  }
  for (const auto& shard : shards_) {
    all = Mix(all, shard == nullptr ? 0 : shard->version().value());
  }
  return all;
}

}  // namespace holdfast::sim
