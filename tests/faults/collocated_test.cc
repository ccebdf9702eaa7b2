// SPDX-License-Identifier: Apache-2.0

// The topology of an all-reduce: n hosts, each with a ps and a worker that
// share memory, and slices that are balanced by bytes. Hosts are network
// namespaces, and each host has a folder of its own for its sockets.

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/shared_memory/arena.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/network.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Minutes(3);

// For layers 64 -> 1024 -> 1024 -> 4.
constexpr uint64_t kGradientBytes =
    ((64 + 1) * 1024 + (1024 + 1) * 1024 + (1024 + 1) * 4) * sizeof(float);

// Returns the path of the job file. The training data is in `folder`.
std::string WriteWideJob(const std::string& folder, int hosts, int steps) {
  const std::string path =
      absl::StrCat(folder, "/job-", hosts, "-", steps, ".textproto");
  WriteText(path, absl::StrCat(R"(
name: "wide"
model {
  sequential {
    layers { flatten {} }
    layers { dense { units: 1024 } }
    layers { relu {} }
    layers { dense { units: 1024 } }
    layers { relu {} }
    layers { dense { units: 4 } }
    loss { softmax_cross_entropy {} }
  }
}
data {
  train { idx { images: ")",
                               folder, R"(/images.idx" labels: ")", folder,
                               R"(/labels.idx" } }
}
batch_size: 4
optimizer { learning_rate: 0.01 momentum { momentum: 0.9 } }
partitioner { fixed_shards { shards: )",
                               hosts, R"( } }
placement: GREEDY_BY_BYTES
seed: 1
steps: )",
                               steps, "\n"));
  return path;
}

struct Outcome {
  std::string digest;
  // Indexed by host.
  std::vector<TestNetwork::Traffic> traffic;
};

class CollocatedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto probe = TestNetwork::Create({"probe"});
    if (!probe.ok()) {
      GTEST_SKIP() << "cannot create network namespaces here (they need root "
                      "and iproute2): "
                   << probe.status();
    }
    WriteExamples(folder_);
  }

  // Runs the job with one ps and all tasks on one network.
  std::string DigestOfOnePs(const std::string& job, int workers) {
    const std::string run_dir = absl::StrCat(job, "-one-ps");
    Program local({kHoldfast, "local", absl::StrCat("--job=", job),
                   absl::StrCat("--run_dir=", run_dir), "--ps=1",
                   absl::StrCat("--workers=", workers)});
    EXPECT_EQ(local.Wait(kLimit), 0) << local.output();
    return StringIn(ReadResult(run_dir + "/result.json"), "digest");
  }

  Outcome RunOnHosts(const std::string& job, int hosts) {
    Outcome outcome;
    std::vector<std::string> names;
    for (int host = 0; host < hosts; ++host) {
      names.push_back(absl::StrCat("host-", host));
    }
    const auto network = TestNetwork::Create(names);
    EXPECT_TRUE(network.ok()) << network.status();
    if (!network.ok()) return outcome;
    const auto list = [&](const std::string& flag, int port) {
      std::vector<std::string> addresses;
      for (const std::string& name : names) {
        addresses.push_back(absl::StrCat((*network)->Address(name), ":", port));
      }
      return absl::StrCat(flag, "=", absl::StrJoin(addresses, ","));
    };
    const std::string result = job + "-result.json";
    std::vector<std::unique_ptr<Program>> workers, ps;
    for (int host = 0; host < hosts; ++host) {
      // The path of a socket must be short.
      const std::string sockets = absl::StrCat(job, "-sockets-", host);
      std::filesystem::create_directories(sockets);
      const auto start = [&](const std::string& program,
                             const std::vector<std::string>& flags) {
        std::vector<std::string> args = (*network)->Launcher(names[host]);
        args.insert(args.begin(), "/usr/bin/env");
        args.push_back(program);
        args.push_back(list("--ps_hosts", 4000));
        args.push_back(list("--worker_hosts", 5000));
        args.push_back(absl::StrCat("--task_index=", host));
        args.push_back(absl::StrCat("--same_host_dir=", sockets));
        args.push_back("--insecure");
        args.insert(args.end(), flags.begin(), flags.end());
        return std::make_unique<Program>(args);
      };
      ps.push_back(start(kPsServer, {}));
      workers.push_back(
          start(kPsWorker, {"--job_name=worker", absl::StrCat("--job=", job),
                            "--result_file=" + result}));
    }
    for (int host = 0; host < hosts; ++host) {
      EXPECT_EQ(workers[host]->Wait(kLimit), 0) << workers[host]->output();
      EXPECT_EQ(ps[host]->Wait(kLimit), 0) << ps[host]->output();
      if (SharedArena::HugePagesWork()) {
        const std::string ps_name =
            absl::StrCat("/job:ps/task:", host, " (",
                         (*network)->Address(names[host]), ":4000)");
        EXPECT_THAT(
            workers[host]->output(),
            HasSubstr(ps_name + ": tensors pass through shared memory"));
        EXPECT_THAT(workers[host]->output(), HasSubstr("is not in " + job));
      }
      const auto traffic = (*network)->TrafficOf(names[host]);
      EXPECT_TRUE(traffic.ok()) << traffic.status();
      outcome.traffic.push_back(traffic.value_or(TestNetwork::Traffic()));
    }
    outcome.digest = StringIn(ReadResult(result), "digest");
    return outcome;
  }

  // A step's traffic per host is the difference between a long and a short job:
  // initial values, evaluation and the end of the job are in both.
  void ExpectTrafficOfAnAllReduce(int hosts) {
    constexpr int kShort = 5, kLong = 25;
    const Outcome shorter =
        RunOnHosts(WriteWideJob(folder_, hosts, kShort), hosts);
    const std::string job = WriteWideJob(folder_, hosts, kLong);
    const Outcome longer = RunOnHosts(job, hosts);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(longer.digest, DigestOfOnePs(job, hosts));
    // The bytes that a ring all-reduce sends.
    const double ring = 2.0 * (hosts - 1) / hosts * kGradientBytes;
    for (int host = 0; host < hosts; ++host) {
      const TestNetwork::Traffic& before = shorter.traffic[host];
      const TestNetwork::Traffic& after = longer.traffic[host];
      const double sent =
          static_cast<double>(after.sent - before.sent) / (kLong - kShort);
      const double received =
          static_cast<double>(after.received - before.received) /
          (kLong - kShort);
      std::cout << hosts << " hosts, host " << host
                << ": bytes in a step: sent " << sent << ", received "
                << received << "; of a ring's " << sent / ring << ", "
                << received / ring << std::endl;
      EXPECT_LE(sent, 1.05 * ring);
      EXPECT_LE(received, 1.05 * ring);
      // A lower bound, to show that the bytes are counted at all.
      EXPECT_GE(sent, 0.98 * ring);
    }
  }

  const std::string folder_ = FreshFolder();
};

TEST_F(CollocatedTest, TwoHosts) { ExpectTrafficOfAnAllReduce(2); }
TEST_F(CollocatedTest, FourHosts) { ExpectTrafficOfAnAllReduce(4); }
TEST_F(CollocatedTest, EightHosts) { ExpectTrafficOfAnAllReduce(8); }

}  // namespace
}  // namespace holdfast
