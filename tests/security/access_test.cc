// SPDX-License-Identifier: Apache-2.0

// Access control: every RPC, called in the name of every role, at a live ps.

#include "ps_server/service/access.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "google/protobuf/dynamic_message.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "proto/health.pb.h"
#include "proto/shard.pb.h"
#include "tests/integration/loopback.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"
#include "tests/security/certificates.h"

namespace holdfast {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using testing::HasSubstr;

// An independent table, written by hand, of the roles that may call each RPC.
const std::map<std::string, std::string>& Expected() {
  static const auto* const table = new std::map<std::string, std::string>{
      {"Coordinator/Register", "ps-0 ps-1 worker chief evaluator"},
      {"Coordinator/RenewLease", "ps-0 ps-1 worker chief evaluator"},
      {"Coordinator/Leave", "ps-0 ps-1 worker chief evaluator"},
      {"Coordinator/Declare", "worker chief"},
      {"Coordinator/GetPlacement", "worker chief evaluator operator"},
      {"Coordinator/Contribute", "worker chief"},
      {"Coordinator/TakeTicket", "worker chief"},
      {"Coordinator/ReportEvaluation", "worker chief evaluator"},
      {"Coordinator/GetStatus", "ps-0 ps-1 worker chief evaluator operator"},
      {"Coordinator/GetEvents", "ps-0 ps-1 worker chief evaluator operator"},
      {"Coordinator/GetHistory", "ps-0 ps-1 worker chief evaluator operator"},
      {"Coordinator/Checkpoint", "ps-0 ps-1 operator"},
      {"Coordinator/Trace", "operator"},
      {"Coordinator/ReportTrace", "ps-0 ps-1 worker chief evaluator"},
      // Workers only with `finish`.
      {"Coordinator/Stop", "worker chief operator"},
      {"Coordinator/NextEvaluation", "evaluator"},
      {"Coordinator/SetLearningRate", "operator"},
      {"Shard/Give", "worker chief"},
      {"Shard/Push", "worker chief"},
      {"Shard/Apply", "worker chief"},
      {"Shard/PushPull", "worker chief"},
      {"Shard/Pull", "worker chief evaluator operator"},
      {"Shard/Pin", "worker chief evaluator operator"},
      {"Shard/Unpin", "worker chief evaluator operator"},
      {"Shard/Link", "worker chief evaluator operator"},
      {"Shard/Restore", "ps-0"},
      {"Shard/Commit", "ps-0"},
      {"Shard/Fence", "ps-0"},
      {"Shard/Resolve", "ps-0"},
      {"Shard/Hold", "ps-0"},
      {"Shard/Save", "ps-0"},
      {"Shard/AwaitSaved", "ps-0"},
      {"Shard/End", "ps-0"},
      {"Health/Check", "ps-0 ps-1 worker chief evaluator operator"},
  };
  return *table;
}

const std::map<std::string, TaskId>& Roles() {
  static const auto* const roles =
      new std::map<std::string, TaskId>{{"ps-0", {kPsJob, 0}},
                                        {"ps-1", {kPsJob, 1}},
                                        {"worker", {kWorkerJob, 1}},
                                        {"chief", {kChiefJob, 0}},
                                        {"evaluator", {kEvaluatorJob, 0}},
                                        {"operator", {kOperatorJob, 0}}};
  return *roles;
}

// Every method of every service of a ps.
std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const FileDescriptor* file :
       {proto::RegisterRequest::descriptor()->file(),
        proto::PushRequest::descriptor()->file(),
        grpc::health::v1::HealthCheckRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const ServiceDescriptor* const service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        methods.push_back(service->method(m));
      }
    }
  }
  return methods;
}

std::string PathOf(const MethodDescriptor& method) {
  return absl::StrCat("/", method.service()->full_name(), "/", method.name());
}
std::string ShortName(const MethodDescriptor& method) {
  return absl::StrCat(method.service()->name(), "/", method.name());
}

// A request with `task` as its sender and nothing else, so that it is harmless
// even if the caller is allowed. Empty if it has no sender.
std::string RequestFrom(const MethodDescriptor& method, const TaskId& task) {
  const std::unique_ptr<Message> request(MessageFactory::generated_factory()
                                             ->GetPrototype(method.input_type())
                                             ->New());
  const auto* const field = method.input_type()->FindFieldByName("sender");
  if (field != nullptr) {
    proto::Sender sender;
    sender.mutable_task()->set_job(task.job == kOperatorJob ? "client"
                                                            : task.job);
    sender.mutable_task()->set_index(task.index);
    request->GetReflection()
        ->MutableMessage(request.get(), field)
        ->CopyFrom(sender);
  }
  if (auto* stop = dynamic_cast<proto::StopRequest*>(request.get())) {
    stop->set_finish(task.job != kOperatorJob);
  }
  return request->SerializePartialAsString();
}

