// SPDX-License-Identifier: Apache-2.0
#include "ps_server/tensorboard/scalar_log.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

uint64_t LittleEndian(const std::string& bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = count; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  }
  return value;
}

uint32_t Masked(const std::string& data) {
  const uint32_t crc = Crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string Describe(const proto::tensorboard::Event& event) {
  if (!event.file_version().empty()) return event.file_version();
  if (event.has_session_log()) return absl::StrCat("start ", event.step());
  std::string text = absl::StrCat(event.step(), ":");
  for (const auto& value : event.summary().value()) {
    absl::StrAppend(
        &text, absl::StrFormat(" %s %g", value.tag(), value.simple_value()));
  }
  return text;
}

class ScalarLogTest : public ::testing::Test {
 protected:
  ScalarLogTest() { EXPECT_EQ(files_.MakeFolder("/board"), absl::OkStatus()); }

  static proto::GetHistoryResponse Point(uint64_t step, double loss) {
    proto::GetHistoryResponse news;
    proto::HistoryPoint& point = *news.add_points();
    point.set_step(step);
    point.set_loss(loss);
    point.set_steps_per_second(20);
    point.set_examples_per_second(400);
    return news;
  }

  // The events of each file, in the order of their names. Records that are cut
  // off are left out, as by readers.
  std::vector<std::vector<std::string>> Read() {
    std::vector<std::vector<std::string>> read;
    for (const std::string& path : files_.Files()) {
      const std::string content = files_.Contents(path);
      std::vector<std::string>& events = read.emplace_back();
      size_t at = 0;
      while (at + 12 <= content.size()) {
        const uint64_t length = LittleEndian(content, at, 8);
        EXPECT_EQ(LittleEndian(content, at + 8, 4),
                  Masked(content.substr(at, 8)));
        if (at + 16 + length > content.size()) break;
        const std::string data = content.substr(at + 12, length);
        EXPECT_EQ(LittleEndian(content, at + 12 + length, 4), Masked(data));
        proto::tensorboard::Event event;
        EXPECT_TRUE(event.ParseFromString(data));
        events.push_back(Describe(event));
        at += 16 + length;
      }
    }
    return read;
  }

  FaultyFileSystem files_;
  absl::Time date_ = absl::FromUnixSeconds(1'000'000'000);
  ScalarLog log_{&files_, "/board", "host.7", [this] { return date_; }};
};

TEST_F(ScalarLogTest, WritesScalarsByStep) {
  log_.Begin(0);
  proto::GetHistoryResponse news = Point(1, 0.5);
  proto::EvaluationResult& result = *news.add_evaluations();
  result.set_step(1);
  result.set_loss(0.25);
  result.set_accuracy(0.75);
  log_.Add(news);
  log_.Add({});
  EXPECT_THAT(files_.Files(),
              ElementsAre("/board/events.out.tfevents.1000000000.host.7"));
  EXPECT_THAT(Read(),
              ElementsAre(ElementsAre(
                  "brain.Event:2", "start 1",
                  "1: loss 0.5 steps_per_second 20 examples_per_second 400",
                  "1: evaluation/loss 0.25 evaluation/accuracy 0.75")));
}

TEST_F(ScalarLogTest, ChangesOfTheLearningRateAndFurtherFigures) {
  log_.Begin(0);
  proto::GetHistoryResponse news = Point(5, 0.5);
  *news.add_points() = Point(6, 0.5).points(0);
  proto::LearningRateChange& change = *news.add_learning_rate_changes();
  change.set_step(6);
  change.set_factor(0.125);
  proto::EvaluationResult& result = *news.add_evaluations();
  result.set_step(6);
  result.set_loss(0.25);
  (*result.mutable_metrics())["recall"] = 0.5;
  (*result.mutable_metrics())["f1"] = 0.75;
  log_.Add(news);
  EXPECT_THAT(
      Read(),
      ElementsAre(ElementsAre(
          "brain.Event:2", "start 1",
          "5: loss 0.5 steps_per_second 20 examples_per_second 400 "
          "learning_rate_factor 1",
          "6: loss 0.5 steps_per_second 20 examples_per_second 400 "
          "learning_rate_factor 0.125",
          "6: evaluation/loss 0.25 evaluation/f1 0.75 evaluation/recall "
          "0.5")));
}

TEST_F(ScalarLogTest, ARollBackBeginsAnotherFile) {
  log_.Begin(0);
  log_.Add(Point(8, 0.5));
  // The date was set back.
  date_ -= absl::Hours(1);
  log_.Begin(5);
  log_.Add(Point(6, 0.75));
  EXPECT_THAT(files_.Files(),
              ElementsAre("/board/events.out.tfevents.1000000000.host.7",
                          "/board/events.out.tfevents.1000000001.host.7"));
  EXPECT_THAT(
      Read(),
      ElementsAre(
          ElementsAre("brain.Event:2", "start 1",
                      "8: loss 0.5 steps_per_second 20 examples_per_second "
                      "400"),
          ElementsAre("brain.Event:2", "start 6",
                      "6: loss 0.75 steps_per_second 20 examples_per_second "
                      "400")));
}

TEST_F(ScalarLogTest, AfterAFullDiskAnotherFileGoesOn) {
  log_.Begin(0);
  log_.Add(Point(1, 0.5));
  files_.SetSpace(10);
  log_.Add(Point(2, 0.5));
  log_.Add(Point(3, 0.5));
  files_.SetSpace(1 << 20);
  log_.Add(Point(4, 0.5));
  std::vector<std::string> all;
  for (const auto& events : Read()) {
    for (const std::string& event : events) {
      all.push_back(event.substr(0, event.find(':')));
    }
  }
  EXPECT_THAT(all, ElementsAre("brain.Event", "start 1", "1", "brain.Event",
                               "start 4", "4"));
}

}  // namespace
}  // namespace holdfast
