// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/members.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLease = absl::Seconds(10);
const TaskId kWorker = {kWorkerJob, 0};
const TaskId kPs = {kPsJob, 1};

// A job of two ps and two workers that records its notifications.
class MembersTest : public ::testing::Test, protected Members::Owner {
 protected:
  MembersTest() { state_.set_phase(proto::TRAINING); }
  static CoordinatorOptions MakeOptions() {
    CoordinatorOptions options;
    options.num_ps = 2;
    options.num_workers = 2;
    options.lease = kLease;
    options.address = "host0:2000";
    return options;
  }

  const proto::JobState& state() const override { return state_; }
  Generation generation() const override { return Generation(3); }
  bool beginning() const override { return beginning_; }
  uint64_t durable_step() const override { return 5; }
  std::string WaitingFor() const override { return "the journal"; }
  absl::Status CheckDigests(const TaskId&,
                            const proto::RegisterRequest&) override {
    return digests_;
  }
  bool HearTrace(const proto::RenewLeaseRequest& request) override {
    return request.recording() == trace_.value_or(proto::TraceOrder()).trace();
  }
  std::optional<proto::TraceOrder> trace_order() const override {
    return trace_;
  }
  void OnReplaced(const TaskId& task) override { Note("replaced ", task); }
  void OnJoined(const TaskId& task, bool again) override {
    Note(again ? "joined again " : "joined ", task);
  }
  void OnBack(const TaskId& task) override { Note("back ", task); }
  void OnLost(const TaskId& task) override { Note("lost ", task); }
  void OnTold(const WorkerLife& life) override { Note("told ", life.worker); }
  void Note(const std::string& what, const TaskId& task) {
    told_.push_back(absl::StrCat(what, task.job, task.index));
  }
  // The notifications since the last call.
  std::vector<std::string> Told() { return std::exchange(told_, {}); }

  Answer<proto::RegisterResponse> Register(const TaskId& task, uint64_t nonce,
                                           uint64_t wait_ms = 0) {
    proto::RegisterRequest request;
    request.mutable_sender()->mutable_task()->set_job(task.job);
    request.mutable_sender()->mutable_task()->set_index(task.index);
    request.set_nonce(nonce);
    request.set_protocol_version(kProtocolVersion);
    request.set_process(absl::StrCat("process ", nonce));
    request.set_address(absl::StrCat("host:", nonce));
    request.set_num_ps(2);
    request.set_num_workers(2);
    request.set_wait_ms(wait_ms);
    Answer<proto::RegisterResponse> answer;
    const Outbox::Event event(&outbox_);
    members_.Register(request, answer.Catch());
    return answer;
  }
  proto::Sender SenderOf(const TaskId& task, uint64_t incarnation) {
    proto::Sender sender;
    sender.mutable_task()->set_job(task.job);
    sender.mutable_task()->set_index(task.index);
    sender.set_incarnation(incarnation);
    sender.set_generation(3);
    return sender;
  }
  Answer<proto::RenewLeaseResponse> Renew(const TaskId& task,
                                          uint64_t incarnation = 1,
                                          uint64_t wait_ms = 0) {
    proto::RenewLeaseRequest request;
    *request.mutable_sender() = SenderOf(task, incarnation);
    request.set_known_phase(state_.phase());
    request.set_wait_ms(wait_ms);
    Answer<proto::RenewLeaseResponse> answer;
    const Outbox::Event event(&outbox_);
    members_.RenewLease(request, answer.Catch());
    return answer;
  }
  // Lets time pass, in steps too short to look like a pause of this process.
  void Pass(absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= kLease / 4) {
      clock_.Advance(std::min(time, kLease / 4));
      const Outbox::Event event(&outbox_);
      members_.JudgeLeases();
      members_.AnswerDue();
    }
  }
  Presence PresenceOf(const TaskId& task) {
    return members_.Find(task)->presence;
  }

  FakeClock clock_;
  const CoordinatorOptions options_ = MakeOptions();
  proto::JobState state_;
  bool beginning_ = false;
  std::optional<proto::TraceOrder> trace_;
  absl::Status digests_;
  std::vector<std::string> told_;
  Outbox outbox_;
  JobDeclaration declared_{2, 2, true};
  Members members_{options_, /*has_archive=*/true, &clock_,
                   &outbox_, &declared_,           this};
};

