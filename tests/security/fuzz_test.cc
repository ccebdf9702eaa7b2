// SPDX-License-Identifier: Apache-2.0

// Sends random requests to every RPC of a live ps: each call must be answered,
// the ps must survive, and peers that are not part of a training must not
// disturb it.
//
// The environment variables FUZZ_SECONDS and FUZZ_SEED make it run longer and
// with another seed.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/job/given_values.h"
#include "common/rpc/rpc_limits.h"
#include "common/shared_memory/link_socket.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "proto/health.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/placement.h"
#include "ps_server/service/access.h"
#include "tests/integration/loopback.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"
#include "tests/integration/training.h"
#include "tests/security/certificates.h"
#include "tests/security/message_fuzzer.h"

namespace holdfast {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;
using google::protobuf::TextFormat;

constexpr int kThreads = 3;
// Calls per cluster, because a well-formed End may end its job.
constexpr int kCallsPerCluster = 300;
// Far more than the job needs; some declarations ask for more memory than any
// machine has.
constexpr int64_t kMemoryLimit = 256 << 20;
// About as many steps as a training makes during the attack.
constexpr int kStepsPerSecond = 200;

uint32_t FromEnvironment(const char* name, uint32_t otherwise) {
  const char* const text = getenv(name);
  uint32_t value;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}
absl::Duration HowLong() {
  return absl::Seconds(FromEnvironment("FUZZ_SECONDS", 10));
}
uint32_t Seed() { return FromEnvironment("FUZZ_SEED", 1); }

std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const FileDescriptor* file :
       {proto::RegisterRequest::descriptor()->file(),
        proto::PushRequest::descriptor()->file(),
        grpc::health::v1::HealthCheckRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.push_back(file->service(s)->method(m));
      }
    }
  }
  return methods;
}

// Well-formed requests to start from, for a job of MakeDeclaration.
const std::map<std::string, std::string>& RightRequests() {
  static const auto* const requests = new std::map<std::string, std::string>{
      {"Register",
       absl::StrCat("nonce: 1 protocol_version: ", kProtocolVersion,
                    " process: 'test' job_digest: 'job' data_digest: 'data' "
                    "num_ps: 2 num_workers: 2")},
      {"RenewLease", "known_phase: TRAINING"},
      {"Contribute", "seat: 1 sequence: 1 examples: 10 loss: 1"},
      {"TakeTicket", "sequence: 1"},
      {"ReportEvaluation", "result { step: 1 examples: 10 loss: 1 }"},
      {"Give", "tensors { variable: 'b' data: '\\0\\0\\200\\077' }"},
      {"Push",
       "sequence: 1 num_parts: 1 tensors { variable: 'w' shape: [3, 2] "
       "dtype: FLOAT32 data: '\\0\\0\\0\\0\\0\\0\\0\\0' } tensors { variable: "
       "'b' dtype: FLOAT32 data: '\\0\\0\\200\\077' }"},
      {"Apply", "sequence: 1 examples: 10 scalars { learning_rate: 1 }"},
      {"Pull",
       "ranges { variable: 'w' size: 2 } ranges { variable: 'b' size: "
       "1 }"},
      {"PushPull",
       "sequence: 1 contribution { seat: 1 examples: 10 } tensors { variable: "
       "'b' dtype: FLOAT32 data: '\\0\\0\\200\\077' } ranges { variable: 'b' "
       "size: 1 }"},
      {"Pin", "hold_ms: 10"},
      {"Link", absl::StrCat("boot_id: '", BootId(), "'")},
      {"Restore", "receipt_key: 'sixteen bytes...' loss_scale: 1"},
      {"Commit", "step: 0 contributions { } scalars { learning_rate: 1 }"},
      {"Fence", "lives { worker { job: 'worker' index: 1 } incarnation: 1 }"},
      {"Resolve",
       "lives { worker { job: 'worker' index: 1 } incarnation: 1 } "
       "applied { from { worker { job: 'worker' index: 1 } incarnation: 1 } "
       "sequence: 1 scalars { learning_rate: 1 } }"},
      {"Hold", "number: 1"},
      {"Save", "number: 1"},
      {"AwaitSaved", "number: 1"},
      {"End", "state { phase: FAILED reason: 'forged' }"},
  };
  return *requests;
}

