// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_OUTBOX_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_OUTBOX_H_

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "glog/logging.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// The messages and replies that an event machine issues during one event. They
// go out when the event is over, in the order in which they were issued.
//
// An event is anything that enters the machine: a call, an answer to one of its
// own messages, a tick. Nothing enters the machine while an event changes its
// state. Something that goes out may call the machine again (a message that is
// answered inside its call, a reply whose receiver makes another request). That
// call is an event of its own. Its messages go out after those of the first
// event that are left.
//
// Thread-compatible.
class Outbox {
 public:
  // One event, from its construction to its destruction. An event may begin
  // only when no other is in progress, or while the outbox is being emptied.
  class Event {
   public:
    explicit Event(Outbox* outbox) : outbox_(outbox) {}
    ~Event() { outbox_->EndEvent(); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

   private:
    Outbox* const outbox_;
  };

  // `settle` is called at the end of every event, before anything goes out. It
  // may issue more messages.
  explicit Outbox(absl::AnyInvocable<void()> settle)
      : settle_(std::move(settle)) {}
  // An outbox without `settle`.
  Outbox() = default;
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Calls `reply` with `response`: a Response, or the error instead of one.
  template <typename Response, typename Result>
  void Answer(Reply<Response>&& reply, Result&& response) {
    Add<ReplyTo<Response>>(std::move(reply), std::forward<Result>(response));
  }
  // Calls `message`, without arguments.
  template <typename Callable>
  void Send(Callable message) {
    Add<Call<Callable>>(std::move(message));
  }

  // Returns a reply to pass along with a message that the machine sends. When
  // the reply is called, an event begins, in which `handle` is called.
  template <typename Response, typename Handle>
  Reply<Response> AsEvent(Handle handle) {
    return [this, handle = std::move(handle)](
               absl::StatusOr<Response> response) mutable {
      Event event(this);
      handle(std::move(response));
    };
  }

 private:
  // A message or reply to go out.
  struct Message {
    virtual ~Message() = default;
    virtual void GoOut() = 0;
  };
  template <typename Response>
  struct ReplyTo final : Message {
    template <typename Result>
    ReplyTo(Reply<Response>&& to, Result&& result)
        : reply(std::move(to)), response(std::forward<Result>(result)) {}
    void GoOut() override { reply(std::move(response)); }

    Reply<Response> reply;
    absl::StatusOr<Response> response;
  };
  template <typename Callable>
  struct Call final : Message {
    explicit Call(Callable c) : callable(std::move(c)) {}
    void GoOut() override { callable(); }

    Callable callable;
  };
  static constexpr size_t kBlocksKept = 16;
  struct Block {
    alignas(std::max_align_t) char bytes[size_t{16} << 10];
  };

  template <typename Type, typename... Args>
  void Add(Args&&... args) {
    static_assert(alignof(Type) <= alignof(std::max_align_t));
    messages_.push_back(new (Allocate(sizeof(Type)))
                            Type(std::forward<Args>(args)...));
  }

  // Messages are placed in blocks that are kept from event to event: nearly
  // every call issues one, and allocating it took a tenth of the call's time.
  void* Allocate(size_t size) {
    constexpr size_t kAlign = alignof(std::max_align_t);
    size = (size + kAlign - 1) / kAlign * kAlign;
    CHECK_LE(size, sizeof(Block));
    if (blocks_.empty() || used_ + size > sizeof(Block)) {
      if (!blocks_.empty()) ++block_;
      if (block_ == blocks_.size()) blocks_.emplace_back(new Block);
      used_ = 0;
    }
    void* const place = blocks_[block_]->bytes + used_;
    used_ += size;
    return place;
  }

  void EndEvent() {
    if (settle_) settle_();
    if (emptying_) return;
    emptying_ = true;
    // More messages may be added meanwhile.
    for (size_t i = 0; i < messages_.size(); ++i) {
      Message* const message = messages_[i];
      message->GoOut();
      message->~Message();
    }
    messages_.clear();
    // The blocks beyond kBlocksKept were needed only for a burst.
    if (blocks_.size() > kBlocksKept) blocks_.resize(kBlocksKept);
    block_ = 0;
    used_ = 0;
    emptying_ = false;
  }

  absl::AnyInvocable<void()> settle_;
  bool emptying_ = false;
  std::vector<Message*> messages_;
  std::vector<std::unique_ptr<Block>> blocks_;
  // Where the next message is placed.
  size_t block_ = 0;
  size_t used_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_OUTBOX_H_
