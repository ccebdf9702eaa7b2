// SPDX-License-Identifier: Apache-2.0
#include "common/shared_memory/sealed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using Writers = SealedFile::Writers;
using Access = PeerFile::Access;

constexpr size_t kPage = 4096;

std::unique_ptr<SealedFile> Make(size_t size,
                                 Writers writers = Writers::kOwner) {
  auto file = SealedFile::Create("test", size, writers);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *std::move(file) : nullptr;
}

// The descriptor that a peer would receive.
UniqueFd Sent(const SealedFile& file) {
  return UniqueFd(fcntl(file.fd(), F_DUPFD_CLOEXEC, 0));
}

std::unique_ptr<PeerFile> Mapped(const SealedFile& file,
                                 Access access = Access::kRead) {
  auto peer = PeerFile::Map(Sent(file), file.size(), access);
  EXPECT_TRUE(peer.ok()) << peer.status();
  return peer.ok() ? *std::move(peer) : nullptr;
}

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// The flags of the mapping that contains `data`, from /proc/self/smaps.
std::string VmFlags(const void* data) {
  std::ifstream maps("/proc/self/smaps");
  const uintptr_t at = reinterpret_cast<uintptr_t>(data);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin, end;
    if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= at && at < end;
    } else if (inside && line.rfind("VmFlags:", 0) == 0) {
      return line + " ";
    }
  }
  return "";
}

// The result of `body`, 0 to 255, in a forked process; -1 on failure.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(UniqueFdTest, ClosesWithItsOwner) {
  int first, second;
  {
    UniqueFd a(dup(0));
    first = a.get();
    EXPECT_TRUE(a.valid());
    EXPECT_TRUE(IsOpen(first));
    UniqueFd b(std::move(a));
    EXPECT_EQ(b.get(), first);
    EXPECT_FALSE(a.valid());  // NOLINT: the moved-from state
    a = UniqueFd(dup(0));
    second = a.get();
    EXPECT_TRUE(IsOpen(first) && IsOpen(second));
    b = std::move(a);
    EXPECT_FALSE(IsOpen(first));
    EXPECT_EQ(b.get(), second);
    EXPECT_TRUE(IsOpen(second));
  }
  EXPECT_FALSE(IsOpen(second));
  EXPECT_FALSE(UniqueFd().valid());
}

TEST(SealedFileTest, IsZerosInWholePages) {
  const struct {
    size_t size, rounded;
  } kCases[] = {{1, kPage},
                {kPage, kPage},
                {kPage + 1, 2 * kPage},
                {kHugePageBytes, kHugePageBytes},
                {kHugePageBytes + 1, kHugePageBytes + kPage}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.size);
    const auto file = Make(c.size);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->size(), c.rounded);
    EXPECT_TRUE(std::all_of(file->data(), file->data() + file->size(),
                            [](char c) { return c == 0; }));
    std::memset(file->data(), 'x', file->size());
  }
}

TEST(SealedFileTest, BeginsAtAHugePageWhereItIsAsLongAsOne) {
  for (int i = 0; i < 3; ++i) {
    const auto file = Make(kHugePageBytes + 3 * kPage);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file->data()) % kHugePageBytes, 0u);
    const auto peer = Mapped(*file);
    ASSERT_NE(peer, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(peer->data()) % kHugePageBytes, 0u);
  }
}

TEST(SealedFileTest, UnmapsAllThatItHasMapped) {
  const auto lines = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  // Lets the allocator map what it needs for the first rounds.
  for (int i = 0; i < 3; ++i) Mapped(*Make(3 * kHugePageBytes + kPage));
  const auto before = lines();
  for (int i = 0; i < 20; ++i) Mapped(*Make(3 * kHugePageBytes + kPage));
  EXPECT_LE(lines(), before + 2);
}

