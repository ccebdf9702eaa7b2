// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/training.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

namespace holdfast {
namespace {

constexpr char kDeclaration[] = R"pb(
  variables {
    name: "w"
    shape: [ 3, 2 ]
    dtype: FLOAT32
    initializer { constant { value: 10 } }
  }
  variables {
    name: "frozen"
    shape: 5
    dtype: FLOAT32
    initializer { constant { value: 7 } }
    trainable: false
  }
  variables {
    name: "b"
    dtype: FLOAT32
    initializer { zeros {} }
  }
  variables {
    name: "tail"
    shape: 7
    dtype: FLOAT32
    initializer { constant { value: 10 } }
  }
  optimizers {
    learning_rate: 1
    sgd {}
  }
  consistency { synchronous {} }
)pb";

// In the order of the declaration.
constexpr size_t kSizes[] = {6, 5, 1, 7};
constexpr float kFirst[] = {10, 7, 0, 10};
constexpr bool kTrainable[] = {true, false, true, true};

// Checks all variables against their values after `step` steps.
absl::Status CheckValues(const Parameters& parameters, float mean) {
  for (size_t v = 0; v < std::size(kSizes); ++v) {
    const float change =
        kTrainable[v] ? mean * static_cast<float>(parameters.version.value())
                      : 0;
    const std::vector<float> expected(kSizes[v], kFirst[v] - change);
    if (parameters.Of(v) != expected) {
      return absl::InternalError(absl::StrCat(
          "variable ", v, " of version ", parameters.version.value(),
          " begins with ", parameters.Of(v).front(), ", expected ",
          expected.front()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

proto::Declaration MakeDeclaration(uint64_t total_steps) {
  proto::Declaration declaration;
  CHECK(google::protobuf::TextFormat::ParseFromString(kDeclaration,
                                                      &declaration));
  declaration.set_total_steps(total_steps);
  return declaration;
}

absl::StatusOr<std::unique_ptr<Cluster>> ConnectWorker(
    const ClusterSpec& spec, uint32_t replica, const std::string& digest,
    const Credentials& credentials) {
  HOLDFAST_ASSIGN_OR_RETURN(auto task, spec.ReplicaTask(replica));
  Cluster::Options options{spec};
  options.task = task;
  options.job_digest = digest;
  options.data_digest = "data";
  options.credentials = credentials;
  options.connect_timeout = absl::Seconds(30);
  // One answer may be late by seconds on a busy machine.
  options.recovery_timeout = absl::Seconds(4);
  return Cluster::Connect(std::move(options));
}

absl::StatusOr<std::unique_ptr<Cluster::Push>> PushAndOffer(
    Cluster* cluster, GlobalStep step, uint32_t replica, absl::Time deadline) {
  // The push reads the gradient until AwaitHeld has returned.
  const std::vector<float> gradient(*std::max_element(kSizes, std::end(kSizes)),
                                    GradientOf(replica));
  std::unique_ptr<Cluster::Push> push = cluster->StartPush(step);
  for (size_t v = 0; v < std::size(kSizes); ++v) {
    if (!kTrainable[v]) continue;
    if (absl::Status status =
            push->Add(v, absl::MakeConstSpan(gradient.data(), kSizes[v]));
        !status.ok()) {
      return status;
    }
  }
  HOLDFAST_RETURN_IF_ERROR(push->AwaitHeld(deadline));
  Contribution contribution;
  contribution.seat = replica;
  contribution.examples = 100;
  contribution.loss = 1;
  HOLDFAST_RETURN_IF_ERROR(push->Contribute(contribution));
  return push;
}

absl::Status Train(Cluster* cluster, const TrainOptions& options) {
  const auto soon = [&] { return SteadyNow() + options.patience; };
  if (absl::Status status =
          cluster->Declare(MakeDeclaration(options.total_steps), soon());
      !status.ok()) {
    return status;
  }
  HOLDFAST_RETURN_IF_ERROR(cluster->AwaitVariables(soon()));
  Parameters now;
  if (absl::Status status =
          cluster->StartPull(GlobalStep(0), &now)->Await(soon());
      !status.ok()) {
    return status;
  }
  for (;;) {
    HOLDFAST_RETURN_IF_ERROR(CheckValues(now, options.mean));
    if (now.version.value() >= options.total_steps) break;
    if (options.on_step) options.on_step(now.version);
    HOLDFAST_ASSIGN_OR_RETURN(
        auto push, PushAndOffer(cluster, now.version, options.replica, soon()));
    Parameters next;
    const std::unique_ptr<Cluster::Pull> pull =
        cluster->StartPull(now.version.next(), &next);
    HOLDFAST_ASSIGN_OR_RETURN(const auto outcome, push->Await(soon()));
    // The pull comes first: if the job has failed, it says why.
    HOLDFAST_RETURN_IF_ERROR(pull->Await(soon()));
    if (outcome.verdict != proto::ACCEPTED) {
      return absl::InternalError(
          absl::StrCat("verdict ", proto::Verdict_Name(outcome.verdict)));
    }
    now = std::move(next);
  }
  return cluster->Leave("", soon());
}

}  // namespace holdfast
