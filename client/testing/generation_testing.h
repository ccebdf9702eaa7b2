// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_TESTING_GENERATION_TESTING_H_
#define HOLDFAST_CLIENT_TESTING_GENERATION_TESTING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/generation_state.h"
#include "client/push_facts.h"
#include "client/testing/fake_transport.h"
#include "common/tensor/buffer.h"
#include "gtest/gtest.h"

namespace holdfast::client {

// A generation of a job, over a transport that the test operates by hand:
//
//   0  "a"  [2]  on ps 0
//   1  "b"  [4]  elements 0 and 1 on ps 0, the rest on the last ps
//
// With two ps, and parts of 8 bytes, a push is b[0,2) and a[0,2) for ps 0, and
// b[2,4) for ps 1; a pull a[0,2) and b[0,2), and b[2,4).
class GenerationTest : public ::testing::Test {
 protected:
  static proto::GetPlacementResponse PlacementOf(uint32_t num_ps,
                                                 bool asynchronous) {
    proto::GetPlacementResponse placement;
    placement.set_ready(true);
    placement.set_generation(2);
    proto::Declaration& declaration = *placement.mutable_declaration();
    const std::vector<std::pair<std::string, int>> variables = {{"a", 2},
                                                                {"b", 4}};
    for (const auto& [name, size] : variables) {
      proto::Variable& variable = *declaration.add_variables();
      variable.set_name(name);
      variable.add_shape(size);
      variable.set_dtype(proto::FLOAT32);
    }
    if (asynchronous) {
      declaration.mutable_consistency()->mutable_asynchronous();
    }
    const auto add = [&](const std::string& name, uint64_t begin, uint32_t ps) {
      proto::Slice& slice = *placement.add_slices();
      slice.set_variable(name);
      slice.set_begin(begin);
      slice.set_size(2);
      slice.set_ps(ps);
    };
    add("a", 0, 0);
    add("b", 0, 0);
    add("b", 2, num_ps - 1);
    return placement;
  }

  static proto::Sender SenderOf(uint64_t generation) {
    proto::Sender sender;
    sender.mutable_task()->set_job("worker");
    sender.mutable_task()->set_index(1);
    sender.set_incarnation(3);
    sender.set_generation(generation);
    return sender;
  }
  static std::vector<std::string> PsNames(uint32_t num_ps) {
    std::vector<std::string> names;
    for (uint32_t ps = 0; ps < num_ps; ++ps) {
      names.push_back(absl::StrCat("ps ", ps));
    }
    return names;
  }

  // Adds a table to the generations made from now on.
  void AddTable(const std::string& name, uint32_t row_length,
                uint32_t max_rows_per_push) {
    proto::EmbeddingTable& table = tables_.emplace_back();
    table.set_name(name);
    table.set_row_length(row_length);
    table.set_max_rows_per_push(max_rows_per_push);
  }

  // The generations made from now on have no variables.
  void RemoveVariables() { has_variables_ = false; }

  // `sent_part_bytes`: the size limit of parts when nothing is lent; 0:
  // `part_bytes`.
  std::shared_ptr<GenerationState> MakeGeneration(uint32_t num_ps,
                                                  int64_t part_bytes,
                                                  bool asynchronous = false,
                                                  int64_t sent_part_bytes = 0) {
    if (sent_part_bytes == 0) sent_part_bytes = part_bytes;
    Context::Options options;
    options.task = {kWorkerJob, 1};
    options.ps_names = PsNames(num_ps);
    auto context = std::make_shared<Context>(std::move(options), &transport_);
    SessionNews news;
    news.sender = SenderOf(2);
    context->Hear(news);
    proto::GetPlacementResponse placement = PlacementOf(num_ps, asynchronous);
    if (!has_variables_) {
      placement.mutable_declaration()->clear_variables();
      placement.clear_slices();
    }
    for (const proto::EmbeddingTable& table : tables_) {
      *placement.mutable_declaration()->add_tables() = table;
    }
    const absl::StatusOr<Layout> layout = Layout::Make(placement, num_ps);
    EXPECT_TRUE(layout.ok()) << layout.status();
    return std::make_shared<GenerationState>(
        context, news.sender,
        Placement{*layout, PlanPush(*layout, part_bytes),
                  PlanPull(*layout, part_bytes),
                  PlanPush(*layout, sent_part_bytes),
                  PlanPull(*layout, sent_part_bytes)});
  }

  // Push 1, of step 7; asynchronous: with a ticket, on version 7 of each ps.
  static PushFacts MakePush(std::shared_ptr<GenerationState> generation) {
    PushFacts push;
    push.generation = std::move(generation);
    absl::MutexLock lock(&push.context().mutex);
    const bool asynchronous = push.asynchronous();
    push.sequence = push.generation->sequences.Take(
        asynchronous ? std::nullopt : std::optional(GlobalStep(7)));
    push.steps.assign(push.context().num_ps(), GlobalStep(7));
    if (asynchronous) {
      push.ticket.emplace();
      push.ticket->sequence = push.sequence;
      push.ticket->scalars.emplace_back().set_learning_rate(0.5f);
      push.ticket->receipt = 99;
    }
    return push;
  }

  static std::vector<float> FloatsOf(const TensorPiece& piece) {
    std::vector<float> values(piece.data.size() / sizeof(float));
    piece.data.CopyTo(reinterpret_cast<char*>(values.data()));
    return values;
  }
  // A piece as a shard sends it.
  static TensorPiece PieceOf(const proto::ReadRange& range, float value) {
    TensorPiece piece;
    piece.variable = range.variable();
    piece.shape = {range.variable() == "a" ? 2 : 4};
    piece.begin = range.begin();
    std::string bytes;
    for (uint64_t e = 0; e < range.size(); ++e) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    piece.data = Buffer::FromString(std::move(bytes));
    return piece;
  }

  FakeTransport transport_;
  std::vector<proto::EmbeddingTable> tables_;
  bool has_variables_ = true;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TESTING_GENERATION_TESTING_H_
