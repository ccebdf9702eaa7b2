// SPDX-License-Identifier: Apache-2.0

// Peers that a ps must reject, and ps that a worker must reject, each during a
// training that continues; and certificates that change during a training.

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"
#include "tests/integration/training.h"
#include "tests/security/certificates.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kGetStatus[] = "/holdfast.proto.Coordinator/GetStatus";

Credentials OfTask(const TaskId& task) { return CredentialsOf(task); }

// gRPC's own credentials, without any check of the files: `pair` may be
// anything, or empty.
std::shared_ptr<grpc::ChannelCredentials> Careless(const KeyPair& pair) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = TheAuthority().key_pair().certificate;
  options.pem_cert_chain = pair.certificate;
  options.pem_private_key = pair.key;
  return grpc::SslCredentials(options);
}

RawClient CarelessClient(
    const std::string& address,
    std::shared_ptr<grpc::ChannelCredentials> credentials) {
  grpc::ChannelArguments arguments;
  // As a client in another language would do: the certificates of ps have this
  // name.
  arguments.SetSslTargetNameOverride(absl::StrCat("ps-0.", kTraining));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return RawClient(grpc::CreateCustomChannel(address, credentials, arguments));
}

absl::Status Ask(const RawClient& client) {
  return client.CallBytes(kGetStatus, "", absl::Seconds(10)).status();
}

class HandshakeTest : public testing::Test {
 protected:
  HandshakeTest() : cluster_(MakeLoopbackCluster(2, 2), kLongLease, OfTask) {}

  // Trains on both workers until `done`, and then to the end.
  void TrainWhile(const std::function<void()>& attack) {
    constexpr uint64_t kSteps = 40;
    std::promise<void> begun, attacked;
    const std::shared_future<void> over = attacked.get_future().share();
    std::vector<std::future<absl::Status>> workers;
    for (uint32_t replica = 0; replica < 2; ++replica) {
      workers.push_back(std::async(std::launch::async, [&, replica] {
        const auto client =
            ConnectWorker(cluster_.spec(), replica, "job",
                          CredentialsOf(TaskId{kWorkerJob, replica}));
        if (!client.ok()) return client.status();
        TrainOptions options;
        options.replica = replica;
        options.total_steps = kSteps;
        options.on_step = [&, replica](GlobalStep step) {
          if (step.value() == 1 && replica == 0) begun.set_value();
          // The other steps are made after the attack.
          if (step.value() == kSteps / 2) over.wait();
        };
        return Train(client->get(), options);
      }));
    }
    begun.get_future().wait();
    attack();
    attacked.set_value();
    for (auto& worker : workers) EXPECT_EQ(worker.get(), absl::OkStatus());
    for (uint32_t ps = 0; ps < 2; ++ps) {
      EXPECT_EQ(cluster_.Wait(ps), absl::OkStatus());
    }
  }

  TestCluster cluster_;
};

TEST_F(HandshakeTest, WhoHasNoSoundCertificateIsNotLetIn) {
  const Identity worker = {kTraining, {kWorkerJob, 1}};
  CertificateRequest expired = SoundRequest(worker);
  expired.not_after = DateNow() - absl::Minutes(1);
  CertificateRequest early = SoundRequest(worker);
  early.not_before = DateNow() + absl::Minutes(30);
  CertificateRequest nobody = SoundRequest(worker);
  nobody.uris.clear();
  CertificateRequest two = SoundRequest(worker);
  two.uris.push_back("holdfast://mnist/ps/0");
  CertificateRequest king = SoundRequest(worker);
  king.uris = {"holdfast://mnist/king/0"};
  const auto issue = [](const CertificateRequest& request) {
    return Careless(*TheAuthority().Issue(request));
  };
  const KeyPair forged = *MakeAuthority().Issue(SoundRequest(worker));

  struct Case {
    const char* what;
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    // UNAVAILABLE if there was no connection.
    absl::StatusCode code = absl::StatusCode::kUnavailable;
    const char* message = "";
  };
  const std::vector<Case> cases = {
      {"not encrypted", grpc::InsecureChannelCredentials()},
      {"no certificate", Careless({})},
      {"another authority's", Careless(forged)},
      {"expired", issue(expired)},
      {"not valid yet", issue(early)},
      {"without an identity", issue(nobody), absl::StatusCode::kUnauthenticated,
       "no identity"},
      {"with two identities", issue(two), absl::StatusCode::kUnauthenticated,
       "more than one identity"},
      {"with an unknown role", issue(king), absl::StatusCode::kUnauthenticated,
       "no job \"king\""},
      {"of another training", issue(SoundRequest({"other", {kWorkerJob, 1}})),
       absl::StatusCode::kUnauthenticated,
       "belongs to the training \"mnist\", not to that of "
       "holdfast://other/worker/1"},
  };
  TrainWhile([&] {
    for (const Case& bad : cases) {
      const absl::Status status =
          Ask(CarelessClient(cluster_.address(0), bad.credentials));
      EXPECT_EQ(status.code(), bad.code) << bad.what << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message));
    }
    // The same call with a valid certificate.
    EXPECT_EQ(
        Ask(CarelessClient(cluster_.address(0), issue(SoundRequest(worker)))),
        absl::OkStatus());
  });
}