TEST_F(MembersTest, WhoJoinsIsLive) {
  EXPECT_EQ(members_.Describe(kWorker), "/job:worker/task:0 (not joined)");
  EXPECT_THAT(members_.MissingPs(), ElementsAre(kPs));
  EXPECT_EQ(Register(kWorker, 7)->incarnation(), 1u);
  EXPECT_EQ(Register(kWorker, 7)->incarnation(), 1u) << "the same process";
  EXPECT_EQ(Register(kPs, 8)->generation(), 3u);
  EXPECT_THAT(Told(), ElementsAre("joined worker0", "joined again ps1"));
  EXPECT_THAT(members_.MissingPs(), IsEmpty());
  EXPECT_EQ(members_.num_live_workers(), 1u);
  EXPECT_EQ(members_.shard_nonce(1), 8u);
  EXPECT_THAT(members_.ps_addresses(), ElementsAre("host0:2000", "host:8"));
}

TEST_F(MembersTest, ALeaseRunsOutAndItsTaskMayComeBack) {
  Register(kWorker, 7);
  Pass(kLease / 2);
  Renew(kWorker);
  Pass(kLease / 2);
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLive);
  Pass(kLease / 2);
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLost);
  EXPECT_EQ(members_.Find(kWorker)->lost_at, clock_.Now());
  EXPECT_THAT(members_.lost(), ElementsAre(kWorker));
  EXPECT_EQ(members_.num_live_workers(), 0u);
  Renew(kWorker);
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLive);
  EXPECT_THAT(members_.lost(), IsEmpty());
  EXPECT_THAT(Told(),
              ElementsAre("joined worker0", "lost worker0", "back worker0"));
}

TEST_F(MembersTest, NobodyIsJudgedAfterAPauseOfThisProcess) {
  Register(kWorker, 7);
  clock_.Advance(10 * kLease);
  members_.JudgeLeases();
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLive);
  EXPECT_FALSE(members_.MayJudge());
  Pass(kLease);
  EXPECT_TRUE(members_.MayJudge());
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLost);
}

TEST_F(MembersTest, ANewcomerWaitsForTheLeaseOfItsPlace) {
  Register(kWorker, 7);
  const auto newcomer = Register(kWorker, 8, /*wait_ms=*/1000);
  EXPECT_FALSE(newcomer.came());
  Renew(kWorker);
  EXPECT_TRUE(Fails(newcomer.status(), absl::StatusCode::kAlreadyExists,
                    {"taken by process 7, which is alive"}));
  Pass(kLease);
  EXPECT_EQ(Register(kWorker, 8)->incarnation(), 2u);
  EXPECT_TRUE(Fails(Renew(kWorker, 1).status(), absl::StatusCode::kAborted,
                    {"incarnation 1 has been fenced"}));
  EXPECT_THAT(Told(), ElementsAre("joined worker0", "lost worker0",
                                  "replaced worker0", "joined worker0"));
}

TEST_F(MembersTest, WhoAsksAgainGetsTheLaterAnswer) {
  Register(kWorker, 7);
  const auto first = Register(kWorker, 8, 1000);
  const auto second = Register(kWorker, 8, 1000);
  EXPECT_TRUE(first.came());
  EXPECT_FALSE(second.came());
}

