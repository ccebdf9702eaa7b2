// SPDX-License-Identifier: Apache-2.0
#include "client/tickets.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/tensors.h"

namespace holdfast::client {

class Tickets::Request : public Cluster::TicketRequest {
 public:
  explicit Request(std::shared_ptr<Tickets> tickets)
      : tickets_(std::move(tickets)), mutex_(tickets_->mutex_) {}

  ~Request() override {
    absl::MutexLock lock(&mutex_);
    StopWaiting();
    if (ticket_.has_value() && !taken_) {
      tickets_->here_.emplace(ticket_->sequence, *std::move(ticket_));
      tickets_->Deal();
    }
  }

  bool done() const override ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return answered_ || tickets_->calls_.IsOver();
  }

  bool WaitUntilDone(absl::Time until) override {
    return tickets_->calls_.Wait(
        until, [this] { return answered_; }, [this] { return Missing(); },
        &report_);
  }

  absl::StatusOr<std::optional<Ticket>> Await(absl::Time deadline) override {
    const absl::Status status = tickets_->calls_.Await(
        deadline, [this] { return answered_; }, [this] { return Missing(); });
    absl::MutexLock lock(&mutex_);
    if (!answered_) {
      StopWaiting();
      Answer(status);
    }
    if (!error_.ok()) return error_;
    taken_ = true;
    return ticket_;
  }

  void Answer(const absl::StatusOr<std::optional<Ticket>>& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    answered_ = true;
    if (answer.ok()) {
      ticket_ = *answer;
    } else {
      error_ = answer.status();
    }
  }

 private:
  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    std::string text =
        absl::StrCat("a ticket from ", tickets_->context_->ps_names[0]);
    if (!tickets_->waiting_for_.empty()) {
      absl::StrAppend(&text, ", which waits for ", tickets_->waiting_for_);
    }
    return text;
  }

  void StopWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::deque<Request*>& waiting = tickets_->waiting_;
    waiting.erase(std::remove(waiting.begin(), waiting.end(), this),
                  waiting.end());
  }

  const std::shared_ptr<Tickets> tickets_;
  absl::Mutex& mutex_;
  // Used only by the waiting thread.
  CallGroup::NextReport report_;

  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Ticket> ticket_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // Whether the caller has taken the ticket.
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

Tickets::Tickets(std::shared_ptr<Context> context, Sequences* sequences,
                 std::shared_ptr<const proto::Sender> sender)
    : context_(std::move(context)),
      mutex_(context_->mutex),
      sequences_(sequences),
      calls_(context_, std::move(sender)) {}

Tickets::~Tickets() { calls_.Cancel(); }

// Stands for a request that could not be started. Await returns the reason.
class FailedTicketRequest : public Cluster::TicketRequest {
 public:
  explicit FailedTicketRequest(absl::Status error) : error_(std::move(error)) {}
  bool done() const override { return true; }
  bool WaitUntilDone(absl::Time) override { return true; }
  absl::StatusOr<std::optional<Ticket>> Await(absl::Time) override {
    return error_;
  }

 private:
  const absl::Status error_;
};

std::unique_ptr<Cluster::TicketRequest> Tickets::StartTake(
    absl::StatusOr<std::shared_ptr<Tickets>> ready) {
  if (!ready.ok()) {
    return std::make_unique<FailedTicketRequest>(ready.status());
  }
  const std::shared_ptr<Tickets> tickets = *std::move(ready);
  auto request = std::make_unique<Request>(tickets);
  tickets->Add(request.get());
  return request;
}

void Tickets::Add(Request* request) {
  {
    absl::MutexLock lock(&mutex_);
    waiting_.push_back(request);
    Deal();
    if (done_ || !error_.ok()) AnswerAll();
  }
  Ask();
}

