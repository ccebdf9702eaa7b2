#ifndef HOLDFAST_PS_SERVER_COORDINATOR_OPERATION_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_OPERATION_H_

#include <string>

namespace holdfast {

// Something that is done on all shards, in steps.
//
// One operation has the shards at a time (Job::running): it takes them in
// Start() and gives them back when what it does there is over, or in Stop(). So
// whatever was said to all shards before is acknowledged by all of them.
class Operation {
 public:
  virtual ~Operation() = default;
  // Whether there is something to do, and it can be done. Asked between two
  // operations.
  virtual bool IsDue() const = 0;
  virtual void Start() = 0;
  // Breaks off what is under way.
  virtual void Stop() = 0;
  // Sends again what was not answered.
  virtual void Tick() = 0;
  // While it has the shards: what is waited for, as people are told.
  virtual std::string WaitingFor() const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_OPERATION_H_
