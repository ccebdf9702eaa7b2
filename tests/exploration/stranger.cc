// SPDX-License-Identifier: Apache-2.0
#include "tests/exploration/stranger.h"

#include <variant>

namespace holdfast::exploration {
namespace {

// Greater than any number that a coordinator reaches.
constexpr uint64_t kNumber = 1000;

std::vector<proto::WorkerLife> LivesIn(const sim::World& world) {
  std::vector<proto::WorkerLife> lives;
  for (size_t i = sim::kFirstWorkerProcess; i < world.num_processes(); ++i) {
    const auto process = static_cast<sim::Process>(i);
    if (!world.IsAlive(process)) continue;
    const proto::Sender& sender = world.worker(process)->sender();
    if (sender.incarnation() == 0) continue;
    proto::WorkerLife& life = lives.emplace_back();
    *life.mutable_worker() = sender.task();
    life.set_incarnation(sender.incarnation());
  }
  return lives;
}

proto::RestoreRequest NextGeneration(const proto::RestoreRequest& restore) {
  proto::RestoreRequest request = restore;
  request.clear_checkpoint();
  request.mutable_sender()->set_generation(restore.sender().generation() + 1);
  return request;
}

proto::CommitRequest StepOf(const proto::WorkerLife& life, uint64_t step) {
  proto::CommitRequest request;
  request.set_step(step);
  proto::StepContribution& contribution = *request.add_contributions();
  *contribution.mutable_worker() = life.worker();
  contribution.set_incarnation(life.incarnation());
  contribution.set_sequence(step + 1);
  contribution.set_weight(1);
  contribution.set_share(1);
  request.add_scalars()->set_learning_rate(1);
  return request;
}

proto::AppliedPush FirstPushOf(const proto::WorkerLife& life) {
  proto::AppliedPush push;
  *push.mutable_from() = life;
  push.set_sequence(1);
  push.set_clip_factor(1);
  push.set_examples(1);
  push.add_scalars()->set_learning_rate(1);
  return push;
}

}  // namespace

std::vector<ShardRequest> Forgeries(const sim::World& world, uint32_t ps,
                                    const proto::RestoreRequest& restore) {
  const uint64_t version = world.shard(ps)->version().value();
  std::vector<ShardRequest> all;
  all.emplace_back(NextGeneration(restore));
  proto::EndRequest end;
  end.mutable_state()->set_phase(proto::FAILED);
  end.mutable_state()->set_reason("a stranger says so");
  all.emplace_back(end);
  proto::HoldRequest hold;
  hold.set_number(kNumber);
  all.emplace_back(hold);
  proto::SaveRequest save;
  save.set_number(kNumber);
  save.set_step(version);
  all.emplace_back(save);
  for (const proto::WorkerLife& life : LivesIn(world)) {
    all.emplace_back(StepOf(life, version));
    proto::FenceRequest fence;
    *fence.add_lives() = life;
    all.emplace_back(fence);
    proto::ResolveRequest resolve;
    *resolve.add_lives() = life;
    *resolve.add_applied() = FirstPushOf(life);
    all.emplace_back(resolve);
  }
  for (ShardRequest& request : all) {
    std::visit(
        [&](auto& message) {
          proto::Sender sender = restore.sender();
          sender.clear_receiver_nonce();
          if (message.sender().generation() > sender.generation()) {
            sender.set_generation(message.sender().generation());
          }
          *message.mutable_sender() = sender;
        },
        request);
  }
  return all;
}

}  // namespace holdfast::exploration
