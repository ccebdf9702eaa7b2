// SPDX-License-Identifier: Apache-2.0

// Applies each fault of a network to each of the first calls of every RPC of
// the protocol in a run: the job must end with the right values regardless.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "tests/exploration/jobs.h"
#include "tests/exploration/schedule.h"

namespace holdfast::exploration {
namespace {

// The number of calls of one RPC tried in one run. Later ones are like those
// before them.
constexpr int kMaxOccurrences = 8;

struct Fault {
  const char* what;
  RpcFault::Kind kind;
  Delay delay;
};
constexpr Fault kFaults[] = {
    {"lost before it was done", RpcFault::kLostBefore},
    {"lost after it was done", RpcFault::kLostAfter},
    {"late past its deadline", RpcFault::kLate, {4, 0}},
    {"late past its deadline, by far", RpcFault::kLate, {12, 0}},
    {"late past all else", RpcFault::kLate, {0, 1}},
    {"late past all else and a second", RpcFault::kLate, {0, 2}},
    {"late past all leases", RpcFault::kLate, {0, 1 + kLate}},
    {"twice", RpcFault::kTwice},
    {"twice, again soon", RpcFault::kTwice, {4, 0}},
    {"twice, again later", RpcFault::kTwice, {12, 0}},
    {"twice, again after all else", RpcFault::kTwice, {0, 1}},
    {"twice, again after all leases", RpcFault::kTwice, {0, 1 + kLate}},
    {"out of order", RpcFault::kOutOfOrder, {1, 0}},
    {"far out of order", RpcFault::kOutOfOrder, {4, 0}},
    {"after all that was sent after it", RpcFault::kOutOfOrder, {0, 1}},
    {"answered after all that was sent after it", RpcFault::kAnswerOutOfOrder},
};

// Runs that together make every RPC.
std::vector<Scenario> ReferenceJobs() {
  std::vector<Scenario> jobs = {
      Synchronous(2),
      ByTicket(4),
      Asynchronous(4, 1),
      Asynchronous(4, 2),
      Client(Synchronous(2)),
      Client(ByTicket(4)),
      Client(Asynchronous(4, 2)),
      Client(OnePs(Synchronous(2))),
      Client(OnePs(Asynchronous(3, 1))),
      Client(InParts(OnePs(Synchronous(2)))),
  };
  for (Scenario& scenario : jobs) {
    scenario.operator_asks = true;
    scenario.job.evaluates = true;
  }
  // A fence in the middle of a checkpoint and of pushes; and a fence with a
  // push that only ps 0 has applied.
  for (const bool is_applied : {true, false}) {
    for (const bool by_client : {false, true}) {
      Scenario& job = jobs.emplace_back(jobs[2]);
      if (by_client) job = Client(job);
      job.expire_after_applies = 1;
      job.job.name += ", worker 1 is fenced";
      if (is_applied) continue;
      job.faults.push_back({RpcFault::kLostBefore,
                            "Apply",
                            1,
                            {},
                            sim::kFirstWorker + 1,
                            sim::ShardNode(1)});
      job.job.name += " before ps 1 has applied its push";
    }
  }
  // The job stops as soon as there are variables, and is started again.
  for (const Scenario& begun :
       {Synchronous(2), Asynchronous(3, 1), Client(Asynchronous(3, 2))}) {
    Scenario& job = jobs.emplace_back(begun);
    job.operator_stops = true;
    job.job.name += ", stopped";
  }
  jobs.push_back(WithoutArchive(Synchronous(2)));
  jobs.push_back(GivenValues(1));
  jobs.push_back(Client(GivenValues(1)));
  jobs.push_back(Judged());
  jobs.push_back(WithRate(Synchronous(2)));
  return jobs;
}

std::string ViolationOf(const Scenario& scenario,
                        std::map<std::string, int>* calls = nullptr) {
  Schedule schedule(scenario);
  while (!schedule.over()) schedule.Take(Choice());
  if (calls != nullptr) *calls = schedule.world().calls_made();
  return schedule.violation();
}

std::set<std::string> AllRpcs() {
  std::set<std::string> all;
  for (const google::protobuf::FileDescriptor* file :
       {proto::RegisterRequest::descriptor()->file(),
        proto::PushRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        all.insert(file->service(s)->method(m)->name());
      }
    }
  }
  return all;
}

TEST(RpcFaultsTest, EveryRpcIsMadeInSomeRun) {
  std::set<std::string> missing = AllRpcs();
  ASSERT_GE(missing.size(), 20u);
  // Link does not concern a machine: it is a matter between the processes of a
  // host.
  missing.erase("Link");
  for (const Scenario& scenario : ReferenceJobs()) {
    std::map<std::string, int> calls;
    EXPECT_EQ(ViolationOf(scenario, &calls), "") << scenario.job.name;
    for (const auto& [rpc, times] : calls) missing.erase(rpc);
  }
  EXPECT_EQ(absl::StrJoin(missing, " "), "") << "give each a caller";
}

TEST(RpcFaultsTest, NoFaultOfOneCallChangesTheResult) {
  int runs = 0;
  std::set<std::string> rpcs;
  for (const Scenario& reference : ReferenceJobs()) {
    std::map<std::string, int> calls;
    ASSERT_EQ(ViolationOf(reference, &calls), "") << reference.job.name;
    for (const auto& [rpc, times] : calls) {
      rpcs.insert(rpc);
      for (int i = 1; i <= std::min(times, kMaxOccurrences); ++i) {
        for (const Fault& fault : kFaults) {
          Scenario scenario = reference;
          scenario.faults.push_back({fault.kind, rpc, i, fault.delay});
          ++runs;
          EXPECT_EQ(ViolationOf(scenario), "")
              << scenario.job.name << ": call " << i << " of " << rpc << " is "
              << fault.what;
        }
      }
    }
  }
  std::printf("%d runs, faults of %zu RPCs\n", runs, rpcs.size());
}

}  // namespace
}  // namespace holdfast::exploration
