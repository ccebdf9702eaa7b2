// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_TESTING_FAKE_PS_H_
#define HOLDFAST_COMMON_RPC_TESTING_FAKE_PS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"

namespace holdfast {

// One method of a FakePs: the requests that it received, and a script for its
// answers. Thread-safe.
template <typename Request, typename Response>
class FakeMethod {
 public:
  // Makes the answer to a request. Called after the request was recorded;
  // `call` is the number of requests before it. Without a script the answer is
  // OK and empty.
  using Script =
      std::function<absl::Status(int call, const Request&, Response*)>;

  void Do(Script script) {
    absl::MutexLock lock(&mutex_);
    script_ = std::move(script);
  }

  std::vector<Request> requests() const {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }
  int num_calls() const {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(requests_.size());
  }
  void AwaitCalls(int count) const {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] {
      return static_cast<int>(requests_.size()) >= count;
    };
    mutex_.Await(absl::Condition(&enough));
  }

  absl::Status Call(const Request& request, Response* response) {
    int call;
    Script script;
    {
      absl::MutexLock lock(&mutex_);
      call = static_cast<int>(requests_.size());
      requests_.push_back(request);
      script = script_;
    }
    return script ? script(call, request, response) : absl::OkStatus();
  }

 private:
  mutable absl::Mutex mutex_;
  Script script_ ABSL_GUARDED_BY(mutex_);
  std::vector<Request> requests_ ABSL_GUARDED_BY(mutex_);
};

// A fake ps: serves the methods of coordinator and shard on a port of its own.
// It does nothing but run a test's scripts.
class FakePs {
 public:
  // Listens on `port`; 0 picks a free one.
  explicit FakePs(int port = 0);
  ~FakePs();

  // host:port.
  const std::string& address() const;
  int port() const;

  // Ends all calls, waits until no script runs, and stops listening. May be
  // called repeatedly.
  void Stop();
  // Blocks until Stop. For a script that does not answer.
  absl::Status Mute() const;

  // Sets the answer that TellNews gives from here on.
  void Tell(const proto::RenewLeaseResponse& news);
  // Answers a request with the news that Tell has set last. Parks the call, as
  // the real method does, while the caller knows the news already. For a script
  // of `renew`.
  absl::Status TellNews(const proto::RenewLeaseRequest& request,
                        proto::RenewLeaseResponse* response) const;

  FakeMethod<proto::RegisterRequest, proto::RegisterResponse> do_register;
  FakeMethod<proto::RenewLeaseRequest, proto::RenewLeaseResponse> renew;
  FakeMethod<proto::DeclareRequest, proto::DeclareResponse> declare;
  FakeMethod<proto::GetPlacementRequest, proto::GetPlacementResponse> place;
  FakeMethod<proto::ContributeRequest, proto::ContributeResponse> contribute;
  FakeMethod<proto::TakeTicketRequest, proto::TakeTicketResponse> take_ticket;
  FakeMethod<proto::ReportEvaluationRequest, proto::ReportEvaluationResponse>
      evaluation;
  FakeMethod<proto::LeaveRequest, proto::LeaveResponse> leave;
  FakeMethod<proto::GetStatusRequest, proto::GetStatusResponse> get_status;
  FakeMethod<proto::GetEventsRequest, proto::GetEventsResponse> get_events;
  FakeMethod<proto::GetHistoryRequest, proto::GetHistoryResponse> get_history;
  FakeMethod<proto::CheckpointRequest, proto::CheckpointResponse> checkpoint;
  FakeMethod<proto::TraceRequest, proto::TraceResponse> trace;
  FakeMethod<proto::ReportTraceRequest, proto::ReportTraceResponse>
      report_trace;
  FakeMethod<proto::StopRequest, proto::StopResponse> stop;
  FakeMethod<proto::SetLearningRateRequest, proto::SetLearningRateResponse>
      set_learning_rate;

  FakeMethod<proto::GiveRequest, proto::GiveResponse> give;
  FakeMethod<proto::PushRequest, proto::PushResponse> push;
  FakeMethod<proto::ApplyRequest, proto::ApplyResponse> apply;
  FakeMethod<proto::PullRequest, proto::PullResponse> pull;
  FakeMethod<proto::PushPullRequest, proto::PushPullResponse> push_pull;
  FakeMethod<proto::PinRequest, proto::PinResponse> pin;
  FakeMethod<proto::UnpinRequest, proto::UnpinResponse> unpin;
  FakeMethod<proto::LinkRequest, proto::LinkResponse> link;

 private:
  struct Services;
  const std::unique_ptr<Services> services_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TESTING_FAKE_PS_H_
