// SPDX-License-Identifier: Apache-2.0
#include "common/data/data_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class DataCacheTest : public ::testing::Test {
 protected:
  DataCacheTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    auto cache = DataCache::Open(folder_, [this](const std::string& line) {
      absl::MutexLock lock(&mutex_);
      lines_.push_back(line);
      if (on_line_) on_line_(line);
    });
    EXPECT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }

  static DataCache::Key KeyOf(const std::string& text) {
    DataCache::Key key("test");
    key.Add(text);
    return key;
  }
  // An entry of this many bytes; `made_` counts how often it is made.
  absl::StatusOr<DataCache::Entry> Get(const DataCache::Key& key,
                                       size_t size = 5) {
    return cache_->Get(key, [&](ByteSink* payload, std::string* notes) {
      ++made_;
      const std::vector<uint8_t> piece = {1, 2, 3, 4, 5};
      for (size_t done = 0; done < size; done += piece.size()) {
        absl::Status status = payload->Append(piece);
        if (!status.ok()) return status;
      }
      *notes = "notes";
      return absl::OkStatus();
    });
  }
  std::vector<std::string> Files() {
    std::vector<std::string> files;
    for (const auto& file : fs::directory_iterator(folder_)) {
      files.push_back(file.path().filename());
    }
    return files;
  }

  const std::string folder_ = testing::TempDir() + "/data_cache_test";
  absl::Mutex mutex_;
  std::vector<std::string> lines_;
  std::function<void(const std::string&)> on_line_;
  std::unique_ptr<DataCache> cache_;
  int made_ = 0;
};

TEST_F(DataCacheTest, MakesAnEntryOnce) {
  const DataCache::Key key = KeyOf("a");
  for (int i = 0; i < 2; ++i) {
    const auto entry = Get(key, 3'000'000);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ(entry->bytes.size(), 3'000'000);
    EXPECT_EQ(entry->bytes[2'999'999], 5);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(entry->bytes.data()) % 64, 0);
    EXPECT_EQ(entry->notes, "notes");
  }
  EXPECT_EQ(made_, 1);
  EXPECT_THAT(Files(), ElementsAre(key.FileName()));
  EXPECT_THAT(lines_, ElementsAre(StartsWith("writing \""),
                                  AllOf(StartsWith("using \""),
                                        HasSubstr(key.FileName()),
                                        HasSubstr("3.0 MB"))));
  ASSERT_TRUE(Get(KeyOf("b")).ok());
  EXPECT_EQ(made_, 2);
}

TEST_F(DataCacheTest, TheKeyIsThatOfTheFile) {
  const std::string path = folder_ + "/source";
  const auto name = [&] {
    DataCache::Key key("test");
    EXPECT_TRUE(key.AddFile(path).ok());
    return key.FileName();
  };
  std::ofstream(path) << "one";
  const fs::file_time_type time = fs::last_write_time(path);
  const std::string one = name();
  EXPECT_EQ(name(), one);
  std::ofstream(path) << "three";
  fs::last_write_time(path, time);
  EXPECT_NE(name(), one);
  std::ofstream(path) << "two";
  fs::last_write_time(path, time);
  EXPECT_EQ(name(), one);
  fs::last_write_time(path, time + std::chrono::microseconds(1));
  EXPECT_NE(name(), one);
  DataCache::Key key("test");
  EXPECT_EQ(key.AddFile(folder_ + "/none").code(), absl::StatusCode::kNotFound);
}

// The second waits for the first, which finishes only once the second waits.
TEST_F(DataCacheTest, OneOfSeveralMakesIt) {
  absl::Notification waiting;
  on_line_ = [&](const std::string& line) {
    if (absl::string_view(line).substr(0, 7) == "waiting") waiting.Notify();
  };
  const auto make = [&](ByteSink* payload, std::string*) {
    ++made_;
    waiting.WaitForNotification();
    return payload->Append({7});
  };
  const DataCache::Key key = KeyOf("a");
  std::vector<std::thread> threads;
  std::vector<absl::StatusOr<DataCache::Entry>> entries(2);
  for (auto& entry : entries) {
    threads.emplace_back([&] { entry = cache_->Get(key, make); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& entry : entries) {
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_THAT(entry->bytes, ElementsAre(7));
  }
  EXPECT_EQ(made_, 1);
  EXPECT_THAT(Files(), ElementsAre(key.FileName()));
}

TEST_F(DataCacheTest, TakesOverWhatIsUnfinished) {
  const DataCache::Key key = KeyOf("a");
  std::ofstream(folder_ + "/" + key.FileName() + ".part")
      << std::string(1000, 'x');
  const auto entry = Get(key);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_THAT(entry->bytes, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(Files(), ElementsAre(key.FileName()));
}

TEST_F(DataCacheTest, LeavesNothingOfWhatFails) {
  const auto entry =
      cache_->Get(KeyOf("a"), [](ByteSink* payload, std::string*) {
        const absl::Status status = payload->Append({1});
        return status.ok() ? absl::DataLossError("damaged") : status;
      });
  EXPECT_EQ(entry.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_TRUE(Get(KeyOf("a")).ok());
}

// A limit of file sizes makes writes fail like a full disk.
TEST_F(DataCacheTest, AWriteThatFailsNamesTheWayOut) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  const absl::Cleanup restore = [&before] { setrlimit(RLIMIT_FSIZE, &before); };
  const rlimit small = {1'500'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto entry = Get(KeyOf("a"), 5'000'000);
  EXPECT_THAT(
      entry.status().message(),
      AllOf(HasSubstr("cannot write \"" + folder_), HasSubstr(".part\""),
            HasSubstr("make room, or name another folder in "
                      "--data_cache_dir")));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(DataCacheTest, AFolderMustBeThere) {
  EXPECT_THAT(
      DataCache::Open(folder_ + "/none", nullptr).status().message(),
      HasSubstr("there is no folder \"" + folder_ + "/none\"; create it"));
  fs::remove_all(folder_);
  EXPECT_THAT(Get(KeyOf("a")).status().message(),
              AllOf(HasSubstr("cannot write \""), HasSubstr("another folder")));
}

TEST_F(DataCacheTest, AFileThatIsNotWholeIsNamed) {
  const DataCache::Key key = KeyOf("a");
  ASSERT_TRUE(Get(key).ok());
  const std::string path = folder_ + "/" + key.FileName();
  for (const size_t size : {73, 70, 10, 0}) {
    fs::resize_file(path, size);
    EXPECT_THAT(Get(key).status().message(),
                HasSubstr("is incomplete; remove it"))
        << size;
  }
  EXPECT_EQ(Get(key).status().code(), absl::StatusCode::kDataLoss);
  fs::remove(path);
  EXPECT_TRUE(Get(key).ok());
}

}  // namespace
}  // namespace holdfast
