// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_CALL_H_
#define HOLDFAST_CLIENT_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/context.h"
#include "client/rpc.h"
#include "client/transport.h"
#include "common/rpc/backoff.h"
#include "proto/cluster.pb.h"

namespace holdfast::client {

// What to do with an answer: accept it, or send the same request again.
enum class Next { kDone, kAgain };

// A call, or a pause, that belongs to a group.
class Underway {
 public:
  virtual ~Underway() = default;

  // Guarded by the context's mutex. The transport's operation for it; must be
  // cancelled without the lock held.
  std::shared_ptr<Transport::Operation> operation;
  // Why the last attempt is being retried, until there is an answer; and the ps
  // that was called.
  absl::Status trouble;
  uint32_t ps = 0;
};

// Guarded by the context's mutex.
struct GroupState {
  // The sender of all calls. Never changed. Null: the newest of the context.
  std::shared_ptr<const proto::Sender> sender;
  std::set<std::shared_ptr<Underway>> underway;
  // The number of answers that are being delivered at the moment.
  int answering = 0;
  bool cancelled = false;
  // Set by CallGroup::EndWithJob.
  bool ends_with_job = false;
};

// A call of a group, from its first attempt to its answer. It is retried after
// a transient error (common/rpc/backoff.h), after an error that only news of
// the job can explain, and when the caller asks for it (Next::kAgain). What the
// answer says about the job is passed to the context before anything else.
//
// ABORTED, as status or verdict, and NOT_FOUND from the coordinator ("no such
// session") mean that the sender's generation or life is over: that concerns
// the context, not the caller.
//
// Keeps itself and its group's state alive until the transport has released it.
// Thread-safe.
class Call : public Underway, public std::enable_shared_from_this<Call> {
 public:
  // Called once. Does nothing in a cancelled group.
  void Start() ABSL_LOCKS_EXCLUDED(context_->mutex);

 protected:
  Call(std::shared_ptr<Context> context, std::shared_ptr<GroupState> group,
       const Rpc& rpc, uint32_t ps);

  // What a response says about the job, if it has fields for that.
  struct Says {
    std::optional<uint64_t> generation;
    const proto::JobState* state = nullptr;
    std::optional<uint64_t> durable_step;
    proto::Verdict verdict = proto::VERDICT_UNSPECIFIED;
  };

 private:
  // The part that knows the message types. Fills in messages and timeout, and
  // clears the response. Called with the lock held.
  virtual void FillIn(const proto::Sender& sender, Attempt* attempt) = 0;
  virtual Says WhatItSays() const = 0;
  // Delivers the response, or an error. Called without locks.
  virtual Next Tell(const absl::Status& status) = 0;

  void StartAttempt() ABSL_LOCKS_EXCLUDED(context_->mutex);
  void OnAnswer(absl::Status status) ABSL_LOCKS_EXCLUDED(context_->mutex);
  // Whether only news of the job can explain the error.
  bool IsUnexplained(const absl::Status& error) const;
  // Whether the job is done and the ps no longer answers.
  bool IsPsGone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  void Pause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);

 protected:
  const std::shared_ptr<Context> context_;

 private:
  const std::shared_ptr<GroupState> group_;
  const Rpc& rpc_;
  // For pauses, and the start of the last attempt. Guarded by the mutex.
  Backoff backoff_;
  absl::Time began_;
  // Attempts since the last answer. Guarded by the mutex.
  int in_vain_ = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CALL_H_
