// Goes through all schedules of small jobs, within bounds, and looks at the
// promises of docs/protocol/recovery.md after each event (tests/world/):
//
// - a shard's values at each version are those that its Commits, or its
//   tickets, make of what the generation began with: exactly once, one cut;
// - a checkpoint that the journal names is whole, at one version on all shards,
//   and its position says just what is in it; a generation begins with the last
//   of them;
// - no message names a generation that is not in the journal;
// - nobody is told DONE before the last checkpoint is on disk, nor that a step
//   is durable before it is;
// - a push has one verdict, and it is that of the Commits;
// - of a job that was asked to stop no step opens, and no ticket is handed out;
//   when it is STOPPED, nothing is applied any more, what is on disk is what it
//   stopped with, and all that was told to count is in it;
// - the job neither fails nor hangs, and ends with the one right answer, or
//   with every ticket spent once;
// - what an operator was told of the learning rate is in the journal, and each
//   step on disk was made with the rate that the journal says;
// - a job that evaluations end at fixed steps ends at the same one;
// - all of this beside a worker that offers, applies or claims what it may not,
//   none of which is taken (Misdeed), and a stranger that speaks in the
//   coordinator's name, which no shard believes.
//
// What is covered: of each job, every schedule that deviates from the canonical
// order (explorer.h) within one of the budgets below, at whatever places. A
// budget says how many there may be of each of these:
//
// - orders: a message overtakes those before it; or is held up by 1, 4 or 12
//   places, or until nothing else is in flight; or a second passes while
//   messages are in flight, and what was not answered is sent again;
// - messages: one is lost, its answer is lost, or it comes twice, or past its
//   deadline; again or late by 1, 4 or 12 places, when nothing else is in
//   flight, a second after, or after all leases; in jobs called Stranger, or a
//   shard is told something in the coordinator's name by somebody else;
// - crashes, of ps 0 with the coordinator, ps 1, a worker, or in jobs called
//   Judged the evaluator, which is reborn
//   when nothing is in flight, or after all leases, or, where the job goes on
//   without it, never; a worker may also step down, and come again;
// - leases of living workers that run out;
// - writes and reads of the disk that fail, before or after they were done;
// - an operator who has the job stop: when it has, it is started again;
// - loans, in jobs called Lending: a push, a pull, or the values that answer
//   one, cannot be lent to a neighbor, nor sent in one message
//   (docs/protocol/same_host.md, H6); or nothing can until a second passes.
//
// In jobs called OutlivingCalls a message comes twice, the second time 0, 4 or
// 12 places after the next generation has begun to train, which the crash of a
// ps has made necessary.
//
// A process dies only right after it was given something: later is the same.
// Within ps 0, and with the disk, messages are not lost, and come in order
// where the daemon's strands keep it.
//
// Workers follow the protocol by script (tests/world/worker.h). In jobs called
// Client they are the production client (tests/world/client_worker.h), which
// decides what is sent again, under which sequence, and what is dropped after a
// roll-back; in those called InParts it sends each element in a message of its
// own. In jobs called Started there is no deviation before a worker has heard
// that there are variables, and messages are held up by 4 places or until
// nothing else is in flight.
//
// Most jobs with two faults have a target of their own, //tests/exploration:
// two_faults_test, which .ci/run asks for, and tests/run.sh does not.
//
// Further, by hand: HOLDFAST_EXPLORATION_BUDGET (orders, messages, crashes,
// leases, disk, stops, loans) takes the place of the budgets below, the filter
// chooses jobs:
//   bazel test //tests/exploration:exploration_test --test_timeout=36000
//     --test_output=all --test_env=HOLDFAST_EXPLORATION_BUDGET=1,1,1,0,0,0,0
//     --test_arg=--gtest_filter='*/Synchronous2'
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/exploration/explorer.h"
#include "tests/exploration/jobs.h"