void Tickets::Ask() {
  PushSequence sequence;
  proto::TakeTicketRequest request;
  std::vector<PushSequence> told;
  {
    absl::MutexLock lock(&mutex_);
    if (asking_ || waiting_.empty()) return;
    asking_ = true;
    waiting_for_.clear();
    if (!asked_for_.has_value()) {
      asked_for_ = sequences_->Take(std::nullopt);
      sequences_->Release(*asked_for_);
    }
    sequence = *asked_for_;
    told = TellIn(&request);
  }
  request.set_sequence(sequence.value());
  request.set_wait_ms(absl::ToInt64Milliseconds(context_->timing.park));
  calls_.Start(rpc::kTakeTicket, 0, std::move(request),
               [this, sequence, told = std::move(told)](
                   const absl::StatusOr<proto::TakeTicketResponse>& response) {
                 return OnAnswer(sequence, told, response);
               });
}

Next Tickets::OnAnswer(
    PushSequence sequence, const std::vector<PushSequence>& told,
    const absl::StatusOr<proto::TakeTicketResponse>& response) {
  {
    absl::MutexLock lock(&mutex_);
    if (!response.ok()) {
      if (!waiting_.empty()) {
        waiting_.front()->Answer(response.status());
        waiting_.pop_front();
      }
    } else {
      OnTold(told, *response);
      if (response->has_ticket()) {
        const proto::Ticket& ticket = response->ticket();
        here_[sequence] = {sequence,
                           ticket.index(),
                           {ticket.scalars().begin(), ticket.scalars().end()},
                           ticket.receipt(),
                           LossScaleOf(ticket),
                           GlobalStep(response->global_step())};
        asked_for_.reset();
        Deal();
      } else if (response->state().phase() == proto::DONE) {
        done_ = true;
        AnswerAll();
      } else {
        waiting_for_ = response->waiting_for();
        if (!waiting_.empty()) return Next::kAgain;
      }
    }
    asking_ = false;
  }
  Ask();
  return Next::kDone;
}

void Tickets::Spend(const proto::SpentTicket& spent) {
  bool now;
  {
    absl::MutexLock lock(&mutex_);
    spent_.push_back(spent);
    now = asking_;
    if (!now && std::exchange(tell_is_due_, true)) return;
  }
  if (now) return Tell();
  calls_.After(context_->timing.tell_spent, [this] {
    {
      absl::MutexLock lock(&mutex_);
      tell_is_due_ = false;
    }
    Tell();
  });
}

void Tickets::Tell() {
  proto::TakeTicketRequest request;
  std::vector<PushSequence> told;
  {
    absl::MutexLock lock(&mutex_);
    if (spent_.empty()) return;
    told = TellIn(&request);
  }
  calls_.Start(rpc::kTakeTicket, 0, std::move(request),
               [this, told = std::move(told)](
                   const absl::StatusOr<proto::TakeTicketResponse>& response) {
                 absl::MutexLock lock(&mutex_);
                 if (response.ok()) OnTold(told, *response);
                 return Next::kDone;
               });
}

std::vector<PushSequence> Tickets::TellIn(
    proto::TakeTicketRequest* request) const {
  std::vector<PushSequence> told;
  for (const proto::SpentTicket& spent : spent_) {
    *request->add_spent() = spent;
    told.push_back(PushSequence(spent.sequence()));
  }
  request->set_acked_through(sequences_->acked_through().value());
  return told;
}

void Tickets::OnTold(const std::vector<PushSequence>& told,
                     const proto::TakeTicketResponse& response) {
  if (response.verdict() != proto::VERDICT_UNSPECIFIED) {
    error_ = absl::AbortedError(absl::StrCat(
        context_->ps_names[0],
        ": this worker has been fenced; its tickets go to others"));
    return AnswerAll();
  }
  for (const PushSequence sequence : told) {
    const auto is_it = [&](const proto::SpentTicket& spent) {
      return spent.sequence() == sequence.value();
    };
    spent_.erase(std::remove_if(spent_.begin(), spent_.end(), is_it),
                 spent_.end());
    sequences_->Settle(sequence);
  }
}

void Tickets::Deal() {
  while (!waiting_.empty() && !here_.empty()) {
    waiting_.front()->Answer(std::move(here_.begin()->second));
    waiting_.pop_front();
    here_.erase(here_.begin());
  }
}

void Tickets::AnswerAll() {
  for (Request* request : waiting_) {
    if (error_.ok()) {
      request->Answer(std::nullopt);
    } else {
      request->Answer(error_);
    }
  }
  waiting_.clear();
}

}  // namespace holdfast::client
