// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_QUESTION_H_
#define HOLDFAST_CLIENT_QUESTION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/call_group.h"
#include "client/cluster.h"
#include "client/context.h"
#include "client/rpc.h"

namespace holdfast::client {

// One call to the coordinator, and its answer.
//
// Thread-safe, except for Await.
template <typename Response>
class Question : public Cluster::Handle {
 public:
  struct Options {
    // The sender of the call. Null: the context's newest sender.
    std::shared_ptr<const proto::Sender> sender;
    // `what` describes what is waited for, for errors. `look` says whether an
    // answer is final or the request must be repeated; empty: the first answer
    // is final. Both are called with the context's lock held.
    std::function<std::string()> what;
    std::function<Next(const Response&)> look;
    // Whether Await continues to wait even when calls can no longer succeed.
    bool regardless = false;
    // See CallGroup::EndWithJob.
    bool ends_with_job = false;
  };

  template <typename Request>
  Question(std::shared_ptr<Context> context,
           const RpcOf<Request, Response>& rpc,
           std::common_type_t<Request> request, Options options)
      : context_(std::move(context)),
        options_(std::move(options)),
        calls_(options_.sender != nullptr
                   ? std::make_unique<CallGroup>(context_, options_.sender)
                   : std::make_unique<CallGroup>(context_)) {
    if (options_.ends_with_job) calls_->EndWithJob();
    calls_->Start(rpc, 0, std::move(request),
                  [this](absl::StatusOr<Response> response) {
                    return OnAnswer(std::move(response));
                  });
  }

  // Makes a question that could not be asked. Await returns `error`.
  explicit Question(absl::Status error) : answer_(std::move(error)) {}

  bool done() const override ABSL_LOCKS_EXCLUDED(context_->mutex) {
    if (calls_ == nullptr) return true;
    absl::MutexLock lock(&context_->mutex);
    return answer_.has_value() || (!options_.regardless && calls_->IsOver());
  }

  absl::StatusOr<Response> Await(absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(context_->mutex) {
    if (calls_ == nullptr) return *answer_;
    const auto here = [this] { return answer_.has_value(); };
    const absl::Status status =
        options_.regardless
            ? calls_->AwaitRegardless(deadline, here, options_.what)
            : calls_->Await(deadline, here, options_.what);
    calls_->Cancel();
    absl::MutexLock lock(&context_->mutex);
    if (!answer_.has_value()) answer_ = status;
    return *answer_;
  }

 private:
  Next OnAnswer(absl::StatusOr<Response> response)
      ABSL_LOCKS_EXCLUDED(context_->mutex) {
    absl::MutexLock lock(&context_->mutex);
    if (response.ok() && options_.look != nullptr &&
        options_.look(*response) == Next::kAgain) {
      return Next::kAgain;
    }
    answer_ = std::move(response);
    return Next::kDone;
  }

  const std::shared_ptr<Context> context_;
  const Options options_;
  std::optional<absl::StatusOr<Response>> answer_
      ABSL_GUARDED_BY(context_->mutex);
  // Null if the question could not be asked. Destroyed first.
  const std::unique_ptr<CallGroup> calls_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_QUESTION_H_
