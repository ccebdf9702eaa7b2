// SPDX-License-Identifier: Apache-2.0

// Explores all schedules of small jobs within bounds, and checks the promises
// of docs/protocol/recovery.md after each event (tests/world/):
//
// - a shard's values at each version are those that its Commits, or its
//   tickets, make of the state that the generation began with: each push
//   applied exactly once, one cut;
// - a checkpoint that the journal names is whole, at one version on all shards,
//   and its position matches its content; a generation begins with the last of
//   these;
// - no message names a generation that is not in the journal;
// - no answer says DONE before the last checkpoint is on disk, or that a step
//   is durable before it is;
// - a push has one verdict, and it agrees with the Commits;
// - when a job was asked to stop, no step opens and no ticket is handed out;
//   when it is STOPPED, nothing is applied any more, the disk has the state it
//   stopped with, and everything that was reported as counted is in it;
// - the job neither fails nor hangs, and ends with the only correct result, or
//   with every ticket spent once;
// - a learning rate that was confirmed to an operator is in the journal, and
//   each step on disk was made with the rate in the journal;
// - a job that evaluations end at fixed steps always ends at the same one;
// - all of this holds despite a worker that offers, applies or claims what it
//   must not, all of which is refused (Misdeed), and despite a stranger that
//   speaks in the coordinator's name, which no shard believes.
//
// For each job, the test covers every schedule that deviates from the canonical
// order (explorer.h) within one of the budgets below, wherever the deviations
// occur. A budget limits the number of each of these:
//
// - orders: a message overtakes those before it, or is held up by 1, 4 or 12
//   places or until nothing else is in flight; or a second passes while
//   messages are in flight, and unanswered ones are sent again;
// - messages: a message or its answer is lost; or it arrives twice, or past its
//   deadline, where the repeat or the late message comes after 1, 4 or 12
//   places, when nothing else is in flight, a second later, or after all
//   leases; or, in jobs called Stranger, a stranger sends a shard a message in
//   the coordinator's name;
// - crashes of ps 0 with the coordinator, ps 1, a worker, or, in jobs called
//   Judged, the evaluator. The process is reborn when nothing is in flight, or
//   after all leases, or, if the job continues without it, never. A worker may
//   also step down, and come back;
// - leases of living workers that run out;
// - writes and reads of the disk that fail, before or after they were executed;
// - an operator who stops the job: when it has stopped, it is started again;
// - loans, in jobs called Lending: a push, a pull, or the values that answer
//   one, cannot be lent to a neighbor or sent in one message
//   (docs/protocol/same_host.md, H6); or nothing can until a second passes.
//
// In jobs called OutlivingCalls a message arrives twice, the second time 0, 4
// or 12 places after the next generation has begun to train, which the crash of
// a ps has made necessary.
//
// A process dies only right after it was given something: dying later is
// equivalent. Within ps 0, and to and from the disk, messages are not lost, and
// arrive in order if the daemon's strands keep them in order.
//
// Workers follow the protocol by script (tests/world/worker.h). In jobs called
// Client they use the production client (tests/world/client_worker.h), which
// decides what is sent again, under which sequence, and what is dropped after a
// roll-back; in those called InParts it sends each element in a message of its
// own. In jobs called Started there is no deviation before a worker has heard
// that there are variables, and messages are held up by 4 places or until
// nothing else is in flight.
//
// Most jobs with two faults, or with a stop and a fault, have a target of their
// own, //tests/exploration:two_faults_test, which is not part of the suite: it
// belongs to tests/soak.sh.
//
// To explore further by hand, HOLDFAST_EXPLORATION_BUDGET (orders, messages,
// crashes, leases, disk, stops, loans) replaces the budgets below, and the
// filter selects jobs:
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

// For jobs that would otherwise take too long.
Scenario Started(Scenario scenario) {
  scenario.starts_undisturbed = true;
  scenario.few_delays = true;
  return scenario;
}