// A well-formed Restore. `directory_nonce`: that of the checkpoint directory.
proto::RestoreRequest RightRestore(uint64_t directory_nonce,
                                   MessageFuzzer* fuzzer) {
  proto::RestoreRequest restore;
  EXPECT_TRUE(
      TextFormat::ParseFromString(RightRequests().at("Restore"), &restore));
  proto::Declaration& declaration = *restore.mutable_declaration();
  declaration = MakeDeclaration(5);
  declaration.set_num_workers(2);
  if (fuzzer->Number(2) == 0) {
    declaration.mutable_consistency()->mutable_asynchronous();
    declaration.set_total_tickets(5);
  }
  if (fuzzer->Number(3) == 0) {
    *declaration.mutable_variables(2)->mutable_initializer()->mutable_given() =
        GivenDigests(std::vector<float>{1});
  }
  const auto slices = PlaceVariables(declaration, 2);
  EXPECT_TRUE(slices.ok()) << slices.status();
  for (const proto::Slice& slice : *slices) *restore.add_slices() = slice;
  if (fuzzer->Number(2) == 0) restore.set_directory_nonce(directory_nonce);
  if (fuzzer->Number(4) == 0) restore.mutable_checkpoint()->set_generation(1);
  return restore;
}

// A random request of `sender` to `method`.
std::string RandomRequest(const MethodDescriptor& method,
                          const proto::Sender& sender, uint64_t directory_nonce,
                          MessageFuzzer* fuzzer) {
  const std::unique_ptr<Message> request(MessageFactory::generated_factory()
                                             ->GetPrototype(method.input_type())
                                             ->New());
  const auto right = RightRequests().find(method.name());
  if (right != RightRequests().end() && fuzzer->Number(3) != 0) {
    // Mutations may add the fields that are missing.
    TextFormat::Parser parser;
    parser.AllowPartialMessage(true);
    EXPECT_TRUE(parser.ParseFromString(right->second, request.get()))
        << right->first;
    if (method.name() == "Restore") {
      request->CopyFrom(RightRestore(directory_nonce, fuzzer));
    }
    for (uint32_t i = fuzzer->Number(4); i > 0; --i) {
      fuzzer->Mutate(request.get());
    }
  } else {
    if (method.name() == "Declare" && fuzzer->Number(2) == 0) {
      auto* declare = static_cast<proto::DeclareRequest*>(request.get());
      *declare->mutable_declaration() = MakeDeclaration(5);
    } else {
      fuzzer->Fill(request.get());
    }
    for (uint32_t i = fuzzer->Number(4); i > 0; --i) {
      fuzzer->Mutate(request.get());
    }
  }
  // Mostly the true sender: otherwise all calls would be refused for their
  // sender.
  const auto* const field = method.input_type()->FindFieldByName("sender");
  if (field != nullptr && fuzzer->Number(20) != 0) {
    request->GetReflection()
        ->MutableMessage(request.get(), field)
        ->CopyFrom(sender);
  }
  std::string bytes = request->SerializePartialAsString();
  if (fuzzer->Number(6) == 0) bytes = fuzzer->Damage(std::move(bytes));
  if (fuzzer->Number(30) == 0) bytes = fuzzer->Garbage();
  return bytes;
}

bool IsCoordinators(const MethodDescriptor& method) {
  return RolesOf(absl::StrCat("/", method.service()->full_name(), "/",
                              method.name())) ==
         std::set<std::string>{"coordinator"};
}

struct Attacker {
  TaskId task;
  // The sender that its requests name.
  proto::Sender sender;
};

Attacker MakeAttacker(const TaskId& task) {
  Attacker attacker{task};
  attacker.sender.mutable_task()->set_job(task.job == kOperatorJob ? "client"
                                                                   : task.job);
  attacker.sender.mutable_task()->set_index(task.index);
  attacker.sender.set_generation(1);
  return attacker;
}

// Makes one call, which must be answered, and returns its status.
absl::Status Call(const RawClient& client, const MethodDescriptor& method,
                  const std::string& request,
                  std::map<std::string, int>* codes) {
  const std::string path =
      absl::StrCat("/", method.service()->full_name(), "/", method.name());
  const absl::Time deadline = SteadyNow() + absl::Seconds(10);
  absl::Status status;
  do {
    status = client.CallBytes(path, request, absl::Seconds(2)).status();
    // A connection made while gRPC switches to another certificate provider may
    // be made without certificates, and then fails; the next one has them.
  } while (absl::IsUnavailable(status) &&
           absl::StrContains(status.message(), "create security handshaker") &&
           SteadyNow() < deadline);
  ++(*codes)[absl::StatusCodeToString(status.code())];
  const bool lost = absl::IsUnavailable(status) &&
                    (absl::StrContains(status.message(), "connect") ||
                     absl::StrContains(status.message(), "closed") ||
                     absl::StrContains(status.message(), "reset"));
  // A shard refuses impossible requests of a coordinator with INTERNAL.
  const bool internal = absl::IsInternal(status) && !IsCoordinators(method);
  EXPECT_FALSE(lost || internal || absl::IsUnknown(status) ||
               absl::IsUnimplemented(status))
      << method.full_name() << ": " << status;
  return status;
}

