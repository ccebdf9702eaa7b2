// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/data_file.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBlock = kCheckpointBlockBytes / sizeof(float);

class DataFileTest : public ::testing::Test {
 protected:
  DataFileTest() : directory_(*CheckpointDirectory::Open("dir", &disk_)) {}

  // Saves one variable "v" of `elements` as extents of these (begin, size)s,
  // each written by a ps of its own.
  absl::Status SaveExtents(
      int64_t elements, uint32_t slot,
      const std::vector<std::pair<uint64_t, uint64_t>>& extents,
      const std::string& variable = "v") {
    proto::Manifest manifest = TestManifest(name_, {{"v", {elements}}});
    for (size_t ps = 0; ps < extents.size(); ++ps) {
      auto writer =
          DataFileWriter::Create(directory_, name_, ps, extents.size());
      if (!writer.ok()) return writer.status();
      const auto [begin, size] = extents[ps];
      absl::Status status = (*writer)->Begin(variable, slot, begin, size);
      if (!status.ok()) return status;
      std::vector<float> data(size);
      std::iota(data.begin(), data.end(), begin);
      status = (*writer)->Append(data);
      if (!status.ok()) return status;
      auto file = (*writer)->Finish();
      if (!file.ok()) return file.status();
      *manifest.add_files() = *file;
    }
    return directory_.WriteManifest(manifest);
  }

  FaultyFileSystem disk_;
  CheckpointDirectory directory_;
  const proto::CheckpointName name_ = TestName(1, 10);
};

TEST_F(DataFileTest, WhatIsSavedIsReadWhoeverSavedWhichPart) {
  for (const uint32_t num_ps : {1, 2, 3, 7}) {
    const auto name = TestName(1, num_ps);
    ASSERT_TRUE(
        SaveTestCheckpoint(directory_, name, SmallVariables(), num_ps, num_ps)
            .ok());
    const auto state = LoadTestCheckpoint(directory_, name);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(*state, MakeTestState(SmallVariables(), num_ps));
  }
}

TEST_F(DataFileTest, BlocksEndWhereTheyShould) {
  for (const int64_t elements :
       {kBlock - 1, kBlock, kBlock + 1, 2 * kBlock, 5 * kBlock + 3}) {
    for (const uint32_t num_ps : {1, 2}) {
      const auto name = TestName(num_ps, elements);
      const std::vector<TestVariable> variables = {{"v", {elements}, 1},
                                                   {"bias", {3}, 1}};
      ASSERT_TRUE(
          SaveTestCheckpoint(directory_, name, variables, num_ps, 1).ok());
      const auto state = LoadTestCheckpoint(directory_, name);
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_EQ(*state, MakeTestState(variables, 1)) << elements;
      const auto reader = CheckpointReader::Open(directory_, name);
      EXPECT_TRUE((*reader)->Verify().ok());
    }
  }
}

