#include "tests/exploration/world.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "tests/exploration/worker.h"

namespace holdfast::exploration {
namespace {

// Beyond them nothing changes any more.
constexpr int kMaxRounds = 200;
constexpr int kMaxEvents = 5000;

constexpr const char* kNodeNames[] = {"coordinator", "shard 0",  "shard 1",
                                      "worker 0",    "worker 1", "operator",
                                      "disk"};
constexpr const char* kProcessNames[] = {"ps 0", "ps 1", "worker 0",
                                         "worker 1"};

// SplitMix64's finalizer.
uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Short of any round, between what is in flight and what follows from it.
constexpr Delay kHops[] = {{1, 0}, {4, 0}, {12, 0}};
// Beyond that.
constexpr Delay kHolds[] = {{0, 1}, {0, 2}, {0, 1 + kLate}};

std::string Text(const Delay& delay) {
  return delay.hold > 0 ? absl::StrCat(delay.hold, " quiet moments")
                        : absl::StrCat(delay.hops, " hops");
}

uint64_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace

std::string Choice::ToString() const {
  switch (kind) {
    case kNext:
      return "next";
    case kDeliver:
      return absl::StrCat("overtaking ", id);
    case kSlow:
      return absl::StrCat("held up ", Text(delay));
    case kTime:
      return "time passes";
    case kLose:
      return "lost";
    case kTwice:
      return absl::StrCat("twice, again after ", Text(delay));
    case kLateArrival:
      return absl::StrCat("late, after ", Text(delay));
    case kCrash:
      return absl::StrCat("crash of ", kProcessNames[process], ", back after ",
                          rounds);
    case kStepDown:
      return absl::StrCat(kProcessNames[process], " steps down");
    case kExpire:
      return absl::StrCat("the lease of ", kProcessNames[process], " runs out");
    case kDiskFails:
      return rounds == 0 ? "the disk fails"
                         : "the disk fails after it was done";
  }
  return "";
}

bool Budget::Covers(const Budget& other) const {
  return orders >= other.orders && messages >= other.messages &&
         crashes >= other.crashes && expiries >= other.expiries &&
         disk >= other.disk;
}

// ---- The disk ----

class WorldArchive : public Archive {
 public:
  explicit WorldArchive(World* world) : world_(world) {}

  void WriteJournal(const proto::Journal& journal, Reply<Done> reply) override {
    Do<proto::Journal, Done>(
        "WriteJournal", journal,
        [world = world_](const proto::Journal& written) {
          world->directory_.journal = written;
          world->Check(world->oracle_.CheckDirectory(world->directory_));
          return Done();
        },
        std::move(reply));
  }
  void WriteManifest(const proto::Manifest& manifest,
                     Reply<Done> reply) override {
    Do<proto::Manifest, Done>(
        "WriteManifest", manifest,
        [world = world_](const proto::Manifest& written) {
          world->directory_.manifests[Directory::NameOf(written.name())] =
              written;
          return Done();
        },
        std::move(reply));
  }
  void ReadManifest(const proto::CheckpointName& name,
                    Reply<proto::Manifest> reply) override {
    Do<proto::CheckpointName, proto::Manifest>(
        "ReadManifest", name,
        [world = world_](const proto::CheckpointName& asked)
            -> absl::StatusOr<proto::Manifest> {
          const auto found =
              world->directory_.manifests.find(Directory::NameOf(asked));
          if (found == world->directory_.manifests.end()) {
            return absl::NotFoundError("no manifest");
          }
          return found->second;
        },
        std::move(reply));
  }
  // Out of sight: nothing looks for it there.
  void SetAside(const proto::CheckpointName& name) override {
    Do<proto::CheckpointName, Done>(
        "SetAside", name,
        [world = world_](const proto::CheckpointName& aside) {
          world->directory_.manifests.erase(Directory::NameOf(aside));
          world->directory_.shares.erase(Directory::NameOf(aside));
          return Done();
        },
        [](const absl::StatusOr<Done>&) {});
  }
  void RemoveOthers(const proto::CheckpointName* under_way) override {
    std::set<Directory::Name> spared;
    if (under_way != nullptr) spared.insert(Directory::NameOf(*under_way));
    Do<Done, Done>(
        "RemoveOthers", Done(),
        [world = world_, spared](const Done&) {
          std::set<Directory::Name> kept = spared;
          for (const auto& name : world->directory_.journal.checkpoints()) {
            kept.insert(Directory::NameOf(name));
          }
          const auto remove = [&](auto& files) {
            for (auto it = files.begin(); it != files.end();) {
              it = kept.count(it->first) > 0 ? std::next(it) : files.erase(it);
            }
          };
          remove(world->directory_.manifests);
          remove(world->directory_.shares);
          world->Check(world->oracle_.CheckDirectory(world->directory_));
          return Done();
        },
        [](const absl::StatusOr<Done>&) {});
  }