// The format of printed budgets and of HOLDFAST_EXPLORATION_BUDGET.
constexpr char kFormat[] = "%d,%d,%d,%d,%d,%d,%d";

const std::vector<Budget>& OneOfEach() {
  static const auto* const kBudgets = new std::vector<Budget>{{1, 0, 0, 0, 0},
                                                              {0, 1, 0, 0, 0},
                                                              {0, 0, 1, 0, 0},
                                                              {0, 0, 0, 1, 0},
                                                              {0, 0, 0, 0, 1}};
  return *kBudgets;
}

// A stop, with one fault of each kind.
const std::vector<Budget>& OneStop() {
  static const auto* const kBudgets = new std::vector<Budget>{
      {0, 0, 0, 0, 0, 1}, {1, 0, 0, 0, 0, 1}, {0, 1, 0, 0, 0, 1},
      {0, 0, 1, 0, 0, 1}, {0, 0, 0, 1, 0, 1}, {0, 0, 0, 0, 1, 1}};
  return *kBudgets;
}

// A failed loan, with one fault of each kind.
const std::vector<Budget>& OneLoan() {
  static const auto* const kBudgets = new std::vector<Budget>{
      {0, 0, 0, 0, 0, 0, 1}, {1, 0, 0, 0, 0, 0, 1}, {0, 1, 0, 0, 0, 0, 1},
      {0, 0, 1, 0, 0, 0, 1}, {0, 0, 0, 1, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 2}};
  return *kBudgets;
}

// One fault of each kind that concerns a worker.
const std::vector<Budget>& OneFault() {
  static const auto* const kBudgets = new std::vector<Budget>{
      {1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}};
  return *kBudgets;
}

// Worker 0 gives up its call while the push is held and offered, and sends it
// again while the push of worker 1 is in flight: a shard that dropped it would
// lack it when the step is committed.
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

// Worker 0 gives up the call of its second part, which is sent before the
// first. When that part finally arrives, the first of a greater number of parts
// has arrived, and the others have not.
Scenario LateOfFewer() {
  Scenario scenario = Started(Lending(OnePs(Synchronous(1))));
  RpcFault fault;
  fault.rpc = "Push";
  fault.from = sim::kFirstWorker;
  fault.kind = RpcFault::kLate;
  fault.delay.hold = 2;
  scenario.faults.push_back(fault);
  // The third call is the first one again, and the fourth has the first of the
  // greater number of parts; the later calls have the others. No fault counts
  // the calls that the faults before it affect.
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
      // The row changes in step 2.
      {"Synchronous3TablesAlone",
       TablesAlone(Synchronous(3)),
       {{0, 0, 1, 0, 0}, {0, 0, 0, 0, 1}}},
      {"Asynchronous3TablesAlone",
       TablesAlone(Asynchronous(3, 1)),
       {{0, 0, 1, 0, 0}, {0, 0, 0, 1, 0}}},
      {"Backup2TablesAloneClient_R7",
       TablesAlone(Client(Backup(2))),
       {{0, 0, 1, 0, 0}}},
      {"Synchronous2TablesAloneClientOnePs",
       TablesAlone(Client(OnePs(Synchronous(2)))),
       {{0, 1, 0, 0, 0}}},
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
      {"BringsOtherFact_R12",
       With(sim::Misdeed::kBringsOtherFact, Synchronous(1)),
       {{1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}}},
  };
}

// The cases that take the most time: they are not part of the suite.
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
      {"Synchronous1ClientOnePsStarted",
       Started(Client(OnePs(Synchronous(1)))),
       {{1, 1, 0, 0, 0}, {0, 1, 1, 0, 0}}},
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
      {"Synchronous2StartedStop", Started(Synchronous(2)), OneStop()},
      {"Asynchronous2StartedStop", Started(Asynchronous(2, 1)), OneStop()},
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
