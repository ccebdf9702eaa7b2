// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

proto::GetStatusResponse Status(const std::string& text) {
  proto::GetStatusResponse status;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &status));
  return status;
}

proto::GetStatusResponse Training(uint64_t step) {
  proto::GetStatusResponse status =
      Status("state { phase: TRAINING } total_steps: 3000 train_loss: 0.54321");
  status.set_global_step(step);
  status.set_examples(step * 200);
  return status;
}

TEST(FormatTimeLeftTest, Table) {
  EXPECT_EQ(FormatTimeLeft(absl::ZeroDuration()), "0:00");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(-3)), "0:00");
  EXPECT_EQ(FormatTimeLeft(absl::Milliseconds(6001)), "0:07");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(59.5)), "1:00");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(754)), "12:34");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(12345)), "3:25:45");
}

TEST(ProgressLineTest, TellsWhatIsKnown) {
  const ProgressDisplay progress({});
  const struct {
    std::string status, line;
  } kCases[] = {
      {"state { phase: STARTING } waiting_for: \"/job:worker/task:1\"",
       "starting  waiting for /job:worker/task:1"},
      {"state { phase: TRAINING } total_steps: 300", "step 0/300 0%"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 100 "
       "train_loss: 0.25",
       "step 100/300 33%  loss 0.2500"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 100",
       "step 100/300 33%"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 100 "
       "train_loss: 0.25 pushes { accepted: 200 not_finite: 3 }",
       "step 100/300 33%  loss 0.2500  3 not finite"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 150 "
       "train_loss: 0.25 evaluation { step: 100 examples: 50 accuracy: 0.5 }",
       "step 150/300 50%  loss 0.2500  accuracy 0.5000 (step 100)"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 150 "
       "train_loss: 0.25 evaluation { step: 100 examples: 50 "
       "mean_absolute_error: 0.5 }",
       "step 150/300 50%  loss 0.2500  error 0.5000 (step 100)"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 150 "
       "train_loss: 0.25 tasks { alive: true } "
       "tasks { alive: true input_wait { recent: 0.031 overall: 0.9 } } "
       "tasks { alive: true input_wait { recent: 0.024 } } "
       "tasks { input_wait { recent: 1 } } ",
       "step 150/300 50%  loss 0.2500  input 3%"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 150 "
       "train_loss: 0.25 durable_step: 100",
       "step 150/300 50%  loss 0.2500  saved 100"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 150 "
       "train_loss: 0.25 durable_step: 100 checkpoint_error: \"disk full\"",
       "step 150/300 50%  loss 0.2500  not saved: disk full"},
      {"state { phase: TRAINING } total_steps: 300 global_step: 150 "
       "train_loss: 0.25 disk_progress { bytes_done: 50 bytes_total: 100 } "
       "disk_progress { bytes_done: 30 bytes_total: 100 }",
       "step 150/300 50%  loss 0.2500  checkpoint 40%"},
      {"state { phase: STARTING } waiting_for: \"the state of step 7\" "
       "disk_progress { bytes_done: 199 bytes_total: 200 }",
       "starting  restoring 99%  waiting for the state of step 7"},
      {"state { phase: DONE } total_steps: 300 global_step: 300 train_loss: "
       "0.1 durable_step: 300",
       "step 300/300 100%  loss 0.1000  done"},
      {"state { phase: FAILED reason: \"/job:ps/task:1 is lost\" } "
       "total_steps: 300 global_step: 3 train_loss: 0.1",
       "failed  step 3/300 1%  loss 0.1000  /job:ps/task:1 is lost"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(progress.Line(Status(test.status)), test.line);
  }
}

TEST(ProgressTest, TellsOfARecoveryOnce) {
  for (const bool terminal : {false, true}) {
    ProgressDisplay progress({.terminal = terminal});
    proto::GetStatusResponse status = Training(1000);
    status.set_generation(1);
    progress.Update(status, kStart);
    status = Training(500);
    status.set_generation(2);
    status.set_recovered("ps 1 has started anew; from step 500");
    EXPECT_EQ(progress.Update(status, kStart + absl::Seconds(1)),
              terminal ? "\r\033[Krecovers: ps 1 has started anew; from step "
                         "500\nstep 500/3000 16%  loss 0.5432"
                       : "recovers: ps 1 has started anew; from step 500\n");
    // The speed is measured since then.
    status.set_global_step(600);
    status.set_examples(600 * 200);
    progress.Update(status, kStart + absl::Seconds(2));
    status.set_global_step(700);
    status.set_examples(700 * 200);
    progress.Update(status, kStart + absl::Seconds(3));
    EXPECT_EQ(progress.Line(status),
              "step 700/3000 23%  loss 0.5432  20000 examples/s  0:23 left");
  }
}

TEST(ProgressTest, WarnsOnceOfAJobThatDiverges) {
  ProgressDisplay progress({});
  proto::GetStatusResponse status = Training(0);
  absl::Time now = kStart;
  const auto update = [&](double loss, uint64_t not_finite) {
    status.set_global_step(status.global_step() + 1);
    status.set_train_loss(loss);
    status.mutable_pushes()->set_not_finite(not_finite);
    return progress.Update(status, now += absl::Milliseconds(1));
  };
  for (int i = 0; i < 5; ++i) update(2, 0);
  EXPECT_EQ(update(200, 0), "");
  EXPECT_THAT(update(201, 0), ::testing::StartsWith(
                                  "warning: the loss is 201, over 100 times"));
  EXPECT_EQ(update(900, 0), "");
  EXPECT_THAT(update(900, 1),
              ::testing::StartsWith("warning: a loss or gradient was not a"));
  EXPECT_EQ(update(900, 2), "");
  // In the first steps of a job with a loss scale, gradients overflow until the
  // scale fits.
  status.set_loss_scale(1024);
  ProgressDisplay scaled({});
  scaled.Update(status, now);
  EXPECT_EQ(scaled.Update(status, now), "");
}

TEST(ProgressTest, SpeedIsThatOfTheWindow) {
  ProgressDisplay progress({.rate_window = absl::Seconds(3)});
  // 100 steps a second, and from the 10th second on 50.
  for (int second = 0; second <= 10; ++second) {
    progress.Update(Training(100 * second), kStart + absl::Seconds(second));
  }
  EXPECT_EQ(progress.Line(Training(1000)),
            "step 1000/3000 33%  loss 0.5432  20000 examples/s  0:20 left");
  for (int second = 11; second <= 13; ++second) {
    progress.Update(Training(1000 + 50 * (second - 10)),
                    kStart + absl::Seconds(second));
  }
  EXPECT_EQ(progress.Line(Training(1150)),
            "step 1150/3000 38%  loss 0.5432  10000 examples/s  0:37 left");
}

TEST(ProgressTest, RewritesOneLineOnATerminal) {
  ProgressDisplay progress({.terminal = true, .width = 16});
  EXPECT_EQ(progress.Update(Training(0), kStart), "\r\033[Kstep 0/3000 0%");
  // Nothing has changed.
  EXPECT_EQ(progress.Update(Training(0), kStart), "");
  // Cut one column before the edge, where terminals wrap.
  EXPECT_EQ(progress.Update(Training(30), kStart), "\r\033[Kstep 30/3000 1>");
  EXPECT_EQ(progress.Update(Training(300), kStart), "\r\033[Kstep 300/3000 >");
  EXPECT_EQ(progress.Finish(), "\n");
  EXPECT_EQ(progress.Finish(), "");
}

TEST(ProgressTest, WritesPlainLinesWhenTheyAreDue) {
  ProgressDisplay progress({.plain_interval = absl::Seconds(5)});
  EXPECT_EQ(progress.Update(Training(0), kStart), "step 0/3000 0%\n");
  EXPECT_EQ(progress.Update(Training(100), kStart + absl::Seconds(1)), "");

  // An evaluation is shown at once, and only once.
  proto::GetStatusResponse evaluated = Training(200);
  *evaluated.mutable_evaluation() =
      Status("evaluation { step: 200 examples: 9 accuracy: 0.75 }")
          .evaluation();
  EXPECT_EQ(progress.Update(evaluated, kStart + absl::Seconds(2)),
            "step 200/3000 6%  loss 0.5432  20000 examples/s  0:28 left  "
            "accuracy 0.7500 (step 200)\n");
  EXPECT_EQ(progress.Update(evaluated, kStart + absl::Seconds(3)), "");

  // So is a change of what the job waits for.
  evaluated.set_waiting_for("/job:worker/task:1");
  EXPECT_THAT(progress.Update(evaluated, kStart + absl::Seconds(4)),
              ::testing::EndsWith("waiting for /job:worker/task:1\n"));
  EXPECT_EQ(progress.Update(evaluated, kStart + absl::Seconds(5)), "");

  // And a change of the job's phase.
  evaluated.mutable_state()->set_phase(proto::DONE);
  EXPECT_NE(progress.Update(evaluated, kStart + absl::Seconds(5)), "");
  evaluated.clear_waiting_for();
  EXPECT_EQ(progress.Update(evaluated, kStart + absl::Seconds(6)), "");
  EXPECT_NE(progress.Update(evaluated, kStart + absl::Seconds(10)), "");
  EXPECT_EQ(progress.Finish(), "");
}

// One line per megabyte would fill a log.
TEST(ProgressTest, HowFarADiskIsMakesNoNewLine) {
  ProgressDisplay::Options options;
  options.terminal = false;
  ProgressDisplay progress(options);
  const auto restoring = [](int done) {
    proto::GetStatusResponse status =
        Status("state { phase: STARTING } disk_progress { bytes_total: 100 }");
    status.mutable_disk_progress(0)->set_bytes_done(done);
    status.set_waiting_for(absl::StrCat(
        "the state of step 7 at /job:ps/task:1 (", done, " of 100 bytes)"));
    return status;
  };
  EXPECT_NE(progress.Update(restoring(1), kStart), "");
  EXPECT_EQ(progress.Update(restoring(2), kStart), "");
  EXPECT_NE(progress.Update(restoring(3), kStart + options.plain_interval), "");
}

TEST(ProgressDisplayTest, LinesOfOthersStandBeforeTheRunningLine) {
  ProgressDisplay plain({});
  EXPECT_EQ(plain.Between("epoch 1\n"), "epoch 1\n");
  ProgressDisplay::Options options;
  options.terminal = true;
  ProgressDisplay terminal(options);
  terminal.Update(Status("state { phase: TRAINING } total_steps: 300"), kStart);
  EXPECT_EQ(terminal.Between("epoch 1\n"), "\r\033[Kepoch 1\nstep 0/300 0%");
  EXPECT_EQ(terminal.Between(""), "");
}

}  // namespace
}  // namespace holdfast
