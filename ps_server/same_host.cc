// SPDX-License-Identifier: Apache-2.0
#include "ps_server/same_host.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/shared_memory/link_socket.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// The socket's path must be short, which that of a home directory may not be.
std::string OwnDirectory() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && access(runtime, W_OK | X_OK) == 0) {
    return absl::StrCat(runtime, "/holdfast");
  }
  return absl::StrCat("/tmp/holdfast-", geteuid());
}

absl::StatusOr<SameHost> Start(const SameHostOptions& options) {
  if (!SharedArena::HugePagesWork()) {
    return absl::UnavailableError(
        "this system has no huge pages of shared memory (MADV_COLLAPSE, Linux "
        "6.1)");
  }
  SameHost result;
  result.arena = std::make_shared<SharedArena>(
      SharedArena::Options{.name = "holdfast-values"});
  Neighbors::Options neighbors;
  neighbors.name = options.name;
  neighbors.arena = result.arena;
  neighbors.directory =
      options.directory.empty() ? OwnDirectory() : options.directory;
  neighbors.kind = options.directory.empty() ? LinkListener::Directory::kOwn
                                             : LinkListener::Directory::kGiven;
  neighbors.secure = options.secure;
  neighbors.clock = options.clock;
  neighbors.boot_id = BootId();
  HOLDFAST_ASSIGN_OR_RETURN(auto started,
                            Neighbors::Start(std::move(neighbors)));
  result.neighbors = std::move(started);
  return result;
}

}  // namespace

SameHost StartSameHost(const SameHostOptions& options) {
  SameHost result;
  if (!options.enabled) {
    result.why_not = "this ps has --same_host=off";
    return result;
  }
  absl::StatusOr<SameHost> started = Start(options);
  if (started.ok()) return *std::move(started);
  result.why_not =
      absl::StrCat("this ps cannot share memory: ", started.status().message());
  LOG(WARNING) << options.name << ": tensors of processes on this host go over "
               << "the network, because " << result.why_not;
  return result;
}

}  // namespace holdfast
