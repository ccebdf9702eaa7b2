// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_TESTING_FAKE_TRANSPORT_H_
#define HOLDFAST_CLIENT_TESTING_FAKE_TRANSPORT_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/rpc.h"
#include "client/transport.h"
#include "common/tensor/buffer.h"
#include "gtest/gtest.h"

namespace holdfast::client {

// A transport that a test operates by hand, in one thread: the test takes out
// calls, answers them, and lets time pass. A wait fails the test unless
// set_on_wait says what happens during it.
class FakeTransport final : public Transport {
 public:
  // A call that was sent.
  template <typename Request, typename Response>
  class Sent {
   public:
    Sent(Request request, Attempt attempt)
        : request(std::move(request)), attempt_(std::move(attempt)) {}

    absl::Duration timeout() const { return attempt_.timeout; }
    void Answer(const absl::StatusOr<Response>& response) {
      if (response.ok()) Put(*response);
      attempt_.done(response.status());
    }

    const Request request;

   private:
    template <typename Message>
    void Put(const Message& message) {
      attempt_.response->CopyFrom(message);
    }
    template <typename Message>
    void Put(const WithTensors<Message>& message) {
      attempt_.response->CopyFrom(message.message);
      *attempt_.response_tensors = message.tensors;
    }

    Attempt attempt_;
  };

  // Takes out the oldest such call to this ps, which must exist.
  template <typename Request, typename Response>
  Sent<Request, Response> Take(const RpcOf<Request, Response>& rpc,
                               uint32_t ps = 0) {
    const auto found = Find(rpc, ps);
    EXPECT_NE(found, sent_.end()) << rpc.name() << " to ps " << ps;
    const std::shared_ptr<FakeAttempt> attempt = *found;
    sent_.erase(found);
    return {RequestOf<Request>(*attempt), std::move(attempt->attempt)};
  }
  bool Has(const Rpc& rpc, uint32_t ps = 0) {
    return Find(rpc, ps) != sent_.end();
  }
  // The names of all calls that were sent and neither answered nor cancelled.
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& attempt : sent_) {
      if (!attempt->cancelled) {
        names.emplace_back(attempt->attempt.rpc->name());
      }
    }
    return names;
  }

  // Lets time pass; pauses end in order.
  void Pass(absl::Duration time) {
    const absl::Time until = now_ + time;
    for (;;) {
      const auto next = std::min_element(
          pauses_.begin(), pauses_.end(),
          [](const auto& a, const auto& b) { return a->end < b->end; });
      if (next == pauses_.end() || (*next)->end > until) break;
      const std::shared_ptr<FakePause> pause = *next;
      pauses_.erase(next);
      now_ = std::max(now_, pause->end);
      pause->over();
    }
    now_ = until;
  }

  absl::Time Now() const override { return now_; }
  std::shared_ptr<AttemptOperation> Prepare(Attempt attempt) override {
    auto operation = std::make_shared<FakeAttempt>();
    operation->transport = this;
    operation->attempt = std::move(attempt);
    return operation;
  }
  std::shared_ptr<Operation> After(absl::Duration delay,
                                   absl::AnyInvocable<void()> over) override {
    pauses_.push_back(std::make_shared<FakePause>());
    pauses_.back()->end = now_ + delay;
    pauses_.back()->over = std::move(over);
    return pauses_.back();
  }
  void Wait(absl::FunctionRef<bool()>, absl::Time) override {
    if (on_wait_ == nullptr) {
      ADD_FAILURE() << "a wait";
      return;
    }
    mutex_.Unlock();
    on_wait_();
    mutex_.Lock();
  }
  // Sets a function that is called, without the lock, when a thread waits; it
  // must bring about what is waited for.
  void set_on_wait(std::function<void()> on_wait) {
    on_wait_ = std::move(on_wait);
  }
  Neighbors* neighbors() override { return neighbors_; }
  void set_neighbors(Neighbors* neighbors) { neighbors_ = neighbors; }
  absl::Mutex& mutex() override { return mutex_; }
  absl::BitGenRef random() override { return random_; }

 private:
  struct FakeAttempt final : AttemptOperation,
                             std::enable_shared_from_this<FakeAttempt> {
    // Copies what is sent, so that it no longer refers to the caller's memory.
    void Start() override {
      if (cancelled) return;
      request.reset(attempt.request->New());
      request->CopyFrom(*attempt.request);
      for (const TensorPiece& piece : attempt.request_tensors) {
        tensors.push_back(piece);
        std::string bytes(piece.data.size(), '\0');
        piece.data.CopyTo(bytes.data());
        tensors.back().data = Buffer::FromString(std::move(bytes));
      }
      transport->sent_.push_back(shared_from_this());
    }
    void Cancel() override {
      cancelled = true;
      attempt.done = nullptr;
    }

    FakeTransport* transport = nullptr;
    Attempt attempt;
    std::unique_ptr<google::protobuf::Message> request;
    std::vector<TensorPiece> tensors;
    bool cancelled = false;
  };
  struct FakePause final : Operation {
    void Cancel() override {
      over = [] {};
    }
    absl::Time end;
    absl::AnyInvocable<void()> over;
  };

  std::deque<std::shared_ptr<FakeAttempt>>::iterator Find(const Rpc& rpc,
                                                          uint32_t ps) {
    return std::find_if(sent_.begin(), sent_.end(), [&](const auto& sent) {
      return sent->attempt.rpc == &rpc && sent->attempt.ps == ps &&
             !sent->cancelled;
    });
  }

  template <typename Request>
  static Request RequestOf(const FakeAttempt& attempt) {
    if constexpr (TensorsField<Request>::kNumber != 0) {
      Request request;
      request.message.CopyFrom(*attempt.request);
      request.tensors = attempt.tensors;
      return request;
    } else {
      return static_cast<const Request&>(*attempt.request);
    }
  }

  Neighbors* neighbors_ = nullptr;
  std::function<void()> on_wait_;
  absl::Mutex mutex_;
  std::mt19937 random_{1};
  absl::Time now_ = absl::UnixEpoch();
  std::deque<std::shared_ptr<FakeAttempt>> sent_;
  std::vector<std::shared_ptr<FakePause>> pauses_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TESTING_FAKE_TRANSPORT_H_
