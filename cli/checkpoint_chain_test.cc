// SPDX-License-Identifier: Apache-2.0

// `holdfast checkpoint` with delta checkpoints of tables.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/checkpoint.h"
#include "cli/table_export.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/process/daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kNpyHeader = 128;

// The numbers of a .npy file.
template <typename Number>
std::vector<Number> NumbersOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_GE(bytes.size(), kNpyHeader) << path;
  if (bytes.size() < kNpyHeader) return {};
  std::vector<Number> numbers((bytes.size() - kNpyHeader) / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data() + kNpyHeader,
              bytes.size() - kNpyHeader);
  return numbers;
}

// A copy of a table that is served: values by id.
using Copy = std::map<uint64_t, std::vector<float>>;

// Copies the rows of STEM.user.*.npy to `copy`.
void TakeRows(const std::string& stem, Copy* copy) {
  const auto ids = NumbersOf<uint64_t>(stem + ".user.ids.npy");
  const auto values = NumbersOf<float>(stem + ".user.values.npy");
  ASSERT_EQ(values.size(), 2 * ids.size());
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  for (size_t i = 0; i < ids.size(); ++i) {
    (*copy)[ids[i]] = {values[2 * i], values[2 * i + 1]};
  }
}

// Checkpoints of steps 10 to 50, by one to three ps. Those of steps 10 and 40
// have all rows. The row of id 7 is touched between each two.
class CheckpointChainTest : public ::testing::Test {
 protected:
  CheckpointChainTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        directory_(MakeDirectory(folder_)) {
    TestEntries entries;
    for (uint64_t id = 0; id < 30; ++id) entries[id] = TestRowOf(id, 3);
    for (uint64_t id = 30; id < 40; ++id) entries[id] = {4, 1, {}};
    TestSave save;
    for (uint64_t step = 10; step <= 50; step += 10) {
      if (step > 10) {
        const TestEntries before = entries;
        const uint64_t n = step / 10;
        entries[7] = TestRowOf(7, step - 1);
        entries[n] = TestRowOf(n, step - 2);
        entries.erase(10 + n);                          // removed
        entries[20 + n] = {step - 3, 1, {}};            // a candidate again
        entries[30 + n] = TestRowOf(30 + n, step - 4);  // admitted
        if (step > 20) entries[9 + n] = TestRowOf(9 + n, step);  // made again
        AddRemoved(before, entries, &save);
      }
      save.name = TestName(1, step);
      save.num_ps = 1 + step / 10 % 3;
      save.entries = entries;
      if (step > 10) save.previous = TestName(1, step - 10);
      for (uint32_t ps = 0; step > 10 && ps < save.num_ps; ++ps) {
        save.lists_removed.insert(ps);
        if (step != 40) save.writes_changes.insert(ps);
      }
      if (step == 40) save.chain.clear();
      EXPECT_TRUE(SaveTestTable(directory_, save).ok());
      TestSave next;
      next.chain = save.chain;
      next.chain.push_back(save.name);
      save = next;
    }
    WriteJournal({30, 50});
  }

  static CheckpointDirectory MakeDirectory(const std::string& folder) {
    fs::remove_all(folder);
    return *CheckpointDirectory::Open(folder, PosixFileSystem());
  }
  void WriteJournal(const std::vector<uint64_t>& steps) {
    proto::Journal journal;
    journal.set_generation(1);
    for (const uint64_t step : steps) {
      *journal.add_checkpoints() = TestName(1, step);
    }
    ASSERT_TRUE(directory_.WriteJournal(journal).ok());
  }

  // Returns the exit code. The output is in out_ and err_.
  int Run(const std::vector<std::string>& args) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = CheckpointCommand(args);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  // The line of the output that begins with `word`.
  std::string Line(const std::string& word) {
    std::istringstream lines(out_);
    for (std::string line; std::getline(lines, line);) {
      if (absl::StartsWith(line, word)) return line;
    }
    return "";
  }

  // The rows of a checkpoint, as exported.
  Copy Export(uint64_t step) {
    const std::string stem = absl::StrCat(folder_, "/all", step);
    EXPECT_EQ(Run({"export", folder_, "--variables=user",
                   "--checkpoint=" + FolderName(TestName(1, step)),
                   "--output=" + stem + ".npz"}),
              kExitDone)
        << err_;
    Copy copy;
    TakeRows(stem, &copy);
    return copy;
  }

  const std::string folder_;
  const CheckpointDirectory directory_;
  std::string out_;
  std::string err_;
};

TEST_F(CheckpointChainTest, ListTellsWhatIsNeededAndWhatAreChanges) {
  ASSERT_EQ(Run({"list", folder_}), kExitDone) << err_;
  EXPECT_THAT(Line("checkpoint"), ContainsRegex(" rows +kind +written "));
  EXPECT_THAT(Line("g0001-step00000010"),
              AllOf(ContainsRegex(" 30 +all rows +20[0-9-]+ "),
                    EndsWith("needed by g0001-step00000030")));
  EXPECT_THAT(Line("g0001-step00000020"),
              AllOf(HasSubstr(" changes since 10 "),
                    EndsWith("needed by g0001-step00000030")));
  EXPECT_THAT(Line("g0001-step00000030"),
              AllOf(HasSubstr(" changes since 20 "), EndsWith("durable")));
  EXPECT_THAT(
      Line("g0001-step00000040"),
      AllOf(HasSubstr(" all rows "), EndsWith("needed by g0001-step00000050")));
  EXPECT_THAT(Line("g0001-step00000050"), EndsWith("durable, the newest"));
  WriteJournal({50});
  ASSERT_EQ(Run({"list", folder_}), kExitDone) << err_;
  EXPECT_THAT(Line("g0001-step00000020"),
              EndsWith("complete, not in the journal"));

  fs::remove_all(directory_.Folder(TestName(1, 40)));
  ASSERT_EQ(Run({"list", folder_}), kExitDone) << err_;
  EXPECT_THAT(Line("g0001-step00000050"),
              HasSubstr("needs g0001-step00000040, which is missing"));
}

