// SPDX-License-Identifier: Apache-2.0

// Like bad_input_test.cc, in an asynchronous job.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/bad_input_testing.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The same job, asynchronously: two tickets, two pushes.
class AsynchronousBadInputTest : public BadInputTest {
 protected:
  AsynchronousBadInputTest()
      : BadInputTest(absl::StrReplaceAll(
            kDeclaration, {{"synchronous {}", "asynchronous {}"}})) {}

  std::string TakeTicket(int worker, int sequence, const std::string& more) {
    return Ask(0, "Coordinator.TakeTicket",
               absl::StrCat(W(worker), "sequence: ", sequence, " ", more));
  }

  // Has a push applied at both ps. Returns the report that the ticket is spent.
  std::string Apply(int worker, int sequence, const std::string& ticket) {
    std::string at[2];
    for (const int ps : {0, 1}) {
      at[ps] = Ask(ps, "Shard.Apply",
                   absl::StrCat(W(worker), "sequence: ", sequence,
                                " scalars { learning_rate: 1 } examples: 100 "
                                "ticket_receipt: ",
                                ReceiptIn(ticket)));
      EXPECT_THAT(at[ps], HasSubstr("verdict: ACCEPTED"));
    }
    return absl::StrCat("spent { sequence: ", sequence,
                        " examples: 100 receipts: ", ReceiptIn(at[0]), " ");
  }
};

