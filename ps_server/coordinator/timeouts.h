// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_TIMEOUTS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_TIMEOUTS_H_

#include <algorithm>

#include "absl/time/time.h"
#include "common/rpc/timeouts.h"
#include "ps_server/coordinator/coordinator_options.h"
#include "ps_server/coordinator/job_declaration.h"

namespace holdfast {

// The job's timeouts (proto::Timeouts). A timeout that the declaration does not
// set is given by the flags of the ps.
//
// Thread-compatible.
class Timeouts {
 public:
  Timeouts(const CoordinatorOptions& options, const JobDeclaration* declaration)
      : start_(options.start_timeout),
        step_(options.step_timeout),
        recovery_(options.recovery_timeout),
        declaration_(declaration) {}

  absl::Duration Start() const { return StartTimeout(of(), start_); }
  absl::Duration Step() const { return StepTimeout(of(), step_); }
  absl::Duration Recovery() const { return RecoveryTimeout(of(), recovery_); }
  absl::Duration Disk() const { return DiskTimeout(of()); }
  // The maximum time for which a shard may park a call that waits for its disk.
  absl::Duration DiskPark() const {
    return std::min(kLongestDiskPark, Disk() / 4);
  }

 private:
  static constexpr absl::Duration kLongestDiskPark = absl::Seconds(2);

  const proto::Timeouts& of() const {
    return declaration_->has_value() ? (*declaration_)->timeouts()
                                     : proto::Timeouts::default_instance();
  }

  const absl::Duration start_;
  const absl::Duration step_;
  const absl::Duration recovery_;
  const JobDeclaration* const declaration_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_TIMEOUTS_H_
