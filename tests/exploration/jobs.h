// SPDX-License-Identifier: Apache-2.0

// The jobs to explore: two workers and few steps.
#ifndef HOLDFAST_TESTS_EXPLORATION_JOBS_H_
#define HOLDFAST_TESTS_EXPLORATION_JOBS_H_

#include <cstdint>

#include "tests/exploration/schedule.h"

namespace holdfast::exploration {

// N = M = 2, examples by step, and a checkpoint after each step.
Scenario Synchronous(uint64_t steps);
// The same; both workers have the first values of three variables.
Scenario GivenValues(uint64_t steps);
// N = 1, M = 2: the second push of a step is STALE.
Scenario Backup(uint64_t steps);
// N = 4, M = 2: each worker fills two seats of a step.
Scenario TwoSeats(uint64_t steps);
// N = M = 2, examples by ticket.
Scenario ByTicket(uint64_t tickets);
// The same as ByTicket, but the job continues without a lost worker.
Scenario Continue(uint64_t tickets);
// A checkpoint after every two pushes.
Scenario Asynchronous(uint64_t tickets, uint32_t depth);
// The same as Synchronous with 6 steps; an evaluator ends it after 3.
Scenario Judged();
// An operator changes the learning rate at step 1. Needs a checkpoint
// directory.
Scenario WithRate(Scenario scenario);
// With an embedding table besides the first variable.
Scenario WithRows(Scenario scenario);
// With the table of WithRows and no variables.
Scenario TablesAlone(Scenario scenario);
// Without a checkpoint directory.
Scenario WithoutArchive(Scenario scenario);
// With one ps.
Scenario OnePs(Scenario scenario);
// Pushes and pulls are sent in parts of one element.
Scenario InParts(Scenario scenario);
// Workers use the production client.
Scenario Client(Scenario scenario);
// Workers use the client, and lend the ps ranges of several elements: a push
// that is lent has fewer parts than one that cannot be lent.
Scenario Lending(Scenario scenario);
// For a lending synchronous job with one ps: a push and what follows it are one
// PushPull, as long as it is lent.
Scenario InOneCall(Scenario scenario);
// A stranger speaks in the name of the coordinator.
Scenario WithStranger(Scenario scenario);
// Calls arrive in the generation after their own.
Scenario WithOutlivingCalls(Scenario scenario);
// Worker 1 violates the protocol.
Scenario With(sim::Misdeed misdeed, Scenario scenario);

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_JOBS_H_
