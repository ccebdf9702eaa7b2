// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_OPTIONS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/rpc/timeouts.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

struct CoordinatorOptions {
  // Number of ps tasks in the cluster, including this one.
  uint32_t num_ps = 1;
  // Number of worker tasks in the cluster, including the chief.
  uint32_t num_workers = 1;
  // Whether the first worker is called /job:chief/task:0.
  bool has_chief = false;
  // How long a task may be silent before it counts as lost. A longer lease
  // tolerates longer pauses but detects failures later.
  absl::Duration lease = absl::Seconds(10);
  // Timeouts that apply unless the declaration sets its own.
  absl::Duration start_timeout = kDefaultTimeout;
  absl::Duration step_timeout = kDefaultTimeout;
  absl::Duration recovery_timeout = kDefaultTimeout;
  // How long a message to a shard may stay unanswered before it is resent.
  absl::Duration resend_after = absl::Seconds(5);
  // Address on which this ps listens, host:port, which clients get with the
  // placement.
  std::string address;
  // Host name and process id of this ps, for users.
  std::string process;
  // The date, for texts shown to users; nothing else depends on it. Default:
  // 1970.
  std::function<absl::Time()> date;
  // Memory limit for this ps's share of the job, in bytes; 0 means unlimited.
  int64_t memory_limit_bytes = 0;
  // Nonce of the life of this ps's shard. The other ps send theirs when they
  // register.
  uint64_t shard_nonce = 0;
  // The journal found in the checkpoint directory; for an empty directory it
  // has a directory_nonce and nothing else. Ignored without an archive.
  proto::Journal journal;
  // Returns the folder of a checkpoint, as this process sees it, for tasks that
  // read it when the job is done. Empty: tasks are told none.
  std::function<std::string(const proto::CheckpointName& name)>
      checkpoint_folder;
  // The history found in the checkpoint directory. Empty if there is none, or
  // if it belongs to another directory. Ignored without an archive.
  proto::History history;
  // The folder of a checkpoint from which variables of the same name and shape
  // take their first values. Empty if there is none.
  std::string warm_start;
  // The manifest in the folder `warm_start`, if optimizer slots are taken from
  // there too. Absent if they are not, or if the job has a checkpoint of its
  // own.
  std::optional<proto::Manifest> warm_slots_from;
  // A secret of Receipts::kKeyBytes random bytes, from which the keys of
  // receipts are made. Required.
  std::string receipt_secret;
  // The number above which incarnations begin if there is no checkpoint
  // directory. It is random, so that a process of an earlier job at the same
  // addresses is not mistaken for a process of this job.
  uint64_t incarnations_from = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_OPTIONS_H_
