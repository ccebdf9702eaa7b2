// SPDX-License-Identifier: Apache-2.0

// A ps in this process: how it starts, which services it offers besides our
// own, and how it ends.

#include "ps_server/server.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "tests/integration/loopback.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"
#include "tests/integration/training.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

Server::Options OptionsFor(const ClusterSpec& spec, uint32_t ps) {
  return Server::Options{spec, {kPsJob, ps}};
}

std::string StartError(const Server::Options& options) {
  const auto server = Server::Start(options);
  EXPECT_FALSE(server.ok());
  return server.status().ToString();
}

TEST(StartTest, APortInUseIsNamedWithTheTask) {
  const ClusterSpec spec = MakeLoopbackCluster(2, 1);
  const auto first = Server::Start(OptionsFor(spec, 0));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(
      StartError(OptionsFor(spec, 0)),
      AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("/job:ps/task:0"),
            HasSubstr(*spec.Address({kPsJob, 0})), HasSubstr("in use")));
}

TEST(StartTest, ATaskThatIsNoPsOfTheCluster) {
  const ClusterSpec spec = MakeLoopbackCluster(2, 1);
  EXPECT_THAT(StartError(OptionsFor(spec, 2)),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("ps")));
  Server::Options worker = OptionsFor(spec, 0);
  worker.task.job = kWorkerJob;
  EXPECT_THAT(StartError(worker), AllOf(HasSubstr("INVALID_ARGUMENT"),
                                        HasSubstr("/job:worker/task:0")));
}

TEST(StartTest, ListeningForOtherMachinesNeedsInsecure) {
  const ClusterSpec spec = MakeLoopbackCluster(1, 1);
  Server::Options options = OptionsFor(spec, 0);
  options.listen_address = absl::StrCat("0.0.0.0:", PickUnusedPort());
  EXPECT_THAT(
      StartError(options),
      AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr("/job:ps/task:0"),
            HasSubstr(options.listen_address), HasSubstr("--insecure")));
  options.insecure = true;
  const auto server = Server::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
}

TEST(ServicesTest, Health) {
  TestCluster cluster(MakeLoopbackCluster(2, 1), kLongLease);
  for (uint32_t ps = 0; ps < 2; ++ps) {
    const RawClient client(cluster.address(ps));
    const auto check = [&](const std::string& request) {
      return client.CallBytes("/grpc.health.v1.Health/Check", request,
                              kPatience);
    };
    // HealthCheckRequest.service is field 1; HealthCheckResponse.status (1) is
    // SERVING (1).
    for (const char* service : {"", "\x0a\x14holdfast.proto.Shard",
                                "\x0a\x1aholdfast.proto.Coordinator"}) {
      const auto health = check(service);
      ASSERT_TRUE(health.ok()) << health.status();
      EXPECT_EQ(*health, "\x08\x01");
    }
    EXPECT_THAT(check("\x0a\x05other").status().ToString(),
                AllOf(HasSubstr("NOT_FOUND"), HasSubstr("other")));
  }
}

// Each ps serves all methods of both services, and nothing else.
TEST(ServicesTest, EveryMethodIsServed) {
  TestCluster cluster(MakeLoopbackCluster(2, 1), kLongLease);
  const RawClient client(cluster.address(0));
  const RawClient other(cluster.address(1));
  for (const google::protobuf::ServiceDescriptor* service :
       {proto::RegisterRequest::descriptor()->file()->service(0),
        proto::PushRequest::descriptor()->file()->service(0)}) {
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string path = absl::StrCat("/", service->full_name(), "/",
                                            service->method(i)->name());
      for (const RawClient* to : {&client, &other}) {
        const absl::Status status = to->CallBytes(path, "", kPatience).status();
        EXPECT_FALSE(absl::IsUnimplemented(status)) << path << status;
      }
      // Bytes that do not parse as any message.
      EXPECT_THAT(client.CallBytes(path, "\xff", kPatience).status().ToString(),
                  AllOf(HasSubstr("INVALID_ARGUMENT"),
                        HasSubstr(service->method(i)->input_type()->name())));
    }
  }
  EXPECT_THAT(client.CallBytes("/holdfast.proto.Shard/Guess", "", kPatience)
                  .status()
                  .ToString(),
              AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("Shard/Guess")));
}

TEST(EndTest, APsWhoseCoordinatorDoesNotAppear) {
  const ClusterSpec spec = MakeLoopbackCluster(2, 1);
  Server::Options options = OptionsFor(spec, 1);
  options.start_timeout = absl::Milliseconds(300);
  const auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::Status status = (*server)->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/job:ps/task:0"),
                    HasSubstr(*spec.Address({kPsJob, 0}))));
}

TEST(EndTest, APsIsStoppedWhileItLooksForItsCoordinator) {
  const auto server = Server::Start(OptionsFor(MakeLoopbackCluster(2, 1), 1));
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->Stop("enough");
  EXPECT_EQ((*server)->Wait(), absl::AbortedError("enough"));
}

TEST(EndTest, AJobWhoseTasksDoNotAppear) {
  Server::Options options = OptionsFor(MakeLoopbackCluster(2, 2), 0);
  options.start_timeout = absl::Milliseconds(300);
  const auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::Status status = (*server)->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("/job:ps/task:1"), HasSubstr("/job:worker/task:0")));
}

TEST(EndTest, APsWithAnotherClusterSpecIsRefused) {
  const ClusterSpec spec = MakeLoopbackCluster(2, 2);
  const auto other = ClusterSpec::FromHosts(
      absl::StrCat(*spec.Address({kPsJob, 0}), ",", *spec.Address({kPsJob, 1})),
      UnusedAddress(), "");
  ASSERT_TRUE(other.ok());
  const auto coordinator = Server::Start(OptionsFor(spec, 0));
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const auto refused = Server::Start(OptionsFor(*other, 1));
  ASSERT_TRUE(refused.ok()) << refused.status();
  const absl::Status status = (*refused)->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/job:ps/task:1"), HasSubstr("1 worker")));
}

// A ps stops even if a worker that trained to the end does not leave.
TEST(EndTest, StoppedAfterTheEndOfTheJob) {
  TestCluster cluster(MakeLoopbackCluster(1, 1), kShortLease);
  const auto worker = ConnectWorker(cluster.spec(), 0);
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_EQ((*worker)->Declare(MakeDeclaration(1), Soon()), absl::OkStatus());
  ASSERT_EQ((*worker)->AwaitVariables(Soon()), absl::OkStatus());
  auto push = PushAndOffer(worker->get(), GlobalStep(0), 0, Soon());
  ASSERT_TRUE(push.ok()) << push.status();
  ASSERT_TRUE((*push)->Await(Soon()).ok());
  cluster.ps(0).Stop("enough");
  EXPECT_EQ(cluster.Wait(0), absl::AbortedError("enough"));
}

}  // namespace
}  // namespace holdfast
