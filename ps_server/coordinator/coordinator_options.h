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
  // ps tasks of the cluster, this one among them.
  uint32_t num_ps = 1;
  // Worker tasks of the cluster, a chief among them.
  uint32_t num_workers = 1;
  // Whether the first worker is called /job:chief/task:0.
  bool has_chief = false;
  // How long a task may be silent before it counts as lost. A longer lease
  // tolerates longer pauses but detects failures later.
  absl::Duration lease = absl::Seconds(10);
  // Timeouts until a declaration brings its own.
  absl::Duration start_timeout = kDefaultTimeout;
  absl::Duration step_timeout = kDefaultTimeout;
  absl::Duration recovery_timeout = kDefaultTimeout;
  // How long a message to a shard stays unanswered before it is sent again.
  absl::Duration resend_after = absl::Seconds(5);
  // Where this ps listens, for the placement.
  std::string address;
  // Host name and process id of this ps, for people.
  std::string process;
  // The date, for what people read; nothing else depends on it. Default: 1970.
  std::function<absl::Time()> date;
  // Memory limit for this ps's share of the job, in bytes; 0 means unlimited.
  int64_t memory_limit_bytes = 0;
  // The life of this ps's shard; other ps send theirs when they register.
  uint64_t shard_nonce = 0;
  // The checkpoint directory's journal as it was found; that of an empty
  // directory has a directory_nonce and nothing else. Ignored without an
  // archive.
  proto::Journal journal;
  // The directory's history as it was found; empty where there is none, or none
  // of this directory. Ignored without an archive.
  proto::History history;
  // A checkpoint's folder from which variables of the same name and shape take
  // their first values. Empty: none.
  std::string warm_start;
  // The manifest in that folder, where optimizer slots are taken from there,
  // too. Absent: they are not, or the job has a checkpoint of its own.
  std::optional<proto::Manifest> warm_slots_from;
  // Random bytes that nobody else knows, from which the keys of receipts are
  // made: Receipts::kKeyBytes. Required.
  std::string receipt_secret;
  // Where there is no archive, incarnations begin above this number. It is
  // random, so that a process of an earlier job on these addresses is not taken
  // for one of this job's.
  uint64_t incarnations_from = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_OPTIONS_H_
