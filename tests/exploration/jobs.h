// The jobs that are gone through: two workers and few steps.
#ifndef HOLDFAST_TESTS_EXPLORATION_JOBS_H_
#define HOLDFAST_TESTS_EXPLORATION_JOBS_H_

#include <cstdint>

#include "tests/exploration/schedule.h"

namespace holdfast::exploration {

// N = M = 2, examples by step, a checkpoint after each step.
Scenario Synchronous(uint64_t steps);
// Likewise; both workers have the first values of three variables.
Scenario GivenValues(uint64_t steps);
// N = 1, M = 2: who comes second is STALE.
Scenario Backup(uint64_t steps);
// N = 4, M = 2: each worker fills two seats of a step.
Scenario TwoSeats(uint64_t steps);
// N = M = 2.
Scenario ByTicket(uint64_t tickets);
// As ByTicket; the job goes on without a worker that is lost.
Scenario Continue(uint64_t tickets);
// A checkpoint after every two pushes.
Scenario Asynchronous(uint64_t tickets, uint32_t depth);
// As Synchronous, of 6 steps; an evaluator ends it after 3.
Scenario Judged();
// An operator changes the learning rate at step 1. Not without a checkpoint
// directory.
Scenario WithRate(Scenario scenario);
// With an embedding table beside the first variable.
Scenario WithRows(Scenario scenario);
// Without a checkpoint directory.
Scenario WithoutArchive(Scenario scenario);
// With one ps.
Scenario OnePs(Scenario scenario);
// Pushes and pulls go in parts of one element.
Scenario InParts(Scenario scenario);
// Whose workers are the production client.
Scenario Client(Scenario scenario);
// Whose workers are the client, and lend to the ps what is of several elements:
// a push is in fewer parts than one that cannot be lent.
Scenario Lending(Scenario scenario);
// Of a synchronous job that is lending, with one ps: a push, and what comes
// after it, are one PushPull, as long as they are lent.
Scenario InOneCall(Scenario scenario);
// In which a stranger speaks in the coordinator's name.
Scenario WithStranger(Scenario scenario);
// In which calls arrive in the generation after their own.
Scenario WithOutlivingCalls(Scenario scenario);
// In which worker 1 is not as it should be.
Scenario With(sim::Misdeed misdeed, Scenario scenario);

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_JOBS_H_
