// To be preloaded (LD_PRELOAD): fsync and fdatasync fail, as on a disk that is
// dying, while there is a file at $FAILING_FSYNC_WHILE.

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

int Sync(long call, int fd) {
  const char* const path = getenv("FAILING_FSYNC_WHILE");
  if (path == nullptr || access(path, F_OK) != 0) {
    return static_cast<int>(syscall(call, fd));
  }
  errno = EIO;
  return -1;
}

}  // namespace

extern "C" int fsync(int fd) { return Sync(SYS_fsync, fd); }
extern "C" int fdatasync(int fd) { return Sync(SYS_fdatasync, fd); }
