// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_CLIENT_TEST_BASE_H_
#define HOLDFAST_CLIENT_CLIENT_TEST_BASE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "client/connect.h"
#include "common/rpc/testing/fake_ps.h"
#include "gtest/gtest.h"

namespace holdfast::client {

// A cluster of two puppet ps, and a client of it as /job:worker/task:1.
//
// The job has these variables. By default the puppets answer as if all went
// well: pulls with the values of `version`, or of min_version if that is more;
// pushes with an acknowledgment, contributions and applications with ACCEPTED,
// requests for a ticket with TicketOf their sequence; and PushPull with all of
// these.
//
//   0  "a"  [2,3]  on ps 0
//   1  "b"  [8]    elements 0 to 5 on ps 0, the rest on ps 1
//   2  "c"  []     on ps 1, not trainable
//
// With parts of 16 bytes a push is, in the order of sending:
//   ps 0: b[0,4)   b[4,5)   a[0,4)   a[4,6)
//   ps 1: b[5,8)
class ClientTest : public ::testing::Test {
 public:
  static constexpr uint64_t kIncarnation = 5;
  static constexpr uint64_t kGeneration = 2;

  ClientTest();

  FakePs& ps(uint32_t index) { return *ps_[index]; }
  // Waits until no script is running. Must be called before anything that a
  // script refers to goes out of scope, if a call may still be in progress.
  void StopPs();
  // Sets what the coordinator says about the job; sessions hear it at once.
  void Tell(uint64_t generation, proto::JobPhase phase,
            const std::string& reason = "", uint64_t durable_step = 0);
  // "/job:ps/task:1 (127.0.0.1:4001)".
  std::string PsName(uint32_t index) const;

  // Options for the cluster of the puppets.
  Cluster::Options OptionsFor(const TaskId& task) const;
  // Connects, and waits for the variables. The test fails if that fails.
  std::unique_ptr<Cluster> ConnectReady(const Cluster::Options& options) const;
  std::unique_ptr<Cluster> ConnectReady() const {
    return ConnectReady(OptionsFor(kWorker));
  }

  // The value of an element at a version: no two are equal.
  static float Value(size_t variable, uint64_t element, uint64_t version);
  // All values at a version.
  static std::vector<std::vector<float>> ValuesAt(uint64_t version);
  // The loss scale at a version; differs between neighboring versions.
  static float LossScaleAt(uint64_t version);
  // Fills in what `request` asks for, at `version`.
  static absl::Status AnswerPull(const proto::PullRequest& request,
                                 uint64_t version,
                                 proto::PullResponse* response);
  // Answers ACCEPTED, with what `request` asks for, at `version`.
  static absl::Status AnswerPushPull(const proto::PushPullRequest& request,
                                     uint64_t version,
                                     proto::PushPullResponse* response);
  static proto::Ticket TicketOf(uint64_t sequence);
  // Takes a ticket; the test fails if there is none.
  static Ticket Take(Cluster* cluster);
  // The placement of the variables above.
  static void AnswerPlacement(proto::GetPlacementResponse* response);

  // The timeouts that ConnectReady uses. They are short, so that tests are
  // fast, except that tell_spent is too long for a spent ticket to be reported
  // in a separate call.
  Timing timing;
  // The job's mode, as clients hear it.
  std::atomic<bool> asynchronous = false;
  // 2, or 1: then all variables are on ps 0.
  std::atomic<int> num_ps = 2;
  // Whether all trainable variables are on ps 0, and ps 1 has only "c".
  std::atomic<bool> trains_on_ps_0 = false;
  // The generation of the placement.
  std::atomic<uint64_t> generation = kGeneration;
  // The newest version of the puppets.
  std::atomic<uint64_t> version = 0;

  static const TaskId kWorker;
  static const TaskId kReader;

 private:
  std::vector<std::unique_ptr<FakePs>> ps_;
};

// A deadline that should not be reached.
absl::Time Late();
absl::Time After(int milliseconds);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CLIENT_TEST_BASE_H_
