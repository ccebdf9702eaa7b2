// SPDX-License-Identifier: Apache-2.0

// Shared by the coordinator's tests of what happens when a shard, or the
// coordinator itself, has lost its state.
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_TESTING_COORDINATOR_RESTORE_TESTING_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_TESTING_COORDINATOR_RESTORE_TESTING_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {

class CoordinatorRestoreTest : public CoordinatorTest {
 protected:
  // The time between two ticks of Pass().
  static constexpr absl::Duration kTick = absl::Milliseconds(250);

  static absl::Status Damaged() {
    return absl::DataLossError("block 3 does not fit its CRC32C");
  }
  // Two ps and two workers, with a checkpoint directory.
  void StartWithArchive(
      const proto::Declaration& declaration = MakeDeclaration()) {
    MakeWithArchive();
    StartTraining(declaration);
  }
  void TrainStep(uint64_t step) {
    OfferBoth(step);
    AckCommits();
  }
  // Takes a checkpoint of the current step, and puts it on disk.
  void SaveNow() {
    Ask(proto::CheckpointRequest());
    PuppetLinks::AnswerAll(links_->holds);
    FinishSave();
  }
  // A new process takes the place of ps 1. Returns whether it has its answer.
  bool ReplacePs(uint64_t nonce = 2) {
    Leave(Ps(1));
    const auto answer = Register(Ps(1), nonce);
    if (!answer.status().ok()) return false;
    incarnations_[Ps(1)] = answer->incarnation();
    return true;
  }
  // The Restore that was sent to shard 1.
  proto::RestoreRequest Restored() const {
    for (const auto& sent : links_->restores) {
      if (sent.ps == 1) return sent.request;
    }
    ADD_FAILURE() << "nothing was sent to shard 1";
    return proto::RestoreRequest();
  }
  // The shard reports its progress.
  void NotYetRestored(uint32_t ps, uint64_t done, uint64_t total) {
    proto::RestoreResponse response;
    response.set_pending(true);
    response.mutable_progress()->set_bytes_done(done);
    response.mutable_progress()->set_bytes_total(total);
    PuppetLinks::Answer(links_->restores, ps, absl::OkStatus(), response);
  }
  void AckRestores() { PuppetLinks::AnswerAll(links_->restores); }
  // The number of messages to shards that have not been answered.
  size_t Sent() const {
    return links_->restores.size() + links_->commits.size() +
           links_->fences.size() + links_->resolves.size() +
           links_->holds.size() + links_->saves.size() + links_->awaits.size() +
           links_->ends.size();
  }
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_TESTING_COORDINATOR_RESTORE_TESTING_H_
