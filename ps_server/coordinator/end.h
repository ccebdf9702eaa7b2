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
//  1. DONE: a worker is named that evaluates the last version and writes the
//     result: the chief, unless it does not come any more.
//  2. DONE, STOPPED: the workers leave when they have what they came for, and
//     those that may still come to hear of it are waited for; evaluators for
//     as long as a step may take. FAILED: nobody is.
//  3. End(state) goes to every shard, in place of whatever is under way there.
//  4. The daemon may exit when all shards and live workers know, or a lease
//     after 3.
class End : public Operation {
 public:
  explicit End(Job* job);

  // 1. The job is DONE from now on.
  void OnDone();
  // Or STOPPED.
  void OnStopped();
  // In order.
  absl::Time ended_at() const { return ended_at_; }
  // The life knows that the job has ended, or that it has nothing more to do.
  void OnTold(const WorkerLife& life) { told_.insert(life); }
  // One that has just come may report in place of one that is lost.
  void OnJoined(const TaskId& worker);

  // 2. The tasks that are waited for.
  std::vector<std::string> LateTasks() const;

  bool IsDue() const override;
  void Start() override;
  void Stop() override {}
  void Tick() override { end_.SendDue(); }
  std::string WaitingFor() const override { return ""; }

  // 3. Shards that have been told may go.
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
