// SPDX-License-Identifier: Apache-2.0
#include "ps_server/tensorboard/tensor_board.h"

#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "ps_server/disk/rest.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<TensorBoard>> TensorBoard::Start(
    FileSystem* files, const std::string& folder, const std::string& process,
    uint64_t known) {
  HOLDFAST_RETURN_IF_ERROR(files->MakeFolder(folder));
  return std::unique_ptr<TensorBoard>(
      new TensorBoard(files, folder, process, known));
}

TensorBoard::TensorBoard(FileSystem* files, const std::string& folder,
                         const std::string& process, uint64_t known)
    : event_(known), log_(files, folder, process, DateNow) {}

void TensorBoard::Look(Coordinator* coordinator) {
  std::optional<uint64_t> begun;
  const EventLog& events = coordinator->events();
  if (events.last_number() != event_) {
    const proto::GetEventsResponse news = events.After(event_);
    for (const proto::Event& event : news.events()) {
      if (event.kind() == proto::Event::TRAINING) begun = event.step();
    }
    event_ = events.last_number();
  }
  if (begun.has_value()) {
    step_ = evaluated_ = *begun;
    has_begun_ = true;
  }
  // What happened in an earlier life of the coordinator is in the files of that
  // life.
  if (!has_begun_) return;

  proto::GetHistoryRequest request;
  request.set_after_step(step_);
  request.set_evaluations_after_step(evaluated_);
  proto::GetHistoryResponse news;
  coordinator->GetHistory(
      request, [&](absl::StatusOr<proto::GetHistoryResponse> response) {
        if (response.ok()) news = *std::move(response);
      });
  if (!news.points().empty()) step_ = news.points().rbegin()->step();
  if (!news.evaluations().empty()) {
    evaluated_ = news.evaluations().rbegin()->step();
  }
  if (!begun.has_value() && news.points().empty() &&
      news.evaluations().empty()) {
    return;
  }
  thread_.Post([this, begun, news = std::move(news)] {
    if (begun.has_value()) log_.Begin(*begun);
    log_.Add(news);
  });
}

bool TensorBoard::Stop(absl::Duration patience) {
  return ComesToRest(&thread_, SteadyNow() + patience);
}

}  // namespace holdfast
