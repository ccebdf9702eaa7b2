// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_INTEGRATION_TEST_CLUSTER_H_
#define HOLDFAST_TESTS_INTEGRATION_TEST_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/cluster_spec.h"
#include "common/rpc/credentials.h"
#include "ps_server/server.h"

namespace holdfast {

// The maximum time that a test waits for anything, far longer than needed.
inline constexpr absl::Duration kPatience = absl::Seconds(30);
inline absl::Time Soon() { return SteadyNow() + kPatience; }

// A lease that no test outlives, and one for tests that wait for it to expire.
inline constexpr absl::Duration kLongLease = absl::Seconds(60);
inline constexpr absl::Duration kShortLease = absl::Seconds(1);

// The ps tasks of a cluster, in this process. A job fails as soon as a task is
// lost. Thread-compatible.
class TestCluster {
 public:
  // Starts every ps, without a checkpoint directory. `credentials` returns the
  // credentials of a task; empty: insecure. `change` modifies the options of
  // each ps; may be empty.
  TestCluster(const ClusterSpec& spec, absl::Duration lease,
              const std::function<Credentials(const TaskId&)>& credentials = {},
              const std::function<void(Server::Options*)>& change = {});

  const ClusterSpec& spec() const { return spec_; }
  std::string address(uint32_t ps) const;
  Server& ps(uint32_t index) { return *servers_[index]; }
  // The nonce with which the coordinator proves its identity to this life of
  // the ps [P5].
  uint64_t NonceOf(uint32_t ps) const { return 1000 * lives_[ps] + ps; }

  // Ends a ps without notice to the others.
  void Kill(uint32_t ps) { servers_[ps].reset(); }
  // Kills the ps if it runs, and starts it again.
  void Restart(uint32_t ps);
  // Returns the result of Server::Wait of the ps. Ends the test program if it
  // does not return.
  absl::Status Wait(uint32_t ps);

 private:
  const ClusterSpec spec_;
  const absl::Duration lease_;
  const std::function<Credentials(const TaskId&)> credentials_;
  const std::function<void(Server::Options*)> change_;
  std::vector<uint64_t> lives_;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_TEST_CLUSTER_H_
