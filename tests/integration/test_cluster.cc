#include "tests/integration/test_cluster.h"

#include <future>

#include "absl/status/statusor.h"
#include "common/task_id.h"
#include "glog/logging.h"
#include "tests/rpc_threads/rpc_threads.h"

namespace holdfast {

TestCluster::TestCluster(
    const ClusterSpec& spec, absl::Duration lease,
    const std::function<Credentials(const TaskId&)>& credentials)
    : spec_(spec) {
  for (uint32_t i = 0; i < spec.num_ps(); ++i) {
    Server::Options options{spec, {kPsJob, i}};
    options.lease = lease;
    if (credentials) options.credentials = credentials(options.task);
    options.rpc_threads = RpcThreadsUnderTest();
    options.recovery_timeout = i == 0 ? absl::ZeroDuration() : lease;
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
    CHECK(server.ok()) << server.status();
    servers_.push_back(*std::move(server));
  }
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