 private:
  template <typename Request, typename Response>
  void Do(const char* what, const Request& request,
          std::function<absl::StatusOr<Response>(const Request&)> act,
          Reply<Response> reply) {
    world_->Call<Request, Response>(
        kCoordinator, kDisk, what, request,
        [world = world_, act](const Request& asked, Reply<Response> done) {
          const int fault = std::exchange(world->disk_fault_, 0);
          absl::StatusOr<Response> response =
              absl::ResourceExhaustedError("the disk is full");
          if (fault != 1) response = act(asked);
          if (fault == 2) {
            response = absl::ResourceExhaustedError("the disk has failed");
          }
          done(std::move(response));
        },
        std::move(reply));
  }

  World* const world_;
};

class WorldShardDisk : public ShardDisk {
 public:
  WorldShardDisk(World* world, uint32_t ps) : world_(world), ps_(ps) {}

  void Save(const proto::CheckpointName& name, uint32_t num_ps,
            StoreSnapshot snapshot, Reply<proto::DataFile> reply) override {
    auto held = std::make_shared<StoreSnapshot>(std::move(snapshot));
    world_->Call<proto::CheckpointName, proto::DataFile>(
        node(), kDisk, "disk Save", name,
        [this, held](const proto::CheckpointName& asked,
                     Reply<proto::DataFile> done) {
          const int fault = std::exchange(world_->disk_fault_, 0);
          if (fault != 1) {
            Values& share =
                world_->directory_.shares[Directory::NameOf(asked)][ps_];
            share.value = held->version->slices[0][0].get()[0];
            if (!held->slots[0].empty()) {
              share.slot = held->slots[0][0][0].get()[0];
            }
          }
          if (fault != 0) {
            return done(absl::ResourceExhaustedError("the disk is full"));
          }
          *held = StoreSnapshot();
          proto::DataFile file;
          file.set_name(absl::StrCat("share ", ps_));
          done(file);
        },
        std::move(reply));
  }

  // It is written whole.
  void AbandonSave() override {}
  proto::DiskProgress SaveProgress() const override { return {}; }
  proto::DiskProgress LoadProgress() const override { return {}; }

  void Load(const LoadOptions& options,
            Reply<std::unique_ptr<DenseStore>> reply) override {
    world_->Call<LoadOptions, std::unique_ptr<DenseStore>>(
        node(), kDisk, "disk Load", options,
        [this](const LoadOptions& asked,
               Reply<std::unique_ptr<DenseStore>> done) {
          const int fault = std::exchange(world_->disk_fault_, 0);
          if (fault == 1) {
            return done(absl::UnavailableError("the disk is away"));
          }
          if (fault == 2) {
            return done(absl::UnknownError("a sector cannot be read"));
          }
          auto store = DenseStore::Create(asked.declaration, asked.slices, ps_,
                                          asked.slots_by_optimizer);
          if (store.ok() && asked.checkpoint.has_value()) {
            const auto& shares = world_->directory_.shares;
            const auto found =
                shares.find(Directory::NameOf(*asked.checkpoint));
            if (found == shares.end() || found->second.count(ps_) == 0) {
              return done(absl::NotFoundError("no such share"));
            }
            const Values& share = found->second.at(ps_);
            *(*store)->ValuesToLoad(0, 0) = share.value;
            if ((*store)->num_slots(0) > 0) {
              *(*store)->SlotToLoad(0, 0, 0) = share.slot;
            }
            (*store)->SetVersion(GlobalStep(asked.checkpoint->step()));
          }
          done(std::move(store));
        },
        std::move(reply));
  }

