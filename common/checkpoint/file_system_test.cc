// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/file_system.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileSystemTest : public ::testing::Test {
 protected:
  FileSystemTest() {
    // A folder of its own, because tests of a suite may run concurrently.
    folder_ = absl::StrCat(
        ::testing::TempDir(), "/",
        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    EXPECT_TRUE(system_.MakeFolder(folder_).ok());
  }

  std::string Path(absl::string_view name) const {
    return absl::StrCat(folder_, "/", name);
  }
  void Write(absl::string_view name, absl::string_view data) {
    auto file = system_.Create(Path(name));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(data).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE((*file)->Close().ok());
  }
  std::string Read(absl::string_view name) {
    auto file = system_.Open(Path(name));
    if (!file.ok()) return file.status().ToString();
    std::string data((*file)->size(), '\0');
    EXPECT_TRUE((*file)->Read(0, data.size(), &data[0]).ok());
    return data;
  }

  FileSystem& system_ = *PosixFileSystem();
  std::string folder_;
};

TEST_F(FileSystemTest, FilesAreWrittenAndRead) {
  auto file = system_.Create(Path("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Append("hold").ok());
  EXPECT_TRUE((*file)->Append("fast").ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_EQ(Read("a"), "holdfast");

  auto reader = system_.Open(Path("a"));
  char into[4];
  EXPECT_TRUE((*reader)->Read(2, 4, into).ok());
  EXPECT_EQ(std::string(into, 4), "ldfa");
  EXPECT_EQ((*reader)->Read(6, 4, into).code(), absl::StatusCode::kOutOfRange);

  Write("a", "new");
  EXPECT_EQ(Read("a"), "new");
}

TEST_F(FileSystemTest, RenameReplaces) {
  Write("a", "1");
  Write("b", "2");
  EXPECT_TRUE(system_.Rename(Path("b"), Path("a")).ok());
  EXPECT_EQ(Read("a"), "2");
  EXPECT_THAT(*system_.List(folder_), ElementsAre("a"));
}

TEST_F(FileSystemTest, FoldersAreMadeWithTheirParents) {
  EXPECT_TRUE(system_.MakeFolder(Path("x/y/z/")).ok());
  EXPECT_TRUE(system_.MakeFolder(Path("x/y/z")).ok());
  EXPECT_TRUE(system_.SyncFolder(Path("x/y")).ok());
  Write("x/b", "");
  Write("x/a", "");
  EXPECT_THAT(*system_.List(Path("x")), ElementsAre("a", "b", "y"));
  EXPECT_EQ(system_.MakeFolder(Path("x/a")).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(system_.Remove(Path("x/y")).code(),
            absl::StatusCode::kAlreadyExists);  // not empty
  EXPECT_TRUE(system_.Remove(Path("x/y/z")).ok());
  EXPECT_TRUE(system_.Remove(Path("x/a")).ok());
  EXPECT_THAT(*system_.List(Path("x")), ElementsAre("b", "y"));
}

TEST_F(FileSystemTest, ErrorsNameThePathAndTheReason) {
  const absl::Status missing = system_.Open(Path("a")).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(Path("a")));
  EXPECT_THAT(missing.message(), HasSubstr("No such file"));
  EXPECT_EQ(system_.List(Path("a")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(system_.Remove(Path("a")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(system_.Rename(Path("a"), Path("b")).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(system_.Create(Path("a/b")).status().code(),
            absl::StatusCode::kNotFound);

  // A device that is always full.
  auto full = system_.Create("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  const absl::Status status = (*full)->Append("x");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("/dev/full: cannot write"));
}

TEST_F(FileSystemTest, LockIsHeldByOne) {
  auto lock = system_.Lock(Path("LOCK"), "ps 0 on host-a, process 17");
  ASSERT_TRUE(lock.ok()) << lock.status();
  const auto second = system_.Lock(Path("LOCK"), "host-b");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(second.status().message(),
              HasSubstr("held by ps 0 on host-a, process 17"));
  lock->reset();
  lock = system_.Lock(Path("LOCK"), "host-b");
  EXPECT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(Read("LOCK"), "host-b");
}

}  // namespace
}  // namespace holdfast
