// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/test_cluster.h"

#include <future>

#include "absl/status/statusor.h"
#include "common/job/task_id.h"
#include "glog/logging.h"
#include "tests/rpc_threads/rpc_threads.h"

namespace holdfast {

TestCluster::TestCluster(
    const ClusterSpec& spec, absl::Duration lease,
    const std::function<Credentials(const TaskId&)>& credentials,
    const std::function<void(Server::Options*)>& change)
    : spec_(spec),
      lease_(lease),
      credentials_(credentials),
      change_(change),
      lives_(spec.num_ps()),
      servers_(spec.num_ps()) {
  for (uint32_t i = 0; i < spec.num_ps(); ++i) Restart(i);
}

void TestCluster::Restart(uint32_t ps) {
  servers_[ps].reset();
  ++lives_[ps];
  Server::Options options{spec_, {kPsJob, ps}};
  options.lease = lease_;
  if (credentials_) options.credentials = credentials_(options.task);
  options.rpc_threads = RpcThreadsUnderTest();
  options.nonce = NonceOf(ps);
  options.recovery_timeout = ps == 0 ? absl::ZeroDuration() : lease_;
  if (change_) change_(&options);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
  CHECK(server.ok()) << server.status();
  servers_[ps] = *std::move(server);
}

std::string TestCluster::address(uint32_t ps) const {
  return *spec_.Address({kPsJob, ps});
}

absl::Status TestCluster::Wait(uint32_t ps) {
  std::future<absl::Status> result =
      std::async(std::launch::async,
                 [server = servers_[ps].get()] { return server->Wait(); });
  CHECK(result.wait_for(absl::ToChronoMilliseconds(kPatience)) ==
        std::future_status::ready)
      << "ps " << ps << " does not end";
  return result.get();
}

}  // namespace holdfast
