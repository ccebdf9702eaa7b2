// SPDX-License-Identifier: Apache-2.0

// Shared by the tests of the event machines: a clock that a test moves, and an
// object that receives an answer.
#ifndef HOLDFAST_PS_SERVER_SHARD_TESTING_MACHINE_TESTING_H_
#define HOLDFAST_PS_SERVER_SHARD_TESTING_MACHINE_TESTING_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "gtest/gtest.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// A clock that moves only when Advance is called.
class FakeClock : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

// The answer of a machine to one call, which may come at once or later. A
// second answer to the same call fails the test.
template <typename Response>
class Answer {
 public:
  // Returns the reply to pass to the machine. Must be called once.
  Reply<Response> Catch() {
    return [caught = caught_](absl::StatusOr<Response> response) {
      EXPECT_FALSE(caught->has_value()) << "answered twice";
      *caught = std::move(response);
    };
  }

  bool came() const { return caught_->has_value(); }
  absl::Status status() const {
    return came() ? (*caught_)->status()
                  : absl::UnknownError("(test) no answer has come");
  }
  // The answer. If none has come, the test fails and gets an empty one.
  const Response& operator*() const {
    static const Response* const kNone = new Response;
    EXPECT_TRUE(status().ok()) << status();
    return status().ok() ? caught_->value().value() : *kNone;
  }
  const Response* operator->() const { return &**this; }

 private:
  std::shared_ptr<std::optional<absl::StatusOr<Response>>> caught_ =
      std::make_shared<std::optional<absl::StatusOr<Response>>>();
};

template <typename Machine, typename Request, typename Response>
Answer<Response> Ask(Machine& machine,
                     void (Machine::*method)(const Request&, Reply<Response>),
                     const Request& request) {
  Answer<Response> answer;
  (machine.*method)(request, answer.Catch());
  return answer;
}

// Whether `status` has `code` and its message holds each of `parts`.
inline ::testing::AssertionResult Fails(
    const absl::Status& status, absl::StatusCode code,
    const std::vector<std::string>& parts = {}) {
  if (status.code() != code) {
    return ::testing::AssertionFailure()
           << status << ", expected " << absl::StatusCodeToString(code);
  }
  for (const std::string& part : parts) {
    if (!absl::StrContains(status.message(), part)) {
      return ::testing::AssertionFailure()
             << status << ", which does not tell \"" << part << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_TESTING_MACHINE_TESTING_H_
