// SPDX-License-Identifier: Apache-2.0

// Shared by the tests of bad input: a job of two workers that trains while
// calls are made that must be refused.
#ifndef HOLDFAST_TESTS_INTEGRATION_BAD_INPUT_TESTING_H_
#define HOLDFAST_TESTS_INTEGRATION_BAD_INPUT_TESTING_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"

namespace holdfast {

// Variables are placed round-robin on two ps: "w" and "b" on ps 0, "frozen" on
// ps 1. Every step needs both of the two workers.
inline constexpr char kDeclaration[] = R"pb(
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
                   int generation);

// `count` float32 values of 1 (0x3f800000) or 3 (0x40400000), little-endian, as
// bytes in a textproto.
std::string Ones(int count);
std::string Threes(int count);

// The number after "receipt: ", or 0 if there is none.
uint64_t ReceiptIn(const std::string& answer);

// One test case: a call of `method` of `ps` with `request`.
struct BadCall {
  int ps;
  const char* method;
  // A textproto with placeholders: <w0> and <w1> stand for the valid senders
  // worker 0 and 1, <i0> for the incarnation of worker 0, <w1 of 2> for worker
  // 1 in generation 2, and <next w1> for an unknown life of worker 1.
  std::string request;
  // The status code, and parts of the message or, if the call succeeds, of the
  // response.
  std::vector<const char*> expected;
};

class BadInputTest : public testing::Test {
 protected:
  explicit BadInputTest(const std::string& declaration = kDeclaration,
                        bool gives_values = false);

  static std::string RegisterRest();

  std::string W(int worker) const;

  // "OK <response>" or "<CODE>: <message>".
  std::string Ask(int ps, absl::string_view method, const std::string& request,
                  absl::Duration timeout = kPatience);

  // Sends a complete, valid push of `worker` for `step` to both ps.
  void Push(int worker, int step, int sequence, const std::string& w,
            const std::string& b);

  std::string Contribute(int worker, int step, int sequence, int wait_ms);

  // Trains one step: worker 0 pushes ones and worker 1 pushes threes, so the
  // mean is 2.
  void TrainStep(int step, int sequence);

  std::string Pull(int ps, int version, const std::string& ranges);

  void Try(const std::vector<BadCall>& calls);

  TestCluster cluster_;
  RawClient ps0_;
  RawClient ps1_;
  // Indexed by worker.
  uint64_t incarnations_[2] = {};
  // Receipts of ps 0, keyed by worker and sequence.
  std::map<std::pair<int, int>, uint64_t> held_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_BAD_INPUT_TESTING_H_
