#ifndef HOLDFAST_COMMON_PROCESS_WATCHDOG_H_
#define HOLDFAST_COMMON_PROCESS_WATCHDOG_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/strand.h"

namespace holdfast {

// Reports what a daemon has been waiting for, when that lasts longer than it
// should: whatever the reason, a log then says where the daemon stands.
//
// Thread-compatible; probes are called from its own thread.
class Watchdog {
 public:
  struct Wait {
    // "the shard's thread, which is busy".
    std::string what;
    absl::Duration lasted;
  };
  // What is waited for, if anything is.
  using Probe = std::function<std::optional<Wait>()>;
  using Report = std::function<void(const std::string& text)>;

  explicit Watchdog(Report report) : report_(std::move(report)) {}

  // A wait is reported when it has lasted for `bound`, and again each time that
  // it has lasted twice as long. Before Start.
  void Add(absl::Duration bound, Probe probe);
  // Looks at all probes every `period`, until the watchdog is destroyed.
  void Start(absl::Duration period = absl::Seconds(1));

  // Looks at all probes once.
  void Check();

 private:
  struct Watched {
    absl::Duration bound;
    Probe probe;
    // When the wait that lasts is reported.
    absl::Duration due;
  };

  const Report report_;
  std::vector<Watched> watched_;
  std::optional<Strand> thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_WATCHDOG_H_
