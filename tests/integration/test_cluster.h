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

// What a test waits for anything at most. Far longer than it takes.
inline constexpr absl::Duration kPatience = absl::Seconds(30);
inline absl::Time Soon() { return SteadyNow() + kPatience; }

// A lease that no test outlives, and one for tests that wait for its end.
inline constexpr absl::Duration kLongLease = absl::Seconds(60);
inline constexpr absl::Duration kShortLease = absl::Seconds(1);

// The ps tasks of a cluster, in this process. Whoever is lost is not waited
// for. Thread-compatible.
class TestCluster {
 public:
  // Starts every ps, without a checkpoint directory. `credentials`: of each.
  // Empty: none. `change`: what else is to be otherwise. May be empty.
  TestCluster(const ClusterSpec& spec, absl::Duration lease,
              const std::function<Credentials(const TaskId&)>& credentials = {},
              const std::function<void(Server::Options*)>& change = {});

  const ClusterSpec& spec() const { return spec_; }
  std::string address(uint32_t ps) const;
  Server& ps(uint32_t index) { return *servers_[index]; }
  // With which the coordinator proves to this life of the ps who speaks [P5].
  uint64_t NonceOf(uint32_t ps) const { return 1000 * lives_[ps] + ps; }

  // Ends a ps without a word to the others.
  void Kill(uint32_t ps) { servers_[ps].reset(); }
  // The same, if it is there; and starts it again.
  void Restart(uint32_t ps);
  // What Server::Wait of the ps returns. Ends the test program when it does
  // not.
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
