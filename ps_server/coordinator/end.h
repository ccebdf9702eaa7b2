// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_END_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_END_H_

#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "ps_server/coordinator/broadcast.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/operation.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// The end of a job: DONE, STOPPED or FAILED.
//
//  1. DONE: a worker is chosen to evaluate the last version and to write the
//     result: the chief, unless it is gone for good.
//  2. DONE, STOPPED: workers leave when they are finished. The job waits for
//     those that are here and for those that may still come to learn of the
//     end; and for evaluators, for as long as a step may take. FAILED: the job
//     waits for no task.
//  3. End(state) goes to every shard, in place of whatever is in progress
//     there.
//  4. The daemon may exit when all shards and live workers know that the job
//     has ended, or when one lease has passed since 3.
class End : public Operation {
 public:
  explicit End(Job* job);

  // 1. Makes the job DONE.
  void OnDone();
  // 1. Makes the job STOPPED.
  void OnStopped();
  // When the job became DONE or STOPPED.
  absl::Time ended_at() const { return ended_at_; }
  // Called when a life has been told that the job has ended, or that it has
  // nothing more to do.
  void OnTold(const WorkerLife& life) { told_.insert(life); }
  // Called when a worker has joined. In a job that does not wait for lost
  // workers, it becomes the reporter if the reporter is lost.
  void OnJoined(const TaskId& worker);

  // 2. The tasks that are waited for.
  std::vector<std::string> LateTasks() const;

  bool IsDue() const override;
  void Start() override;
  void Stop() override {}
  void Tick() override { end_.SendDue(); }
  std::string WaitingFor() const override { return ""; }

  // Whether 3 has begun: shards that have been told may exit.
  bool started() const { return started_; }
  // 4.
  bool finished() const;

 private:
  bool AwaitsEvaluators() const;
  TaskId ChooseReporter() const;
  void SetReporter(const TaskId& worker);
  bool IsReporter(const TaskId& worker) const;
  const Member* FindReporter() const;
  bool IsTold(const TaskId& task, const Member& session) const {
    return told_.count({task, session.incarnation}) > 0;
  }

  Job* const job_;
  absl::Time ended_at_;
  std::set<WorkerLife> told_;
  bool started_ = false;
  Broadcast<proto::EndRequest> end_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_END_H_