bool HasSender(const MethodDescriptor& method) {
  return method.input_type()->FindFieldByName("sender") != nullptr;
}

class AccessTest : public testing::Test {
 protected:
  AccessTest()
      : cluster_(MakeLoopbackCluster(2, 2), kLongLease,
                 [](const TaskId& task) { return CredentialsOf(task); }) {}

  RawClient ClientOf(const Identity& identity, uint32_t ps) const {
    return RawClient(cluster_.address(ps), ps, CredentialsOf(identity));
  }
  RawClient ClientOf(const TaskId& task, uint32_t ps) const {
    return ClientOf(Identity{kTraining, task}, ps);
  }

  static absl::Status Call(const RawClient& client,
                           const MethodDescriptor& method,
                           const std::string& request) {
    return client.CallBytes(PathOf(method), request, kPatience).status();
  }

  TestCluster cluster_;
};

TEST_F(AccessTest, EveryRpcIsForTheRolesThatItIsMeantFor) {
  const auto methods = AllMethods();
  // The table and the services list the same methods.
  EXPECT_EQ(methods.size(), Expected().size());
  for (uint32_t ps : {0, 1}) {
    for (const auto& [role, task] : Roles()) {
      const RawClient client = ClientOf(task, ps);
      for (const MethodDescriptor* method : methods) {
        const auto expected = Expected().find(ShortName(*method));
        ASSERT_TRUE(expected != Expected().end())
            << ShortName(*method) << " is not in the table of this test";
        const std::set<std::string> allowed =
            absl::StrSplit(expected->second, ' ');
        const absl::Status status =
            Call(client, *method, RequestFrom(*method, task));
        const std::string what =
            absl::StrCat(ShortName(*method), " by ", role, " at ps ", ps, ": ",
                         status.ToString());
        if (allowed.count(role) == 0) {
          EXPECT_TRUE(absl::IsPermissionDenied(status)) << what;
          EXPECT_THAT(what, HasSubstr(Identity{kTraining, task}.ToUri()));
          EXPECT_THAT(what, HasSubstr("may not call"));
        } else {
          EXPECT_FALSE(absl::IsPermissionDenied(status)) << what;
          EXPECT_FALSE(absl::IsUnauthenticated(status)) << what;
          EXPECT_FALSE(absl::IsUnimplemented(status)) << what;
          // Any answer of the method itself shows that access was allowed.
          EXPECT_FALSE(absl::IsUnavailable(status) &&
                       !absl::StrContains(what, "not in generation") &&
                       !absl::StrContains(what, "is for another life of"))
              << what;
        }
      }
    }
  }
}

TEST_F(AccessTest, NobodyActsForAnother) {
  const std::map<std::string, std::vector<TaskId>> others = {
      {"ps-0", {{kPsJob, 1}, {kWorkerJob, 0}}},
      {"ps-1", {{kPsJob, 0}}},
      {"worker", {{kWorkerJob, 0}, {kChiefJob, 0}, {kPsJob, 0}, {"", 0}}},
      {"chief", {{kWorkerJob, 0}, {kChiefJob, 1}}},
      {"evaluator", {{kWorkerJob, 0}, {kOperatorJob, 0}}},
      {"operator", {{kWorkerJob, 0}}}};
  int tried = 0;
  for (const auto& [role, task] : Roles()) {
    const RawClient client = ClientOf(task, 0);
    for (const MethodDescriptor* method : AllMethods()) {
      const std::set<std::string> allowed =
          absl::StrSplit(Expected().at(ShortName(*method)), ' ');
      // On ps 1, the methods of the coordinator answer that it is not the
      // coordinator.
      if (!HasSender(*method) || allowed.count(role) == 0) continue;
      for (const TaskId& other : others.at(role)) {
        const absl::Status status =
            Call(client, *method, RequestFrom(*method, other));
        EXPECT_TRUE(absl::IsPermissionDenied(status))
            << ShortName(*method) << " by " << role << " as " << other << ": "
            << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("sender.task"));
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 80);
}

TEST_F(AccessTest, AWorkerMayEndTheJobButNotStopIt) {
  const Caller worker = Identity{kTraining, {kWorkerJob, 0}};
  const Caller op = Identity{kTraining, {kOperatorJob, 0}};
  proto::StopRequest request;
  EXPECT_TRUE(CheckSenderOf(op, request, 0).ok()) << "older commands name none";
  EXPECT_TRUE(absl::IsPermissionDenied(CheckSenderOf(worker, request, 0)));
  request.mutable_sender()->mutable_task()->set_job(kWorkerJob);
  EXPECT_TRUE(CheckSenderOf(worker, request, 0).ok());
  EXPECT_TRUE(CheckUse(op, request).ok());
  EXPECT_TRUE(CheckUse(std::nullopt, request).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(CheckUse(worker, request)));
  // The service makes this check.
  const absl::Status refused =
      ClientOf(TaskId{kWorkerJob, 0}, 0)
          .CallBytes("/holdfast.proto.Coordinator/Stop",
                     request.SerializeAsString(), kPatience)
          .status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("only operators may stop it"));
  request.set_finish(true);
  EXPECT_TRUE(CheckUse(worker, request).ok());
}

