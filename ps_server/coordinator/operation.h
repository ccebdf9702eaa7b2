// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_OPERATION_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_OPERATION_H_

#include <string>

namespace holdfast {

// An action on all shards that takes several events.
//
// One operation holds the shards at a time (Job::running): it acquires them in
// Start() and releases them when its work there is done, or in Stop(). So when
// an operation starts, all shards have acknowledged the messages of the
// operations before it.
class Operation {
 public:
  virtual ~Operation() = default;
  // Whether there is work to do that can be done now. Called only while no
  // operation holds the shards.
  virtual bool IsDue() const = 0;
  virtual void Start() = 0;
  // Abandons what is in progress.
  virtual void Stop() = 0;
  // Resends the messages that were not answered in time.
  virtual void Tick() = 0;
  // What the operation waits for, in words for users. Called only while it
  // holds the shards.
  virtual std::string WaitingFor() const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_OPERATION_H_
