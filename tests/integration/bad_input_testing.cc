// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/bad_input_testing.h"

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"

namespace holdfast {

using ::testing::HasSubstr;

std::string Sender(const std::string& job, int index, uint64_t incarnation,
                   int generation) {
  return absl::StrCat("sender { task { job: '", job, "' index: ", index,
                      " } incarnation: ", incarnation,
                      " generation: ", generation, " } ");
}

std::string Ones(int count) {
  std::string data;
  for (int i = 0; i < count; ++i)
    absl::StrAppend(&data, "\\000\\000\\200\\077");
  return data;
}

std::string Threes(int count) {
  std::string data;
  for (int i = 0; i < count; ++i)
    absl::StrAppend(&data, "\\000\\000\\100\\100");
  return data;
}

uint64_t ReceiptIn(const std::string& answer) {
  const std::vector<std::string> words =
      absl::StrSplit(answer, absl::ByAnyChar(" }"));
  uint64_t receipt = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "receipt:") {
      EXPECT_TRUE(absl::SimpleAtoi(words[i + 1], &receipt)) << answer;
    }
  }
  return receipt;
}

BadInputTest::BadInputTest(const std::string& declaration, bool gives_values)
    : cluster_(MakeLoopbackCluster(2, 2), kLongLease),
      ps0_(cluster_.address(0)),
      ps1_(cluster_.address(1)) {
  for (int worker = 0; worker < 2; ++worker) {
    const std::string answer =
        Ask(0, "Coordinator.Register",
            absl::StrCat(Sender("worker", worker, 0, 0), "nonce: ", worker + 1,
                         RegisterRest()));
    EXPECT_THAT(answer, HasSubstr("generation: 1"));
    // Incarnations are random.
    const std::vector<std::string> words = absl::StrSplit(answer, ' ');
    EXPECT_EQ(words[1], "incarnation:");
    EXPECT_TRUE(absl::SimpleAtoi(words[2], &incarnations_[worker])) << answer;
  }
  EXPECT_THAT(Ask(0, "Coordinator.Declare", absl::StrCat(W(0), declaration)),
              HasSubstr("OK"));
  // Parked until ps 1 has joined and created its variables.
  EXPECT_THAT(Ask(0, "Coordinator.GetPlacement",
                  absl::StrCat(W(0), "wait_ms: 30000",
                               gives_values ? " values_given_through: 0" : "")),
              HasSubstr(gives_values ? "values_wanted: true" : "ready: true"));
}

std::string BadInputTest::RegisterRest() {
  return absl::StrCat(" protocol_version: ", kProtocolVersion,
                      " process: 'test' job_digest: 'j' data_digest: 'd' ",
                      "num_ps: 2 num_workers: 2");
}

std::string BadInputTest::W(int worker) const {
  return Sender("worker", worker, incarnations_[worker], 1);
}

std::string BadInputTest::Ask(int ps, absl::string_view method,
                              const std::string& request,
                              absl::Duration timeout) {
  const absl::StatusOr<std::string> answer =
      (ps == 0 ? ps0_ : ps1_).Call(method, request, timeout);
  return answer.ok() ? absl::StrCat("OK ", *answer)
                     : answer.status().ToString();
}

void BadInputTest::Push(int worker, int step, int sequence,
                        const std::string& w, const std::string& b) {
  const std::string id =
      absl::StrCat(W(worker), "sequence: ", sequence, " step: ", step,
                   " num_parts: 1 acked_through: ", sequence - 1);
  const std::string answer = Ask(
      0, "Shard.Push",
      absl::StrCat(
          id, " tensors { variable: 'w' shape: [2, 3] dtype: FLOAT32 data: '",
          w, "' } tensors { variable: 'b' dtype: FLOAT32 data: '", b, "' }"));
  EXPECT_THAT(answer, HasSubstr("OK generation: 1"));
  held_[{worker, sequence}] = ReceiptIn(answer);
  // Nothing of this push is for ps 1.
  EXPECT_THAT(Ask(1, "Shard.Push", id), HasSubstr("OK generation: 1"));
}

std::string BadInputTest::Contribute(int worker, int step, int sequence,
                                     int wait_ms) {
  return Ask(
      0, "Coordinator.Contribute",
      absl::StrCat(
          W(worker), "step: ", step, " seat: ", worker, " sequence: ", sequence,
          " examples: 100 loss: 1 acked_through: ", sequence - 1,
          " wait_ms: ", wait_ms, " receipts: ", held_[{worker, sequence}]));
}

void BadInputTest::TrainStep(int step, int sequence) {
  Push(0, step, sequence, Ones(6), Ones(1));
  EXPECT_THAT(Contribute(0, step, sequence, 0),
              HasSubstr("waiting_for: \"/job:worker/task:1"));
  Push(1, step, sequence, Threes(6), Threes(1));
  EXPECT_THAT(Contribute(1, step, sequence, 30000),
              HasSubstr("verdict: ACCEPTED"));
  EXPECT_THAT(Contribute(0, step, sequence, 0), HasSubstr("verdict: ACCEPTED"));
}

std::string BadInputTest::Pull(int ps, int version, const std::string& ranges) {
  return Ask(
      ps, "Shard.Pull",
      absl::StrCat(W(0), "min_version: ", version, " wait_ms: 30000 ", ranges));
}

void BadInputTest::Try(const std::vector<BadCall>& calls) {
  for (const BadCall& call : calls) {
    const std::string request = absl::StrReplaceAll(
        call.request,
        {{"<w1>", W(1)},
         {"<w0>", W(0)},
         {"<i0>", absl::StrCat(incarnations_[0])},
         {"<w1 of 0>", Sender("worker", 1, incarnations_[1], 0)},
         {"<w1 of 2>", Sender("worker", 1, incarnations_[1], 2)},
         {"<next w1>", Sender("worker", 1, incarnations_[1] + 9, 1)}});
    const std::string answer = Ask(call.ps, call.method, request);
    for (const char* part : call.expected) {
      EXPECT_THAT(answer, HasSubstr(part))
          << call.method << " at ps " << call.ps << " with " << call.request;
    }
  }
}

}  // namespace holdfast
