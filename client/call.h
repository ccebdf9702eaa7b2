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

// What a call does after an answer: nothing more (kDone), or send the same
// request again (kAgain).
enum class Next { kDone, kAgain };

// A call, or a pause (CallGroup::After), that a CallGroup has in progress.
class Underway {
 public:
  virtual ~Underway() = default;

  // The transport's operation that carries out the call or the pause. Guarded
  // by the context's mutex, but must be cancelled without the lock held.
  std::shared_ptr<Transport::Operation> operation;
  // `trouble`: the error because of which the call is being retried; OK if it
  // is not being retried. Guarded by the context's mutex. `ps`: the ps that is
  // called.
  absl::Status trouble;
  uint32_t ps = 0;
};

// The state of a CallGroup. Guarded by the context's mutex.
struct GroupState {
  // The sender of all calls, which never changes. Null: each attempt is sent by
  // the context's newest sender.
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
// session") mean that the sender's generation or life is over. The caller does
// not get these errors: the call is retried until the context has learned what
// happened, and then ends without an answer if its group belongs to the
// generation that is over.
//
// A Call keeps itself and its group's state alive until the transport has
// released it.
// Thread-safe.
class Call : public Underway, public std::enable_shared_from_this<Call> {
 public:
  // Starts the first attempt, unless the group is cancelled. Must be called
  // once.
  void Start() ABSL_LOCKS_EXCLUDED(context_->mutex);

 protected:
  Call(std::shared_ptr<Context> context, std::shared_ptr<GroupState> group,
       const Rpc& rpc, uint32_t ps);

  // What a response says about the job. Fields that the response does not have
  // keep their defaults.
  struct Says {
    std::optional<uint64_t> generation;
    const proto::JobState* state = nullptr;
    std::optional<uint64_t> durable_step;
    proto::Verdict verdict = proto::VERDICT_UNSPECIFIED;
  };

 private:
  // Implemented by the subclass, which knows the message types. FillIn sets the
  // messages of `attempt`, adds to its timeout the time that the request asks
  // to be parked, and clears the response. It is called with the lock held.
  virtual void FillIn(const proto::Sender& sender, Attempt* attempt) = 0;
  virtual Says WhatItSays() const = 0;
  // Passes the response, or the error `status`, to the caller, and returns what
  // the caller wants next. Called without locks.
  virtual Next Tell(const absl::Status& status) = 0;

  void StartAttempt() ABSL_LOCKS_EXCLUDED(context_->mutex);
  void OnAnswer(absl::Status status) ABSL_LOCKS_EXCLUDED(context_->mutex);
  // Whether only news of the job can explain the error.
  bool IsUnexplained(const absl::Status& error) const;
  // Whether `error` is a refusal that no repetition can cure, without which the
  // job cannot go on.
  bool IsRefused(const absl::Status& error) const;
  // Whether the job is done and the ps no longer answers.
  bool IsPsGone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  void Pause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);

 protected:
  const std::shared_ptr<Context> context_;

 private:
  const std::shared_ptr<GroupState> group_;
  const Rpc& rpc_;
  // The lengths of the pauses, and the time at which the last attempt began.
  // Guarded by the mutex.
  Backoff backoff_;
  absl::Time began_;
  // The number of attempts that have failed with a transient error since the
  // last answer. Guarded by the mutex.
  int in_vain_ = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CALL_H_
