// Every RPC, given what it should not be given: each is answered with an error
// that names the thing, the daemons live on, and the training around it ends
// with the values that were calculated by hand.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Round robin over two ps: "w" and "b" are on ps 0, "frozen" is on ps 1. Two
// workers, both needed for a step.
constexpr char kDeclaration[] = R"pb(
  declaration {
    variables {
      name: "w"
      shape: [ 2, 3 ]
      dtype: FLOAT32
      initializer { constant { value: 10 } }
    }
    variables {
      name: "frozen"
      shape: 2
      dtype: FLOAT32
      initializer { constant { value: 7 } }
      trainable: false
    }
    variables {
      name: "b"
      dtype: FLOAT32
      initializer { zeros {} }
    }
    optimizers {
      learning_rate: 1
      sgd {}
    }
    consistency { synchronous {} }
    total_steps: 2
  }
)pb";

std::string Sender(const std::string& job, int index, uint64_t incarnation,
                   int generation) {
  return absl::StrCat("sender { task { job: '", job, "' index: ", index,
                      " } incarnation: ", incarnation,
                      " generation: ", generation, " } ");
}

// `count` float32 of 1 (0x3f800000) or 3 (0x40400000), little-endian, as the
// textproto of bytes.
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

// The number behind "receipt: ", 0 where there is none.
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

// A case of a table: `request` to `method` of ps `ps`.
struct BadCall {
  int ps;
  const char* method;
  // A textproto. Of the words in angle brackets, <w0> and <w1> stand for the
  // right senders worker 0 and 1, <i0> for the incarnation of worker 0, <w1 of
  // 2> for worker 1 in generation 2, and <next w1> for a life of it that is not
  // known.
  std::string request;
  // Code and parts of the message, or, where the answer is no error, of the
  // response.
  std::vector<const char*> expected;
};

class BadInputTest : public testing::Test {
 protected:
  explicit BadInputTest(const std::string& declaration = kDeclaration,
                        bool gives_values = false)
      : cluster_(MakeLoopbackCluster(2, 2), kLongLease),
        ps0_(cluster_.address(0)),
        ps1_(cluster_.address(1)) {
    for (int worker = 0; worker < 2; ++worker) {
      const std::string answer =
          Ask(0, "Coordinator.Register",
              absl::StrCat(Sender("worker", worker, 0, 0),
                           "nonce: ", worker + 1, RegisterRest()));
      EXPECT_THAT(answer, HasSubstr("generation: 1"));
      // It begins at random.
      const std::vector<std::string> words = absl::StrSplit(answer, ' ');
      EXPECT_EQ(words[1], "incarnation:");
      EXPECT_TRUE(absl::SimpleAtoi(words[2], &incarnations_[worker])) << answer;
    }
    EXPECT_THAT(Ask(0, "Coordinator.Declare", absl::StrCat(W(0), declaration)),
                HasSubstr("OK"));
    // Parked until ps 1 has joined and made its variables.
    EXPECT_THAT(
        Ask(0, "Coordinator.GetPlacement",
            absl::StrCat(W(0), "wait_ms: 30000",
                         gives_values ? " values_given_through: 0" : "")),
        HasSubstr(gives_values ? "values_wanted: true" : "ready: true"));
  }

  static std::string RegisterRest() {
    return absl::StrCat(" protocol_version: ", kProtocolVersion,
                        " process: 'test' job_digest: 'j' data_digest: 'd' ",
                        "num_ps: 2 num_workers: 2");
  }

  std::string W(int worker) const {
    return Sender("worker", worker, incarnations_[worker], 1);
  }

  // "OK <response>" or "<CODE>: <message>".
  std::string Ask(int ps, absl::string_view method, const std::string& request,
                  absl::Duration timeout = kPatience) {
    const absl::StatusOr<std::string> answer =
        (ps == 0 ? ps0_ : ps1_).Call(method, request, timeout);
    return answer.ok() ? absl::StrCat("OK ", *answer)
                       : answer.status().ToString();
  }

  // A whole, right push of `worker` to both ps, for `step`.
  void Push(int worker, int step, int sequence, const std::string& w,
            const std::string& b) {
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
    // Nothing of it is for ps 1.
    EXPECT_THAT(Ask(1, "Shard.Push", id), HasSubstr("OK generation: 1"));
  }

  std::string Contribute(int worker, int step, int sequence, int wait_ms) {
    return Ask(0, "Coordinator.Contribute",
               absl::StrCat(W(worker), "step: ", step, " seat: ", worker,
                            " sequence: ", sequence,
                            " examples: 100 loss: 1 acked_through: ",
                            sequence - 1, " wait_ms: ", wait_ms,
                            " receipts: ", held_[{worker, sequence}]));
  }

  // Worker 0 pushes ones and worker 1 threes: the step's mean is 2.
  void TrainStep(int step, int sequence) {
    Push(0, step, sequence, Ones(6), Ones(1));
    EXPECT_THAT(Contribute(0, step, sequence, 0),
                HasSubstr("waiting_for: \"/job:worker/task:1"));
    Push(1, step, sequence, Threes(6), Threes(1));
    EXPECT_THAT(Contribute(1, step, sequence, 30000),
                HasSubstr("verdict: ACCEPTED"));
    EXPECT_THAT(Contribute(0, step, sequence, 0),
                HasSubstr("verdict: ACCEPTED"));
  }

