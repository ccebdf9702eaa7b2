#include "common/checkpoint/checkpoint_testing.h"

#include <numeric>

#include "absl/types/span.h"
#include "common/checkpoint/data_file.h"
#include "common/shape.h"

namespace holdfast {

proto::CheckpointName TestName(uint64_t generation, uint64_t step) {
  proto::CheckpointName name;
  name.set_generation(generation);
  name.set_step(step);
  return name;
}

std::vector<TestVariable> SmallVariables() {
  return {{"dense/kernel", {5, 3}, 2},
          {"dense/bias", {3}, 2},
          {"scale", {}, 0},
          {"empty", {0, 4}, 1}};
}

proto::Manifest TestManifest(const proto::CheckpointName& name,
                             const std::vector<TestVariable>& variables) {
  proto::Manifest manifest;
  *manifest.mutable_name() = name;
  for (const TestVariable& variable : variables) {
    proto::Variable* declared = manifest.mutable_declaration()->add_variables();
    declared->set_name(variable.name);
    declared->mutable_shape()->Add(variable.shape.begin(),
                                   variable.shape.end());
    declared->set_dtype(proto::FLOAT32);
  }
  manifest.mutable_position()->set_step(name.step());
  return manifest;
}

TestState MakeTestState(const std::vector<TestVariable>& variables,
                        uint32_t seed) {
  TestState state;
  float first = 1000.0f * seed;
  for (const TestVariable& variable : variables) {
    auto& arrays = state[variable.name];
    for (uint32_t slot = 0; slot <= variable.slots; ++slot) {
      arrays.emplace_back(*NumElements(variable.shape));
      std::iota(arrays.back().begin(), arrays.back().end(), first);
      first += 100;
    }
  }
  return state;
}

absl::Status SaveTestCheckpoint(const CheckpointDirectory& directory,
                                const proto::CheckpointName& name,
                                const std::vector<TestVariable>& variables,
                                uint32_t num_ps, uint32_t seed) {
  const TestState state = MakeTestState(variables, seed);
  proto::Manifest manifest = TestManifest(name, variables);
  for (uint32_t ps = 0; ps < num_ps; ++ps) {
    auto writer = DataFileWriter::Create(directory, name, ps, num_ps);
    if (!writer.ok()) return writer.status();
    uint32_t next_ps = 0;
    for (const auto& [variable, arrays] : state) {
      for (uint32_t slot = 0; slot < arrays.size(); ++slot) {
        const uint64_t elements = arrays[slot].size();
        const uint64_t parts = 2 * num_ps;
        for (uint64_t part = 0; part < parts; ++part) {
          if (next_ps++ % num_ps != ps) continue;
          const uint64_t begin = elements * part / parts;
          const uint64_t size = elements * (part + 1) / parts - begin;
          const auto stretch =
              absl::MakeConstSpan(arrays[slot]).subspan(begin, size);
          absl::Status status = (*writer)->Begin(variable, slot, begin, size);
          if (status.ok()) status = (*writer)->Append(stretch.first(size / 2));
          if (status.ok())
            status = (*writer)->Append(stretch.subspan(size / 2));
          if (!status.ok()) return status;
        }
      }
    }
    auto file = (*writer)->Finish();
    if (!file.ok()) return file.status();
    *manifest.add_files() = *std::move(file);
  }
  return directory.WriteManifest(manifest);
}

absl::StatusOr<TestState> LoadTestCheckpoint(
    const CheckpointDirectory& directory, const proto::CheckpointName& name) {
  const auto reader = CheckpointReader::Open(directory, name);
  if (!reader.ok()) return reader.status();
  TestState state;
  for (const proto::Variable& variable :
       (*reader)->manifest().declaration().variables()) {
    auto& arrays = state[variable.name()];
    for (uint32_t slot = 0; slot <= (*reader)->num_slots(variable.name());
         ++slot) {
      arrays.emplace_back(*NumElements(variable.shape()));
      const absl::Status read = (*reader)->Read(variable.name(), slot, 0,
                                                absl::MakeSpan(arrays.back()));
      if (!read.ok()) return read;
    }
  }
  return state;
}

}  // namespace holdfast
