// SPDX-License-Identifier: Apache-2.0

// Checks that a program on the client's training loop makes the same calls to
// the cluster as the C++ worker, call by call, in every kind of job. So the
// same gradients give the same values.

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/background_calls.h"
#include "client/training_loop.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/testing/trainer_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAreArray;

class ParityTest : public TrainerTestBase {
 protected:
  // Makes the same cluster, model and batches each time.
  using SetUpCase = std::function<void()>;

  // The loop makes the same calls as the trainer, except the leave, which is
  // the program's.
  void ExpectParity(const SetUpCase& set_up) {
    Reset(set_up);
    const absl::Status trained = Run();
    const std::vector<std::string> calls = Calls();
    const std::vector<float> inputs = model_.first_inputs;
    const std::vector<float> scales = model_.loss_scales;
    const std::vector<std::string> contributions = Contributions();
    const Trainer::Counts counts = counts_;

    Reset(set_up);
    TrainingLoop::Counts loop_counts;
    const absl::Status looped = RunLoop(&loop_counts);
    EXPECT_EQ(looped, trained);
    EXPECT_THAT(Calls(), ElementsAreArray(calls));
    EXPECT_THAT(Contributions(), ElementsAreArray(contributions));
    EXPECT_THAT(model_.first_inputs, ElementsAreArray(inputs));
    EXPECT_THAT(model_.loss_scales, ElementsAreArray(scales));
    EXPECT_EQ(loop_counts.accepted, counts.accepted);
    EXPECT_EQ(loop_counts.stale, counts.stale);
    EXPECT_EQ(loop_counts.duplicate, counts.duplicate);
    EXPECT_EQ(loop_counts.not_finite, counts.not_finite);
  }

 private:
  void Reset(const SetUpCase& set_up) {
    batches_.reset();
    options_.declaration.Clear();
    model_.first_inputs.clear();
    model_.loss_scales.clear();
    set_up();
  }

  std::vector<std::string> Calls() const {
    std::vector<std::string> calls = cluster_->calls();
    const auto is_after_the_end = [](const std::string& call) {
      return absl::StartsWith(call, "leave") || absl::StartsWith(call, "pin") ||
             absl::StartsWith(call, "read");
    };
    calls.erase(std::remove_if(calls.begin(), calls.end(), is_after_the_end),
                calls.end());
    return calls;
  }

  static std::string Describe(const Contribution& contribution) {
    return absl::StrCat("seat ", contribution.seat, ", ", contribution.examples,
                        " x ", contribution.clip_factor, ", loss ",
                        contribution.loss.value_or(0), ", ",
                        contribution.not_finite);
  }
  std::vector<std::string> Contributions() const {
    std::vector<std::string> all;
    for (const Contribution& contribution : cluster_->contributions()) {
      all.push_back(Describe(contribution));
    }
    for (const auto& [sequence, contribution] : cluster_->applications()) {
      all.push_back(Describe(contribution));
    }
    return all;
  }

  absl::Status RunLoop(TrainingLoop::Counts* counts) {
    BackgroundCalls background;
    absl::Status status = cluster_->AwaitVariables(absl::InfiniteFuture());
    if (!status.ok()) return status;
    TrainingLoop::Options options;
    options.replica = options_.replica;
    options.enter = [this] {
      return cluster_->AwaitVariables(absl::InfiniteFuture());
    };
    TrainingLoop loop(cluster_.get(), &background, &clock_, options);
    for (;;) {
      const auto turn = loop.Next(absl::InfiniteFuture());
      *counts = loop.counts();
      if (!turn.ok()) return turn.status();
      if ((*turn)->done) return absl::OkStatus();
      if ((*turn)->rolled_back) batches_->Restart();
      status = TakeTurn(**turn, &loop);
      if (!status.ok()) return status;
    }
  }

  // Takes a turn with the model's gradients.
  absl::Status TakeTurn(const TrainingLoop::Turn& turn, TrainingLoop* loop) {
    const bool by_ticket = options_.declaration.examples() == proto::BY_TICKET;
    auto batch =
        by_ticket
            ? batches_->NextTicket(turn.batch, absl::InfiniteFuture())
            : batches_->Next(turn.step, turn.seat, absl::InfiniteFuture());
    if (!batch.ok()) return batch.status();
    batch->loss_scale = turn.loss_scale;
    const auto parameters = loop->values();
    if (!parameters.ok()) return parameters.status();
    const std::vector<absl::Span<const float>> values = (*parameters)->All();
    absl::Status added;
    const auto result = model_.ComputeGradients(
        values, *batch, [&](size_t variable, absl::Span<const float> gradient) {
          added.Update(loop->Add(variable, gradient));
        });
    if (!result.ok()) return result.status();
    if (!added.ok()) return added;
    TrainingLoop::Gradient gradient;
    gradient.examples = batch->size();
    gradient.loss = result->finite ? result->loss_sum / batch->size()
                                   : std::numeric_limits<double>::quiet_NaN();
    return loop->Contribute(gradient);
  }
};

