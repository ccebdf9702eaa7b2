// SPDX-License-Identifier: Apache-2.0
#include "client/client_test_base.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/tensor/encoding.h"

namespace holdfast::client {
namespace {

struct Declared {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t size;
  bool trainable;
};

const std::vector<Declared>& Variables() {
  static const auto* const kVariables = new std::vector<Declared>{
      {"a", {2, 3}, 6, true}, {"b", {8}, 8, true}, {"c", {}, 1, false}};
  return *kVariables;
}

}  // namespace

const TaskId ClientTest::kWorker = {kWorkerJob, 1};
const TaskId ClientTest::kReader = {kClientJob, 0};

absl::Time Late() { return SteadyNow() + absl::Seconds(30); }

absl::Time After(int milliseconds) {
  return SteadyNow() + absl::Milliseconds(milliseconds);
}

ClientTest::ClientTest() {
  timing.attempt = absl::Seconds(5);
  timing.tensors_attempt = absl::Seconds(5);
  timing.park = absl::Milliseconds(100);
  timing.tell_spent = absl::Hours(1);
  timing.first_report = absl::Milliseconds(40);
  timing.report_every = absl::Milliseconds(20);

  for (int i = 0; i < 2; ++i) {
    ps_.push_back(std::make_unique<FakePs>());
    FakePs& ps = *ps_.back();
    ps.do_register.Do([](int, const auto&, auto* response) {
      response->set_incarnation(kIncarnation);
      response->set_generation(kGeneration);
      response->set_lease_ms(60000);
      return absl::OkStatus();
    });
    ps.renew.Do([&ps](int, const auto& request, auto* response) {
      return ps.TellNews(request, response);
    });
    ps.place.Do([this](int, const auto&, auto* response) {
      AnswerPlacement(response);
      response->set_generation(generation);
      for (proto::Slice& slice : *response->mutable_slices()) {
        if (num_ps == 1 || (trains_on_ps_0 && slice.variable() == "b")) {
          slice.set_ps(0);
        }
      }
      if (asynchronous) {
        response->mutable_declaration()
            ->mutable_consistency()
            ->mutable_asynchronous();
      }
      return absl::OkStatus();
    });
    ps.take_ticket.Do([](int, const auto& request, auto* response) {
      if (request.sequence() != 0) {
        *response->mutable_ticket() = TicketOf(request.sequence());
      }
      return absl::OkStatus();
    });
    ps.apply.Do([](int, const auto&, auto* response) {
      response->set_verdict(proto::ACCEPTED);
      return absl::OkStatus();
    });
    ps.contribute.Do([](int, const auto& request, auto* response) {
      response->set_verdict(proto::ACCEPTED);
      response->set_global_step(request.step() + 1);
      return absl::OkStatus();
    });
    ps.pull.Do([this](int, const auto& request, auto* response) {
      return AnswerPull(
          request, std::max(version.load(), request.min_version()), response);
    });
    ps.push_pull.Do([this](int, const auto& request, auto* response) {
      const uint64_t after = asynchronous ? 0 : request.step() + 1;
      return AnswerPushPull(request, std::max(version.load(), after), response);
    });
  }
  Tell(kGeneration, proto::TRAINING);
}

void ClientTest::Tell(uint64_t generation, proto::JobPhase phase,
                      const std::string& reason, uint64_t durable_step) {
  this->generation = generation;
  proto::RenewLeaseResponse news;
  news.set_generation(generation);
  news.mutable_state()->set_phase(phase);
  news.mutable_state()->set_reason(reason);
  news.set_durable_step(durable_step);
  ps(0).Tell(news);
}

void ClientTest::StopPs() {
  for (const std::unique_ptr<FakePs>& ps : ps_) ps->Stop();
}

std::string ClientTest::PsName(uint32_t index) const {
  return absl::StrCat("/job:ps/task:", index, " (", ps_[index]->address(), ")");
}

Cluster::Options ClientTest::OptionsFor(const TaskId& task) const {
  std::string ps_hosts = ps_[0]->address();
  if (num_ps == 2) absl::StrAppend(&ps_hosts, ",", ps_[1]->address());
  Cluster::Options options{
      *ClusterSpec::FromHosts(ps_hosts, "worker0:1,worker1:1", "")};
  options.task = task;
  options.job_digest = "job";
  options.data_digest = "data";
  options.connect_timeout = absl::Seconds(30);
  return options;
}

std::unique_ptr<Cluster> ClientTest::ConnectReady(
    const Cluster::Options& options) const {
  absl::StatusOr<std::unique_ptr<Cluster>> cluster = Connect(options, timing);
  if (!cluster.ok()) {
    ADD_FAILURE() << cluster.status();
    return nullptr;
  }
  const absl::Status status = (*cluster)->AwaitVariables(Late());
  EXPECT_TRUE(status.ok()) << status;
  return *std::move(cluster);
}

float ClientTest::Value(size_t variable, uint64_t element, uint64_t version) {
  return static_cast<float>(version * 1000 + variable * 100 + element);
}

std::vector<std::vector<float>> ClientTest::ValuesAt(uint64_t version) {
  std::vector<std::vector<float>> values;
  for (size_t v = 0; v < Variables().size(); ++v) {
    std::vector<float>& of_variable = values.emplace_back();
    for (uint64_t e = 0; e < Variables()[v].size; ++e) {
      of_variable.push_back(Value(v, e, version));
    }
  }
  return values;
}

float ClientTest::LossScaleAt(uint64_t version) {
  return static_cast<float>(uint64_t{1} << version % 24);
}

absl::Status ClientTest::AnswerPull(const proto::PullRequest& request,
                                    uint64_t version,
                                    proto::PullResponse* response) {
  response->set_generation(kGeneration);
  response->set_version(version);
  response->set_loss_scale(LossScaleAt(version));
  for (const proto::ReadRange& range : request.ranges()) {
    for (size_t v = 0; v < Variables().size(); ++v) {
      const Declared& variable = Variables()[v];
      if (variable.name != range.variable()) continue;
      proto::TensorPart* part = response->add_tensors();
      part->set_variable(variable.name);
      part->mutable_shape()->Add(variable.shape.begin(), variable.shape.end());
      part->set_dtype(proto::FLOAT32);
      part->set_begin(range.begin());
      for (uint64_t e = 0; e < range.size(); ++e) {
        const float value = Value(v, range.begin() + e, version);
        part->mutable_data()->append(reinterpret_cast<const char*>(&value),
                                     sizeof(value));
      }
      if (range.encoding() == proto::EXACT) continue;
      const EncodedElements elements =
          Encode(range.encoding(), Buffer::FromString(part->data()));
      part->set_encoding(elements.encoding);
      part->mutable_data()->resize(elements.data.size());
      elements.data.CopyTo(part->mutable_data()->data());
    }
  }
  return absl::OkStatus();
}

absl::Status ClientTest::AnswerPushPull(const proto::PushPullRequest& request,
                                        uint64_t version,
                                        proto::PushPullResponse* response) {
  proto::PullRequest ranges;
  *ranges.mutable_ranges() = request.ranges();
  proto::PullResponse values;
  const absl::Status status = AnswerPull(ranges, version, &values);
  response->set_generation(kGeneration);
  response->set_verdict(proto::ACCEPTED);
  response->set_global_step(request.step() + 1);
  response->set_version(version);
  response->set_loss_scale(LossScaleAt(version));
  *response->mutable_tensors() = std::move(*values.mutable_tensors());
  return status;
}

proto::Ticket ClientTest::TicketOf(uint64_t sequence) {
  proto::Ticket ticket;
  ticket.set_index(sequence + 100);
  ticket.add_scalars()->set_learning_rate(0.5f / sequence);
  ticket.set_loss_scale(LossScaleAt(sequence));
  return ticket;
}

Ticket ClientTest::Take(Cluster* cluster) {
  const auto ticket = cluster->StartTakeTicket()->Await(Late());
  if (!ticket.ok() || !ticket->has_value()) {
    ADD_FAILURE() << "no ticket: " << ticket.status();
    return Ticket();
  }
  return **ticket;
}

void ClientTest::AnswerPlacement(proto::GetPlacementResponse* response) {
  response->set_generation(kGeneration);
  response->mutable_state()->set_phase(proto::TRAINING);
  response->set_ready(true);
  for (const Declared& declared : Variables()) {
    proto::Variable* variable =
        response->mutable_declaration()->add_variables();
    variable->set_name(declared.name);
    variable->mutable_shape()->Add(declared.shape.begin(),
                                   declared.shape.end());
    variable->set_dtype(proto::FLOAT32);
    variable->set_trainable(declared.trainable);
  }
  const auto slice = [&](const std::string& variable, uint64_t begin,
                         uint64_t size, uint32_t ps) {
    proto::Slice* slice = response->add_slices();
    slice->set_variable(variable);
    slice->set_begin(begin);
    slice->set_size(size);
    slice->set_ps(ps);
  };
  slice("a", 0, 6, 0);
  slice("b", 0, 5, 0);
  slice("b", 5, 3, 1);
  slice("c", 0, 1, 1);
}

}  // namespace holdfast::client
