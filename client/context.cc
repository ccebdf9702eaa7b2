#include "client/context.h"

namespace holdfast::client {

void Context::Note(const proto::JobState& state) {
  absl::MutexLock lock(&mutex);
  if (state.phase() > state_.phase()) state_ = state;
  if (state.phase() == proto::FAILED && ended_.ok()) {
    ended_ = absl::AbortedError(state.reason());
  }
}

void Context::End(const absl::Status& why) {
  absl::MutexLock lock(&mutex);
  if (ended_.ok()) ended_ = why;
}

proto::JobState Context::state() const {
  absl::MutexLock lock(&mutex);
  return state_;
}

}  // namespace holdfast::client
