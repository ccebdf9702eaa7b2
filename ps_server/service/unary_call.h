#ifndef HOLDFAST_PS_SERVER_SERVICE_UNARY_CALL_H_
#define HOLDFAST_PS_SERVER_SERVICE_UNARY_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/reply.h"
#include "common/rpc/status.h"
#include "common/strand.h"
#include "common/validate.h"

namespace holdfast {

// One call that gRPC waits to have answered.
//
// It ends once: with the answer, or when the caller gives it up, or, where the
// answer is destroyed unused, with UNAVAILABLE. The answer may be given from
// any thread, and long after the caller has gone.
//
// Deletes itself when gRPC is done with it.
template <typename Response>
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  // A Reply<Response>. Move-only.
  class Answer {
   public:
    Answer(UnaryCall* call, std::shared_ptr<std::atomic<bool>> ended)
        : call_(call), ended_(std::move(ended)) {}
    Answer(Answer&& other) noexcept
        : call_(std::exchange(other.call_, nullptr)),
          ended_(std::move(other.ended_)) {}
    ~Answer() {
      if (call_ != nullptr) {
        (*this)(absl::UnavailableError("this ps is stopping"));
      }
    }

    void operator()(absl::StatusOr<Response> result) {
      UnaryCall* const call = std::exchange(call_, nullptr);
      // Who sets it may finish the call, and until then the call is there.
      if (ended_->exchange(true)) return;
      if (result.ok()) *call->response_ = *std::move(result);
      call->Finish(ToGrpcStatus(result.status()));
    }

   private:
    UnaryCall* call_;
    std::shared_ptr<std::atomic<bool>> ended_;
  };

  // `response` is gRPC's, and there until the call has ended.
  explicit UnaryCall(Response* response) : response_(response) {}

  // To be called once.
  Answer TakeAnswer() { return Answer(this, ended_); }

 private:
  void OnCancel() override {
    if (!ended_->exchange(true)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

  Response* const response_;
  const std::shared_ptr<std::atomic<bool>> ended_ =
      std::make_shared<std::atomic<bool>>(false);
};

// The request of a call, without a copy. gRPC makes it for this one call, and
// its handler alone sees it; the const is of the generated signature, not of
// the object.
template <typename Request>
Request TakeRequest(const Request* request) {
  return std::move(*const_cast<Request*>(request));
}

// Answers a call by a method of a machine that lives on `strand`; a request
// that breaks the rules of its proto gets INVALID_ARGUMENT, and never reaches
// it. `hand`: Strand::Post, or RunOrPost for what is quickly done.
template <typename Machine, typename Request, typename Response>
grpc::ServerUnaryReactor* CallMachine(
    Strand* strand, void (Strand::*hand)(Strand::Task), Machine* machine,
    void (Machine::*method)(const Request&, Reply<Response>),
    const Request* request, Response* response) {
  auto* call = new UnaryCall<Response>(response);
  auto answer = call->TakeAnswer();
  if (absl::Status valid = ValidateMessage(*request); !valid.ok()) {
    answer(std::move(valid));
    return call;
  }
  (strand->*hand)([machine, method, request = TakeRequest(request),
                   answer = std::move(answer)]() mutable {
    (machine->*method)(request, std::move(answer));
  });
  return call;
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_UNARY_CALL_H_
