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

// What to do with an answer: take it, or ask the same again.
enum class Next { kDone, kAgain };

// A call, or a pause, of a group.
class Underway {
 public:
  virtual ~Underway() = default;

  // Guarded by the context's mutex. What the transport does for it, to be
  // cancelled without the lock held.
  std::shared_ptr<Transport::Operation> operation;
  // Why the last attempt is made again, until there is an answer; and which ps
  // was asked.
  absl::Status trouble;
  uint32_t ps = 0;
};

// Guarded by the context's mutex.
struct GroupState {
  // Who speaks in all calls. Never changed. Null: the newest of the context.
  std::shared_ptr<const proto::Sender> sender;
  std::set<std::shared_ptr<Underway>> underway;
  // Answers that are being told at this moment.
  int answering = 0;
  bool cancelled = false;
  // As of CallGroup::EndWithJob.
  bool ends_with_job = false;
};

// A call of a group, from its first attempt to its answer: it is sent again
// after a transient error (common/rpc/backoff.h), after one that only news of
// the job can explain, and when whoever asked wants it so. What its answer says
// about the job is told to the context before anything else.
//
// ABORTED, as status or verdict, and NOT_FOUND from the coordinator ("no such
// session") say that generation or life of the sender are over: that is for the
// context to hear, not for the caller.
//
// It keeps itself and its group's state alive until the transport has let go of
// it. Thread-safe.
class Call : public Underway, public std::enable_shared_from_this<Call> {
 public:
  // Called once. In a cancelled group nothing happens.
  void Start() ABSL_LOCKS_EXCLUDED(context_->mutex);

 protected:
  Call(std::shared_ptr<Context> context, std::shared_ptr<GroupState> group,
       const Rpc& rpc, uint32_t ps);

  // What a response says about the job, where it has fields for it.
  struct Says {
    std::optional<uint64_t> generation;
    const proto::JobState* state = nullptr;
    std::optional<uint64_t> durable_step;
    proto::Verdict verdict = proto::VERDICT_UNSPECIFIED;
  };

 private:
  // The part that knows the messages. With the lock held: fills in messages
  // and timeout, and clears the response.
  virtual void FillIn(const proto::Sender& sender, Attempt* attempt) = 0;
  virtual Says WhatItSays() const = 0;
  // Tells the response, or an error. Without locks.
  virtual Next Tell(const absl::Status& status) = 0;

  void StartAttempt() ABSL_LOCKS_EXCLUDED(context_->mutex);
  void OnAnswer(absl::Status status) ABSL_LOCKS_EXCLUDED(context_->mutex);
  // Whether only news of the job can explain the error.
  bool IsUnexplained(const absl::Status& error) const;
  // Whether the job is done and the ps does not answer any more.
  bool IsPsGone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  void Pause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);

 protected:
  const std::shared_ptr<Context> context_;

 private:
  const std::shared_ptr<GroupState> group_;
  const Rpc& rpc_;
  // Of pauses, and the begin of the last attempt: guarded by the mutex.
  Backoff backoff_;
  absl::Time began_;
  // Attempts since the last answer. Guarded by the mutex.
  int in_vain_ = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CALL_H_