  std::string Pull(int ps, int version, const std::string& ranges) {
    return Ask(ps, "Shard.Pull",
               absl::StrCat(W(0), "min_version: ", version, " wait_ms: 30000 ",
                            ranges));
  }

  void Try(const std::vector<BadCall>& calls) {
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

  TestCluster cluster_;
  RawClient ps0_;
  RawClient ps1_;
  // Of the workers.
  uint64_t incarnations_[2] = {};
  // By worker and sequence: the receipt of ps 0.
  std::map<std::pair<int, int>, uint64_t> held_;
};

// A push of worker 1 with the tensor `fields`, which must be refused: its
// number is far from those of its real pushes.
std::string PushOf(const std::string& fields) {
  return "<w1> sequence: 50 num_parts: 1 step: 1 tensors { " + fields + " }";
}

TEST_F(BadInputTest, TrainingGoesOnUndisturbed) {
  TrainStep(0, 1);
  // While worker 0 waits for its partner in step 1:
  Push(0, 1, 2, Ones(6), Ones(1));
  EXPECT_THAT(Contribute(0, 1, 2, 0), HasSubstr("OK"));

  const std::string six = "data: '" + Ones(6) + "' ";
  const std::string w = "variable: 'w' shape: [2, 3] dtype: FLOAT32 ";
  Try({
      // Who asks.
      {0,
       "Shard.Push",
       "sequence: 1 num_parts: 1",
       {"INVALID_ARGUMENT", "PushRequest", "sender: must be set"}},
      {0,
       "Shard.Push",
       "sender {} sequence: 1 num_parts: 1",
       {"INVALID_ARGUMENT", "sender.task: must be set"}},
      {0,
       "Shard.Push",
       "sender { task {} } sequence: 1 num_parts: 1",
       {"INVALID_ARGUMENT", "sender.task.job: must be set"}},
      {0, "Shard.Pull", "", {"INVALID_ARGUMENT", "sender"}},
      {0,
       "Shard.PushPull",
       "",
       {"INVALID_ARGUMENT", "sender", "contribution or application"}},
      {0, "Shard.Pin", "hold_ms: 1", {"INVALID_ARGUMENT", "sender"}},
      {0, "Shard.Unpin", "", {"INVALID_ARGUMENT", "sender"}},
      {0, "Shard.Restore", "", {"INVALID_ARGUMENT", "sender", "declaration"}},
      {0, "Shard.Commit", "", {"INVALID_ARGUMENT", "sender"}},
      {0, "Shard.End", "", {"INVALID_ARGUMENT", "sender", "state"}},
      {0, "Coordinator.Register", "nonce: 1", {"INVALID_ARGUMENT", "sender"}},
      {0, "Coordinator.RenewLease", "", {"INVALID_ARGUMENT", "sender"}},
      {0, "Coordinator.Declare", "", {"INVALID_ARGUMENT", "sender"}},
      {0, "Coordinator.GetPlacement", "", {"INVALID_ARGUMENT", "sender"}},
      {0,
       "Coordinator.Contribute",
       "sequence: 1",
       {"INVALID_ARGUMENT", "sender"}},
      {0, "Coordinator.ReportEvaluation", "", {"INVALID_ARGUMENT", "sender"}},
      {0, "Coordinator.TakeTicket", "", {"INVALID_ARGUMENT", "sender"}},
      {0, "Coordinator.Leave", "", {"INVALID_ARGUMENT", "sender"}},
      {0, "Shard.Apply", "sequence: 1", {"INVALID_ARGUMENT", "sender"}},
      {0, "Shard.Fence", "", {"INVALID_ARGUMENT", "sender", "lives"}},
      {0, "Shard.Resolve", "", {"INVALID_ARGUMENT", "sender", "lives"}},

      // In which generation.
      {0,
       "Shard.Push",
       "<w1 of 0>sequence: 9 step: 1 num_parts: 1",
       {"OK", "generation: 1", "verdict: ABORTED"}},
      {0,
       "Shard.Push",
       "<w1 of 2>sequence: 9 step: 1 num_parts: 1",
       {"UNAVAILABLE", "generation 2"}},
      {0,
       "Shard.Pull",
       "<w1 of 0>",
       {"ABORTED", "/job:worker/task:1", "generation 0"}},
      {0, "Shard.Pin", "<w1 of 2>hold_ms: 1", {"UNAVAILABLE", "generation 2"}},
      {0, "Shard.Unpin", "<w1 of 2>", {"UNAVAILABLE"}},
      {0, "Shard.Commit", Sender("ps", 0, 0, 2), {"UNAVAILABLE", "life"}},
      {0, "Coordinator.RenewLease", "<w1 of 2>", {"OK", "generation: 1"}},
      {0,
       "Coordinator.Contribute",
       "<w1 of 2>sequence: 9",
       {"OK", "verdict: ABORTED"}},

      // In which life.
      {0,
       "Coordinator.RenewLease",
       "<next w1>",
       {"NOT_FOUND", "/job:worker/task:1", "incarnation"}},
      {0, "Coordinator.RenewLease", Sender("client", 0, 0, 1), {"NOT_FOUND"}},
      {0,
       "Coordinator.RenewLease",
       "<w1>input_wait { recent: 1.5 }",
       {"INVALID_ARGUMENT", "input_wait.recent"}},
      {0,
       "Coordinator.RenewLease",
       "<w1>input_wait { overall: nan }",
       {"INVALID_ARGUMENT", "input_wait.overall"}},
      {0,
       "Coordinator.Contribute",
       Sender("worker", 1, 0, 1) + "sequence: 9 step: 1 seat: 1",
       {"verdict: FENCED"}},
      {0,
       "Coordinator.Contribute",
       "<next w1>sequence: 9 step: 1 seat: 1",
       {"NOT_FOUND"}},
      {0, "Coordinator.Leave", "<next w1>", {"NOT_FOUND"}},
      {0,
       "Coordinator.ReportEvaluation",
       "<next w1>result { step: 1 }",
       {"NOT_FOUND"}},

      // As what.
      {0,
       "Shard.Push",
       Sender("client", 0, 1, 1) + "sequence: 1 step: 1 num_parts: 1",
       {"INVALID_ARGUMENT", "/job:client/task:0"}},
      {0,
       "Shard.Push",
       Sender("worker", 7, 1, 1) + "sequence: 1 step: 1 num_parts: 1",
       {"INVALID_ARGUMENT", "/job:worker/task:7"}},
      {0,
       "Shard.Push",
       Sender("worker", 1, 0, 1) + "sequence: 1 step: 1 num_parts: 1",
       {"INVALID_ARGUMENT", "incarnation 0"}},
      {0,
       "Shard.Restore",
       std::string("<w1> slices { variable: 'w' size: 6 }") + kDeclaration,
       {"PERMISSION_DENIED", "/job:worker/task:1", "/job:ps/task:0"}},
      {0, "Shard.Commit", "<w1> step: 1", {"PERMISSION_DENIED"}},
      {0, "Shard.End", "<w1> state { phase: DONE }", {"PERMISSION_DENIED"}},
      {0,
       "Coordinator.Register",
       Sender("ps", 0, 0, 0) + "nonce: 5" + RegisterRest(),
       {"ALREADY_EXISTS", "/job:ps/task:0"}},
      {0,
       "Coordinator.Register",
       Sender("worker", 99, 0, 0) + "nonce: 5" + RegisterRest(),
       {"INVALID_ARGUMENT", "/job:worker/task:99", "2 ps"}},
      {0,
       "Coordinator.Register",
       Sender("boss", 0, 0, 0) + "nonce: 5" + RegisterRest(),
       {"INVALID_ARGUMENT", "/job:boss/task:0"}},
      {0,
       "Coordinator.Register",
       Sender("worker", 1, 0, 0) + "nonce: 0" + RegisterRest(),
       {"INVALID_ARGUMENT", "nonce"}},
      {0,
       "Coordinator.Register",
       Sender("worker", 1, 0, 0) + "nonce: 2 protocol_version: 77",
       {"FAILED_PRECONDITION", "77"}},
      {0,
       "Coordinator.Register",
       absl::StrCat(Sender("worker", 1, 0, 0), "nonce: 2 protocol_version: ",
                    kProtocolVersion, " num_ps: 5 num_workers: 2"),
       {"FAILED_PRECONDITION", "5 ps"}},

      // Which part of which push.
      {0,
       "Shard.Push",
       "<w1> sequence: 0 step: 1 num_parts: 1",
       {"INVALID_ARGUMENT", "sequence: must be at least 1"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 50 step: 1 num_parts: 0",
       {"INVALID_ARGUMENT", "num_parts: must be at least 1"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 50 step: 1 num_parts: 4294967295",
       {"INVALID_ARGUMENT", "num_parts: must be at most 1048576"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 50 step: 1 part: 1 num_parts: 1",
       {"INVALID_ARGUMENT", "part 1 of 1"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 50 step: 1 part: 4294967295 num_parts: 1",
       {"INVALID_ARGUMENT", "part 4294967295 of 1"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 50 step: 2 num_parts: 1",
       {"UNAVAILABLE", "step 2", "/job:worker/task:1"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 50 step: 18446744073709551615 num_parts: 1",
       {"FAILED_PRECONDITION", "18446744073709551615"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 50 step: 0 num_parts: 1",
       {"OK", "verdict: STALE", "version: 1"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 18446744073709551615 step: 1 num_parts: 1",
       {"/job:worker/task:1", "18446744073709551615"}},

      // With which tensors.
      {0,
       "Shard.Push",
       PushOf("shape: [2, 3] dtype: FLOAT32 " + six),
       {"INVALID_ARGUMENT", "variable \"\""}},
      {0,
       "Shard.Push",
       PushOf("variable: 'nope' shape: [2, 3] dtype: FLOAT32 " + six),
       {"INVALID_ARGUMENT", "\"nope\"", "/job:worker/task:1"}},
      {0,
       "Shard.Push",
       PushOf("variable: 'frozen' shape: 2 dtype: FLOAT32 data: '" + Ones(2) +
              "'"),
       {"INVALID_ARGUMENT", "\"frozen\""}},
      {1,
       "Shard.Push",
       PushOf("variable: 'frozen' shape: 2 dtype: FLOAT32 data: '" + Ones(2) +
              "'"),
       {"INVALID_ARGUMENT", "\"frozen\"", "not trainable"}},
      {0,
       "Shard.Push",
       PushOf("variable: 'w' shape: [3, 2] dtype: FLOAT32 " + six),
       {"INVALID_ARGUMENT", "\"w\"", "[3,2]", "[2,3]"}},
      {0,
       "Shard.Push",
       PushOf("variable: 'w' shape: 6 dtype: FLOAT32 " + six),
       {"INVALID_ARGUMENT", "\"w\"", "[6]", "[2,3]"}},
      {0,
       "Shard.Push",
       PushOf("variable: 'w' shape: [-1, -6] dtype: FLOAT32 " + six),
       {"INVALID_ARGUMENT", "\"w\"", "[-1,-6]"}},
      {0,
       "Shard.Push",
       PushOf("variable: 'w' shape: [2, 3] " + six),
       {"INVALID_ARGUMENT", "\"w\"", "DATA_TYPE_UNSPECIFIED", "FLOAT32"}},
      {0,
       "Shard.Push",
       PushOf("variable: 'w' shape: [2, 3] dtype: 77 " + six),
       {"INVALID_ARGUMENT", "dtype", "77"}},
      {0,
       "Shard.Push",
       PushOf(w + "data: '12345'"),
       {"INVALID_ARGUMENT", "\"w\"", "5 bytes"}},
      {0,
       "Shard.Push",
       PushOf(w + "data: '" + Ones(7) + "'"),
       {"INVALID_ARGUMENT", "\"w\"", "+7"}},
      {0,
       "Shard.Push",
       PushOf(w + "begin: 1 " + six),
       {"INVALID_ARGUMENT", "\"w\"", "[1, +6"}},
      {0,
       "Shard.Push",
       PushOf(w + "begin: 7 data: '" + Ones(1) + "'"),
       {"INVALID_ARGUMENT", "\"w\"", "[7, +1"}},
      {0,
       "Shard.Push",
       PushOf(w + "begin: 18446744073709551615 data: '" + Ones(1) + "'"),
       {"INVALID_ARGUMENT", "\"w\"", "18446744073709551615"}},
      {0,
       "Shard.Push",
       PushOf(w + six + " } tensors { " + w + six),
       {"INVALID_ARGUMENT", "\"w\"", "twice"}},
      {0, "Shard.Push", PushOf(w + six), {"\"b\"", "0 of 1 elements"}},
      {0,
       "Shard.Push",
       "<w1> sequence: 50 step: 1 num_parts: 1",
       {"\"w\"", "0 of 6 elements"}},

      // Pulls of nonsense.
      {0,
       "Shard.Pull",
       "<w1> ranges {}",
       {"INVALID_ARGUMENT", "ranges[0].variable: must be set"}},
      {0,
       "Shard.Pull",
       "<w1> ranges { variable: 'nope' size: 1 }",
       {"NOT_FOUND", "\"nope\""}},
      {0,
       "Shard.Pull",
       "<w1> ranges { variable: 'frozen' size: 1 }",
       {"NOT_FOUND", "\"frozen\""}},
      {0,
       "Shard.Pull",
       "<w1> ranges { variable: 'w' size: 7 }",
       {"NOT_FOUND", "\"w\"", "[0, +7"}},
      {0,
       "Shard.Pull",
       "<w1> ranges { variable: 'w' begin: 7 }",
       {"NOT_FOUND", "\"w\"", "[7, +0"}},
      {0,
       "Shard.Pull",
       "<w1> ranges { variable: 'w' begin: 18446744073709551615 size: 2 }",
       {"NOT_FOUND", "\"w\"", "18446744073709551615"}},
      {0,
       "Shard.Pull",
       "<w1> ranges { variable: 'w' begin: 1 size: 18446744073709551615 }",
       {"INVALID_ARGUMENT", "\"w\"", "18446744073709551615"}},
      {0,
       "Shard.Pull",
       "<w1> exact_version: 0",
       {"NOT_FOUND", "version 0", "newest is 1"}},
      {0,
       "Shard.Pull",
       "<w1> exact_version: 18446744073709551615",
       {"NOT_FOUND", "18446744073709551615"}},
      {0,
       "Shard.Pull",
       "<w1> min_version: 18446744073709551615 ranges { variable: 'nope' } "
       "wait_ms: 18446744073709551615",
       {"NOT_FOUND", "\"nope\""}},

      // Pins.
      {0, "Shard.Pin", "<w1> hold_ms: 0", {"INVALID_ARGUMENT", "hold_ms"}},
      {0,
       "Shard.Pin",
       "<w1> hold_ms: 18446744073709551615",
       {"INVALID_ARGUMENT", "hold_ms", "3600000"}},
      {0,
       "Shard.Pin",
       "<w1> hold_ms: 1 version: 99",
       {"NOT_FOUND", "version 99"}},
      {0, "Shard.Unpin", "<w1> pin: 18446744073709551615", {"OK"}},

      // Forged in the coordinator's name: it would do what it says.
      {0,
       "Shard.Restore",
       Sender("ps", 0, 0, 1) + "declaration {}",
       {"INVALID_ARGUMENT", "declaration.variables: must have one"}},
      {0,
       "Shard.Restore",
       Sender("ps", 0, 0, 2) + "slices { variable: 'w' size: 3 }" +
           kDeclaration,
       {"UNAVAILABLE", "generation 2 is for another life of /job:ps/task:0"}},
      {0,
       "Shard.Commit",
       Sender("ps", 0, 0, 1) + "step: 1 scalars { learning_rate: 1 }",
       {"UNAVAILABLE", "another life of /job:ps/task:0"}},
      {0,
       "Shard.Fence",
       Sender("ps", 0, 0, 1) +
           "lives { worker { job: 'worker' } incarnation: <i0> }",
       {"UNAVAILABLE", "another life of /job:ps/task:0"}},
      {0,
       "Shard.Resolve",
       Sender("ps", 0, 0, 1) +
           "lives { worker { job: 'worker' } incarnation: <i0> }",
       {"UNAVAILABLE", "another life of /job:ps/task:0"}},
      {0,
       "Shard.End",
       Sender("ps", 0, 0, 1) + "state { phase: DONE }",
       {"UNAVAILABLE", "another life of /job:ps/task:0"}},
      {1,
       "Shard.End",
       Sender("ps", 0, 0, 9) + "state { phase: FAILED reason: 'forged' }",
       {"UNAVAILABLE", "another life of /job:ps/task:1"}},
      {0,
       "Shard.Commit",
       Sender("ps", 0, 0, 1) +
           "step: 1 scalars { learning_rate: 1 } contributions { worker { job: "
           "'worker' } incarnation: <i0> sequence: 2 weight: nan }",
       {"INVALID_ARGUMENT", "weight"}},

      // Declarations.
      {0,
       "Coordinator.Declare",
       Sender("ps", 1, 1, 1) + kDeclaration,
       {"/job:ps/task:1"}},
      {0,
       "Coordinator.Declare",
       "<w1> declaration {}",
       {"INVALID_ARGUMENT", "declaration.variables: must have one"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration, {{"name: \"w\"", ""}}),
       {"INVALID_ARGUMENT", "declaration.variables[0].name: must be set"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration, {{"\"w\"", "\"../w\""}}),
       {"INVALID_ARGUMENT", "declaration.variables[0].name", "../w"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration, {{"\"frozen\"", "\"w\""}}),
       {"INVALID_ARGUMENT", "\"w\"", "twice"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration, {{"[ 2, 3 ]", "-2"}}),
       {"INVALID_ARGUMENT", "declaration.variables[0].shape"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration,
                                    {{"[ 2, 3 ]", "[9223372036854775807, 3]"}}),
       {"INVALID_ARGUMENT", "\"w\"", "9223372036854775807"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration, {{"dtype: FLOAT32", ""}}),
       {"INVALID_ARGUMENT", "declaration.variables[0].dtype"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration,
                                    {{"initializer { zeros {} }", ""}}),
       {"INVALID_ARGUMENT", "declaration.variables[2].initializer"}},
      {0,
       "Coordinator.Declare",
       "<w1>" +
           absl::StrReplaceAll(kDeclaration, {{"value: 10", "value: inf"}}),
       {"INVALID_ARGUMENT", "declaration.variables[0].initializer"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration, {{"learning_rate: 1", ""}}),
       {"declaration"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration, {{"sgd {}", ""}}),
       {"INVALID_ARGUMENT", "declaration.optimizers[0]"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration, {{"trainable: false",
                                                    "optimizer: 4294967295"}}),
       {"INVALID_ARGUMENT", "\"frozen\"", "4294967295"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(
                    kDeclaration,
                    {{"synchronous {}",
                      "synchronous { replicas_to_aggregate: 65537 }"}}),
       {"INVALID_ARGUMENT", "replicas_to_aggregate", "65536"}},
      {0,
       "Coordinator.Declare",
       "<w1>" +
           absl::StrReplaceAll(kDeclaration,
                               {{"synchronous {}",
                                 "synchronous { replicas_to_aggregate: 3 }"}}),
       {"ALREADY_EXISTS", "replicas_to_aggregate: 2 -> 3"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(
                    kDeclaration, {{"synchronous {}",
                                    "synchronous { total_num_replicas: 9 }"}}),
       {"INVALID_ARGUMENT", "total_num_replicas is 9", "2 workers"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration,
                                    {{"total_steps: 2", "total_steps: 0"}}),
       {"INVALID_ARGUMENT", "declaration.total_steps"}},
      {0,
       "Coordinator.Declare",
       "<w1>" + absl::StrReplaceAll(kDeclaration,
                                    {{"total_steps: 2", "total_steps: 3"}}),
       {"ALREADY_EXISTS", "total_steps: 2 -> 3", "/job:worker/task:1"}},

      // Contributions.
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 50 step: 1 seat: 1 examples: 18446744073709551615",
       {"INVALID_ARGUMENT", "examples"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 0 step: 1 seat: 1",
       {"INVALID_ARGUMENT", "sequence"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 50 step: 1 seat: 0",
       {"INVALID_ARGUMENT", "/job:worker/task:1", "seat 0"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 50 step: 1 seat: 4294967295",
       {"INVALID_ARGUMENT", "seat 4294967295"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 50 step: 2 seat: 1",
       {"FAILED_PRECONDITION", "step 2", "open step is 1"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 50 step: 1 seat: 1 clip_factor: 2",
       {"INVALID_ARGUMENT", "clip_factor"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 50 step: 1 seat: 1 clip_factor: nan",
       {"INVALID_ARGUMENT", "clip_factor"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 50 step: 1 seat: 1 loss: nan",
       {"INVALID_ARGUMENT", "loss"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 18446744073709551615 step: 1 seat: 1",
       {"/job:worker/task:1", "18446744073709551615"}},
      // Of what no shard holds.
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 2 step: 1 seat: 1 examples: 100",
       {"FAILED_PRECONDITION", "push 2 of /job:worker/task:1",
        "held whole by /job:ps/task:0", "missing"}},
      {0,
       "Coordinator.Contribute",
       "<w1> sequence: 2 step: 1 seat: 1 examples: 100 receipts: [7, 7]",
       {"FAILED_PRECONDITION", "held whole by /job:ps/task:0", "wrong"}},
      {0,
       "Coordinator.ReportEvaluation",
       "<w1>",
       {"INVALID_ARGUMENT", "result: must be set"}},
      {0,
       "Coordinator.ReportEvaluation",
       "<w1> result { accuracy: inf }",
       {"INVALID_ARGUMENT", "result.accuracy"}},

      // What a synchronous job by step does not have.
      {0,
       "Coordinator.TakeTicket",
       "<w1> sequence: 50",
       {"FAILED_PRECONDITION", "by step"}},
      {0,
       "Shard.Apply",
       "<w1> sequence: 50 scalars {}",
       {"FAILED_PRECONDITION", "synchronous"}},
      {0,
       "Shard.Fence",
       "<w1> lives { worker { job: 'worker' } incarnation: 1 }",
       {"PERMISSION_DENIED", "/job:ps/task:0"}},
      {0,
       "Shard.Resolve",
       "<w1> lives { worker { job: 'worker' } incarnation: 1 }",
       {"PERMISSION_DENIED", "/job:ps/task:0"}},

      // The wrong ps.
      {1, "Coordinator.TakeTicket", "<w1>", {"FAILED_PRECONDITION"}},
      {1,
       "Coordinator.Register",
       Sender("worker", 1, 0, 0) + "nonce: 5" + RegisterRest(),
       {"FAILED_PRECONDITION", "/job:ps/task:1", "/job:ps/task:0 at 127."}},
      {1, "Coordinator.RenewLease", "<w1>", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.Declare", "<w1>", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.GetPlacement", "<w1>", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.Contribute", "<w1>", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.ReportEvaluation", "<w1>", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.Leave", "<w1>", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.GetStatus", "", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.GetEvents", "", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.GetHistory", "", {"FAILED_PRECONDITION"}},
      {1, "Coordinator.Trace", "", {"FAILED_PRECONDITION"}},
      {0,
       "Coordinator.Trace",
       "action: BEGIN trace: 1 steps: 10001",
       {"INVALID_ARGUMENT", "steps"}},
      {0,
       "Coordinator.Trace",
       "action: BEGIN steps: 1",
       {"INVALID_ARGUMENT", "number"}},
      {0, "Coordinator.Trace", "action: FETCH trace: 1", {"NOT_FOUND"}},
      {0, "Coordinator.ReportTrace", "", {"INVALID_ARGUMENT", "sender"}},
      {0,
       "Coordinator.ReportTrace",
       "<w1> trace: 1 part { last: true }",
       {"NOT_FOUND"}},
      {0,
       "Coordinator.ReportTrace",
       "<w1> trace: 1 part { spans { track: 1024 name: 'a' } }",
       {"INVALID_ARGUMENT", "track"}},
      {0,
       "Coordinator.ReportTrace",
       absl::StrCat("<w1> trace: 1 part { spans { name: '",
                    std::string(65, 'a'), "' } }"),
       {"INVALID_ARGUMENT", "name: must have at most 64 bytes"}},
      {0,
       "Coordinator.ReportTrace",
       absl::StrCat(
           "<w1> trace: 1 part { ",
           absl::StrJoin(std::vector<std::string>(1025, "spans { name: 'a' }"),
                         " "),
           " }"),
       {"INVALID_ARGUMENT", "spans: must have at most 1024 values"}},
      {0,
       "Coordinator.GetHistory",
       "max_points: 10001",
       {"INVALID_ARGUMENT", "max_points"}},
  });

  Push(1, 1, 2, Threes(6), Threes(1));
  EXPECT_THAT(Contribute(1, 1, 2, 30000), HasSubstr("verdict: ACCEPTED"));
  EXPECT_THAT(Contribute(0, 1, 2, 0), HasSubstr("verdict: ACCEPTED"));

  // w = 10 - 2 - 2 = 6 (0x40c00000), b = 0 - 2 - 2 = -4 (0xc0800000).
  EXPECT_THAT(Pull(0, 2,
                   "ranges { variable: 'w' begin: 4 size: 2 } "
                   "ranges { variable: 'b' size: 1 }"),
              AllOf(HasSubstr("version: 2"),
                    HasSubstr("begin: 4 data: "
                              "\"\\000\\000\\300@\\000\\000\\300@\""),
                    HasSubstr("data: \"\\000\\000\\200\\300\"")));
  // 7 (0x40e00000).
  EXPECT_THAT(Pull(1, 2, "ranges { variable: 'frozen' size: 2 }"),
              HasSubstr("data: \"\\000\\000\\340@\\000\\000\\340@\""));

  EXPECT_THAT(
      Ask(0, "Coordinator.GetStatus", ""),
      AllOf(HasSubstr("phase: DONE"), HasSubstr("global_step: 2"),
            HasSubstr("pushes { accepted: 4 }"), HasSubstr("examples: 400")));
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_THAT(Ask(0, "Coordinator.Leave", W(worker)), HasSubstr("DONE"));
  }
  EXPECT_EQ(cluster_.Wait(0), absl::OkStatus());
  EXPECT_EQ(cluster_.Wait(1), absl::OkStatus());
}

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

  // Has a push applied at both ps. What tells that it is spent.
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
       {"FAILED_PRECONDITION", "push 3", "expected is push 2"}},
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
      // What is out is not forgotten, whatever is said of it.
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
       {"FAILED_PRECONDITION", "expected is push 1"}},
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

      // Forged in the coordinator's name.
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
  // Worker 1 has computed on the version before: staleness 1.
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

// A worker that tells as spent what no shard has applied harms itself alone.
TEST_F(AsynchronousBadInputTest, AFalseClaimEndsItsWorker) {
  std::string ticket = TakeTicket(0, 1, "");
  EXPECT_THAT(TakeTicket(1, 1, ""), HasSubstr("ticket { index: 1"));
  EXPECT_THAT(TakeTicket(1, 0, "spent { sequence: 1 examples: 100 }"),
              AllOf(HasSubstr("FAILED_PRECONDITION"),
                    HasSubstr("push 1 of /job:worker/task:1"),
                    HasSubstr("applied by /job:ps/task:0")));
  EXPECT_THAT(TakeTicket(1, 2, ""), HasSubstr("verdict: FENCED"));
  EXPECT_THAT(Ask(0, "Coordinator.RenewLease", W(1)), HasSubstr("shut out"));
  EXPECT_THAT(Ask(0, "Coordinator.GetStatus", ""),
              AllOf(HasSubstr("phase: TRAINING"), Not(HasSubstr("accepted"))));
  // The other one does all, with the ticket that came back.
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

// A pull that is parked when its caller gives up is answered to nobody.
// The first values of "w" are given: ones.
class GivenBadInputTest : public BadInputTest {
 protected:
  GivenBadInputTest()
      : BadInputTest(absl::StrReplaceAll(
                         kDeclaration, {{"constant { value: 10 }",
                                         "given { sha256: "
                                         "'f46913286d895f62d646314f400fc3d7a543"
                                         "cf34eb4ae56df87f43dc4582a36b' }"}}),
                     /*gives_values=*/true) {}
};

TEST_F(GivenBadInputTest, TrainingBeginsWithTheDeclaredValues) {
  const std::string w = "tensors { variable: 'w' data: '" + Ones(6) + "' } ";
  const std::string others =
      "tensors { variable: 'w' data: '" + Threes(6) + "' } ";
  Try({
      {0, "Shard.Give", "", {"INVALID_ARGUMENT", "sender: must be set"}},
      {0,
       "Shard.Give",
       "sender { task { job: 'worker' index: 2 } incarnation: 1 "
       "generation: 1 } " +
           w,
       {"INVALID_ARGUMENT", "only a worker of the cluster",
        "/job:worker/task:2"}},
      {0,
       "Shard.Give",
       "sender { task { job: 'client' } generation: 1 } " + w,
       {"INVALID_ARGUMENT", "only a worker of the cluster"}},
      {0,
       "Shard.Give",
       "<w1 of 0> " + w,
       {"ABORTED", "speaks in generation 0"}},
      {0,
       "Shard.Give",
       "<w1 of 2> " + w,
       {"UNAVAILABLE", "is not in generation 2 yet"}},
      {0,
       "Shard.Give",
       "<w1> " + others,
       {"INVALID_ARGUMENT", "first values of variable \"w\"",
        "elements 0 to 5 are not those that were declared",
        "given by /job:worker/task:1"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' data: '" + Ones(5) + "' }",
       {"INVALID_ARGUMENT",
        "variable \"w\": 20 bytes from element 0, expected "
        "is the stretch of 6 elements"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' }",
       {"INVALID_ARGUMENT", "variable \"w\": 0 bytes"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' encoding: FLOAT16 data: '" + Ones(6) +
           "' }",
       {"INVALID_ARGUMENT", "EXACT"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' encoding: 99 data: '" + Ones(6) + "' }",
       {"INVALID_ARGUMENT", "EXACT"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' begin: 1 data: '" + Ones(5) + "' }",
       {"INVALID_ARGUMENT", "no stretch begins at element 1"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'w' begin: 18446744073709289472 data: '" +
           Ones(6) + "' }",
       {"INVALID_ARGUMENT",
        "no stretch begins at element 18446744073709289472"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'b' data: '" + Ones(1) + "' }",
       {"INVALID_ARGUMENT", "variable \"b\": they are not given on this ps"}},
      {0,
       "Shard.Give",
       "<w1> tensors { variable: 'none' }",
       {"INVALID_ARGUMENT",
        "variable \"none\": they are not given on this ps"}},
      // Nothing is there before all values are.
      {0,
       "Shard.Push",
       "<w1> sequence: 1 num_parts: 1",
       {"UNAVAILABLE", "is not in generation 1 yet"}},
      {0,
       "Shard.Pull",
       "<w1> min_version: 0 ranges { variable: 'w' size: 6 }",
       {"UNAVAILABLE", "is not in generation 1 yet"}},
      {0,
       "Coordinator.GetPlacement",
       "<w1> wait_ms: 30000 values_given_through: 0",
       {"OK", "values_wanted: true"}},
      {0,
       "Coordinator.Declare",
       "<w1> declaration { variables { name: 'w' shape: 6 dtype: FLOAT32 "
       "initializer { given { sha256: 'abc' } } } optimizers { sgd {} "
       "learning_rate: 1 } consistency { synchronous {} } total_steps: 2 }",
       {"INVALID_ARGUMENT",
        "variable \"w\": given.sha256[0]: not 64 "
        "lower-case hexadecimal digits"}},
      {0, "Shard.Give", "<w1>", {"OK", "wanted { variable: \"w\" size: 6 }"}},
      // Ps 1 lacks nothing, and takes nothing.
      {1, "Shard.Give", "<w1> " + w, {"OK generation: 1"}},
      {0, "Shard.Give", "<w1> " + w, {"OK generation: 1"}},
      {0, "Shard.Give", "<w0> " + others, {"OK generation: 1"}},
      {0,
       "Coordinator.GetPlacement",
       "<w1> wait_ms: 30000 values_given_through: 1",
       {"OK", "ready: true"}},
  });
  const std::string one = "\\000\\000\\200?";
  EXPECT_THAT(Pull(0, 0, "ranges { variable: 'w' size: 6 }"),
              HasSubstr("data: \"" + one + one + one + one + one + one + "\""));
  TrainStep(0, 1);
}

TEST_F(BadInputTest, ACallerThatHasGoneDisturbsNobody) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Ask(0, "Shard.Pull",
                    W(1) + "min_version: 1 wait_ms: 18446744073709551615 "
                           "ranges { variable: 'w' size: 6 }",
                    absl::Milliseconds(20)),
                HasSubstr("DEADLINE_EXCEEDED"));
    EXPECT_THAT(Ask(0, "Coordinator.Contribute",
                    W(0) + "sequence: 1 seat: 0 examples: 0 wait_ms: 30000",
                    absl::Milliseconds(20)),
                HasSubstr("DEADLINE_EXCEEDED"));
  }
  EXPECT_THAT(Ask(0, "Coordinator.Contribute",
                  W(1) + "sequence: 1 seat: 1 examples: 0 wait_ms: 30000"),
              HasSubstr("verdict: ACCEPTED"));
  EXPECT_THAT(Pull(0, 1, "ranges { variable: 'w' size: 1 }"),
              HasSubstr("version: 1"));
}

TEST_F(BadInputTest, BytesThatAreNoMessage) {
  for (const char* method :
       {"/holdfast.proto.Shard/Push", "/holdfast.proto.Shard/Pull",
        "/holdfast.proto.Coordinator/Contribute"}) {
    // A field of length 127 that is not there.
    EXPECT_FALSE(ps0_.CallBytes(method, "\x0a\x7f", kPatience).ok());
  }
  EXPECT_EQ(ps0_.CallBytes("/holdfast.proto.Shard/Explode", "", kPatience)
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
  // Beyond 16 MiB.
  EXPECT_EQ(ps0_.CallBytes("/holdfast.proto.Shard/Push",
                           std::string(20 << 20, 'x'), kPatience)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  // Fields of another version are ignored.
  EXPECT_TRUE(ps0_.CallBytes("/holdfast.proto.Coordinator/GetStatus",
                             "\xfa\x7f\x03"
                             "abc",
                             kPatience)
                  .ok());
  EXPECT_THAT(Ask(0, "Coordinator.GetStatus", ""),
              HasSubstr("phase: TRAINING"));
}

}  // namespace
}  // namespace holdfast