 private:
  Node node() const { return World::ShardNode(ps_); }

  World* const world_;
  const uint32_t ps_;
};

// ---- Births and deaths ----

World::World(const Job& job, bool trace)
    : job_(job), tracing_(trace), oracle_(job.declaration) {
  // That tasks are lost is no news here.
  FLAGS_minloglevel = google::GLOG_FATAL;
  directory_.journal.set_directory_nonce(77);
  for (uint32_t ps = 0; ps < kNumPs; ++ps) {
    shard_disks_[ps] = std::make_unique<WorldShardDisk>(this, ps);
  }
  archive_ = std::make_unique<WorldArchive>(this);
  for (int node = 0; node < kNumNodes; ++node) {
    nodes_[node].history = Mix(node, 0);
  }
  nodes_[kDisk].alive = true;
  nodes_[kOperator].alive = true;
  for (const Process process : {kPs0, kPs1, kWorkerProcess0, kWorkerProcess1}) {
    Bear(process);
  }
}

World::~World() = default;

std::vector<Node> World::NodesOf(Process process) {
  switch (process) {
    case kPs0:
      return {kCoordinator, kShard0};
    case kPs1:
      return {kShard1};
    case kWorkerProcess0:
      return {kWorker0};
    default:
      return {kWorker1};
  }
}

void World::Bear(Process process) {
  ProcessState& state = processes_[process];
  state.alive = true;
  state.nonce = next_nonce_++;
  for (const Node node : NodesOf(process)) {
    nodes_[node].alive = true;
    ++nodes_[node].life;
    nodes_[node].history = Mix(nodes_[node].history, Mix(1, state.nonce));
    nodes_[node].depth = MaxDepth();
  }
  Trace(absl::StrCat(kProcessNames[process], " starts, with nonce ",
                     state.nonce));
  if (process == kPs0 || process == kPs1) {
    const uint32_t ps = process == kPs0 ? 0 : 1;
    Shard::Options options;
    options.index = ps;
    options.num_ps = kNumPs;
    options.nonce = state.nonce;
    shards_[ps] = std::make_unique<Shard>(
        options, this, job_.archive ? shard_disks_[ps].get() : nullptr);
  }
  switch (process) {
    case kPs0: {
      Coordinator::Options options;
      options.num_ps = kNumPs;
      options.num_workers = kNumWorkers;
      options.lease = kLease;
      options.resend_after = kRound;
      options.shard_nonce = state.nonce;
      options.receipt_secret = "no worker knows it";
      options.receipt_secret.resize(16);
      options.journal = directory_.journal;
      coordinator_ = std::make_unique<Coordinator>(
          options, this, this, job_.archive ? archive_.get() : nullptr);
      break;
    }
    case kPs1:
      ps_session_ = std::make_unique<PsSession>(this, state.nonce);
      ps_session_->Start();
      break;
    default: {
      const uint32_t index = process == kWorkerProcess0 ? 0 : 1;
      workers_[index] = std::make_unique<Worker>(this, index, state.nonce);
      workers_[index]->Start();
    }
  }
}

void World::Crash(Process process, int rounds) {
  ProcessState& state = processes_[process];
  state.alive = false;
  state.rounds_left = rounds;
  const std::vector<Node> nodes = NodesOf(process);
  const auto is_of = [&](Node node) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  };
  for (const Node node : nodes) {
    nodes_[node].alive = false;
    nodes_[node].history = Mix(nodes_[node].history, 2);
    nodes_[node].at_next_round.clear();
  }
  switch (process) {
    case kPs0:
      coordinator_ = nullptr;
      shards_[0] = nullptr;
      break;
    case kPs1:
      shards_[1] = nullptr;
      ps_session_ = nullptr;
      break;
    default:
      workers_[process == kWorkerProcess0 ? 0 : 1] = nullptr;
  }
  // Connections break; what is on its way to others arrives.
  std::vector<std::unique_ptr<Message>> kept;
  std::vector<std::unique_ptr<Message>> broken;
  for (std::unique_ptr<Message>& message : messages_) {
    const bool dropped =
        !message->stray &&
        (is_of(message->to) ||
         (is_of(message->from) && IsLocal(message->from, message->to)));
    (dropped ? broken : kept).push_back(std::move(message));
  }
  messages_ = std::move(kept);
  for (const std::unique_ptr<Message>& message : broken) {
    if (message->is_request && !is_of(message->from)) {
      message->fail(absl::UnavailableError("the connection is broken"));
    }
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    CallBase& call = *calls_[i];
    if (is_of(call.to) && !is_of(call.from) && call.taken_by != 0) {
      call.Fail(this, absl::UnavailableError("the connection is broken"));
    }
  }
}

void World::Exit(Process process, bool for_good) {
  exits_.emplace_back(process, for_good);
}

// ---- Messages ----

bool World::IsLocal(Node from, Node to) {
  const auto in_ps0 = [](Node node) {
    return node == kCoordinator || node == kShard0;
  };
  return from == kDisk || to == kDisk || (in_ps0(from) && in_ps0(to));
}

bool World::IsOrdered(Node from, Node to) {
  // The thread of the coordinator's archive, and the strands of ps 0.
  return IsLocal(from, to) && (from == kCoordinator || to == kCoordinator);
}

uint64_t World::MaxDepth() const {
  uint64_t depth = 0;
  for (const NodeState& node : nodes_) depth = std::max(depth, node.depth);
  for (const auto& m : messages_) depth = std::max(depth, m->depth);
  return depth;
}

std::unique_ptr<World::Message> World::NewMessage(Node from, Node to,
                                                  const char* rpc,
                                                  bool is_request) {
  NodeState& sender = nodes_[from];
  auto message = std::make_unique<Message>();
  message->from = from;
  message->to = to;
  message->rpc = rpc;
  message->is_request = is_request;
  message->order = ++sender.sent;
  message->depth = sender.depth + 1;
  message->id = Mix(Mix(sender.history, message->order), Mix(to, is_request));
  return message;
}

std::unique_ptr<World::Message> World::CopyOf(const Message& request) {
  auto copy = std::make_unique<Message>(request);
  copy->id = Mix(request.id, 3);
  copy->stray = true;
  copy->deliver = request.deliver_again;
  copy->fail = [](const absl::Status&) {};
  return copy;
}

void World::HoldUp(const Delay& delay, Message* message) {
  message->depth += delay.hops;
  message->hold = delay.hold;
}

void World::Send(std::unique_ptr<Message> message, CallBase* call) {
  if (!IsLocal(call->from, call->to)) {
    const RpcFault& fault = job_.fault;
    const int number = ++calls_made_[call->rpc];
    if (fault.kind != RpcFault::kNone && fault.rpc == call->rpc &&
        fault.occurrence == number) {
      Trace(absl::StrCat("the fault: ", Describe(*message)));
      switch (fault.kind) {
        case RpcFault::kNone:
          break;
        case RpcFault::kLostBefore:
          return call->Fail(this, absl::UnavailableError("it was lost"));
        case RpcFault::kLostAfter:
          call->answer_is_lost = true;
          break;
        case RpcFault::kLate:
          call->Fail(this, absl::DeadlineExceededError("no answer"));
          message->deliver = message->deliver_again;
          message->stray = true;
          HoldUp(fault.delay, message.get());
          break;
        case RpcFault::kTwice:
          messages_.push_back(CopyOf(*message));
          HoldUp(fault.delay, messages_.back().get());
          break;
        case RpcFault::kOutOfOrder:
          HoldUp(fault.delay, message.get());
          break;
        case RpcFault::kAnswerOutOfOrder:
          call->answer_is_held = true;
          break;
      }
    }
  }
  messages_.push_back(std::move(message));
}

void World::Push(Node from, uint32_t ps, const PushPart& part,
                 Reply<proto::PushResponse> reply) {
  Call<PushPart, proto::PushResponse>(
      from, ShardNode(ps), "Push", part,
      [this, ps](const PushPart& p, Reply<proto::PushResponse> done) {
        shards_[ps]->Push(p, std::move(done));
      },
      std::move(reply));
}

void World::Send(uint32_t ps, const ShardRequest& request,
                 Reply<ShardResponse> reply) {
  std::visit(
      [&](const auto& typed) {
        using Request = std::decay_t<decltype(typed)>;
        if constexpr (std::is_same_v<Request, proto::RestoreRequest>) {
          Check(oracle_.OnRestore(typed, directory_));
        } else if constexpr (std::is_same_v<Request, proto::CommitRequest>) {
          Check(oracle_.OnCommit(typed));
        } else if constexpr (std::is_same_v<Request, proto::EndRequest>) {
          CheckState(typed.state(), "End");
        }
        ToShard(kCoordinator, ps, ShardMethod<Request>::kName,
                kShardHandler<Request>, typed,
                OfMethod<Request>(std::move(reply)));
      },
      request);
}

void World::AtNextRound(Node node, std::function<void()> event) {
  nodes_[node].at_next_round.push_back(std::move(event));
}

void World::OnVariablesReady() {
  variables_ready_ = true;
  if (!job_.operator_asks || operator_ != nullptr) return;
  operator_ = std::make_unique<Operator>(this);
  operator_->Start();
}

void World::OnApplied(uint32_t worker) {
  if (worker != 1 || job_.expire_after_applies == 0) return;
  expire_due_ = ++applies_ == job_.expire_after_applies;
}

// ---- What may happen ----

bool World::Precedes(const Message& a, const Message& b) {
  return std::tie(a.depth, a.from, a.order, a.stray) <
         std::tie(b.depth, b.from, b.order, b.stray);
}

bool World::Waits(const Message& message) const {
  return IsOrdered(message.from, message.to) &&
         std::any_of(messages_.begin(), messages_.end(), [&](const auto& m) {
           return m->from == message.from && m->to == message.to &&
                  m->order < message.order;
         });
}

std::vector<const World::Message*> World::Deliverable() const {
  std::vector<const Message*> all;
  for (const auto& message : messages_) {
    if (message->hold == 0 && !Waits(*message)) all.push_back(message.get());
  }
  std::sort(all.begin(), all.end(), [](const Message* a, const Message* b) {
    return Precedes(*a, *b);
  });
  return all;
}

const World::Message* World::Head() const {
  const Message* head = nullptr;
  for (const auto& message : messages_) {
    if (message->hold == 0 && (head == nullptr || Precedes(*message, *head)) &&
        !Waits(*message)) {
      head = message.get();
    }
  }
  return head;
}

bool World::IsIncluded(const Delay& delay) const {
  return !job_.few_delays || delay.hops == 4 || delay.hold == 1;
}

std::vector<Choice> World::Alternatives(const Budget& budget) const {
  std::vector<Choice> all;
  if (job_.starts_undisturbed && !variables_ready_) return all;
  const std::vector<const Message*> messages = Deliverable();
  if (budget.orders > 0 && !messages.empty()) {
    // Overtaking those to other nodes changes nothing: what follows from a
    // message has its place in the order whenever it is delivered.
    for (size_t i = 1; i < messages.size(); ++i) {
      if (std::any_of(messages.begin(), messages.begin() + i,
                      [&](const Message* earlier) {
                        return earlier->to == messages[i]->to;
                      })) {
        all.push_back({Choice::kDeliver, messages[i]->id});
      }
    }
    for (const Delay& delay : kHops) {
      if (IsIncluded(delay)) all.push_back({Choice::kSlow, 0, delay});
    }
    all.push_back({Choice::kSlow, 0, kHolds[0]});
    all.push_back({Choice::kTime});
  }
  if (!messages.empty()) {
    const Message& head = *messages.front();
    const bool on_network = !IsLocal(head.from, head.to) && !head.stray;
    if (budget.messages > 0 && on_network) {
      all.push_back({Choice::kLose});
      if (head.is_request) {
        all.push_back({Choice::kTwice});
        for (const auto& delays : {kHops, kHolds}) {
          for (int i = 0; i < 3; ++i) {
            if (!IsIncluded(delays[i])) continue;
            all.push_back({Choice::kTwice, 0, delays[i]});
            all.push_back({Choice::kLateArrival, 0, delays[i]});
          }
        }
      }
    }
    if (budget.disk > 0 && head.to == kDisk && head.is_request &&
        head.rpc != absl::string_view("RemoveOthers")) {
      all.push_back({Choice::kDiskFails, 0, {}, kPs0, 0});
      if (head.from == kCoordinator ||
          head.rpc == absl::string_view("disk Load")) {
        all.push_back({Choice::kDiskFails, 0, {}, kPs0, 1});
      }
    }
  }
  for (int p = 0; p < kNumProcesses; ++p) {
    const Process process = static_cast<Process>(p);
    if (!processes_[p].alive) continue;
    const std::vector<Node> nodes = NodesOf(process);
    // What a process is not given before it dies does not change it.
    const bool was_given =
        last_to_ == kNumNodes ||
        std::find(nodes.begin(), nodes.end(), last_to_) != nodes.end();
    // Without checkpoints a job does not outlive a ps.
    if (budget.crashes > 0 && was_given &&
        (job_.archive || p >= kWorkerProcess0)) {
      all.push_back({Choice::kCrash, 0, {}, process, 0});
      all.push_back({Choice::kCrash, 0, {}, process, kLate});
    }
    if (budget.crashes > 0 && was_given && p >= kWorkerProcess0 &&
        workers_[p - kWorkerProcess0]->sender().incarnation() != 0) {
      all.push_back({Choice::kStepDown, 0, {}, process});
    }
    if (budget.expiries > 0 && p >= kWorkerProcess0 &&
        coordinator_ != nullptr &&
        workers_[p - kWorkerProcess0]->sender().incarnation() != 0 &&
        coordinator_->state().phase() != proto::DONE) {
      all.push_back({Choice::kExpire, 0, {}, process});
    }
  }
  return all;
}

std::unique_ptr<World::Message> World::TakeOut(const Message* message) {
  for (auto it = messages_.begin(); it != messages_.end(); ++it) {
    if (it->get() != message) continue;
    std::unique_ptr<Message> taken = std::move(*it);
    messages_.erase(it);
    return taken;
  }
  LOG(FATAL) << "no such message";
}

void World::Take(const Choice& choice, Budget* budget) {
  Budget none;
  if (budget == nullptr) budget = &none;
  if (tracing_ && choice.kind != Choice::kNext) Trace(choice.ToString());
  switch (choice.kind) {
    case Choice::kNext:
      if (const Message* head = Head(); head != nullptr) {
        Deliver(TakeOut(head));
      } else {
        Quiet();
      }
      break;
    case Choice::kDeliver:
      --budget->orders;
      for (const Message* message : Deliverable()) {
        if (message->id == choice.id) {
          Deliver(TakeOut(message));
          break;
        }
      }
      break;
    case Choice::kSlow: {
      --budget->orders;
      std::unique_ptr<Message> head = TakeOut(Head());
      HoldUp(choice.delay, head.get());
      messages_.push_back(std::move(head));
      break;
    }
    case Choice::kTime:
      --budget->orders;
      PassTime();
      break;
    case Choice::kLose: {
      --budget->messages;
      std::unique_ptr<Message> head = TakeOut(Head());
      head->fail(absl::UnavailableError("it was lost"));
      if (!head->is_request) {
        head->id = Mix(head->id, 4);
        messages_.push_back(std::move(head));
      }
      break;
    }
    case Choice::kTwice: {
      --budget->messages;
      messages_.push_back(CopyOf(*Head()));
      HoldUp(choice.delay, messages_.back().get());
      break;
    }
    case Choice::kLateArrival: {
      --budget->messages;
      std::unique_ptr<Message> head = TakeOut(Head());
      messages_.push_back(CopyOf(*head));
      HoldUp(choice.delay, messages_.back().get());
      head->fail(absl::DeadlineExceededError("no answer"));
      break;
    }
    case Choice::kCrash:
      --budget->crashes;
      Crash(choice.process, choice.rounds);
      break;
    case Choice::kStepDown:
      --budget->crashes;
      nodes_[NodesOf(choice.process).front()].history =
          Mix(nodes_[NodesOf(choice.process).front()].history, 6);
      workers_[choice.process - kWorkerProcess0]->StepDown();
      break;
    case Choice::kExpire:
      --budget->expiries;
      Expire(choice.process);
      break;
    case Choice::kDiskFails:
      --budget->disk;
      disk_fault_ = 1 + choice.rounds;
      Deliver(TakeOut(Head()));
      break;
  }
  AfterEvent();
}

void World::Deliver(std::unique_ptr<Message> message) {
  if (tracing_) Trace(Describe(*message));
  last_to_ = message->to;
  NodeState& node = nodes_[message->to];
  node.history = Mix(Mix(node.history, message->id), disk_fault_);
  node.depth = std::max(node.depth, message->depth);
  message->deliver();
}

// Nothing is in flight.
void World::Quiet() {
  bool arrived = false;
  for (const auto& message : messages_) {
    if (message->hold != 1) continue;
    message->hold = 0;
    arrived = true;
  }
  if (arrived) return Trace("what was held back arrives");
  for (int p = 0; p < kNumProcesses; ++p) {
    ProcessState& process = processes_[p];
    if (!process.alive && !process.for_good && process.rounds_left == 0) {
      last_to_ = NodesOf(static_cast<Process>(p)).front();
      return Bear(static_cast<Process>(p));
    }
  }
  PassTime();
}

void World::PassTime() {
  now_ += kRound;
  Trace("a second passes");
  last_to_ = kNumNodes;
  if (++rounds_ > kMaxRounds) {
    std::string waiting;
    if (coordinator_ != nullptr) {
      coordinator_->GetStatus({}, [&](const auto& status) {
        waiting = status->ShortDebugString();
      });
    }
    return Violate(absl::StrCat("it hangs: ", waiting));
  }
  for (const auto& message : messages_) {
    if (message->hold > 1) --message->hold;
  }
  for (ProcessState& process : processes_) {
    if (process.rounds_left > 0) --process.rounds_left;
  }
  const uint64_t depth = MaxDepth();
  for (NodeState& node : nodes_) {
    node.depth = depth;
    node.history = Mix(node.history, absl::ToUnixSeconds(now_));
  }
  if (coordinator_ != nullptr) coordinator_->Tick();
  for (const auto& shard : shards_) {
    if (shard != nullptr) shard->Tick();
  }
  for (NodeState& node : nodes_) {
    for (const auto& event : std::exchange(node.at_next_round, {})) event();
  }
}

// The others' renewals come past the network, which the process does not hear
// of.
void World::Expire(Process process) {
  const auto renew = [&](const proto::Sender& sender) {
    if (sender.incarnation() == 0) return;
    proto::RenewLeaseRequest request;
    *request.mutable_sender() = sender;
    coordinator_->RenewLease(request, [](const auto&) {});
  };
  last_to_ = kNumNodes;
  for (absl::Duration passed; passed <= kLease; passed += kRound) {
    now_ += kRound;
    for (uint32_t index = 0; index < kNumWorkers; ++index) {
      if (workers_[index] != nullptr && process != kWorkerProcess0 + index) {
        renew(workers_[index]->sender());
      }
    }
    if (ps_session_ != nullptr) renew(ps_session_->sender());
    for (NodeState& node : nodes_) {
      node.history = Mix(node.history, Mix(process, 5));
    }
    coordinator_->Tick();
    for (const auto& shard : shards_) {
      if (shard != nullptr) shard->Tick();
    }
  }
}

void World::AfterEvent() {
  for (const auto& [process, for_good] : std::exchange(exits_, {})) {
    if (!processes_[process].alive) continue;
    Trace(absl::StrCat(kProcessNames[process], " exits"));
    Crash(process, 0);
    processes_[process].for_good = for_good;
  }
  if (std::exchange(expire_due_, false) && coordinator_ != nullptr) {
    Trace("the lease of worker 1 runs out");
    Expire(kWorkerProcess1);
  }
  calls_.erase(std::remove_if(calls_.begin(), calls_.end(),
                              [&](const auto& call) {
                                const NodeState& from = nodes_[call->from];
                                return call->answered || !from.alive ||
                                       from.life != call->from_life;
                              }),
               calls_.end());
  if (++events_ > kMaxEvents) Violate("there is no end to it");
  CheckShards();
  CheckEnd();
}

// ---- The promises ----

void World::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void World::CheckGeneration(uint64_t generation, const char* rpc) {  // [R5]
  if (!job_.archive || generation <= directory_.journal.generation()) return;
  Violate(absl::StrCat(rpc, " names generation ", generation,
                       ", the journal is in ",
                       directory_.journal.generation()));
}

void World::CheckState(const proto::JobState& state,
                       const char* rpc) {  // [R10]
  if (state.phase() == proto::DONE && job_.archive) {
    if (std::string broken = oracle_.CheckFinal(directory_); !broken.empty()) {
      Violate(absl::StrCat(rpc, " says DONE: ", broken));
    }
  }
}

void World::CheckDurable(uint64_t step, const char* rpc) {
  const auto& kept = directory_.journal.checkpoints();
  if (step <= (kept.empty() ? 0 : kept.rbegin()->step())) return;
  Violate(absl::StrCat(rpc, " says that step ", step, " is durable"));
}

void World::CheckShards() {
  for (uint32_t ps = 0; ps < kNumPs; ++ps) {
    if (shards_[ps] == nullptr ||
        (last_to_ != ShardNode(ps) && last_to_ != kNumNodes)) {
      continue;
    }
    proto::PullRequest request;
    request.mutable_sender()->mutable_task()->set_job("client");
    request.mutable_sender()->set_generation(shards_[ps]->generation().value());
    request.add_ranges()->set_variable(job_.declaration.variables(ps).name());
    request.mutable_ranges(0)->set_size(1);
    shards_[ps]->Pull(request, [&](const absl::StatusOr<PullReply>& reply) {
      if (!reply.ok() || reply->tensors.empty()) return;
      float value = 0;
      reply->tensors[0].data.CopyTo(&value);
      Check(oracle_.CheckShard(ps, reply->generation.value(),
                               reply->version.value(), value));
      // jobs.cc
      const bool scaled = job_.declaration.has_loss_scale();
      const auto version = static_cast<float>(reply->version.value());
      if (scaled && reply->loss_scale != std::exp2(version)) {
        Violate(absl::StrCat("ps ", ps, " has the loss scale ",
                             reply->loss_scale, " with version ", version));
      }
    });
  }
}

void World::CheckEnd() {
  if (coordinator_ == nullptr) return;
  if (coordinator_->state().phase() == proto::FAILED) {
    return Violate(
        absl::StrCat("the job FAILED: ", coordinator_->state().reason()));
  }
  if (!coordinator_->finished()) return;
  finished_ = true;
  Check(job_.archive ? oracle_.CheckFinal(directory_)
                     : oracle_.CheckFinal(coordinator_->generation().value()));
  const uint64_t total = job_.declaration.total_steps();
  for (uint32_t ps = 0; ps < kNumPs; ++ps) {
    if (shards_[ps] == nullptr || job_.archive) continue;
    if (shards_[ps]->version().value() != total) {
      Violate(absl::StrCat("ps ", ps, " ended at version ",
                           shards_[ps]->version().value()));
    }
  }
}

uint64_t World::Fingerprint(const Budget& budget) const {
  // Who was given something last says who may crash.
  uint64_t all =
      Mix(absl::ToUnixSeconds(now_), budget.crashes > 0 ? last_to_ : 0);
  for (const NodeState& node : nodes_) {
    all = Mix(all, Mix(node.history, node.depth * 2 + node.alive));
  }
  for (const ProcessState& process : processes_) {
    all = Mix(all, process.rounds_left * 2 + process.for_good);
  }
  uint64_t in_flight = 0;
  for (const auto& message : messages_) {
    in_flight += Mix(Mix(message->id, message->depth), message->hold);
  }
  return Mix(all, in_flight);
}

uint64_t World::EndFingerprint() const {
  uint64_t all = Mix(violation_.size(), directory_.journal.generation());
  for (const auto& [name, shares] : directory_.shares) {
    all = Mix(all, Mix(name.first, name.second));
    for (const auto& [ps, values] : shares) {
      all = Mix(all, Mix(Bits(values.value), Bits(values.slot)));
    }
  }
  for (const auto& shard : shards_) {
    all = Mix(all, shard == nullptr ? 0 : shard->version().value());
  }
  return all;
}

void World::Trace(const std::string& what) {
  if (tracing_) trace_.push_back(what);
}

std::string World::Describe(const Message& message) {
  return absl::StrCat(message.is_request ? "" : "answer to ", message.rpc, ": ",
                      kNodeNames[message.from], " -> ", kNodeNames[message.to],
                      " {", message.text, "}");
}

}  // namespace holdfast::exploration
