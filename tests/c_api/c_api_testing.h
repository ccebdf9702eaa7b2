// SPDX-License-Identifier: Apache-2.0

// Helpers for tests of the C API: calls with their results, and a cluster.
#ifndef HOLDFAST_TESTS_C_API_C_API_TESTING_H_
#define HOLDFAST_TESTS_C_API_C_API_TESTING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c_api/holdfast.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/test_cluster.h"

namespace holdfast {

// The result of a call.
struct Result {
  int32_t kind;
  std::string message;
  std::string task;
  int32_t exit_code;
};

// Receives the error of a call, whose last argument it is.
class Caught {
 public:
  ~Caught() { holdfast_error_free(error_); }
  operator holdfast_error**() { return &error_; }  // NOLINT
  Result operator()(int32_t kind) const {
    EXPECT_EQ(kind, holdfast_error_kind(error_));
    return {kind, holdfast_error_message(error_), holdfast_error_task(error_),
            holdfast_error_exit_code(error_)};
  }

 private:
  holdfast_error* error_ = nullptr;
};

// Calls `function` with `args` and a place for an error.
template <typename Function, typename... Args>
Result Call(Function function, Args... args) {
  Caught error;
  return error(function(args..., error));
}

#define EXPECT_OK(call)                                    \
  do {                                                     \
    const Result result = (call);                          \
    EXPECT_EQ(result.kind, HOLDFAST_OK) << result.message; \
  } while (0)
#define ASSERT_OK(call)                                    \
  do {                                                     \
    const Result result = (call);                          \
    ASSERT_EQ(result.kind, HOLDFAST_OK) << result.message; \
  } while (0)

inline std::string Take(char* text) {
  const std::string copy = text;
  holdfast_text_free(text);
  return copy;
}

// Connection options of a worker of `spec`.
class Options {
 public:
  Options(const ClusterSpec& spec, const std::string& job, int index)
      : values_{{"cluster_spec", spec.ToJson()},
                {"job_name", job},
                {"task_index", absl::StrCat(index)},
                {"recovery_timeout", "20"},
                {"insecure", "true"}} {}
  Options& Set(const std::string& name, const std::string& value) {
    values_[name] = value;
    return *this;
  }
  std::vector<holdfast_option> Get() const {
    std::vector<holdfast_option> options;
    for (const auto& [name, value] : values_) {
      options.push_back({name.c_str(), value.c_str()});
    }
    return options;
  }

 private:
  std::map<std::string, std::string> values_;
};

inline holdfast_cluster* Connect(const Options& options) {
  holdfast_cluster* cluster = nullptr;
  const std::vector<holdfast_option> list = options.Get();
  EXPECT_OK(Call(holdfast_connect, list.data(), list.size(), &cluster));
  EXPECT_OK(Call(holdfast_await_connected, cluster, int64_t{-1}));
  return cluster;
}

inline constexpr char kVariables[] = R"(
  variables { name: "w" shape: 3 shape: 2 dtype: FLOAT32
              initializer { constant { value: 10 } } }
  variables { name: "frozen" shape: 5 dtype: FLOAT32 trainable: false
              initializer { constant { value: 7 } } }
  variables { name: "b" dtype: FLOAT32 initializer { zeros {} } }
  optimizers { learning_rate: 1 sgd {} }
)";
inline std::string Synchronous(int steps) {
  return absl::StrCat(kVariables,
                      "consistency { synchronous {} } total_steps: ", steps);
}

inline holdfast_cluster* Ready(const Options& options,
                               const std::string& text) {
  holdfast_cluster* const cluster = Connect(options);
  EXPECT_OK(Call(holdfast_declare, cluster, text.c_str(), nullptr, size_t{0},
                 int64_t{-1}));
  EXPECT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  return cluster;
}

class CApiClusterTest : public testing::Test {
 protected:
  void Start(uint32_t num_ps, uint32_t num_workers) {
    cluster_.emplace(MakeLoopbackCluster(num_ps, num_workers), kLongLease);
  }
  // With checkpoints in a directory private to the test, and a lease short
  // enough for a test to wait for its end.
  void StartWithCheckpoints(uint32_t num_ps, uint32_t num_workers) {
    cluster_.emplace(MakeLoopbackCluster(num_ps, num_workers), kShortLease,
                     std::function<Credentials(const TaskId&)>(),
                     [this](Server::Options* options) {
                       options->checkpoint_dir = checkpoints_;
                     });
  }
  Options Worker(int index) const {
    return Options(cluster_->spec(), "worker", index);
  }
  void ExpectDone() {
    for (uint32_t ps = 0; ps < cluster_->spec().num_ps(); ++ps) {
      EXPECT_EQ(cluster_->Wait(ps), absl::OkStatus());
    }
  }

  const std::string checkpoints_ = absl::StrCat(
      testing::TempDir(), "/",
      testing::UnitTest::GetInstance()->current_test_info()->name());
  std::optional<TestCluster> cluster_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_C_API_C_API_TESTING_H_
