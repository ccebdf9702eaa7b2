// SPDX-License-Identifier: Apache-2.0

// Simulates a dying disk; to be preloaded (LD_PRELOAD). All of these
// environment variables are optional.
//
// - While there is a file at $BAD_DISK_SYNC_FAILS, fsync and fdatasync fail.
// - While there is a file at $BAD_DISK_SYNC_HANGS, they do not return.
// - They take $BAD_DISK_SYNC_MS more milliseconds.
// - Reading from files whose path contains $BAD_DISK_UNREADABLE fails.

// Fortified headers define pread inline.
#undef _FORTIFY_SOURCE

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

bool Exists(const char* variable) {
  const char* const path = getenv(variable);
  return path != nullptr && access(path, F_OK) == 0;
}

int Sync(long call, int fd) {
  while (Exists("BAD_DISK_SYNC_HANGS")) usleep(20000);
  const char* const slow = getenv("BAD_DISK_SYNC_MS");
  if (slow != nullptr) usleep(1000 * atoi(slow));
  if (!Exists("BAD_DISK_SYNC_FAILS")) {
    return static_cast<int>(syscall(call, fd));
  }
  errno = EIO;
  return -1;
}

ssize_t Read(int fd, void* into, size_t size, off_t offset) {
  const char* const text = getenv("BAD_DISK_UNREADABLE");
  char path[4096] = "";
  if (text != nullptr) {
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof(path) - 1);
    path[length < 0 ? 0 : length] = '\0';
  }
  if (text == nullptr || strstr(path, text) == nullptr) {
    return syscall(SYS_pread64, fd, into, size, offset);
  }
  errno = EIO;
  return -1;
}

}  // namespace

extern "C" int fsync(int fd) { return Sync(SYS_fsync, fd); }
extern "C" int fdatasync(int fd) { return Sync(SYS_fdatasync, fd); }
extern "C" ssize_t pread(int fd, void* into, size_t size, off_t offset) {
  return Read(fd, into, size, offset);
}
extern "C" ssize_t pread64(int fd, void* into, size_t size, off_t offset) {
  return Read(fd, into, size, offset);
}
