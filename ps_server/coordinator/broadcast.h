// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_BROADCAST_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_BROADCAST_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/backoff.h"
#include "glog/logging.h"
#include "ps_server/coordinator/disk_watch.h"
#include "ps_server/coordinator/outbox.h"
#include "ps_server/protocol/shard_messages.h"

namespace holdfast {

// What a Broadcast needs to send messages to the shards of a job.
struct ShardSpeech {
  uint32_t num_ps = 1;
  ShardLinks* links = nullptr;
  Outbox* outbox = nullptr;
  const Clock* clock = nullptr;
  // How long a message may stay unanswered before it is resent.
  absl::Duration resend_after;
  // [P5] Returns the nonce of the life of a ps's shard, which every message to
  // that shard carries.
  absl::AnyInvocable<uint64_t(uint32_t ps) const> life_of;
};

// What is left to do with a shard that has answered a broadcast.
enum class Heard {
  // Nothing.
  kDone,
  // The shard is not done yet, and is asked again at the next tick.
  kNotYet,
  // Nothing, although the shard is not done: the owner has stopped the
  // broadcast, or leaves it unfinished.
  kBroken,
};

// One message to all shards, sent to each shard until that shard has answered.
//
// After a transient failure, such as a refused connection, the message is
// resent to the shard after kRetryAfter. If there is no answer, it is resent
// once `resend_after` has passed. The owner decides what any other answer
// means.
//
// Thread-compatible. Part of an event machine: answers are events, in which the
// owner is called.
template <typename Request>
class Broadcast {
 public:
  using Response = typename ShardMethod<Request>::Response;
  struct Owner {
    // Called when a shard has answered with anything but a transient failure.
    absl::AnyInvocable<Heard(uint32_t ps,
                             const absl::StatusOr<Response>& response)>
        heard;
    // Called when all shards are done, after which the broadcast has stopped.
    absl::AnyInvocable<void()> done;
  };

  // How soon the message is resent after a transient failure.
  static constexpr absl::Duration kRetryAfter = absl::Milliseconds(200);

  Broadcast(const ShardSpeech* speech, Owner owner)
      : speech_(speech), owner_(std::move(owner)) {}
  Broadcast(const Broadcast&) = delete;
  Broadcast& operator=(const Broadcast&) = delete;

  // Returns an empty request. The caller fills it in before Start, which sends
  // it.
  Request* NewRequest() {
    // Messages that are still in flight keep their request.
    if (request_ == nullptr || request_.use_count() > 1) {
      request_ = std::make_shared<ShardRequest>(Request());
    }
    Request* request = &std::get<Request>(*request_);
    request->Clear();
    return request;
  }
  // The request that was sent last.
  const Request& request() const { return std::get<Request>(*request_); }

  void Start() {
    ++number_;
    running_ = true;
    begun_ = speech_->clock->Now();
    shards_.assign(speech_->num_ps, Shard{false, begun_, ""});
    SendDue();
  }
  // Stops the broadcast. Answers that arrive later are ignored.
  void Stop() {
    ++number_;
    running_ = false;
  }
  bool running() const { return running_; }
  // When the broadcast was last started.
  absl::Time begun() const { return begun_; }
  // Whether the shard is done with the broadcast that was last started.
  bool done(uint32_t ps) const { return shards_[ps].done; }

  // Resends messages that were not answered in time. Call it at each tick.
  void SendDue() {
    if (!running_) return;
    const absl::Time now = speech_->clock->Now();
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      Shard& shard = shards_[ps];
      if (shard.done || shard.due > now) continue;
      shard.due = now + speech_->resend_after + LongestPark(request());
      Send(ps);
    }
  }

  // The shards that are not done, each with what is known of its progress, like
  // "/job:ps/task:1 (3 of 10 GiB)". `progress` may be null.
  std::vector<std::string> Silent(const DiskWatch* progress = nullptr) const {
    std::vector<std::string> silent;
    for (uint32_t ps = 0; running_ && ps < shards_.size(); ++ps) {
      const Shard& shard = shards_[ps];
      if (shard.done) continue;
      std::vector<std::string> known;
      if (progress != nullptr) known.push_back(progress->Describe(ps));
      known.push_back(shard.trouble);
      known.erase(std::remove(known.begin(), known.end(), ""), known.end());
      std::string& name =
          silent.emplace_back(absl::StrCat("/job:ps/task:", ps));
      if (known.empty()) continue;
      absl::StrAppend(&name, " (", absl::StrJoin(known, "; "), ")");
    }
    return silent;
  }
  // What is being waited for, in words for users.
  std::string WaitingFor(const DiskWatch* progress = nullptr) const {
    return absl::StrCat(ShardMethod<Request>::Purpose(request()), " at ",
                        absl::StrJoin(Silent(progress), ", "));
  }

 private:
  struct Shard {
    bool done = false;
    // When the message is sent to the shard next.
    absl::Time due;
    // The failure that last caused a resend.
    std::string trouble;
  };

  void Send(uint32_t ps) {
    speech_->outbox->Send([this, ps, number = number_, request = request_] {
      std::get<Request>(*request).mutable_sender()->set_receiver_nonce(
          speech_->life_of(ps));
      speech_->links->Send(
          ps, *request,
          speech_->outbox->template AsEvent<ShardResponse>(
              [this, ps, number](absl::StatusOr<ShardResponse> response) {
                OnAnswer(number, ps, std::move(response));
              }));
    });
  }

  void OnAnswer(uint64_t number, uint32_t ps,
                absl::StatusOr<ShardResponse> response) {
    if (number != number_ || !running_ || shards_[ps].done) return;
    Shard& shard = shards_[ps];
    const absl::Time now = speech_->clock->Now();
    if (!response.ok() && IsTransient(response.status())) {
      shard.due = now + kRetryAfter;
      if (shard.trouble != response.status().message()) {
        shard.trouble = std::string(response.status().message());
        LOG(WARNING) << "/job:ps/task:" << ps << " is asked again for "
                     << ShardMethod<Request>::Purpose(request()) << ": "
                     << response.status();
      }
      return;
    }
    const Heard heard =
        response.ok()
            ? owner_.heard(ps, std::get<Response>(*std::move(response)))
            : owner_.heard(ps, response.status());
    if (number != number_ || heard == Heard::kBroken) return;
    if (heard == Heard::kNotYet) {
      shard.due = now;
      return;
    }
    shard.done = true;
    if (!std::all_of(shards_.begin(), shards_.end(),
                     [](const Shard& s) { return s.done; })) {
      return;
    }
    Stop();
    owner_.done();
  }

  const ShardSpeech* const speech_;
  Owner owner_;
  std::shared_ptr<ShardRequest> request_;
  // Distinguishes answers to the broadcast last started from answers to earlier
  // ones.
  uint64_t number_ = 0;
  bool running_ = false;
  absl::Time begun_;
  std::vector<Shard> shards_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_BROADCAST_H_