TEST_F(AsynchronousBadInputTest, TrainingGoesOnUndisturbed) {
  const std::string first = TakeTicket(0, 1, "");
  EXPECT_THAT(first, HasSubstr("ticket {"));
  Push(0, 0, 1, Ones(6), Ones(1));
  const std::string second = TakeTicket(1, 1, "");
  EXPECT_THAT(second, HasSubstr("ticket { index: 1"));

  Try({
      // Tickets.
      {0,
       "Coordinator.TakeTicket",
       Sender("ps", 1, 1, 1) + "sequence: 1",
       {"OK", "verdict: FENCED"}},
      {0,
       "Coordinator.TakeTicket",
       "<next w1>sequence: 1",
       {"NOT_FOUND", "incarnation"}},
      {0,
       "Coordinator.TakeTicket",
       Sender("worker", 1, 1, 7) + "sequence: 1",
       {"OK", "verdict: ABORTED"}},
      {0,
       "Coordinator.TakeTicket",
       "<w1> sequence: 18446744073709551615",
       {"FAILED_PRECONDITION", "18446744073709551615", "from 1 to 4096"}},
      {0,
       "Coordinator.TakeTicket",
       "<w1> sequence: 3",
       {"FAILED_PRECONDITION", "push 3", "expected push 2"}},
      {0,
       "Coordinator.TakeTicket",
       "<w1> spent { sequence: 77 }",
       {"INVALID_ARGUMENT", "push 77", "no ticket"}},
      {0,
       "Coordinator.TakeTicket",
       "<w1> spent { sequence: 0 }",
       {"INVALID_ARGUMENT", "spent[0].sequence"}},
      {0,
       "Coordinator.TakeTicket",
       "<w1> spent { sequence: 1 loss: nan }",
       {"INVALID_ARGUMENT", "spent[0].loss"}},
      // A ticket that is handed out is not forgotten, whatever the worker
      // claims.
      {0,
       "Coordinator.TakeTicket",
       "<w1> sequence: 1 acked_through: 18446744073709551615",
       {"OK", "index: 1"}},

      // Applications.
      {0, "Shard.Apply", "<w1> scalars {}", {"INVALID_ARGUMENT", "sequence"}},
      {0,
       "Shard.Apply",
       "<w1> sequence: 1",
       {"INVALID_ARGUMENT", "scalars of 0 optimizers", "worker/task:1"}},
      {0,
       "Shard.Apply",
       "<w1> sequence: 1 scalars { learning_rate: nan }",
       {"INVALID_ARGUMENT", "scalars[0].learning_rate"}},
      {0,
       "Shard.Apply",
       "<w1> sequence: 1 scalars {} clip_factor: 1.5",
       {"INVALID_ARGUMENT", "clip_factor"}},
      {0,
       "Shard.Apply",
       "<w1> sequence: 1 scalars {}",
       {"FAILED_PRECONDITION", "push 1 of /job:worker/task:1", "ticket's",
        "missing"}},
      {0,
       "Shard.Apply",
       absl::StrCat("<w1> sequence: 1 scalars { learning_rate: 1e9 } ",
                    "ticket_receipt: ", ReceiptIn(second)),
       {"FAILED_PRECONDITION", "push 1 of /job:worker/task:1", "ticket's",
        "wrong"}},
      {0,
       "Shard.Apply",
       absl::StrCat("<w1> sequence: 1 scalars { learning_rate: 1 } ",
                    "ticket_receipt: ", ReceiptIn(second)),
       {"FAILED_PRECONDITION", "push 1 of /job:worker/task:1", "not on"}},
      {0,
       "Shard.Apply",
       "<w1> sequence: 3 scalars {}",
       {"FAILED_PRECONDITION", "expected push 1"}},
      {0,
       "Shard.Apply",
       "<w1> sequence: 18446744073709551615 scalars {}",
       {"FAILED_PRECONDITION", "18446744073709551615"}},
      {0,
       "Shard.Apply",
       Sender("worker", 9, 1, 1) + "sequence: 1 scalars {}",
       {"INVALID_ARGUMENT", "/job:worker/task:9"}},
      {0,
       "Shard.Apply",
       Sender("worker", 1, 0, 1) + "sequence: 1 scalars {}",
       {"INVALID_ARGUMENT", "incarnation 0"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 1 step: 3 num_parts: 1",
       {"FAILED_PRECONDITION", "step 3", "at step 0"}},

      // Forged requests in the coordinator's name.
      {0,
       "Shard.Hold",
       Sender("ps", 0, 0, 1) + "number: 1",
       {"UNAVAILABLE", "another life of /job:ps/task:0"}},
      {0,
       "Shard.Save",
       Sender("ps", 0, 0, 1) + "number: 1",
       {"UNAVAILABLE", "another life of /job:ps/task:0"}},
      {0,
       "Shard.AwaitSaved",
       Sender("ps", 0, 0, 1) + "number: 1",
       {"UNAVAILABLE", "another life of /job:ps/task:0"}},
      {0,
       "Shard.Fence",
       Sender("ps", 0, 0, 1) + "lives { worker { job: 'worker' } }",
       {"INVALID_ARGUMENT", "lives[0].incarnation"}},
      {0,
       "Shard.Resolve",
       Sender("ps", 0, 0, 1) +
           "lives { worker { job: 'worker' index: 7 } incarnation: 1 } "
           "applied { from { worker { job: 'worker' index: 7 } incarnation: 1 "
           "} sequence: 1 clip_factor: 1 scalars {} }",
       {"UNAVAILABLE", "another life of /job:ps/task:0"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 50 step: 0 seat: 1",
       {"FAILED_PRECONDITION", "asynchronous"}},
  });

  const std::string first_spent = Apply(0, 1, first);
  // Worker 1 has computed on the previous version: staleness 1.
  Push(1, 0, 1, Threes(6), Threes(1));
  const std::string second_spent = Apply(1, 1, second);
  EXPECT_THAT(TakeTicket(0, 2, first_spent + "}"),
              HasSubstr("waiting_for: \"/job:worker/task:1"));
  EXPECT_THAT(TakeTicket(1, 2, second_spent + "staleness: 1 }"),
              HasSubstr("phase: DONE"));
  // w = 10 - 1 - 3 = 6, b = 0 - 1 - 3 = -4, as above.
  EXPECT_THAT(Pull(0, 2,
                   "ranges { variable: 'w' begin: 4 size: 2 } "
                   "ranges { variable: 'b' size: 1 }"),
              AllOf(HasSubstr("version: 2"),
                    HasSubstr("begin: 4 data: "
                              "\"\\000\\000\\300@\\000\\000\\300@\""),
                    HasSubstr("data: \"\\000\\000\\200\\300\"")));
  EXPECT_THAT(
      Ask(0, "Coordinator.GetStatus", ""),
      AllOf(HasSubstr("phase: DONE"), HasSubstr("global_step: 2"),
            HasSubstr("pushes { accepted: 2 }"), HasSubstr("examples: 200"),
            HasSubstr("staleness { pushes: 1 }"),
            HasSubstr("staleness { staleness: 1 pushes: 1 }")));
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_THAT(Ask(0, "Coordinator.Leave", W(worker)), HasSubstr("DONE"));
  }
  EXPECT_EQ(cluster_.Wait(0), absl::OkStatus());
  EXPECT_EQ(cluster_.Wait(1), absl::OkStatus());
}

// A worker that reports a ticket as spent without an applied push harms only
// itself.
TEST_F(AsynchronousBadInputTest, AFalseClaimEndsItsWorker) {
  std::string ticket = TakeTicket(0, 1, "");
  EXPECT_THAT(TakeTicket(1, 1, ""), HasSubstr("ticket { index: 1"));
  EXPECT_THAT(TakeTicket(1, 0, "spent { sequence: 1 examples: 100 }"),
              AllOf(HasSubstr("FAILED_PRECONDITION"),
                    HasSubstr("push 1 of /job:worker/task:1"),
                    HasSubstr("applied by /job:ps/task:0")));
  EXPECT_THAT(TakeTicket(1, 2, ""), HasSubstr("verdict: FENCED"));
  EXPECT_THAT(Ask(0, "Coordinator.RenewLease", W(1)),
              HasSubstr("has been fenced"));
  EXPECT_THAT(Ask(0, "Coordinator.GetStatus", ""),
              AllOf(HasSubstr("phase: TRAINING"), Not(HasSubstr("accepted"))));
  // The other worker does everything, with the ticket that came back.
  for (int sequence = 1; sequence <= 2; ++sequence) {
    Push(0, 0, sequence, Ones(6), Ones(1));
    const std::string spent = Apply(0, sequence, ticket);
    ticket = TakeTicket(0, sequence + 1, spent + "} wait_ms: 30000");
    EXPECT_THAT(ticket,
                HasSubstr(sequence == 1 ? "ticket { index: 1" : "phase: DONE"));
  }
  EXPECT_THAT(Ask(0, "Coordinator.Leave", W(0)), HasSubstr("DONE"));
  EXPECT_EQ(cluster_.Wait(0), absl::OkStatus());
  EXPECT_EQ(cluster_.Wait(1), absl::OkStatus());
}

}  // namespace
}  // namespace holdfast
