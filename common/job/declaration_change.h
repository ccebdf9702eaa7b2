// SPDX-License-Identifier: Apache-2.0

// How a worker's declaration differs from the existing one, apart from its
// agreed facts (agreed_facts.h).
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
  // The chief, which declares everything, including the first values.
  kChief,
  // The chief of a job that already has values: first values are not compared.
  kChiefWithoutValues,
  // Another worker: first values, which only the chief declares, and fields
  // that this worker does not set are not compared.
  kOther,
};

// The first difference between `stands`, the existing declaration, and
// `declared`, the new one, such as "optimizers[0].learning_rate: 0.1 -> 0.2";
// empty if there is none.
std::string FirstChange(const proto::Declaration& stands,
                        const proto::Declaration& declared, Declarer declarer);

// All differences of a chief's declaration.
std::vector<std::string> AllChanges(const proto::Declaration& stands,
                                    const proto::Declaration& declared);

// The first difference between two job files, in the same form.
std::string FirstChange(const proto::Job& stands, const proto::Job& given);

// What a user can do about a difference, to append to an error.
std::string WaysOutOfChange(const proto::Declaration& stands);
// What a user can do about a difference if the job has a checkpoint directory;
// without the separator with which WaysOutOfChange begins.
inline constexpr char kWaysOutOfOtherJob[] =
    "continue with the same settings, or train in another checkpoint "
    "directory, from the first values or, with --warm_start, from those of a "
    "checkpoint; steps, rates, evaluation, checkpoints and timeouts can be "
    "changed: stop all tasks, and restart them with the new settings";

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_DECLARATION_CHANGE_H_
