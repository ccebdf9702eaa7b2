// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_WATCHDOG_H_
#define HOLDFAST_COMMON_PROCESS_WATCHDOG_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/strand.h"

namespace holdfast {

// Reports what a daemon is waiting for if the wait lasts longer than it should,
// so that the log says where the daemon is stuck, whatever the cause.
//
// Thread-compatible; probes are called from the watchdog's own thread.
class Watchdog {
 public:
  struct Wait {
    // What is waited for, such as "the shard's thread, which is busy".
    std::string what;
    absl::Duration lasted;
  };
  // Returns the current wait, if there is one.
  using Probe = std::function<std::optional<Wait>()>;
  using Report = std::function<void(const std::string& text)>;

  explicit Watchdog(Report report) : report_(std::move(report)) {}

  // Adds a probe. A wait that it returns is reported when it has lasted for
  // `bound`, and again each time its length has doubled. Must be called before
  // Start.
  void Add(absl::Duration bound, Probe probe);
  // Checks all probes every `period`, until the watchdog is destroyed.
  void Start(absl::Duration period = absl::Seconds(1));

  // Checks all probes once.
  void Check();

 private:
  struct Watched {
    absl::Duration bound;
    Probe probe;
    // The length at which the current wait is reported next.
    absl::Duration due;
  };

  const Report report_;
  std::vector<Watched> watched_;
  std::optional<Strand> thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_WATCHDOG_H_