void Print(const std::map<std::string, int>& codes) {
  std::cout << "seed " << Seed() << ":";
  for (const auto& [code, count] : codes)
    std::cout << " " << code << " " << count;
  std::cout << std::endl;
}

// Its messages only describe the random requests.
void SilenceProtobuf() { google::protobuf::SetLogHandler(nullptr); }

// The nonce of a directory in which a job has been declared.
uint64_t DirectoryNonce(const std::string& path) {
  const auto directory =
      CheckpointDirectory::OpenToRead(path, PosixFileSystem());
  EXPECT_TRUE(directory.ok()) << directory.status();
  const auto journal = directory->ReadJournal();
  EXPECT_TRUE(journal.ok()) << journal.status();
  return journal->directory_nonce();
}

// Calls by all kinds of peers, among them workers of the job and a peer that
// knows everything that the coordinator knows: such calls may end a job, but
// nothing else.
TEST(FuzzTest, EveryCallIsAnswered) {
  SilenceProtobuf();
  const auto methods = AllMethods();
  const std::vector<Attacker> attackers = {
      MakeAttacker({kPsJob, 0}),        MakeAttacker({kPsJob, 1}),
      MakeAttacker({kWorkerJob, 0}),    MakeAttacker({kWorkerJob, 1}),
      MakeAttacker({kEvaluatorJob, 0}), MakeAttacker({kOperatorJob, 0})};
  for (const Attacker& attacker : attackers) CredentialsOf(attacker.task);
  std::map<std::string, int> codes;
  // Calls in the name of the coordinator that were obeyed.
  std::atomic<int> obeyed(0);
  const absl::Time until = SteadyNow() + HowLong();
  for (uint32_t lap = 0; SteadyNow() < until; ++lap) {
    const std::string checkpoint_dir =
        lap % 3 == 0
            ? ""
            : absl::StrCat(::testing::TempDir(), "/fuzz-", Seed(), "-", lap);
    const TestCluster cluster(
        MakeLoopbackCluster(2, 2), kLongLease,
        [](const TaskId& task) { return CredentialsOf(task); },
        [&](Server::Options* options) {
          options->checkpoint_dir = checkpoint_dir;
          options->memory_limit_bytes = kMemoryLimit;
        });
    std::vector<proto::Sender> workers;
    for (uint32_t worker = 0; worker < 2; ++worker) {
      const RawClient client(cluster.address(0), 0,
                             CredentialsOf(TaskId{kWorkerJob, worker}));
      proto::RegisterRequest request;
      ASSERT_TRUE(TextFormat::ParseFromString(RightRequests().at("Register"),
                                              &request));
      *request.mutable_sender() = MakeAttacker({kWorkerJob, worker}).sender;
      request.mutable_sender()->clear_generation();
      request.set_wait_ms(2000);
      proto::RegisterResponse response;
      do {
        const auto answer =
            client.CallBytes("/holdfast.proto.Coordinator/Register",
                             request.SerializeAsString(), kPatience);
        ASSERT_TRUE(answer.ok()) << answer.status();
        ASSERT_TRUE(response.ParseFromString(*answer));
        // 0: not yet, ask again.
      } while (response.incarnation() == 0);
      proto::Sender sender = request.sender();
      sender.set_incarnation(response.incarnation());
      sender.set_generation(response.generation());
      workers.push_back(sender);
      if (worker > 0) continue;
      proto::DeclareRequest declare;
      *declare.mutable_sender() = sender;
      *declare.mutable_declaration() = MakeDeclaration(1000);
      if (lap % 2 == 1) {
        // It begins once a valid Give has arrived.
        *declare.mutable_declaration()
             ->mutable_variables(2)
             ->mutable_initializer()
             ->mutable_given() = GivenDigests(std::vector<float>{1});
      }
      const auto declared =
          client.CallBytes("/holdfast.proto.Coordinator/Declare",
                           declare.SerializeAsString(), kPatience);
      EXPECT_TRUE(declared.ok()) << declared.status();
    }
    const uint64_t directory_nonce =
        checkpoint_dir.empty() ? 0 : DirectoryNonce(checkpoint_dir);
    // By ps: the generation to which a forged Restore has brought it.
    std::atomic<uint64_t> generations[2] = {1, 1};
    std::vector<std::thread> threads;
    std::map<std::string, int> codes_of[kThreads];
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        MessageFuzzer fuzzer(Seed() * 1000003 + lap * kThreads + thread);
        std::map<std::pair<size_t, uint32_t>, std::unique_ptr<RawClient>>
            clients;
        for (int i = 0; i < kCallsPerCluster && SteadyNow() < until; ++i) {
          const size_t who = fuzzer.Number(attackers.size());
          const uint32_t ps = fuzzer.Number(2);
          Attacker attacker = attackers[who];
          if (attacker.task.job == kWorkerJob) {
            attacker.sender = workers[attacker.task.index];
          }
          auto& client = clients[{who, ps}];
          if (client == nullptr) {
            client = std::make_unique<RawClient>(cluster.address(ps), ps,
                                                 CredentialsOf(attacker.task));
          }
          const MethodDescriptor& method =
              *methods[fuzzer.Number(methods.size())];
          // After its end a job has little more to answer.
          const bool ends = method.name() == "End" || method.name() == "Leave";
          if (ends && fuzzer.Number(10) != 0) continue;
          if (fuzzer.Number(4) != 0) {
            attacker.sender.set_generation(generations[ps]);
          }
          const bool forges =
              attacker.task == TaskId{kPsJob, 0} && IsCoordinators(method);
          if (forges) {
            attacker.sender.set_receiver_nonce(cluster.NonceOf(ps));
            if (method.name() == "Restore" && fuzzer.Number(2) == 0) {
              attacker.sender.set_generation(generations[ps] + 1);
            }
          }
          const absl::Status status = Call(
              *client, method,
              RandomRequest(method, attacker.sender, directory_nonce, &fuzzer),
              &codes_of[thread]);
          if (!forges || !status.ok()) continue;
          ++obeyed;
          if (method.name() == "Restore") {
            generations[ps] = attacker.sender.generation();
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& one : codes_of) {
      for (const auto& [code, count] : one) codes[code] += count;
    }
  }
  Print(codes);
  std::cout << obeyed << " in the coordinator's name OK" << std::endl;
  // The fuzzer reaches deep enough: some requests were valid.
  EXPECT_GT(codes["OK"], 0);
  EXPECT_GT(obeyed, 0);
  EXPECT_GT(codes["INVALID_ARGUMENT"], 0);
  EXPECT_GT(codes["PERMISSION_DENIED"], 0);
}

// Calls by peers that have a certificate of the training and no part in it.
TEST(FuzzTest, ATrainingBesideItIsNotDisturbed) {
  SilenceProtobuf();
  const auto methods = AllMethods();
  const std::vector<Attacker> attackers = {
      MakeAttacker({kPsJob, 1}), MakeAttacker({kPsJob, 9}),
      MakeAttacker({kWorkerJob, 9}), MakeAttacker({kEvaluatorJob, 0})};
  for (const Attacker& attacker : attackers) CredentialsOf(attacker.task);
  for (uint32_t i = 0; i < 2; ++i) CredentialsOf(TaskId{kWorkerJob, i});
  TestCluster cluster(MakeLoopbackCluster(1, 2), kLongLease,
                      [](const TaskId& task) { return CredentialsOf(task); });
  // The attacks continue as long as the job trains.
  std::atomic<int> training(2);
  std::vector<std::future<absl::Status>> workers;
  for (uint32_t replica = 0; replica < 2; ++replica) {
    workers.push_back(std::async(std::launch::async, [&, replica] {
      const auto client =
          ConnectWorker(cluster.spec(), replica, "job",
                        CredentialsOf(TaskId{kWorkerJob, replica}));
      absl::Status status = client.status();
      if (status.ok()) {
        TrainOptions options;
        options.replica = replica;
        options.total_steps = kStepsPerSecond * absl::ToInt64Seconds(HowLong());
        status = Train(client->get(), options);
      }
      --training;
      return status;
    }));
  }
  std::vector<std::thread> threads;
  std::map<std::string, int> codes_of[kThreads];
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      MessageFuzzer fuzzer(Seed() * 7919 + thread);
      std::vector<std::unique_ptr<RawClient>> clients;
      for (const Attacker& attacker : attackers) {
        clients.push_back(std::make_unique<RawClient>(
            cluster.address(0), 0, CredentialsOf(attacker.task)));
      }
      while (training > 0) {
        const size_t who = fuzzer.Number(attackers.size());
        const MethodDescriptor& method =
            *methods[fuzzer.Number(methods.size())];
        Call(*clients[who], method,
             RandomRequest(method, attackers[who].sender,
                           /*directory_nonce=*/0, &fuzzer),
             &codes_of[thread])
            .IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::string, int> codes;
  for (const auto& one : codes_of) {
    for (const auto& [code, count] : one) codes[code] += count;
  }
  Print(codes);
  for (auto& worker : workers) EXPECT_EQ(worker.get(), absl::OkStatus());
  EXPECT_EQ(cluster.Wait(0), absl::OkStatus());
}

}  // namespace
}  // namespace holdfast