TEST_F(MembersTest, AFencedLifeStaysOut) {
  Register(kWorker, 7);
  Pass(kLease);
  members_.Fence(kWorker);
  EXPECT_EQ(PresenceOf(kWorker), Presence::kFenced);
  EXPECT_TRUE(members_.IsFenced(SenderOf(kWorker, 1)));
  EXPECT_FALSE(members_.IsFenced(SenderOf(kWorker, 2)));
  EXPECT_TRUE(Fails(Renew(kWorker).status(), absl::StatusCode::kAborted, {}));
  state_.set_phase(proto::DONE);
  EXPECT_EQ(Renew(kWorker)->state().phase(), proto::DONE) << "all may know";
  EXPECT_EQ(PresenceOf(kWorker), Presence::kFenced);
}

TEST_F(MembersTest, OneThatLivesMayBeFenced) {
  Register(kWorker, 7);
  members_.Fence(kWorker);
  EXPECT_EQ(PresenceOf(kWorker), Presence::kFenced);
  EXPECT_EQ(members_.Find(kWorker)->lost_at, clock_.Now());
  EXPECT_EQ(members_.num_live_workers(), 0u);
}

TEST_F(MembersTest, WhoLeftComesBackNoMore) {
  Register(kWorker, 7);
  members_.OnLeave(kWorker);
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLeft);
  EXPECT_TRUE(Renew(kWorker).status().ok());
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLeft);
  members_.Fence(kWorker);
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLeftFenced);
  EXPECT_EQ(Register(kWorker, 8)->incarnation(), 2u);
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLive);
}

TEST_F(MembersTest, ADoneJobGivesUpItsWorkersOnly) {
  Register(kWorker, 7);
  Register({kWorkerJob, 1}, 8);
  Register(kPs, 9);
  members_.Fence({kWorkerJob, 1});
  members_.GiveUpWorkers();
  EXPECT_EQ(PresenceOf(kWorker), Presence::kLeft);
  EXPECT_EQ(PresenceOf({kWorkerJob, 1}), Presence::kLeftFenced);
  EXPECT_EQ(PresenceOf(kPs), Presence::kLive);
}

TEST_F(MembersTest, RenewalsWaitForNews) {
  Register(kWorker, 7);
  Told();
  const auto renewal = Renew(kWorker, 1, /*wait_ms=*/1000);
  EXPECT_FALSE(renewal.came());
  state_.set_phase(proto::DONE);
  {
    const Outbox::Event event(&outbox_);
    members_.AnswerRenewals();
  }
  EXPECT_EQ(renewal->state().phase(), proto::DONE);
  EXPECT_EQ(renewal->durable_step(), 5u);
  EXPECT_THAT(Told(), ElementsAre("told worker0"));
}

TEST_F(MembersTest, WhoDoesNotRecordAsATraceWantsIsNotParked) {
  Register(kWorker, 7);
  const auto renewal = Renew(kWorker, 1, /*wait_ms=*/1000);
  EXPECT_FALSE(renewal.came());
  trace_.emplace().set_trace(9);
  {
    const Outbox::Event event(&outbox_);
    members_.AnswerRenewals();
  }
  EXPECT_EQ(renewal->trace().trace(), 9u);
  EXPECT_TRUE(Renew(kWorker, 1, /*wait_ms=*/1000).came());
}

TEST_F(MembersTest, NobodyIsToldOfAGenerationThatIsBeginning_R5) {
  beginning_ = true;
  const auto answer = Register(kWorker, 7, /*wait_ms=*/1000);
  EXPECT_FALSE(answer.came());
  beginning_ = false;
  {
    const Outbox::Event event(&outbox_);
    members_.RetryRegisters(std::nullopt);
  }
  EXPECT_EQ(answer->waiting_for(), "the task to ask again");
  EXPECT_THAT(Told(), IsEmpty()) << "its process may be dead";
}

TEST_F(MembersTest, OtherFilesAreRefused) {
  digests_ = absl::FailedPreconditionError("other data");
  EXPECT_TRUE(Fails(Register(kWorker, 7).status(),
                    absl::StatusCode::kFailedPrecondition, {"other data"}));
  EXPECT_EQ(Register(kPs, 8)->incarnation(), 1u) << "a ps has none";
}

}  // namespace
}  // namespace holdfast