TEST_F(AccessTest, AnotherTrainingIsRefusedByName) {
  for (const auto& [role, task] : Roles()) {
    const RawClient client = ClientOf(Identity{"other", task}, 0);
    for (const MethodDescriptor* method : AllMethods()) {
      const absl::Status status =
          Call(client, *method, RequestFrom(*method, task));
      // This client rejects a ps of another training.
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    }
    // A client that does not check is refused by the ps.
    for (const MethodDescriptor* method : AllMethods()) {
      const absl::Status status = CheckAccess(
          kTraining, Caller(Identity{"other", task}), PathOf(*method));
      EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("mnist"), HasSubstr("holdfast://other/")));
    }
    break;
  }
}

// Without certificates, everyone who can connect can do this
// (docs/operating/security.md, "Trust"): a claimed name is believed, and an
// incarnation, which is part of it, is no secret.
TEST(WithoutCertificatesTest, AForgedLeaveEndsTheJob) {
  TestCluster cluster(MakeLoopbackCluster(1, 1), kLongLease);
  const RawClient worker(cluster.address(0));
  const std::string task = "task { job: \"worker\" }";
  ASSERT_TRUE(worker
                  .Call("Coordinator.Register",
                        absl::StrCat("sender { ", task,
                                     " } nonce: 1 process: 'a' job_digest: "
                                     "'j' data_digest: 'd' num_ps: 1 "
                                     "num_workers: 1 protocol_version: ",
                                     kProtocolVersion),
                        kPatience)
                  .ok());

  const RawClient stranger(cluster.address(0));
  const auto status = stranger.Call("Coordinator.GetStatus", "", kPatience);
  ASSERT_TRUE(status.ok()) << status.status();
  const std::vector<std::string> around =
      absl::StrSplit(*status, absl::StrCat(task, " incarnation: "));
  ASSERT_EQ(around.size(), 2) << *status;
  uint64_t incarnation = 0;
  ASSERT_TRUE(
      absl::SimpleAtoi(around[1].substr(0, around[1].find(' ')), &incarnation));
  const auto speak = [&](absl::string_view method, uint64_t incarnation,
                         absl::string_view more) {
    return stranger
        .Call(method,
              absl::StrCat("sender { ", task, " incarnation: ", incarnation,
                           " generation: 1 } ", more),
              kPatience)
        .status();
  };
  // The incarnation could also be found by bisection.
  EXPECT_TRUE(
      absl::IsAborted(speak("Coordinator.RenewLease", incarnation - 1, "")));
  EXPECT_TRUE(
      absl::IsNotFound(speak("Coordinator.RenewLease", incarnation + 1, "")));

  EXPECT_TRUE(absl::IsNotFound(
      speak("Coordinator.Leave", incarnation + 1, "error: 'forged'")));
  EXPECT_TRUE(speak("Coordinator.Leave", incarnation, "error: 'forged'").ok());
  EXPECT_THAT(std::string(cluster.Wait(0).message()),
              AllOf(HasSubstr("/job:worker/task:0"),
                    HasSubstr("left before the end: forged")));
}

TEST(AccessTableTest, AMethodThatIsNotListedIsForNobody) {
  for (const auto& [role, task] : Roles()) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckAccess(
        kTraining, Caller(Identity{kTraining, task}), "/a.b.C/New")));
  }
  EXPECT_TRUE(CheckAccess("", std::nullopt, "/a.b.C/New").ok());
}

}  // namespace
}  // namespace holdfast
