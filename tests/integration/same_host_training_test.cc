// SPDX-License-Identifier: Apache-2.0

// Workers that share memory with ps daemons, which are processes: the result is
// the same as over the network, for all kinds of pushes, and after a ps has
// died.

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/shared_memory/arena.h"
#include "common/tensor/digest.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/process.h"

namespace holdfast {
namespace {

using google::protobuf::TextFormat;
using testing::SizeIs;

constexpr absl::Duration kPatience = absl::Seconds(30);
absl::Time Soon() { return SteadyNow() + kPatience; }

// "large" exceeds the size of a message, and is cut in two; "whole" and "fixed"
// are lent in one piece each; "small" is never lent.
constexpr char kDeclaration[] = R"pb(
  variables {
    name: "large"
    shape: [ 5000, 1000 ]
    dtype: FLOAT32
    initializer { glorot {} }
    partitioner { fixed_shards { shards: 2 } }
  }
  variables {
    name: "small"
    shape: 10
    dtype: FLOAT32
    initializer { constant { value: 3 } }
  }
  variables {
    name: "whole"
    shape: [ 300, 200 ]
    dtype: FLOAT32
    initializer { glorot {} }
  }
  variables {
    name: "fixed"
    shape: [ 300, 100 ]
    dtype: FLOAT32
    initializer { glorot {} }
    trainable: false
  }
  optimizers {
    learning_rate: 0.1
    momentum { momentum: 0.9 }
  }
  seed: 1
  total_steps: 6
  checkpoints { every_seconds: 0 }
)pb";
constexpr size_t kTrainable = 3;
constexpr size_t kWhole = 2;
constexpr size_t kFixed = 3;

// Whether `values` are in memory of a ps.
bool IsInPlace(absl::Span<const float> values) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin, end;
    if (std::sscanf(line.c_str(), "%lx-%lx r--s", &begin, &end) != 2) continue;
    const auto at = reinterpret_cast<uintptr_t>(values.data());
    if (at < begin || at >= end) continue;
    return absl::StrContains(line, "r--s") && absl::StrContains(line, "memfd:");
  }
  return false;
}

// Collects the log lines about links while it exists.
class LinkLog : public google::LogSink {
 public:
  LinkLog() { google::AddLogSink(this); }
  ~LinkLog() override { google::RemoveLogSink(this); }

