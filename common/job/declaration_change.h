// How what a worker declares differs from the declaration that stands.
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_JOB_DECLARATION_CHANGE_H_
#define HOLDFAST_COMMON_JOB_DECLARATION_CHANGE_H_

#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/job.pb.h"

namespace holdfast {

enum class Declarer {
  // Declares everything, its first values among it.
  kChief,
  // The same, of a job that has values by now: the first ones do not count.
  kChiefWithoutValues,
  // The first values are the chief's, and what this one leaves out stands with
  // its default.
  kOther,
};

// The first difference, as "optimizers[0].learning_rate: 0.1 -> 0.2" from what
// stands to what is declared. Empty: there is none.
std::string FirstChange(const proto::Declaration& stands,
                        const proto::Declaration& declared, Declarer declarer);

// All of them, a chief's.
std::vector<std::string> AllChanges(const proto::Declaration& stands,
                                    const proto::Declaration& declared);

// The first difference of two job files, told likewise.
std::string FirstChange(const proto::Job& stands, const proto::Job& given);

// What can be done about one, for the end of an error.
std::string WaysOutOfChange(const proto::Declaration& stands);
// The same where the job has a checkpoint directory, without what leads over.
inline constexpr char kWaysOutOfOtherJob[] =
    "go on with the same, or train in another checkpoint directory, from the "
    "first values or, with --warm_start, from those of a checkpoint; steps, "
    "rates, evaluation, checkpoints and timeouts can be changed: stop all "
    "tasks, and start all with the new ones";

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_DECLARATION_CHANGE_H_