TEST_F(CheckpointChainTest, InspectTellsTheChain) {
  ASSERT_EQ(Run({"inspect", folder_, "--checkpoint=g0001-step00000030"}),
            kExitDone)
      << err_;
  EXPECT_THAT(Line("tables"), EndsWith("changes since 20"));
  EXPECT_THAT(out_, ContainsRegex("\nneeds +g0001-step00000010, [0-9.]+ KiB\n"
                                  "needs +g0001-step00000020, [0-9.]+ KiB\n"));
  EXPECT_THAT(Line("table "), HasSubstr("user FLOAT32 [*,2], optimizer 0, "));
  ASSERT_EQ(Run({"inspect", folder_, "--checkpoint=g0001-step00000040"}),
            kExitDone);
  EXPECT_THAT(Line("tables"), EndsWith("all rows"));
  EXPECT_EQ(Line("needs"), "");
}

TEST_F(CheckpointChainTest, VerifyReadsWhatIsNeeded) {
  ASSERT_EQ(Run({"verify", folder_}), kExitDone) << out_;
  const std::string base =
      directory_.Folder(TestName(1, 40)) + "/ps-0000-of-0002";
  std::fstream file(base, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-24, std::ios::end);
  uint64_t index;
  file.read(reinterpret_cast<char*>(&index), sizeof(index));
  file.seekp(index - 1);
  file.put('\x7f');
  file.close();
  EXPECT_EQ(Run({"verify", folder_}), kExitFailed);
  EXPECT_THAT(Line("g0001-step00000030"), HasSubstr(": whole, "));
  EXPECT_THAT(Line("g0001-step00000040"), HasSubstr(base));
  EXPECT_THAT(Line("g0001-step00000050"), HasSubstr(base));
}

TEST_F(CheckpointChainTest, ADeltaBringsACopyUpToDate) {
  const std::string stem = folder_ + "/delta";
  for (uint64_t to = 10; to <= 50; to += 10) {
    const Copy later = Export(to);
    for (uint64_t from = 10; from <= to; from += 10) {
      SCOPED_TRACE(absl::StrCat("from ", from, " to ", to));
      Copy copy = Export(from);
      ASSERT_EQ(Run({"delta", folder_, absl::StrCat("--since=", from),
                     "--checkpoint=" + FolderName(TestName(1, to)),
                     "--output=" + stem + ".npz"}),
                kExitDone)
          << err_;
      EXPECT_THAT(out_, HasSubstr(absl::StrCat("Updates a copy of step ", from,
                                               " to step ", to)));
      const auto removed = NumbersOf<uint64_t>(stem + ".user.removed.npy");
      EXPECT_TRUE(std::is_sorted(removed.begin(), removed.end()));
      EXPECT_EQ(removed.empty(), from == to);
      for (const uint64_t id : removed) copy.erase(id);
      TakeRows(stem, &copy);
      EXPECT_EQ(copy, later);
      EXPECT_THAT(out_, HasSubstr(absl::StrCat(
                            "table user: ",
                            NumbersOf<uint64_t>(stem + ".user.ids.npy").size(),
                            " rows changed, ", removed.size(), " removed\n")));
    }
  }
}

TEST_F(CheckpointChainTest, WindowByWindowADeltaIsTheSame) {
  const auto reader = CheckpointReader::Open(directory_, TestName(1, 50));
  Copy once;
  for (const uint64_t window_bytes : {1000000, 17, 1}) {
    const auto changes = ExportTableChanges(
        reader->get(), {"user"}, 20, folder_ + "/some.npz", window_bytes);
    ASSERT_TRUE(changes.ok()) << changes.status();
    EXPECT_GT((*changes)[0].rows, 3u);
    Copy copy;
    TakeRows(folder_ + "/some", &copy);
    EXPECT_EQ(copy.size(), (*changes)[0].rows);
    if (once.empty()) once = copy;
    EXPECT_EQ(copy, once);
  }
}

TEST_F(CheckpointChainTest, WhatIsNotKnownIsToldWithTheWayOut) {
  const std::string output = "--output=" + folder_ + "/delta.npz";
  EXPECT_EQ(Run({"delta", folder_, "--since=9", output}), kExitFailed);
  EXPECT_THAT(err_, AllOf(HasSubstr("since step 9 is not known, only since "
                                    "step 10"),
                          HasSubstr("export all rows instead")));
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_FALSE(fs::exists(folder_ + "/delta.user.ids.npy"));
  fs::remove_all(directory_.Folder(TestName(1, 30)));
  EXPECT_EQ(Run({"delta", folder_, "--since=20", output}), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("only since step 30"));
  EXPECT_EQ(Run({"delta", folder_, "--since=30", output}), kExitDone) << err_;
  EXPECT_EQ(Run({"delta", folder_, "--since=51", output}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("is at step 50"));
  EXPECT_EQ(Run({"delta", folder_, "--since=40", "--variables=x", output}),
            kExitUsage);
  EXPECT_THAT(err_, HasSubstr("no table begins with \"x\""));
}

}  // namespace
}  // namespace holdfast