TEST_F(ParityTest, SynchronousByStep) {
  for (const auto& [seats, workers] :
       std::map<uint32_t, uint32_t>{{1, 2}, {2, 2}, {3, 4}, {4, 2}, {6, 2}}) {
    const uint32_t n = seats, m = workers;
    SCOPED_TRACE(absl::StrCat("N = ", n, ", M = ", m));
    ExpectParity([&] { SetUpJob(/*replica=*/1, n, m, /*steps=*/5); });
  }
}

TEST_F(ParityTest, LateBackupWorker) {
  ExpectParity([&] {
    SetUpJob(/*replica=*/1, /*n=*/1, /*m=*/2, /*steps=*/6);
    cluster_->verdicts[{0, 1}] = proto::STALE;
    cluster_->newest[1] = 4;
    cluster_->verdicts[{4, 1}] = proto::DUPLICATE;
    cluster_->newest[5] = 6;
  });
}

TEST_F(ParityTest, SynchronousByTicket) {
  for (const auto& [seats, workers] :
       std::map<uint32_t, uint32_t>{{1, 2}, {2, 2}, {4, 2}, {5, 3}}) {
    const uint32_t n = seats, m = workers;
    for (const uint64_t tickets : {1, 7, 8}) {
      SCOPED_TRACE(absl::StrCat("N = ", n, ", M = ", m, ", ", tickets));
      ExpectParity([&] { SetUpTickets(/*replica=*/1, n, m, tickets); });
      ExpectParity([&] {
        SetUpTickets(/*replica=*/1, n, m, tickets);
        // The second ticket is for a later step.
        cluster_->ticket_steps[2] = 1;
        cluster_->verdicts[{0, 1}] = proto::STALE;
      });
    }
  }
}

TEST_F(ParityTest, Asynchronous) {
  for (const uint32_t depth : {1, 2, 3, 7}) {
    for (const bool bound : {false, true}) {
      SCOPED_TRACE(absl::StrCat("depth ", depth, bound ? ", bound" : ""));
      ExpectParity([&] {
        if (bound) {
          options_.declaration.mutable_consistency()
              ->mutable_asynchronous()
              ->set_staleness_bound(3);
        }
        SetUpAsynchronous(/*replica=*/1, depth, /*tickets=*/9);
        cluster_->tickets = {0, 1, 4, 5, 6, 8};
      });
    }
  }
}

TEST_F(ParityTest, WhatIsNotFinite) {
  for (const int kind : {0, 1, 2}) {
    SCOPED_TRACE(kind);
    ExpectParity([&] {
      if (kind == 0) SetUpJob(1, /*n=*/2, /*m=*/2, /*steps=*/4);
      if (kind == 1) SetUpJob(1, /*n=*/4, /*m=*/2, /*steps=*/4);
      if (kind == 2) SetUpAsynchronous(1, /*depth=*/1, /*tickets=*/4);
      model_.at.nan_loss = 1;
      model_.at.infinite_gradient = 2;
    });
  }
}

TEST_F(ParityTest, TheClipFactor) {
  for (const bool asynchronous : {false, true}) {
    ExpectParity([&] {
      options_.declaration.mutable_clipping()->set_global_norm(2);
      if (asynchronous) {
        SetUpAsynchronous(1, /*depth=*/1, /*tickets=*/4);
      } else {
        SetUpJob(1, /*n=*/2, /*m=*/2, /*steps=*/4);
      }
    });
  }
}

// Whenever the worker learns of it.
TEST_F(ParityTest, ARollBack) {
  for (const char* call :
       {"push #4 of step 3", "await push #4",
        "contribute #4: step 3, seat 1, 8 examples", "pull 4",
        "await verdict #4", "await pull 4", "await done"}) {
    SCOPED_TRACE(call);
    ExpectParity([&] {
      SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/5);
      cluster_->roll_backs[call].version = 2;
    });
  }
  for (const char* call : {"push #5 of step 2", "await push #5",
                           "contribute #5: step 2, seat 1, 8 examples",
                           "await verdict #6", "await ticket #6"}) {
    SCOPED_TRACE(call);
    ExpectParity([&] {
      SetUpTickets(/*replica=*/1, /*n=*/4, /*m=*/2, /*tickets=*/12);
      cluster_->roll_backs[call] = {1, {2, 3, 4}};
    });
  }
  for (const char* call :
       {"await ticket #3", "push #3 of ticket 2 at 2", "apply #3: 8 examples",
        "await applied #3", "await done"}) {
    for (const uint32_t depth : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(call, ", depth ", depth));
      ExpectParity([&] {
        SetUpAsynchronous(/*replica=*/1, depth, /*tickets=*/6);
        cluster_->roll_backs[call] = {1, {1, 2, 3, 4, 5}};
      });
    }
  }
}

TEST_F(ParityTest, BeingShutOut) {
  for (const proto::Verdict verdict :
       {proto::FENCED, proto::ABORTED, proto::VERDICT_UNSPECIFIED}) {
    SCOPED_TRACE(verdict);
    ExpectParity([&] {
      SetUpJob(/*replica=*/1, /*n=*/2, /*m=*/2, /*steps=*/5);
      cluster_->verdicts[{1, 1}] = verdict;
    });
    ExpectParity([&] {
      SetUpAsynchronous(/*replica=*/1, /*depth=*/2, /*tickets=*/5);
      cluster_->applied_verdicts[2] = verdict;
    });
  }
}

}  // namespace
}  // namespace holdfast
