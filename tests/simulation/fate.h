// What befalls a cluster in a schedule, by its seed.
#ifndef HOLDFAST_TESTS_SIMULATION_FATE_H_
#define HOLDFAST_TESTS_SIMULATION_FATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/simulation/simulation.h"

namespace holdfast {

// What may happen in a schedule beside what messages suffer.
struct Troubles {
  // At most so many.
  int mishaps = 3;
  // Checkpoints are found damaged.
  bool damage = false;
  // When all is started anew, it may be with another number of ps.
  bool resize = false;
  // A share takes up to 40 min, beyond all timeouts, but moves all the time.
  bool slow_disk = false;
};

// Brings trouble to a cluster, and whoever died back into it.
class Fate {
 public:
  using Hire = std::function<std::unique_ptr<SimulatedWorker>(uint32_t index,
                                                              uint64_t nonce)>;

  // `present` of `num_workers` are there at the beginning.
  Fate(SimulatedCluster* cluster, const Troubles& troubles,
       uint32_t num_workers, uint32_t present, Hire hire)
      : cluster_(cluster),
        troubles_(troubles),
        hire_(std::move(hire)),
        left_(cluster->scheduler.Random(troubles.mishaps + 1)),
        workers_(num_workers) {
    for (uint32_t i = 0; i < num_workers; ++i) {
      Bring(i, i < present ? absl::Seconds(1) : absl::Seconds(15));
    }
    cluster->Start();
    LookAfterWorkers();
  }

  // Until the job has ended, and everybody knows.
  void Run() {
    const absl::Time bound =
        cluster_->scheduler.Now() + (troubles_.slow_disk ? 24 : 1) * kLongest;
    while (!HasEnded() && cluster_->scheduler.Now() < bound &&
           !::testing::Test::HasFailure() &&
           cluster_->phase() != proto::FAILED) {
      ASSERT_TRUE(cluster_->scheduler.RunOne());
      if (left_ > 0 && cluster_->scheduler.Random(kEventsBetween) == 0) {
        --left_;
        Strike();
      }
    }
    ASSERT_NE(cluster_->phase(), proto::FAILED)
        << cluster_->coordinator->state().reason();
    ASSERT_LT(cluster_->scheduler.Now(), bound)
        << "hangs: "
        << (cluster_->coordinator == nullptr
                ? "no coordinator"
                : cluster_->Status().DebugString());
    // What is late comes after the end, and who died is found to be dead.
    left_ = 0;
    const absl::Time settled = cluster_->scheduler.Now() + absl::Seconds(30);
    while (cluster_->scheduler.Now() < settled) cluster_->scheduler.RunOne();
  }

  // Some checkpoint was.
  bool damaged() const { return damaged_; }

 private:
  // Of all kinds, ticks too.
  static constexpr uint64_t kEventsBetween = 250;
  // In which a job has to end, whatever happens to it.
  static constexpr absl::Duration kLongest = absl::Hours(1);

  bool HasEnded() const {
    if (cluster_->coordinator == nullptr ||
        !cluster_->coordinator->finished()) {
      return false;
    }
    for (const auto& worker : workers_) {
      if (!worker->left()) return false;
    }
    return true;
  }

  absl::Duration Within(absl::Duration longest) {
    return cluster_->scheduler.RandomDuration(longest);
  }

  void Bring(uint32_t index, absl::Duration longest) {
    if (workers_[index] != nullptr) {
      past_workers_.push_back(std::move(workers_[index]));
    }
    workers_[index] = hire_(index, next_nonce_++);
    cluster_->scheduler.After(Within(longest),
                              [worker = workers_[index].get()] {
                                if (!worker->gone()) worker->Start();
                              });
  }