TEST_F(DataFileTest, AnyRangeIsGathered) {
  const int64_t elements = 3 * kBlock + 10;
  const uint64_t cut = kBlock + 5;
  const uint64_t rest = elements - cut;
  ASSERT_TRUE(SaveExtents(elements, 0, {{cut, rest}, {0, cut}}).ok());
  const auto reader = CheckpointReader::Open(directory_, name_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  // Ranges around every border of extents and blocks.
  std::vector<uint64_t> places = {0, 1};
  for (const uint64_t border :
       {uint64_t{kBlock}, cut, cut + kBlock, cut + 2 * kBlock}) {
    for (const uint64_t place : {border - 1, border, border + 1}) {
      if (place <= static_cast<uint64_t>(elements)) places.push_back(place);
    }
  }
  places.push_back(elements);
  for (const uint64_t begin : places) {
    for (const uint64_t end : places) {
      if (end < begin) continue;
      std::vector<float> into(end - begin, -1.0f);
      ASSERT_TRUE((*reader)->Read("v", 0, begin, absl::MakeSpan(into)).ok());
      std::vector<float> expected(end - begin);
      std::iota(expected.begin(), expected.end(), begin);
      ASSERT_EQ(into, expected) << begin << " to " << end;
    }
  }
}

TEST_F(DataFileTest, WhatIsNotStoredIsNotFound) {
  ASSERT_TRUE(
      SaveTestCheckpoint(directory_, name_, SmallVariables(), 2, 1).ok());
  const auto reader = CheckpointReader::Open(directory_, name_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> into(2);
  const auto code = [&](const char* variable, uint32_t slot, uint64_t begin) {
    return (*reader)->Read(variable, slot, begin, absl::MakeSpan(into)).code();
  };
  EXPECT_EQ(code("dense/bias", 2, 1), absl::StatusCode::kOk);
  EXPECT_EQ(code("dense/bias", 0, 2), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("dense/bias", 0, ~uint64_t{0}), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("dense/bias", 3, 0), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("dense", 0, 0), absl::StatusCode::kNotFound);
  EXPECT_EQ((*reader)->num_slots("dense/bias"), 2u);
  EXPECT_EQ((*reader)->num_slots("empty"), 1u);
  EXPECT_EQ((*reader)->num_slots("scale"), 0u);
  EXPECT_EQ((*reader)->num_slots("dense"), 0u);
  EXPECT_EQ((*reader)->FindVariable("dense"), nullptr);
  EXPECT_EQ((*reader)->FindVariable("dense/bias")->shape(0), 3);
}

TEST_F(DataFileTest, EachElementIsStoredOnce) {
  const auto why = [&] {
    const auto reader = CheckpointReader::Open(directory_, name_);
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss);
    return std::string(reader.status().message());
  };
  ASSERT_TRUE(SaveExtents(10, 0, {{0, 4}, {4, 6}}).ok());
  EXPECT_TRUE(CheckpointReader::Open(directory_, name_).ok());
  ASSERT_TRUE(SaveExtents(10, 0, {{0, 4}, {5, 5}}).ok());
  EXPECT_THAT(why(), HasSubstr("between 4 and 5"));
  ASSERT_TRUE(SaveExtents(10, 0, {{0, 5}, {4, 6}}).ok());
  EXPECT_THAT(why(), HasSubstr("between 4 and 5"));
  ASSERT_TRUE(SaveExtents(10, 0, {{0, 4}, {4, 5}}).ok());
  EXPECT_THAT(why(), HasSubstr("from 9 on, of 10"));
  ASSERT_TRUE(SaveExtents(10, 0, {{0, 10}, {4, 2}}).ok());
  EXPECT_THAT(why(), HasSubstr("between 4 and 10"));
  ASSERT_TRUE(SaveExtents(10, 0, {{0, 10}, {0, 10}}).ok());
  EXPECT_THAT(why(), HasSubstr("twice"));
  ASSERT_TRUE(SaveExtents(10, 0, {{0, 11}}).ok());
  EXPECT_THAT(why(), HasSubstr("fewer"));
  ASSERT_TRUE(SaveExtents(10, 0, {{0, 10}}, "w").ok());
  EXPECT_THAT(why(), HasSubstr("not declared"));
  ASSERT_TRUE(SaveExtents(10, 0, {}).ok());
  EXPECT_THAT(why(), HasSubstr("from 0 on"));
  // Slot 0 is stored, the values are not.
  ASSERT_TRUE(SaveExtents(10, 1, {{0, 10}}).ok());
  EXPECT_THAT(why(), HasSubstr("from 0 on"));
}

TEST_F(DataFileTest, SlotsLackNothingEither) {
  const auto save = [&](uint32_t slot, uint64_t size) {
    auto writer = DataFileWriter::Create(directory_, name_, 0, 1);
    const std::vector<float> ones(10, 1.0f);
    EXPECT_TRUE((*writer)->Begin("v", 0, 0, 10).ok());
    EXPECT_TRUE((*writer)->Append(ones).ok());
    EXPECT_TRUE((*writer)->Begin("v", slot, 0, size).ok());
    EXPECT_TRUE((*writer)->Append(absl::MakeConstSpan(ones).first(size)).ok());
    proto::Manifest manifest = TestManifest(name_, {{"v", {10}}});
    *manifest.add_files() = *(*writer)->Finish();
    EXPECT_TRUE(directory_.WriteManifest(manifest).ok());
    return CheckpointReader::Open(directory_, name_).status();
  };
  EXPECT_TRUE(save(1, 10).ok());
  EXPECT_THAT(save(1, 9).message(), HasSubstr("slot 0 of variable \"v\""));
  EXPECT_THAT(save(2, 10).message(),
              HasSubstr("lacks slot 0 of variable \"v\""));
}

TEST_F(DataFileTest, ExtentHasTheElementsItWasBegunWith) {
  const auto code = [&](int appended, bool again) {
    auto writer = DataFileWriter::Create(directory_, name_, 0, 1);
    EXPECT_TRUE((*writer)->Begin("v", 0, 0, 3).ok());
    const std::vector<float> data(appended);
    absl::Status status = (*writer)->Append(data);
    if (again) status = (*writer)->Begin("w", 0, 0, 3);
    const auto finished = (*writer)->Finish();
    // The first error is kept.
    EXPECT_TRUE(status.ok() || finished.status() == status);
    return finished.status().code();
  };
  EXPECT_EQ(code(3, false), absl::StatusCode::kOk);
  EXPECT_EQ(code(2, false), absl::StatusCode::kInternal);
  EXPECT_EQ(code(4, false), absl::StatusCode::kInternal);
  EXPECT_EQ(code(2, true), absl::StatusCode::kInternal);
}

TEST_F(DataFileTest, WhatIsNotFinishedIsRemovedAndReplaced) {
  {
    auto writer = DataFileWriter::Create(directory_, name_, 0, 1);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(disk_.Files().size(), 1u);
  }
  EXPECT_TRUE(disk_.Files().empty());
  // Left by a process that was killed.
  ASSERT_TRUE(disk_.Create("dir/g0001-step00000010/ps-0000-of-0001.tmp").ok());
  ASSERT_TRUE(
      SaveTestCheckpoint(directory_, name_, SmallVariables(), 1, 1).ok());
  EXPECT_EQ(*LoadTestCheckpoint(directory_, name_),
            MakeTestState(SmallVariables(), 1));
  EXPECT_EQ(disk_.Files().size(), 2u);
}

TEST_F(DataFileTest, IsOpenedByItsFolder) {
  ASSERT_TRUE(
      SaveTestCheckpoint(directory_, name_, SmallVariables(), 2, 1).ok());
  for (const char* folder :
       {"dir/g0001-step00000010", "dir/g0001-step00000010/"}) {
    const auto reader = CheckpointReader::OpenFolder(folder, &disk_);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->manifest().name().step(), 10u);
  }
  EXPECT_EQ(CheckpointReader::OpenFolder("dir", &disk_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckpointReader::OpenFolder("dir/g0001-step00000011", &disk_)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace holdfast
