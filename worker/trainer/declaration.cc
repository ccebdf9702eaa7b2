// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/declaration.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/initializer.h"

namespace holdfast {
namespace {

// EmbeddingTable.max_rows_per_push.
constexpr double kMaxRowsPerPush = 1e9;

// Checks what a ps would otherwise refuse only when the job is declared, while
// it still is only the user's mistake. The rules are those of the ps
// (docs/protocol/tables.md, "Declaration").
absl::Status CheckTable(const proto::EmbeddingTable& table,
                        const proto::Optimizer& optimizer) {
  const auto initializer = RowInitializer::Create(
      table.initializer(), table.row_length(), table.name(), /*seed=*/0);
  if (!initializer.ok()) return initializer.status();
  switch (optimizer.update_case()) {
    case proto::Optimizer::kSgd:
    case proto::Optimizer::kMomentum:
    case proto::Optimizer::kAdagrad:
    case proto::Optimizer::kAdam:
    case proto::Optimizer::kFtrl:
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "table \"", table.name(),
          "\": its optimizer, which by default is the job's, must be sgd, "
          "momentum, adagrad, adam or ftrl"));
  }
  if (table.row_wise() && !optimizer.has_adagrad()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table \"", table.name(), "\": row_wise is only for adagrad"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<proto::Declaration> MakeDeclaration(
    const proto::Job& job, absl::Span<const proto::Variable> variables,
    const Replicas& replicas, uint64_t num_examples) {
  std::vector<std::string> names;
  for (const proto::Variable& variable : variables) {
    names.push_back(variable.name());
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto compression,
                            ResolveCompression(job, names));
  proto::Declaration declaration;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].initializer().has_given()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the model's variable \"", variables[i].name(),
          "\": ps_worker cannot give its initial values, only a worker "
          "of your own (client/cluster.h); or choose another initializer"));
    }
    proto::Variable& variable = *declaration.add_variables();
    variable = variables[i];
    variable.set_optimizer(0);
    // Moving averages are not compressed.
    if (job.compression_size() > 0 && !variable.has_moving_average()) {
      *variable.mutable_compression() = compression[i];
    }
  }
  *declaration.add_optimizers() = job.optimizer();
  *declaration.mutable_consistency() = job.consistency();
  FillIn(replicas, declaration.mutable_consistency());
  declaration.set_placement(job.placement());
  declaration.set_seed(job.seed());
  declaration.set_total_steps(TotalSteps(job, num_examples, replicas));
  declaration.set_total_tickets(TotalTickets(job, num_examples, replicas));
  declaration.set_examples(replicas.examples);
  if (job.has_timeouts()) *declaration.mutable_timeouts() = job.timeouts();
  if (job.has_clipping()) *declaration.mutable_clipping() = job.clipping();
  if (job.has_partitioner()) {
    *declaration.mutable_partitioner() = job.partitioner();
  }
  if (job.precision().has_float16()) {
    *declaration.mutable_loss_scale() = job.precision().float16().loss_scale();
  }
  if (job.has_max_consecutive_not_finite()) {
    declaration.set_max_consecutive_not_finite(
        job.max_consecutive_not_finite());
  }
  *declaration.mutable_checkpoints() = job.checkpoints();
  if (job.has_evaluation()) {
    *declaration.mutable_evaluation() = job.evaluation();
  }
  if (job.has_lost_workers()) {
    *declaration.mutable_lost_workers() = job.lost_workers();
  }
  return declaration;
}

absl::Status AddTables(const proto::Job& job,
                       absl::Span<const ModelTable> tables,
                       const ExampleSpec& examples,
                       proto::Declaration* declaration) {
  for (const ModelTable& table : tables) {
    proto::EmbeddingTable& declared = *declaration->add_tables();
    declared = table.declared;
    HOLDFAST_RETURN_IF_ERROR(
        CheckTable(declared, table.optimizer.value_or(job.optimizer())));
    int64_t ids = 0;
    for (const int field : table.fields) {
      if (field < 0 || field >= static_cast<int>(examples.id_fields.size())) {
        return absl::InvalidArgumentError(absl::StrCat(
            "table \"", declared.name(), "\": the model uses the ids of field ",
            field, "; the examples have ", examples.id_fields.size()));
      }
      ids += examples.id_fields[field].max_ids;
    }
    if (declared.max_rows_per_push() == 0) {
      declared.set_max_rows_per_push(static_cast<uint32_t>(std::min(
          static_cast<double>(job.batch_size()) * static_cast<double>(ids),
          kMaxRowsPerPush)));
    }
    declared.set_optimizer(0);
    if (!table.optimizer.has_value()) continue;
    declared.set_optimizer(declaration->optimizers_size());
    *declaration->add_optimizers() = *table.optimizer;
  }
  return absl::OkStatus();
}

proto::DeclaredJob DeclareJob(const proto::Job& job,
                              const ExampleSpec& examples) {
  proto::DeclaredJob declared;
  declared.set_job_file(SharedJob(job));
  declared.mutable_example_shape()->Add(examples.shape.begin(),
                                        examples.shape.end());
  declared.set_num_classes(examples.num_classes.value_or(0));
  declared.set_num_targets(examples.num_targets);
  for (const IdField& field : examples.id_fields) {
    proto::DeclaredJob::IdField* const told = declared.add_id_fields();
    told->set_name(field.name);
    told->set_max_ids(field.max_ids);
    told->set_origin(field.origin);
  }
  declared.set_id_values(examples.id_values);
  return declared;
}

}  // namespace holdfast
