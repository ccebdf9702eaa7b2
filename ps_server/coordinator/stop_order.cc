// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/stop_order.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ps_server/protocol/request.h"

namespace holdfast {

void StopOrder::Ask(const proto::StopRequest& request,
                    Reply<proto::StopResponse> reply) {
  if (job_->ended()) return Tell(std::move(reply));
  asked_ = true;
  // A later call may waive the checkpoint that an earlier call wanted.
  without_checkpoint_ = without_checkpoint_ || request.without_checkpoint();
  Await(request, std::move(reply));
}

void StopOrder::Await(const proto::StopRequest& request,
                      Reply<proto::StopResponse> reply) {
  if (job_->ended() || request.wait_ms() == 0 || parked_.full()) {
    return Tell(std::move(reply));
  }
  parked_.Park({}, std::move(reply),
               ParkedUntil(job_->clock->Now(), request.wait_ms()));
}

void StopOrder::Tell(Reply<proto::StopResponse> reply) {
  job_->outbox.Answer(std::move(reply), Answer());
}

proto::StopResponse StopOrder::Answer() const {
  proto::StopResponse response;
  response.set_generation(job_->generation.value());
  *response.mutable_state() = job_->state;
  response.set_step(job_->global_step());
  response.set_durable_step(save_->durable_step());
  if (!job_->ended()) response.set_waiting_for(job_->director->WaitingFor());
  return response;
}

void StopOrder::AnswerAll() {
  for (auto& call : parked_.TakeAll()) {
    job_->outbox.Answer(std::move(call.reply), Answer());
  }
}

void StopOrder::AnswerDue() {
  for (auto& call : parked_.TakeDue(job_->clock->Now())) {
    job_->outbox.Answer(std::move(call.reply), Answer());
  }
}

std::string StopOrder::Describe() const {
  const uint64_t step = job_->progress.committed().value();
  const uint64_t durable = save_->durable_step();
  std::string text = absl::StrCat("the job was stopped at step ", step);
  if (job_->declared.has_value()) {
    absl::StrAppend(&text, " of ", job_->declared->total_steps());
  }
  if (job_->archive == nullptr) {
    return absl::StrCat(text,
                        ", and nothing was saved: started again, it "
                        "begins from scratch");
  }
  if (durable < step) absl::StrAppend(&text, " without a checkpoint");
  absl::StrAppend(&text,
                  "; started again with the same checkpoint directory, it ");
  if (durable == step) {
    absl::StrAppend(&text, "goes on from there");
  } else if (durable > 0) {
    absl::StrAppend(&text, "goes on from step ", durable);
  } else {
    absl::StrAppend(&text, "begins from scratch");
  }
  return text;
}

}  // namespace holdfast
