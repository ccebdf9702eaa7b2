// SPDX-License-Identifier: Apache-2.0
#include "common/job/resumed_declaration.h"

#include <functional>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ResumePoint kAtStep4 = {4, true};

proto::Declaration Parse(const std::string& text) {
  proto::Declaration declaration;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(text, &declaration));
  return declaration;
}

proto::Declaration Synchronous() {
  return Parse(R"pb(
    variables {
      name: "w"
      shape: 3
      initializer { given { sha256: "old" } }
    }
    optimizers {
      learning_rate: 0.5
      momentum { momentum: 0.5 }
    }
    consistency {
      synchronous { replicas_to_aggregate: 2 total_num_replicas: 2 }
    }
    examples: BY_STEP
    num_workers: 2
    total_steps: 5
    checkpoints { every_steps: 2 }
    lost_workers { policy: WAIT }
    seed: 7
  )pb");
}

proto::Declaration ByTicket() {
  proto::Declaration declaration = Synchronous();
  declaration.set_examples(proto::BY_TICKET);
  declaration.set_total_tickets(9);
  declaration.mutable_lost_workers()->set_policy(proto::LostWorkers::CONTINUE);
  declaration.mutable_lost_workers()->set_min_replicas(1);
  declaration.mutable_lost_workers()->set_max_workers(2);
  return declaration;
}

using Change = std::function<void(proto::Declaration* declaration)>;

proto::Declaration With(proto::Declaration declaration, const Change& change) {
  change(&declaration);
  return declaration;
}

// A job file with this batch size and the lines in `more`.
void SetJob(proto::Declaration* declaration, uint32_t batch_size,
            const std::function<void(proto::Job* job)>& more = nullptr) {
  proto::Job job;
  job.set_name("job");
  job.set_steps(5);
  job.set_batch_size(batch_size);
  job.mutable_data()->set_prefetch(2);
  job.mutable_optimizer()->set_learning_rate(0.5f);
  if (more) more(&job);
  declaration->mutable_job()->set_job_file(job.SerializeAsString());
}

TEST(ResumeDeclarationTest, WithoutAChangeItStands) {
  const auto resumed =
      ResumeDeclaration(Synchronous(), Synchronous(), kAtStep4);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_THAT(resumed->changes, IsEmpty());
}

TEST(ResumeDeclarationTest, WhatMayChangeIsTold) {
  const auto resumed =
      ResumeDeclaration(Synchronous(),
                        With(Synchronous(),
                             [](proto::Declaration* d) {
                               d->set_total_steps(80);
                               auto& optimizer = *d->mutable_optimizers(0);
                               optimizer.set_learning_rate(0.25f);
                               optimizer.mutable_schedule()->mutable_cosine();
                               d->mutable_checkpoints()->set_every_steps(20);
                               d->mutable_timeouts()->set_step_seconds(5);
                               d->mutable_evaluation()->set_every_steps(10);
                             }),
                        kAtStep4);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_THAT(
      resumed->changes,
      ElementsAre("optimizers[0].learning_rate: 0.5 -> 0.25",
                  HasSubstr("optimizers[0].schedule: "), "total_steps: 5 -> 80",
                  HasSubstr("timeouts: { step_seconds: 5 }"),
                  "checkpoints.every_steps: 2 -> 20",
                  HasSubstr("evaluation: { every_steps: 10 }")));
  EXPECT_EQ(resumed->declaration.total_steps(), 80u);

  // A rate of 0 is a rate.
  const auto frozen =
      ResumeDeclaration(Synchronous(),
                        With(Synchronous(),
                             [](proto::Declaration* d) {
                               d->mutable_optimizers(0)->set_learning_rate(0);
                             }),
                        kAtStep4);
  ASSERT_TRUE(frozen.ok()) << frozen.status();
  EXPECT_THAT(frozen->changes,
              ElementsAre("optimizers[0].learning_rate: 0.5 -> 0"));
  EXPECT_TRUE(frozen->declaration.optimizers(0).has_learning_rate());
}

TEST(ResumeDeclarationTest, WhatMayNotIsRefusedByField) {
  const struct {
    Change change;
    const char* text;
  } kCases[] = {
      {[](auto* d) { d->mutable_variables(0)->set_shape(0, 4); },
       "variables[0].shape[0]: 3 -> 4"},
      {[](auto* d) {
         d->mutable_optimizers(0)->mutable_momentum()->set_momentum(0.25f);
       },
       "optimizers[0].momentum.momentum: 0.5 -> 0.25"},
      {[](auto* d) { d->set_seed(8); }, "seed: 7 -> 8"},
      {[](auto* d) { d->set_num_workers(4); }, "num_workers: 2 -> 4"},
      {[](auto* d) {
         d->mutable_consistency()
             ->mutable_synchronous()
             ->set_replicas_to_aggregate(4);
       },
       "replicas_to_aggregate: 2 -> 4"},
      {[](auto* d) {
         d->mutable_lost_workers()->set_policy(proto::LostWorkers::CONTINUE);
       },
       "lost_workers.policy: WAIT -> CONTINUE"},
  };
  for (const auto& c : kCases) {
    const auto resumed = ResumeDeclaration(
        Synchronous(), With(Synchronous(), c.change), kAtStep4);
    EXPECT_EQ(resumed.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(resumed.status().message()), HasSubstr(c.text));
  }
}