TEST(SealedFileTest, IsNotForkedNorDumped) {
  const auto file = Make(kPage);
  ASSERT_NE(file, nullptr);
  const auto peer = Mapped(*file);
  ASSERT_NE(peer, nullptr);
  // "dc": do not copy on fork; "dd": do not dump.
  for (const char* data : {file->data(), peer->data()}) {
    EXPECT_THAT(VmFlags(data), HasSubstr(" dc "));
    EXPECT_THAT(VmFlags(data), HasSubstr(" dd "));
  }
  EXPECT_NE(fcntl(file->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(SealedFileTest, RefusesASizeThatNoFileHas) {
  for (const size_t size : {~size_t{0}, ~size_t{0} / 2, size_t{1} << 62}) {
    const auto file = SealedFile::Create("vast", size, Writers::kOwner);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kResourceExhausted)
        << file.status();
    EXPECT_THAT(std::string(file.status().message()), HasSubstr("\"vast\""));
  }
}

TEST(SealedFileTest, ANameMayBeLong) {
  EXPECT_TRUE(
      SealedFile::Create(std::string(1000, 'x'), 1, Writers::kAll).ok());
}

TEST(SealedFileTest, MakesHugePagesWithoutChangingBytes) {
  const auto file = Make(4 * kHugePageBytes);
  ASSERT_NE(file, nullptr);
  char* const second = file->data() + kHugePageBytes;
  second[0] = 1;
  second[kHugePageBytes / 2] = 2;
  second[2 * kHugePageBytes - 1] = 3;
  // Even if the kernel cannot make them, the bytes do not change.
  const bool huge = file->MakeHuge(kHugePageBytes, 2 * kHugePageBytes);
  EXPECT_EQ(second[0], 1);
  EXPECT_EQ(second[1], 0);
  EXPECT_EQ(second[kHugePageBytes / 2], 2);
  EXPECT_EQ(second[2 * kHugePageBytes - 1], 3);
  second[kHugePageBytes] = 4;
  const auto peer = Mapped(*file);
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(peer->data()[2 * kHugePageBytes], 4);
  EXPECT_TRUE(file->MakeHuge(0, 0));

  unsigned char resident[3 * kHugePageBytes / kPage];
  ASSERT_EQ(mincore(second, 3 * kHugePageBytes, resident), 0);
  const auto count = [&](size_t begin, size_t size) {
    return std::count_if(resident + begin / kPage,
                         resident + (begin + size) / kPage,
                         [](unsigned char page) { return page & 1; });
  };
  if (huge) {
    EXPECT_EQ(count(0, 2 * kHugePageBytes), 2 * 512);
    EXPECT_EQ(file->MakeHuge(kHugePageBytes, 2 * kHugePageBytes), true)
        << "again";
  }
  EXPECT_EQ(count(2 * kHugePageBytes, kHugePageBytes), 0)
      << "memory is taken where it is asked for";
}

// ---- A peer ----

TEST(PeerFileTest, SeesWhatTheOwnerWrites) {
  for (const Writers writers : {Writers::kOwner, Writers::kAll}) {
    const auto file = Make(2 * kPage, writers);
    ASSERT_NE(file, nullptr);
    file->data()[5] = 'a';
    const auto peer = Mapped(*file);
    ASSERT_NE(peer, nullptr);
    EXPECT_EQ(peer->size(), 2 * kPage);
    EXPECT_EQ(peer->data()[5], 'a');
    file->data()[kPage] = 'b';
    EXPECT_EQ(peer->data()[kPage], 'b');
  }
}

TEST(PeerFileTest, MayOutliveTheOwnersMapping) {
  auto file = Make(kPage);
  ASSERT_NE(file, nullptr);
  file->data()[5] = 'a';
  const auto peer = Mapped(*file);
  ASSERT_NE(peer, nullptr);
  file = nullptr;
  EXPECT_EQ(peer->data()[5], 'a');
}

TEST(PeerFileTest, IsSharedBetweenProcesses) {
  const auto file = Make(kPage);
  const auto board = Make(kPage, Writers::kAll);
  ASSERT_TRUE(file != nullptr && board != nullptr);
  file->data()[1] = 11;
  const UniqueFd file_fd = Sent(*file), board_fd = Sent(*board);
  const int read = InChild([&] {
    auto mapped = PeerFile::Map(file_fd, kPage, Access::kRead);
    auto words = PeerFile::Map(board_fd, kPage, Access::kReadWrite);
    if (!mapped.ok() || !words.ok()) return 1;
    (*words)->data()[2] = 22;
    return static_cast<int>((*mapped)->data()[1]);
  });
  EXPECT_EQ(read, 11);
  EXPECT_EQ(board->data()[2], 22);
}

TEST(PeerFileTest, CannotWriteWhatIsTheOwners) {
  const auto file = Make(kPage);
  ASSERT_NE(file, nullptr);
  file->data()[0] = 'a';
  const UniqueFd sent = Sent(*file);
  EXPECT_EQ(PeerFile::Map(sent, kPage, Access::kReadWrite).status().code(),
            absl::StatusCode::kInvalidArgument);

  // Also with a descriptor that it opens again.
  const UniqueFd opened(
      open(absl::StrCat("/proc/self/fd/", sent.get()).c_str(), O_RDWR));
  for (const UniqueFd* fd : {&sent, &opened}) {
    if (!fd->valid()) continue;
    SCOPED_TRACE(fd == &sent ? "sent" : "opened");
    EXPECT_EQ(
        mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0),
        MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(pwrite(fd->get(), "b", 1, 0), -1);
    EXPECT_EQ(fallocate(fd->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        0, kPage),
              -1);

    void* const mapped =
        mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd->get(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(mprotect(mapped, kPage, PROT_READ | PROT_WRITE), -1);
    EXPECT_EQ(madvise(mapped, kPage, MADV_REMOVE), -1);
    munmap(mapped, kPage);
  }
  EXPECT_EQ(file->data()[0], 'a');
  file->data()[0] = 'c';  // The owner can still write.
  EXPECT_EQ(file->data()[0], 'c');
}

TEST(PeerFileTest, MayWriteWhatIsForAll) {
  const auto file = Make(kPage, Writers::kAll);
  ASSERT_NE(file, nullptr);
  const auto peer = Mapped(*file, Access::kReadWrite);
  ASSERT_NE(peer, nullptr);
  peer->data()[7] = 'b';
  EXPECT_EQ(file->data()[7], 'b');
}

TEST(PeerFileTest, NobodyChangesTheSizeOrTheSeals) {
  for (const Writers writers : {Writers::kOwner, Writers::kAll}) {
    const auto file = Make(2 * kPage, writers);
    ASSERT_NE(file, nullptr);
    const UniqueFd sent = Sent(*file);
    for (const size_t size : {size_t{0}, kPage, 3 * kPage}) {
      EXPECT_EQ(ftruncate(sent.get(), size), -1);
      EXPECT_EQ(errno, EPERM);
    }
    EXPECT_EQ(fallocate(sent.get(), 0, 0, 3 * kPage), -1);
    EXPECT_EQ(fcntl(sent.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  }
}

TEST(PeerFileTest, RefusesWhatIsNoSealedMemfd) {
  const UniqueFd unsealed(memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const UniqueFd half(memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const UniqueFd never(memfd_create("t", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), kPage), 0);
  ASSERT_EQ(ftruncate(half.get(), kPage), 0);
  ASSERT_EQ(ftruncate(never.get(), kPage), 0);
  ASSERT_EQ(fcntl(half.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  const std::string folder = testing::TempDir();
  const UniqueFd ordinary(open(folder.c_str(), O_TMPFILE | O_RDWR, 0600));
  ASSERT_TRUE(ordinary.valid());
  ASSERT_EQ(ftruncate(ordinary.get(), kPage), 0);
  const UniqueFd directory(open(folder.c_str(), O_RDONLY));
  const UniqueFd zero(open("/dev/zero", O_RDWR));
  const UniqueFd none;
  const struct {
    const char* what;
    const UniqueFd& fd;
  } kCases[] = {
      {"unsealed", unsealed},   {"may shrink", half}, {"no seals", never},
      {"ordinary", ordinary},   {"zero", zero},       {"none", none},
      {"directory", directory},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    EXPECT_EQ(PeerFile::Map(c.fd, kPage, Access::kRead).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  // The same file is accepted once it is sealed.
  ASSERT_EQ(fcntl(half.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(PeerFile::Map(half, kPage, Access::kRead).ok());
}

TEST(PeerFileTest, RefusesAFileOfHugetlbfs) {
  const UniqueFd file(memfd_create("t", MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!file.valid()) GTEST_SKIP() << "memfd_create: " << strerror(errno);
  ASSERT_EQ(ftruncate(file.get(), kHugePageBytes), 0);
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const auto mapped = PeerFile::Map(file, kHugePageBytes, Access::kRead);
  EXPECT_THAT(std::string(mapped.status().message()), HasSubstr("tmpfs"));
}

TEST(PeerFileTest, RefusesAnotherSizeThanTold) {
  const auto file = Make(2 * kPage);
  ASSERT_NE(file, nullptr);
  for (const size_t size : {size_t{0}, size_t{1}, kPage, 2 * kPage - 1,
                            2 * kPage + 1, 3 * kPage, ~size_t{0}}) {
    EXPECT_EQ(PeerFile::Map(Sent(*file), size, Access::kRead).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
}

}  // namespace
}  // namespace holdfast
