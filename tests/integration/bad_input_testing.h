// What the tests of bad input share: a job of two workers that trains while
// somebody makes calls that must be refused.
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

// Round robin over two ps: "w" and "b" are on ps 0, "frozen" is on ps 1. Two
// workers, both needed for a step.
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

// `count` float32 of 1 (0x3f800000) or 3 (0x40400000), little-endian, as the
// textproto of bytes.
std::string Ones(int count);
std::string Threes(int count);

// The number behind "receipt: ", 0 where there is none.
uint64_t ReceiptIn(const std::string& answer);

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
                        bool gives_values = false);

  static std::string RegisterRest();

  std::string W(int worker) const;

  // "OK <response>" or "<CODE>: <message>".
  std::string Ask(int ps, absl::string_view method, const std::string& request,
                  absl::Duration timeout = kPatience);

  // A whole, right push of `worker` to both ps, for `step`.
  void Push(int worker, int step, int sequence, const std::string& w,
            const std::string& b);

  std::string Contribute(int worker, int step, int sequence, int wait_ms);

  // Worker 0 pushes ones and worker 1 threes: the step's mean is 2.
  void TrainStep(int step, int sequence);

  std::string Pull(int ps, int version, const std::string& ranges);

  void Try(const std::vector<BadCall>& calls);

  TestCluster cluster_;
  RawClient ps0_;
  RawClient ps1_;
  // Of the workers.
  uint64_t incarnations_[2] = {};
  // By worker and sequence: the receipt of ps 0.
  std::map<std::pair<int, int>, uint64_t> held_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_BAD_INPUT_TESTING_H_