namespace holdfast::exploration {
namespace {

struct Case {
  const char* name;
  Scenario scenario;
  std::vector<Budget> budgets;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// For what would otherwise take too long.
Scenario Started(Scenario scenario) {
  scenario.starts_undisturbed = true;
  scenario.few_delays = true;
  return scenario;
}

// As printed and as HOLDFAST_EXPLORATION_BUDGET.
constexpr char kFormat[] = "%d,%d,%d,%d,%d,%d,%d";

const std::vector<Budget>& OneOfEach() {
  static const auto* const kBudgets = new std::vector<Budget>{{1, 0, 0, 0, 0},
                                                              {0, 1, 0, 0, 0},
                                                              {0, 0, 1, 0, 0},
                                                              {0, 0, 0, 1, 0},
                                                              {0, 0, 0, 0, 1}};
  return *kBudgets;
}

// A stop, and one fault of each kind beside it.
const std::vector<Budget>& OneStop() {
  static const auto* const kBudgets = new std::vector<Budget>{
      {0, 0, 0, 0, 0, 1}, {1, 0, 0, 0, 0, 1}, {0, 1, 0, 0, 0, 1},
      {0, 0, 1, 0, 0, 1}, {0, 0, 0, 1, 0, 1}, {0, 0, 0, 0, 1, 1}};
  return *kBudgets;
}

// Something that is not lent, and one fault of each kind beside it.
const std::vector<Budget>& OneLoan() {
  static const auto* const kBudgets = new std::vector<Budget>{
      {0, 0, 0, 0, 0, 0, 1}, {1, 0, 0, 0, 0, 0, 1}, {0, 1, 0, 0, 0, 0, 1},
      {0, 0, 1, 0, 0, 0, 1}, {0, 0, 0, 1, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 2}};
  return *kBudgets;
}

// Without those that have nothing to do with a worker.
const std::vector<Budget>& OneFault() {
  static const auto* const kBudgets = new std::vector<Budget>{
      {1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}};
  return *kBudgets;
}

// Worker 0 gives up its call while the push is held and offered, and sends it
// again while worker 1's is on its way: a shard that let go of it would lack it
// when the step is committed.
Scenario GivenUp() {
  Scenario scenario = Started(InOneCall(Lending(OnePs(Synchronous(1)))));
  RpcFault given_up;
  given_up.kind = RpcFault::kLate;
  given_up.rpc = "PushPull";
  given_up.from = sim::kFirstWorker;
  RpcFault late;
  late.kind = RpcFault::kOutOfOrder;
  late.rpc = "PushPull";
  late.from = sim::kFirstWorker + 1;
  late.delay.hold = 2;
  scenario.faults = {given_up, late};
  return scenario;
}

// Worker 0 gives up the call of its second part, which leaves before the first.
// When that comes at last, the first of more parts has come, and the others
// have not.
Scenario LateOfFewer() {
  Scenario scenario = Started(Lending(OnePs(Synchronous(1))));
  RpcFault fault;
  fault.rpc = "Push";
  fault.from = sim::kFirstWorker;
  fault.kind = RpcFault::kLate;
  fault.delay.hold = 2;
  scenario.faults.push_back(fault);
  // The third call is the first again, and the fourth has the first of more
  // parts: those after it. None counts what the faults before it befall.
  fault.kind = RpcFault::kOutOfOrder;
  fault.occurrence = 4;
  for (int part = 1; part < 4; ++part) scenario.faults.push_back(fault);
  return scenario;
}

std::vector<Case> Cases() {
  return {
      {"Synchronous2", Synchronous(2), OneOfEach()},
      {"Synchronous2NoCheckpoints", WithoutArchive(Synchronous(2)),
       OneOfEach()},
      {"GivenValues1", GivenValues(1), OneOfEach()},
      {"GivenValues1NoCheckpoints", WithoutArchive(GivenValues(1)),
       OneOfEach()},
      {"Backup2", Backup(2), OneOfEach()},
      {"ByTicket4", ByTicket(4), OneOfEach()},
      {"Continue4", Continue(4), OneOfEach()},
      {"Asynchronous4", Asynchronous(4, 1), OneOfEach()},
      {"Asynchronous3Depth2", Asynchronous(3, 2), OneOfEach()},
      {"Asynchronous4NoCheckpoints", WithoutArchive(Asynchronous(4, 1)),
       OneOfEach()},
      {"Synchronous2Rate", WithRate(Synchronous(2)), OneOfEach()},
      {"JudgedStarted", Started(Judged()), OneOfEach()},
      {"Continue2Started", Started(Continue(2)), {{0, 1, 0, 1, 0}}},
      {"Synchronous2Client_R7", Client(Synchronous(2)), OneOfEach()},
      {"Backup2Client_R7", Client(Backup(2)), OneOfEach()},
      {"TwoSeats1Client_S1",
       Client(TwoSeats(1)),
       {{1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}}},
      {"ByTicket4Client", Client(ByTicket(4)), OneOfEach()},
      {"Continue4Client", Client(Continue(4)), OneOfEach()},
      {"Asynchronous4Client", Client(Asynchronous(4, 1)), OneOfEach()},
      {"Asynchronous3Depth2Client", Client(Asynchronous(3, 2)), OneOfEach()},
      {"Asynchronous2ClientInParts", Client(InParts(Asynchronous(2, 1))),
       OneOfEach()},
      {"Synchronous2ClientNoCheckpoints",
       Client(WithoutArchive(Synchronous(2))), OneOfEach()},
      {"GivenValues1Client", Client(GivenValues(1)), OneOfEach()},
      {"Synchronous2ClientOnePs", Client(OnePs(Synchronous(2))), OneOfEach()},
      {"Backup2ClientOnePsInParts_R7", Client(InParts(OnePs(Backup(2)))),
       OneOfEach()},
      {"ByTicket4ClientOnePs", Client(OnePs(ByTicket(4))), OneOfEach()},
      {"Asynchronous4ClientOnePs", Client(OnePs(Asynchronous(4, 1))),
       OneOfEach()},
      {"Asynchronous3Depth2ClientOnePs", Client(OnePs(Asynchronous(3, 2))),
       OneOfEach()},
      {"Synchronous1ClientOnePsStarted",
       Started(Client(OnePs(Synchronous(1)))),
       {{1, 1, 0, 0, 0}, {0, 1, 1, 0, 0}}},
      {"Synchronous2Lending", Lending(Synchronous(2)), {{0, 0, 0, 0, 0, 0, 1}}},
      {"Synchronous1LendingOnePsStarted_H8",
       Started(Lending(OnePs(Synchronous(1)))), OneLoan()},
      {"Synchronous1LendingInOneCallStarted_H8",
       Started(InOneCall(Lending(OnePs(Synchronous(1))))), OneLoan()},
      {"LateOfFewer_H9", LateOfFewer(), {{0, 0, 0, 0, 0, 0, 1}}},
      {"GivenUpThenNotLent_H8", GivenUp(), {{0, 1, 0, 0, 0, 0, 1}}},
      {"Asynchronous2LendingStarted_H8",
       Started(Lending(Asynchronous(2, 1))),
       {{0, 0, 0, 0, 0, 0, 1}, {0, 1, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 2}}},
      {"Synchronous2Rows",
       WithRows(Synchronous(2)),
       {{0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 0, 1}}},
      {"Asynchronous3Rows",
       WithRows(Asynchronous(3, 1)),
       {{0, 0, 1, 0, 0}, {0, 0, 0, 1, 0}, {0, 0, 0, 0, 1}}},
      {"Backup2RowsClient_R7",
       WithRows(Client(Backup(2))),
       {{0, 0, 1, 0, 0}, {0, 0, 0, 1, 0}}},
      {"Synchronous2RowsClientOnePs",
       WithRows(Client(OnePs(Synchronous(2)))),
       {{0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}}},
      {"Asynchronous2RowsClientInParts",
       WithRows(Client(InParts(Asynchronous(2, 1)))),
       {{0, 0, 1, 0, 0}}},
      {"Synchronous2Stranger_P5",
       WithStranger(Synchronous(2)),
       {{0, 1, 0, 0, 0}}},
      {"Asynchronous3Stranger_P5",
       WithStranger(Asynchronous(3, 1)),
       {{0, 1, 0, 0, 0}}},
      {"Synchronous2OutlivingCalls_R1",
       WithOutlivingCalls(Synchronous(2)),
       {{0, 1, 1, 0, 0}}},
      {"ByTicket4OutlivingCalls_R1",
       WithOutlivingCalls(ByTicket(4)),
       {{0, 1, 1, 0, 0}}},
      {"Asynchronous3OutlivingCalls_R1",
       WithOutlivingCalls(Asynchronous(3, 1)),
       {{0, 1, 1, 0, 0}}},
      {"Synchronous2Stop", Synchronous(2), {{0, 0, 0, 0, 0, 1}}},
      {"Backup2Stop", Backup(2), {{0, 0, 0, 0, 0, 1}}},
      {"ByTicket4Stop", ByTicket(4), {{0, 0, 0, 0, 0, 1}}},
      {"Continue4Stop", Continue(4), {{0, 0, 0, 0, 0, 1}}},
      {"Asynchronous4Stop", Asynchronous(4, 1), {{0, 0, 0, 0, 0, 1}}},
      {"Asynchronous3Depth2Stop", Asynchronous(3, 2), {{0, 0, 0, 0, 0, 1}}},
      {"Synchronous2NoCheckpointsStop",
       WithoutArchive(Synchronous(2)),
       {{0, 0, 0, 0, 0, 1}}},
      {"Asynchronous4NoCheckpointsStop",
       WithoutArchive(Asynchronous(4, 1)),
       {{0, 0, 0, 0, 0, 1}}},
      {"Synchronous2ClientStop", Client(Synchronous(2)), {{0, 0, 0, 0, 0, 1}}},
      {"ByTicket4ClientStop", Client(ByTicket(4)), {{0, 0, 0, 0, 0, 1}}},
      {"Asynchronous3Depth2ClientStop",
       Client(Asynchronous(3, 2)),
       {{0, 0, 0, 0, 0, 1}}},
      {"Synchronous2ClientOnePsStop",
       Client(OnePs(Synchronous(2))),
       {{0, 0, 0, 0, 0, 1}}},
      {"Asynchronous4ClientOnePsStop",
       Client(OnePs(Asynchronous(4, 1))),
       {{0, 0, 0, 0, 0, 1}}},
      {"Synchronous2StartedStop", Started(Synchronous(2)), OneStop()},
      {"Asynchronous2StartedStop", Started(Asynchronous(2, 1)), OneStop()},
      {"OffersUnheld_P1", With(sim::Misdeed::kOffersUnheld, Synchronous(2)),
       OneFault()},
      {"AppliesUnheld_P2",
       With(sim::Misdeed::kAppliesUnheld, Asynchronous(3, 1)), OneFault()},
      {"WrongScalars_P2", With(sim::Misdeed::kWrongScalars, Asynchronous(3, 1)),
       OneFault()},
      {"ClaimsUnapplied_P3",
       With(sim::Misdeed::kClaimsUnapplied, Asynchronous(3, 1)), OneFault()},
      {"ClaimsHalfApplied_P3",
       With(sim::Misdeed::kClaimsHalfApplied, Asynchronous(3, 1)), OneFault()},
      {"AcknowledgesAll_P3",
       With(sim::Misdeed::kAcknowledgesAll, Started(Asynchronous(3, 2))),
       {{0, 0, 0, 1, 0}}},
      {"GivesOthers_V2", With(sim::Misdeed::kGivesOthers, GivenValues(1)),
       OneFault()},
  };
}

// Which take the most time: they are not part of the suite.
std::vector<Case> CasesOfTwoFaults() {
  return {
      {"Synchronous1Started",
       Started(Synchronous(1)),
       {{0, 1, 1, 0, 0}, {0, 0, 1, 0, 1}}},
      {"Asynchronous2Started",
       Started(Asynchronous(2, 1)),
       {{0, 1, 0, 1, 0}, {1, 0, 0, 1, 0}}},
      {"Synchronous1ClientStarted",
       Started(Client(Synchronous(1))),
       {{0, 1, 1, 0, 0}}},
      {"Asynchronous2ClientStarted",
       Started(Client(Asynchronous(2, 1))),
       {{0, 1, 0, 1, 0}}},
      {"Asynchronous2ClientOnePsStarted",
       Started(Client(OnePs(Asynchronous(2, 1)))),
       {{0, 1, 0, 1, 0}, {1, 1, 0, 0, 0}, {0, 1, 1, 0, 0}}},
      {"Asynchronous2LendingStarted_H8",
       Started(Lending(Asynchronous(2, 1))),
       {{1, 0, 0, 0, 0, 0, 1}, {0, 0, 1, 0, 0, 0, 1}, {0, 0, 0, 1, 0, 0, 1}}},
      {"Continue2Started_S3", Started(Continue(2)), {{0, 0, 2, 0, 0}}},
      {"AcknowledgesAll_P3",
       With(sim::Misdeed::kAcknowledgesAll, Started(Asynchronous(3, 2))),
       {{0, 1, 0, 1, 0}}},
  };
}

class ExplorationTest : public ::testing::TestWithParam<Case> {};

TEST_P(ExplorationTest, EveryPromiseIsKept) {
  std::vector<Budget> budgets = GetParam().budgets;
  if (const char* given = std::getenv("HOLDFAST_EXPLORATION_BUDGET")) {
    Budget b;
    ASSERT_EQ(std::sscanf(given, kFormat, &b.orders, &b.messages, &b.crashes,
                          &b.expiries, &b.disk, &b.stops, &b.loans),
              7);
    budgets = {b};
  }
  for (const Budget& b : budgets) {
    const std::clock_t begun = std::clock();
    const Explored explored = Explore(GetParam().scenario, b);
    std::printf("%s ", GetParam().name);
    std::printf(kFormat, b.orders, b.messages, b.crashes, b.expiries, b.disk,
                b.stops, b.loans);
    std::printf(": %s; %.1f s of CPU\n", explored.ToString().c_str(),
                static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC);
    std::fflush(stdout);
    ASSERT_EQ(explored.failure, "");
  }
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Jobs, ExplorationTest, ::testing::ValuesIn(Cases()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(TwoFaults, ExplorationTest,
                         ::testing::ValuesIn(CasesOfTwoFaults()), NameOf);

}  // namespace
}  // namespace holdfast::exploration
