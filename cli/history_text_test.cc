// SPDX-License-Identifier: Apache-2.0
#include "cli/history_text.h"

#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

proto::GetHistoryResponse History(const std::string& text) {
  proto::GetHistoryResponse history;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &history));
  return history;
}

// 1715940000 is 2024-05-17 10:00:00 UTC.
constexpr char kHistory[] = R"(
    points { step: 100 time: 1715940000.25 loss: 0.1 examples: 50000
             steps_per_second: 102.5 examples_per_second: 51250 }
    points { step: 200 time: 1715940001 examples: 100000
             steps_per_second: 90 examples_per_second: 45000 }
    evaluations { step: 150 examples: 10000 loss: 0.5 accuracy: 0.8125
                  top_k_accuracy: 0.9375 auc: 0.75
                  calibration: 1.25 }
    evaluations { step: 200 examples: 10000 loss: nan
                  mean_absolute_error: 2.25 mean_squared_error: 8.5 })";

TEST(HistoryCsvTest, HasALineForEachStep) {
  EXPECT_EQ(HistoryCsv(History(kHistory)),
            "step,time,loss,examples,steps_per_second,examples_per_second,"
            "accuracy,test_loss,mean_absolute_error,mean_squared_error,"
            "top_k_accuracy,auc,calibration\n"
            "100,1715940000.250,0.1,50000,102.5,51250,,,,,,,\n"
            "150,,,,,,0.8125,0.5,,,0.9375,0.75,1.25\n"
            "200,1715940001.000,,100000,90,45000,,nan,2.25,8.5,,,\n");
}

TEST(HistoryCsvTest, OfNothingIsItsHeader) {
  EXPECT_EQ(HistoryCsv({}),
            "step,time,loss,examples,steps_per_second,examples_per_second,"
            "accuracy,test_loss,mean_absolute_error,mean_squared_error,"
            "top_k_accuracy,auc,calibration\n");
}

// One row per change, and only columns with content.
constexpr char kJudged[] = R"(
    points { step: 100 time: 1715940000 examples: 50 }
    points { step: 300 time: 1715940001 examples: 150 }
    evaluations { step: 100 loss: 0.5 metrics { key: 'f1' value: 0.25 }
                  metrics { key: 'a,"b"' value: 0.5 } }
    learning_rate_changes { step: 200 factor: 0.5 }
    learning_rate_changes { step: 300 factor: 0.1 })";

TEST(HistoryCsvTest, HasChangesOfTheLearningRateAndFurtherFigures) {
  EXPECT_EQ(
      HistoryCsv(History(kJudged)),
      "step,time,loss,examples,steps_per_second,examples_per_second,"
      "accuracy,test_loss,mean_absolute_error,mean_squared_error,"
      "top_k_accuracy,auc,calibration,\"a,\"\"b\"\"\",f1,learning_rate_factor\n"
      "100,1715940000.000,,50,0,0,,0.5,,,,,,0.5,0.25,1\n"
      "200,,,,,,,,,,,,,,,0.5\n"
      "300,1715940001.000,,150,0,0,,,,,,,,,,0.1\n");
}

TEST(HistoryTableTest, HasChangesOfTheLearningRateAndFurtherFigures) {
  EXPECT_EQ(HistoryTable(History(kJudged), absl::UTCTimeZone()),
            "step  time                 examples  steps/s  examples/s  "
            "test loss   a,\"b\"      f1  rate factor\n"
            " 100  2024-05-17 10:00:00        50        0           0  "
            "   0.5000  0.5000  0.2500            1\n"
            " 200  -                           -        -           -  "
            "        -       -       -          0.5\n"
            " 300  2024-05-17 10:00:01       150        0           0  "
            "        -       -       -          0.1\n");
}

TEST(HistoryTableTest, IsForPeople) {
  EXPECT_EQ(HistoryTable(History(kHistory), absl::UTCTimeZone()),
            "step  time                   loss  examples  steps/s  examples/s  "
            "accuracy  test loss  mean abs error  mean sq error  "
            "top-k accuracy     AUC  calibration\n"
            " 100  2024-05-17 10:00:00  0.1000     50000      102       51250  "
            "       -          -               -              -  "
            "             -       -            -\n"
            " 150  -                         -         -        -           -  "
            "  0.8125     0.5000               -              -  "
            "        0.9375  0.7500       1.2500\n"
            " 200  2024-05-17 10:00:01       -    100000       90       45000  "
            "       -        nan          2.2500         8.5000  "
            "             -       -            -\n");
}

}  // namespace
}  // namespace holdfast
