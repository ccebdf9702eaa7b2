// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/receipts.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/task_id.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

const GlobalStep kStep(7);

PushId Push(uint32_t worker, uint64_t incarnation, uint64_t sequence,
            const std::string& job = kWorkerJob) {
  return {{{job, worker}, Incarnation(incarnation)}, PushSequence(sequence)};
}

// Ps 0 and 2 hold trainable variables, ps 1 one that is not, ps 3 nothing.
Receipts Make(const std::string& key = std::string(Receipts::kKeyBytes, 'k'),
              uint64_t generation = 1) {
  proto::Declaration declaration;
  google::protobuf::RepeatedPtrField<proto::Slice> slices;
  for (uint32_t ps = 0; ps < 3; ++ps) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(absl::StrCat("v", ps));
    if (ps == 1) variable.set_trainable(false);
    proto::Slice& slice = *slices.Add();
    slice.set_variable(variable.name());
    slice.set_ps(ps);
    slice.set_size(4);
  }
  proto::Slice& empty = *slices.Add();
  empty.set_variable("v0");
  empty.set_ps(3);
  return Receipts(key, Generation(generation), declaration, slices, 4);
}

Receipts::ByPs ByPs(std::initializer_list<uint64_t> receipts) {
  return Receipts::ByPs(receipts.begin(), receipts.end());
}

Receipts::Scalars Scalars(float rate) {
  Receipts::Scalars scalars;
  scalars.Add()->set_learning_rate(rate);
  return scalars;
}

bool Names(const absl::Status& status, const std::string& text) {
  return status.code() == absl::StatusCode::kFailedPrecondition &&
         status.message().find(text) != std::string::npos;
}

TEST(ReceiptsTest, OnlyWhoHoldsWhatIsTrainedReceives) {
  const Receipts receipts = Make();
  EXPECT_TRUE(receipts.receives(0));
  EXPECT_FALSE(receipts.receives(1));
  EXPECT_TRUE(receipts.receives(2));
  EXPECT_FALSE(receipts.receives(3));
}

TEST(ReceiptsTest, EachStatementHasItsOwn) {
  const Receipts receipts = Make();
  const PushId push = Push(1, 2, 3);
  const std::set<uint64_t> different = {
      receipts.Held(0, push, kStep),
      receipts.Held(2, push, kStep),
      receipts.Held(0, push, std::nullopt),
      receipts.Held(0, push, kStep.next()),
      receipts.Held(0, Push(2, 2, 3), kStep),
      receipts.Held(0, Push(1, 3, 3), kStep),
      receipts.Held(0, Push(1, 2, 4), kStep),
      receipts.Held(0, Push(1, 2, 3, kChiefJob), kStep),
      receipts.Applied(0, push),
      receipts.Applied(2, push),
      receipts.OfTicket(push, Scalars(1)),
      receipts.OfTicket(push, Scalars(2)),
      receipts.OfTicket(Push(1, 2, 4), Scalars(1)),
      receipts.OfTicket(push, {}),
      Make(std::string(Receipts::kKeyBytes, 'l')).Held(0, push, kStep),
      Make(std::string(Receipts::kKeyBytes, 'k'), 2).Held(0, push, kStep),
  };
  EXPECT_EQ(different.size(), 16u);
  EXPECT_EQ(different.count(0), 0u);
  EXPECT_EQ(Make().Held(0, push, kStep), receipts.Held(0, push, kStep));
}

TEST(ReceiptsTest, EachHolderMustHaveGivenOne) {
  const Receipts receipts = Make();
  const PushId push = Push(1, 2, 3);
  const uint64_t at0 = receipts.Held(0, push, kStep);
  const uint64_t at2 = receipts.Held(2, push, kStep);
  const auto check = [&](const Receipts::ByPs& given) {
    return receipts.CheckHeld(push, kStep, given);
  };
  EXPECT_TRUE(check(ByPs({at0, 0, at2})).ok());
  // The receipts of the other ps do not matter.
  EXPECT_TRUE(check(ByPs({at0, 5, at2, 6, 7})).ok());
  EXPECT_TRUE(Names(check(ByPs({})), "/job:ps/task:0: its receipt is missing"));
  EXPECT_TRUE(
      Names(check(ByPs({at0})), "/job:ps/task:2: its receipt is missing"));
  EXPECT_TRUE(Names(check(ByPs({at0, 0, at0})),
                    "/job:ps/task:2: its receipt is wrong"));
  EXPECT_TRUE(
      Names(check(ByPs({at0, 0, at2 ^ 1})), "push 3 of /job:worker/task:1"));
  EXPECT_FALSE(
      receipts.CheckHeld(push, kStep.next(), ByPs({at0, 0, at2})).ok());
  EXPECT_FALSE(receipts.CheckApplied(push, ByPs({at0, 0, at2})).ok());
  // The ps that checks knows its own state.
  EXPECT_TRUE(receipts.CheckHeld(push, kStep, ByPs({0, 0, at2}), 0).ok());
  EXPECT_FALSE(receipts.CheckHeld(push, kStep, ByPs({0, 0, at2}), 2).ok());
}

TEST(ReceiptsTest, EachHolderMustHaveApplied) {
  const Receipts receipts = Make();
  const PushId push = Push(1, 2, 3);
  const uint64_t at0 = receipts.Applied(0, push);
  const uint64_t at2 = receipts.Applied(2, push);
  EXPECT_TRUE(receipts.CheckApplied(push, ByPs({at0, 0, at2})).ok());
  EXPECT_TRUE(Names(receipts.CheckApplied(push, ByPs({at0, 0, 0})),
                    "applied by /job:ps/task:2"));
  EXPECT_FALSE(receipts.CheckApplied(Push(1, 2, 4), ByPs({at0, 0, at2})).ok());
}

TEST(ReceiptsTest, ScalarsMustBeTheTickets) {
  const Receipts receipts = Make();
  const PushId push = Push(1, 2, 3);
  const uint64_t receipt = receipts.OfTicket(push, Scalars(0.5f));
  EXPECT_TRUE(receipts.CheckTicket(push, Scalars(0.5f), receipt).ok());
  EXPECT_TRUE(Names(receipts.CheckTicket(push, Scalars(1e9f), receipt),
                    "receipt is wrong"));
  EXPECT_TRUE(Names(receipts.CheckTicket(push, Scalars(0.5f), 0),
                    "receipt is missing"));
}

TEST(ReceiptsTest, EachGenerationHasItsKey) {
  const std::string secret(Receipts::kKeyBytes, 's');
  const std::string key = Receipts::MakeKey(secret, Generation(1));
  EXPECT_EQ(key.size(), Receipts::kKeyBytes);
  EXPECT_EQ(key, Receipts::MakeKey(secret, Generation(1)));
  EXPECT_NE(key, Receipts::MakeKey(secret, Generation(2)));
  EXPECT_NE(key, Receipts::MakeKey(std::string(16, 't'), Generation(1)));
  EXPECT_NE(key.substr(0, 8), key.substr(8));
}

}  // namespace
}  // namespace holdfast