  // Another takes the place of one that has died or was shut out.
  void LookAfterWorkers() {
    for (uint32_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i]->gone() && !workers_[i]->left()) {
        Bring(i, absl::Seconds(8));
      }
    }
    cluster_->scheduler.After(absl::Milliseconds(300),
                              [this] { LookAfterWorkers(); });
  }

  void RestartPs(uint32_t ps, absl::Duration longest = absl::Seconds(10)) {
    cluster_->scheduler.After(Within(longest), [this, ps] {
      if (ps < cluster_->num_ps() && !cluster_->IsAlive(ps)) {
        cluster_->StartPs(ps);
      }
    });
  }

  void StopPs(uint32_t ps) {
    if (!cluster_->IsAlive(ps)) return;
    if (ps > 0 && cluster_->scheduler.Random(2) == 0) cluster_->LeavePs(ps);
    cluster_->KillPs(ps);
    if (cluster_->scheduler.Random(3) > 0) return RestartPs(ps);
    // It is back before anybody knows, and hears what its earlier life was
    // told.
    RestartPs(ps, absl::Seconds(1));
    cluster_->scheduler.After(Within(absl::Seconds(4)),
                              [this, ps] { cluster_->RepeatRestore(ps); });
  }

  void StopAll() {
    for (uint32_t ps = 0; ps < cluster_->num_ps(); ++ps) {
      if (cluster_->IsAlive(ps)) cluster_->KillPs(ps);
    }
    for (auto& worker : workers_) worker->Die();
    if (troubles_.resize) {
      cluster_->SetNumPs(1 + cluster_->scheduler.Random(3));
      // Those that have left would otherwise be waited for: the cluster is
      // another one.
      for (uint32_t i = 0; i < workers_.size(); ++i) {
        Bring(i, absl::Seconds(8));
      }
    }
    for (uint32_t ps = 0; ps < cluster_->num_ps(); ++ps) RestartPs(ps);
  }

  // The last checkpoint is spoiled, where one stands before it to fall back on.
  void DamageOne() {
    const auto& kept = cluster_->disk->journal().checkpoints();
    if (kept.size() < 2 || cluster_->disk->journal().finished()) return;
    const SimulatedDisk::Name last =
        SimulatedDisk::NameOf(kept[kept.size() - 1]);
    const SimulatedDisk::Name before =
        SimulatedDisk::NameOf(kept[kept.size() - 2]);
    if (!cluster_->disk->IsWhole(last) || !cluster_->disk->IsWhole(before) ||
        !cluster_->disk->MayBeRead(before)) {
      return;
    }
    cluster_->disk->Damage(last, cluster_->scheduler.Random(2) == 0);
    damaged_ = true;
  }

  void AskForCheckpoint() {
    proto::CheckpointRequest request;
    request.set_wait_ms(2000);
    cluster_->network.Call<proto::CheckpointRequest, proto::CheckpointResponse>(
        [cluster = cluster_](auto r, auto done) {
          cluster->AtCoordinator(&Coordinator::Checkpoint, r, std::move(done));
        },
        request, [](const auto&) {});
  }

  void Strike() {
    Scheduler& scheduler = cluster_->scheduler;
    SimulatedWorker& worker = *workers_[scheduler.Random(workers_.size())];
    const uint32_t ps = scheduler.Random(cluster_->num_ps());
    switch (scheduler.Random(10)) {
      case 0:
      case 1:
        if (!worker.left()) worker.Die();
        return;
      case 2:
        return worker.FallSilent(Within(absl::Seconds(20)));
      case 3:
      case 4:
      case 5:
        if (troubles_.damage) DamageOne();
        return StopPs(ps);
      case 6:
      case 7:
        if (troubles_.damage) DamageOne();
        return StopPs(0);
      case 8:
        if (troubles_.damage) DamageOne();
        return StopAll();
      case 9:
        return AskForCheckpoint();
    }
  }

  SimulatedCluster* const cluster_;
  const Troubles troubles_;
  const Hire hire_;
  int left_;
  bool damaged_ = false;
  uint64_t next_nonce_ = 1;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::vector<std::unique_ptr<SimulatedWorker>> past_workers_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_FATE_H_
