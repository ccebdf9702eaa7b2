// SPDX-License-Identifier: Apache-2.0
#include "common/process/watchdog.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

void Watchdog::Add(absl::Duration bound, Probe probe) {
  watched_.push_back({bound, std::move(probe), bound});
}

void Watchdog::Start(absl::Duration period) {
  thread_.emplace("watchdog");
  thread_->TickEvery(period, [this] { Check(); });
}

void Watchdog::Check() {
  for (Watched& watched : watched_) {
    const std::optional<Wait> wait = watched.probe();
    if (!wait.has_value() || wait->lasted < watched.bound) {
      watched.due = watched.bound;
    } else if (wait->lasted >= watched.due) {
      report_(absl::StrCat(
          "waiting for ", wait->what, ", for ",
          absl::FormatDuration(absl::Trunc(wait->lasted, absl::Seconds(1))),
          " so far"));
      watched.due = 2 * wait->lasted;
    }
  }
}

}  // namespace holdfast