  void send(google::LogSeverity, const char*, const char*, int, const tm*,
            const char* message, size_t size) override {
    const std::string line(message, size);
    if (!absl::StrContains(line, "tensors pass through shared memory")) return;
    absl::MutexLock lock(&mutex_);
    lines_.push_back(line);
  }
  std::vector<std::string> lines() const {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

class SameHostTest : public testing::Test {
 protected:
  SameHostTest() {
    std::string folder = absl::StrCat(testing::TempDir(), "/XXXXXX");
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  void Start(uint32_t num_ps, bool asynchronous, bool same_host) {
    ASSERT_TRUE(TextFormat::ParseFromString(kDeclaration, &declaration_));
    if (asynchronous) {
      declaration_.mutable_consistency()->mutable_asynchronous();
    } else {
      declaration_.mutable_consistency()->mutable_synchronous();
    }
    folder_ += "/next";
    spec_ = MakeLoopbackCluster(num_ps, 1);
    ps_.clear();
    ps_.resize(num_ps);
    for (uint32_t i = 0; i < num_ps; ++i) StartPs(i);
    Cluster::Options options{*spec_};
    options.task = *spec_->ReplicaTask(0);
    options.job_digest = "job";
    options.data_digest = "data";
    options.same_host = same_host;
    auto cluster = Cluster::Connect(std::move(options));
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    ASSERT_EQ(cluster_->Declare(declaration_, Soon()), absl::OkStatus());
    ASSERT_EQ(cluster_->AwaitVariables(Soon()), absl::OkStatus());
  }
  void StartPs(uint32_t index) {
    ps_[index] = std::make_unique<Process>(
        "ps_server/ps_server",
        std::vector<std::string>{
            absl::StrCat("--task_index=", index),
            absl::StrCat("--cluster_spec=", spec_->ToJson()),
            absl::StrCat("--checkpoint_dir=", folder_), "--lease=1s",
            absl::StrCat("--memory_limit=", memory_limit_)});
  }
  bool asynchronous() const {
    return declaration_.consistency().has_asynchronous();
  }

  absl::Status Pull(uint64_t at_least, Parameters* values) {
    return cluster_->StartPull(GlobalStep(at_least), values)->Await(Soon());
  }

  std::unique_ptr<Cluster::Push> StartPush(const Parameters& now) {
    if (!asynchronous()) return cluster_->StartPush(now.version);
    const auto ticket = cluster_->StartTakeTicket()->Await(Soon());
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (!ticket.ok() || !ticket->has_value()) return nullptr;
    return cluster_->StartPush(**ticket, now);
  }

  // Makes one step, whose gradient is a tenth of the values, and sets `now` to
  // the values after it. Every second step writes the gradient to the push's
  // memory, if it has any, and requests the values together with the push.
  absl::Status Step(Parameters* now) {
    const uint64_t step = now->version.value();
    EXPECT_EQ(IsInPlace(now->Of(kWhole)), IsInPlace(now->Of(kFixed)));
    in_place_ += IsInPlace(now->Of(kWhole));
    auto push = StartPush(*now);
    if (push == nullptr) return absl::InternalError("no ticket");
    std::vector<std::vector<float>> own(kTrainable);
    for (size_t v = 0; v < kTrainable; ++v) {
      absl::Span<float> gradient;
      if (step % 2 == 0) gradient = push->Memory(v);
      memories_ += !gradient.empty();
      if (gradient.empty()) {
        own[v].resize(now->Of(v).size());
        gradient = absl::MakeSpan(own[v]);
      }
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = 0.1f * now->Of(v)[i];
      }
      absl::Status status = push->Add(v, gradient);
      if (!status.ok()) return status;
    }
    Contribution contribution;
    contribution.examples = 10;
    contribution.loss = 1;
    Parameters next;
    absl::Status status =
        push->Contribute(contribution, step % 2 == 0 ? &next : nullptr);
    if (!status.ok()) return status;
    const auto outcome = push->Await(Soon());
    if (!outcome.ok()) return outcome.status();
    if (outcome->verdict != proto::ACCEPTED) {
      return absl::InternalError("not accepted");
    }
    push.reset();
    if (step % 2 == 1) {
      status = Pull(now->version.next().value(), &next);
      if (!status.ok()) return status;
    }
    *now = std::move(next);
    return absl::OkStatus();
  }

  std::string DigestOf(const Parameters& values) const {
    const auto& variables = cluster_->declaration().variables();
    return DigestOfVariables(
        std::vector<proto::Variable>(variables.begin(), variables.end()),
        values.All());
  }

  // Trains from the current step to the end. Returns the digest of the values.
  std::string Train() {
    Parameters values;
    EXPECT_EQ(Pull(0, &values), absl::OkStatus());
    while (values.version.value() < declaration_.total_steps()) {
      const absl::Status status = Step(&values);
      EXPECT_EQ(status, absl::OkStatus());
      if (!status.ok()) return "";
    }
    const auto pin = cluster_->PinVersion(absl::Seconds(30), Soon());
    EXPECT_TRUE(pin.ok()) << pin.status();
    if (!pin.ok()) return "";
    Parameters pinned;
    EXPECT_EQ((*pin)->StartRead(&pinned)->Await(Soon()), absl::OkStatus());
    EXPECT_EQ(DigestOf(pinned), DigestOf(values));
    return DigestOf(values);
  }
  void End() {
    EXPECT_EQ(cluster_->AwaitDone(Soon()), absl::OkStatus());
    EXPECT_EQ(cluster_->Leave("", Soon()), absl::OkStatus());
    for (const auto& ps : ps_) {
      EXPECT_EQ(ps->Wait(kPatience), 0) << ps->Output();
    }
    cluster_ = nullptr;
  }

  proto::Declaration declaration_;
  std::string folder_;
  // The memory limit of each ps, in bytes.
  int64_t memory_limit_ = int64_t{8} << 30;
  std::optional<ClusterSpec> spec_;
  std::vector<std::unique_ptr<Process>> ps_;
  std::unique_ptr<Cluster> cluster_;
  // The number of gradients that were written to a push's memory.
  int memories_ = 0;
  // The number of steps whose values were read in place.
  int in_place_ = 0;
};

TEST_F(SameHostTest, TheEndIsThatOverTheNetwork) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  for (const bool asynchronous : {false, true}) {
    for (const uint32_t num_ps : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(asynchronous ? "asynchronous, " : "", num_ps));
      std::string network;
      for (const bool same_host : {false, true}) {
        const LinkLog log;
        memories_ = 0;
        in_place_ = 0;
        ASSERT_NO_FATAL_FAILURE(Start(num_ps, asynchronous, same_host));
        const std::string digest = Train();
        End();
        if (!same_host) network = digest;
        EXPECT_EQ(digest, network);
        EXPECT_THAT(log.lines(), SizeIs(same_host ? num_ps : 0));
        // "large" and "whole", in every second of 6 steps.
        EXPECT_EQ(memories_, same_host ? 6 : 0);
        // Once before each step.
        EXPECT_EQ(in_place_, same_host ? 6 : 0);
      }
    }
  }
}