TEST_F(HandshakeTest, AWorkerTalksToNobodyButThePsThatItMeans) {
  const Credentials own = CredentialsOf(TaskId{kWorkerJob, 1});
  // Ps 1 in the place of ps 0.
  const absl::Status status = Ask(RawClient(cluster_.address(1), 0, own));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("expected holdfast://mnist/ps/0"),
                    HasSubstr("names holdfast://mnist/ps/1")));
  EXPECT_EQ(Ask(RawClient(cluster_.address(0), 0, own)), absl::OkStatus());
  // A ps without certificates.
  const TestCluster open(MakeLoopbackCluster(1, 1), kLongLease);
  EXPECT_TRUE(absl::IsUnavailable(Ask(RawClient(open.address(0), 0, own))));
}

TEST_F(HandshakeTest, AWorkerThatIsNotTakenIsToldWhy) {
  const auto worker = ConnectWorker(cluster_.spec(), 0, "job",
                                    CredentialsOf(TaskId{kWorkerJob, 1}));
  EXPECT_TRUE(absl::IsPermissionDenied(worker.status())) << worker.status();
  EXPECT_THAT(std::string(worker.status().message()),
              HasSubstr("sender.task is /job:worker/task:0, but the "
                        "certificate is that of holdfast://mnist/worker/1"));
}

TEST(ServerTest, HasTheCertificateOfItsTask) {
  const ClusterSpec spec = MakeLoopbackCluster(2, 1);
  Server::Options options{spec, {kPsJob, 0}};
  options.credentials = CredentialsOf(TaskId{kPsJob, 1});
  const auto server = Server::Start(options);
  EXPECT_TRUE(absl::IsInvalidArgument(server.status()));
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr("certificate of another task: holdfast://mnist/ps/1"));
}

TEST(ServerTest, WithCertificatesListensEverywhere) {
  const ClusterSpec spec = MakeLoopbackCluster(1, 1);
  Server::Options options{spec, {kPsJob, 0}};
  options.listen_address = absl::StrCat("0.0.0.0:", PickUnusedPort());
  EXPECT_TRUE(absl::IsPermissionDenied(Server::Start(options).status()));
  options.credentials = CredentialsOf(TaskId{kPsJob, 0});
  EXPECT_EQ(Server::Start(options).status(), absl::OkStatus());
}

// Makes calls over new connections until the result is `code`.
void AwaitResult(const std::function<absl::Status()>& call,
                 absl::StatusCode code) {
  const absl::Time deadline = Soon();
  for (;;) {
    const absl::Status status = call();
    if (status.code() == code) return;
    ASSERT_LT(SteadyNow(), deadline) << status;
  }
}

TEST(ReloadTest, NewCertificatesAreUsedByNewConnections) {
  const Identity ps = {kTraining, {kPsJob, 0}};
  const Identity reader = {kTraining, {kOperatorJob, 0}};
  const CertificateAuthority next = MakeAuthority();
  const std::string ps_folder = FolderOf(ps.task);
  const std::string reader_folder = FolderOf(reader.task);
  const TestCluster cluster(
      MakeLoopbackCluster(1, 1), kLongLease,
      [&](const TaskId&) { return *Credentials::FromFolder(ps_folder); });
  const Credentials old = CredentialsOf(reader);
  const auto changing = Credentials::FromFolder(reader_folder);
  ASSERT_TRUE(changing.ok());
  const auto ask = [&](const Credentials& credentials) {
    return Ask(RawClient(cluster.address(0), 0, credentials));
  };
  const RawClient connected(cluster.address(0), 0, old);
  EXPECT_EQ(Ask(connected), absl::OkStatus());
  EXPECT_EQ(ask(*changing), absl::OkStatus());

  // The server gets a certificate of another authority.
  RewriteFolder(ps_folder, *next.Issue(SoundRequest(ps)), next);
  AwaitResult([&] { return ask(old); }, absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask(connected), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(ask(*changing)));
  // Then the client gets one, through the same object.
  RewriteFolder(reader_folder, *next.Issue(SoundRequest(reader)), next);
  AwaitResult([&] { return ask(*changing); }, absl::StatusCode::kOk);
  EXPECT_EQ(Ask(connected), absl::OkStatus());

  EXPECT_TRUE(absl::IsUnavailable(ask(old)));
}

TEST(ReloadTest, WhatIsNotSoundIsNotUsed) {
  const Identity ps = {kTraining, {kPsJob, 0}};
  const std::string folder = FolderOf(ps.task);
  const TestCluster cluster(
      MakeLoopbackCluster(1, 1), kLongLease,
      [&](const TaskId&) { return *Credentials::FromFolder(folder); });
  const auto ask = [&](const Credentials& credentials) {
    return Ask(RawClient(cluster.address(0), 0, credentials));
  };
  const CertificateAuthority next = MakeAuthority();
  const KeyPair sound = *next.Issue(SoundRequest(ps));
  KeyPair torn = sound;
  torn.key = next.Issue(SoundRequest(ps))->key;
  const std::vector<KeyPair> wrong = {
      torn, {"", ""}, *next.Issue(SoundRequest({kTraining, {kPsJob, 1}}))};
  for (const KeyPair& pair : wrong) {
    RewriteFolder(folder, pair, next);
    // Longer than the interval between checks of the files.
    const absl::Time until = SteadyNow() + absl::Milliseconds(2500);
    while (SteadyNow() < until) {
      EXPECT_EQ(ask(CredentialsOf(TaskId{kWorkerJob, 0})), absl::OkStatus());
    }
  }
  RewriteFolder(folder, sound, next);
  AwaitResult(
      [&] {
        return ask(CredentialsOf(TaskId{kWorkerJob, 0}));
      },
      absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace holdfast