TEST(ResumeDeclarationTest, FirstValuesCountUntilThereAreOthers) {
  const proto::Declaration other = With(Synchronous(), [](proto::Declaration*
                                                              d) {
    d->mutable_variables(0)->mutable_initializer()->mutable_given()->set_sha256(
        0, "new");
  });
  EXPECT_THAT(std::string(ResumeDeclaration(Synchronous(), other, {0, false})
                              .status()
                              .message()),
              HasSubstr("sha256"));
  const auto resumed = ResumeDeclaration(Synchronous(), other, kAtStep4);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_THAT(resumed->changes, IsEmpty());
  EXPECT_EQ(resumed->declaration.SerializeAsString(),
            Synchronous().SerializeAsString());
}

TEST(ResumeDeclarationTest, NoStepIsTakenBack) {
  const auto at = [](uint64_t total_steps) {
    return ResumeDeclaration(Synchronous(),
                             With(Synchronous(),
                                  [&](proto::Declaration* d) {
                                    d->set_total_steps(total_steps);
                                  }),
                             kAtStep4)
        .status();
  };
  EXPECT_TRUE(at(4).ok());
  EXPECT_EQ(at(3).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(at(3).message()),
              HasSubstr("total_steps is 3, but the job has made 4 steps"));
}

TEST(ResumeDeclarationTest, ByTicketWorkersMayBeOthers) {
  const auto resumed =
      ResumeDeclaration(ByTicket(),
                        With(ByTicket(),
                             [](proto::Declaration* d) {
                               d->set_num_workers(4);
                               d->mutable_consistency()
                                   ->mutable_synchronous()
                                   ->set_total_num_replicas(4);
                               d->mutable_lost_workers()->set_max_workers(4);
                             }),
                        kAtStep4);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_THAT(
      resumed->changes,
      ElementsAre("consistency.synchronous.total_num_replicas: 2 -> 4",
                  "num_workers: 2 -> 4", "lost_workers.max_workers: 2 -> 4"));
}

TEST(ResumeDeclarationTest, TicketsBecomeMoreNotFewer) {
  const auto with = [](uint64_t steps, uint64_t tickets, uint64_t at) {
    return ResumeDeclaration(ByTicket(),
                             With(ByTicket(),
                                  [&](proto::Declaration* d) {
                                    d->set_total_steps(steps);
                                    d->set_total_tickets(tickets);
                                  }),
                             {at, true})
        .status();
  };
  EXPECT_TRUE(with(6, 12, 4).ok());
  EXPECT_THAT(
      std::string(with(4, 8, 4).message()),
      HasSubstr("the job has 9 tickets, and cannot continue with fewer; 8"));
  // The fifth step consisted of the ninth ticket alone.
  EXPECT_THAT(std::string(with(6, 12, 5).message()),
              HasSubstr("a step of fewer than replicas_to_aggregate"));
}

TEST(ResumeDeclarationTest, OfAJobFileOnlyTheSameFieldsMayChange) {
  const proto::Declaration stands =
      With(Synchronous(), [](proto::Declaration* d) { SetJob(d, 32); });
  const auto with = [&](uint32_t batch_size,
                        const std::function<void(proto::Job*)>& more) {
    return ResumeDeclaration(
        stands,
        With(Synchronous(),
             [&](proto::Declaration* d) { SetJob(d, batch_size, more); }),
        kAtStep4);
  };
  const auto resumed = with(32, [](proto::Job* job) {
    job->set_epochs(3);
    job->mutable_optimizer()->set_learning_rate(0.25f);
    job->mutable_evaluation()->set_every_steps(5);
    job->mutable_data()->set_prefetch(8);
  });
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  proto::Job kept;
  ASSERT_TRUE(kept.ParseFromString(resumed->declaration.job().job_file()));
  EXPECT_EQ(kept.epochs(), 3) << "checkpoints keep the newest";
  EXPECT_THAT(std::string(with(64, nullptr).status().message()),
              HasSubstr("batch_size: 32 -> 64"));
}

}  // namespace
}  // namespace holdfast
