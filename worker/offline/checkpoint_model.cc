// SPDX-License-Identifier: Apache-2.0
#include "worker/offline/checkpoint_model.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/job/ids.h"
#include "common/tensor/shape.h"
#include "common/tensor/weight_quantization.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenCheckpoint(
    const std::string& path) {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto directory,
      CheckpointDirectory::OpenToRead(path, PosixFileSystem()));
  const auto journal = directory.ReadJournal();
  if (absl::IsNotFound(journal.status())) {
    return CheckpointReader::OpenFolder(path, PosixFileSystem());
  }
  if (!journal.ok()) return journal.status();
  if (journal->checkpoints().empty()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": there is no durable checkpoint yet"));
  }
  return CheckpointReader::Open(directory, *journal->checkpoints().rbegin());
}

absl::StatusOr<CheckpointModel> LoadModel(CheckpointReader* reader,
                                          const proto::Job& job,
                                          const ExampleSpec& examples,
                                          const ModelRegistry& registry,
                                          Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(
      auto model,
      CreateModel(job.model(), examples, job.seed(), backend, registry));
  std::vector<std::vector<float>> values;
  for (const proto::Variable& variable : model->Variables()) {
    const proto::Variable* const stored = reader->FindVariable(variable.name());
    if (stored == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the job's model has a variable \"", variable.name(),
                       "\", which the checkpoint lacks: is it another "
                       "job's?"));
    }
    if (absl::MakeConstSpan(stored->shape()) !=
        absl::MakeConstSpan(variable.shape())) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", variable.name(), "\" has the shape ",
                       ShapeString(variable.shape()), " in the job's model, ",
                       ShapeString(stored->shape()), " in the checkpoint"));
    }
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable.shape()));
    HOLDFAST_RETURN_IF_ERROR(
        reader->Read(variable.name(), /*slot=*/0, 0,
                     absl::MakeSpan(values.emplace_back(elements))));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto rows,
                            CheckpointRows::Load(reader, model->Tables()));
  const GlobalStep step(reader->manifest().name().step());
  return CheckpointModel{std::move(model), Parameters(step, std::move(values)),
                         std::move(rows)};
}

Parameters RoundedToInt8(const Parameters& parameters,
                         const std::vector<proto::Variable>& variables) {
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < variables.size(); ++i) {
    const absl::Span<const float> from = parameters.Of(i);
    std::vector<float>& to = values.emplace_back(from.begin(), from.end());
    const proto::Variable& variable = variables[i];
    if (!IsQuantizable(variable)) continue;
    RoundToQuantized(variable.shape(variable.shape_size() - 1),
                     absl::MakeSpan(to));
  }
  return Parameters(parameters.version, std::move(values));
}

}  // namespace holdfast