// The worker keeps all versions. The first two stay in the memory of the ps,
// none changes, and training is unaffected.
TEST_F(SameHostTest, ValuesThatAreKeptStayAsTheyAre) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  for (const bool asynchronous : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(Start(2, asynchronous, /*same_host=*/false));
    const std::string network = Train();
    End();
    ASSERT_NO_FATAL_FAILURE(Start(2, asynchronous, /*same_host=*/true));
    std::vector<Parameters> kept(declaration_.total_steps());
    std::vector<std::string> digests;
    for (Parameters& version : kept) {
      ASSERT_EQ(Pull(digests.size(), &version), absl::OkStatus());
      EXPECT_EQ(version.version, GlobalStep(digests.size()));
      EXPECT_EQ(IsInPlace(version.Of(kWhole)), digests.size() < 2);
      digests.push_back(DigestOf(version));
      Parameters now;
      ASSERT_EQ(Pull(0, &now), absl::OkStatus());
      ASSERT_EQ(Step(&now), absl::OkStatus());
    }
    EXPECT_EQ(Train(), network);
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(DigestOf(kept[i]), digests[i]) << i;
      EXPECT_EQ(std::count(digests.begin(), digests.end(), digests[i]), 1);
    }
    End();
    // Even after both ends have gone.
    EXPECT_TRUE(IsInPlace(kept[0].Of(kWhole)));
    EXPECT_EQ(kept[0].Of(kFixed)[7], kept[5].Of(kFixed)[7]);
  }
}

// A ps without enough memory for lent versions sends values instead, even if
// they exceed the size of a message; and a ps that lends stays within its
// limit.
TEST_F(SameHostTest, WhatIsLentKeepsToTheMemoryLimit) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  ASSERT_NO_FATAL_FAILURE(Start(1, /*asynchronous=*/false, false));
  const std::string network = Train();
  End();
  // In bytes; only kValues includes "fixed".
  constexpr int64_t kTrained = 4 * (5000 * 1000 + 10 + 300 * 200);
  constexpr int64_t kValues = kTrained + 4 * 300 * 100;
  // Values, momentum, the next version, one version for readers, values and
  // momentum of a checkpoint, and a push.
  constexpr int64_t kNeeded = kValues + 6 * kTrained;
  // In addition, an early push and four lent versions.
  constexpr int64_t kEnough = kNeeded + 5 * kTrained;
  for (const auto& [limit, steps_in_place] :
       {std::pair(kNeeded, 0), std::pair(kEnough, 6)}) {
    SCOPED_TRACE(limit);
    memory_limit_ = limit;
    in_place_ = 0;
    ASSERT_NO_FATAL_FAILURE(Start(1, /*asynchronous=*/false, true));
    EXPECT_EQ(Train(), network);
    EXPECT_EQ(in_place_, steps_in_place);
    const auto status = cluster_->GetStatus(Soon());
    ASSERT_TRUE(status.ok()) << status.status();
    for (const proto::TaskStatus& task : status->tasks()) {
      const proto::MemoryUse& memory = task.ps().memory();
      EXPECT_LE(memory.values() + memory.slots() + memory.versions() +
                    memory.pushes(),
                limit);
    }
    End();
  }
}

// An evaluation pins a version, and takes longer than a step.
TEST_F(SameHostTest, WhatIsPinnedIsCopied) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  ASSERT_NO_FATAL_FAILURE(Start(2, /*asynchronous=*/false, true));
  Parameters pinned;
  {
    const auto pin = cluster_->PinVersion(absl::Seconds(30), Soon());
    ASSERT_TRUE(pin.ok()) << pin.status();
    ASSERT_EQ((*pin)->StartRead(&pinned)->Await(Soon()), absl::OkStatus());
  }
  EXPECT_FALSE(IsInPlace(pinned.Of(kWhole)));
  Train();
  End();
}

TEST_F(SameHostTest, APsThatHasDiedIsLinkedAgain) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  std::string undisturbed;
  // When ps 0 dies, the worker registers anew, and keeps its link to ps 1.
  for (const std::optional<uint32_t> killed :
       {std::optional<uint32_t>(), std::optional<uint32_t>(1),
        std::optional<uint32_t>(0)}) {
    SCOPED_TRACE(killed.has_value() ? absl::StrCat("ps ", *killed) : "none");
    const LinkLog log;
    ASSERT_NO_FATAL_FAILURE(Start(2, /*asynchronous=*/false, true));
    if (killed.has_value()) {
      Parameters values;
      ASSERT_EQ(Pull(0, &values), absl::OkStatus());
      ASSERT_EQ(Step(&values), absl::OkStatus());
      ps_[*killed]->Signal(SIGKILL);
      ps_[*killed]->Wait(kPatience);
      StartPs(*killed);
      EXPECT_TRUE(absl::IsAborted(Pull(2, &values)));
      ASSERT_TRUE(cluster_->rolled_back());
      ASSERT_EQ(cluster_->AwaitVariables(Soon()), absl::OkStatus());
    }
    const std::string digest = Train();
    End();
    if (!killed.has_value()) undisturbed = digest;
    EXPECT_EQ(digest, undisturbed);
    EXPECT_THAT(log.lines(), SizeIs(killed.has_value() ? 3 : 2));
  }
}

}  // namespace
}  // namespace holdfast
