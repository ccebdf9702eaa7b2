// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/testing/checkpoint_testing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/encoding.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/shape.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

// A row's or candidate's contents: id, step, count and floats.
std::vector<float> TestRow(const TestTable& table, uint64_t id, uint32_t seed) {
  std::vector<float> row = {static_cast<float>(id),
                            static_cast<float>(10 * seed + id % 3),
                            static_cast<float>(seed + 1)};
  if (id >= table.rows) return row;
  const uint32_t floats = table.row_length * (1 + table.slots);
  for (uint32_t i = 0; i < floats; ++i)
    row.push_back(1000 * seed + 10 * id + i);
  return row;
}

// Appends its encoding (docs/formats/checkpoint.md).
void AppendRow(const std::vector<float>& row, std::string* bytes) {
  AppendFixed64(static_cast<uint64_t>(row[0]), bytes);
  AppendFixed64(
      static_cast<uint64_t>(row[1]) << 24 | static_cast<uint64_t>(row[2]),
      bytes);
  bytes->append(reinterpret_cast<const char*>(&row[3]),
                (row.size() - 3) * sizeof(float));
}

absl::Status WriteTable(const TestTable& table, uint32_t seed,
                        BucketRange buckets, DataFileWriter* writer) {
  absl::Status status = writer->BeginRows(
      {table.name, table.row_length * (1 + table.slots), buckets});
  // Sorted by bucket, then by id: rows come first, because their ids are lower.
  std::vector<std::pair<uint32_t, uint64_t>> ids;
  for (uint64_t id = 0; id < table.rows + table.candidates; ++id) {
    ids.emplace_back(BucketOfRow(id), id);
  }
  std::sort(ids.begin(), ids.end());
  auto next = std::lower_bound(ids.begin(), ids.end(),
                               std::pair(buckets.begin, uint64_t{0}));
  for (uint32_t b = buckets.begin; status.ok() && b < buckets.end; ++b) {
    std::string bytes;
    StoredBucket contents;
    for (; next != ids.end() && next->first == b; ++next) {
      AppendRow(TestRow(table, next->second, seed), &bytes);
      ++(next->second < table.rows ? contents.rows : contents.candidates);
    }
    status = writer->AppendBucket(contents, bytes);
  }
  return status;
}

// Writes this ps's share of the variables, which have 2 `num_ps` extents per
// array.
absl::Status WriteVariables(const TestState& state, uint32_t ps,
                            uint32_t num_ps, DataFileWriter* writer) {
  uint32_t next_ps = 0;
  for (const auto& [variable, arrays] : state) {
    for (uint32_t slot = 0; slot < arrays.size(); ++slot) {
      const uint64_t elements = arrays[slot].size();
      const uint64_t parts = 2 * num_ps;
      for (uint64_t part = 0; part < parts; ++part) {
        if (next_ps++ % num_ps != ps) continue;
        const uint64_t begin = elements * part / parts;
        const uint64_t size = elements * (part + 1) / parts - begin;
        const auto extent =
            absl::MakeConstSpan(arrays[slot]).subspan(begin, size);
        absl::Status status = writer->Begin(variable, slot, begin, size);
        if (status.ok()) status = writer->Append(extent.first(size / 2));
        if (status.ok()) status = writer->Append(extent.subspan(size / 2));
        if (!status.ok()) return status;
      }
    }
  }
  return absl::OkStatus();
}

// Builds the bytes of a bucket: its entries, and the removed ids.
class BucketOfEntries {
 public:
  void Add(uint64_t id, const TestEntry& entry) {
    ++(entry.is_row() ? contents_.rows : contents_.candidates);
    std::string& bytes = entry.is_row() ? rows_ : candidates_;
    AppendFixed64(id, &bytes);
    AppendFixed64(entry.step << 24 | entry.count, &bytes);
    bytes.append(reinterpret_cast<const char*>(entry.floats.data()),
                 entry.floats.size() * sizeof(float));
  }
  void Count(const TestEntry& entry) {
    ++(entry.is_row() ? contents_.all_rows : contents_.all_candidates);
  }
  void AddRemoved(uint64_t id, bool as_candidate) {
    ++(as_candidate ? contents_.removed_candidates : contents_.removed_rows);
    AppendFixed64(id, as_candidate ? &removed_candidates_ : &removed_rows_);
  }
  absl::Status Write(DataFileWriter* writer) const {
    return writer->AppendBucket(
        contents_, rows_ + candidates_ + removed_rows_ + removed_candidates_);
  }

 private:
  StoredBucket contents_;
  std::string rows_;
  std::string candidates_;
  std::string removed_rows_;
  std::string removed_candidates_;
};

absl::Status WriteEntries(const TestSave& save, uint32_t ps,
                          DataFileWriter* writer) {
  DataFileWriter::Rows rows;
  rows.table = "user";
  rows.floats_per_row = 4;
  rows.buckets = BucketsOfPs(ps, save.num_ps);
  if (save.lists_removed.count(ps) > 0) rows.since = save.previous->step();
  rows.changes = save.writes_changes.count(ps) > 0;
  std::map<uint32_t, BucketOfEntries> buckets;
  for (const auto& [id, entry] : save.entries) {
    BucketOfEntries& bucket = buckets[BucketOfRow(id)];
    bucket.Count(entry);
    if (!rows.changes || entry.step > *rows.since) bucket.Add(id, entry);
  }
  if (rows.since.has_value()) {
    const auto is_there = [&](uint64_t id, bool as_candidate) {
      const auto now = save.entries.find(id);
      return now != save.entries.end() && now->second.is_row() != as_candidate;
    };
    for (const bool as_candidate : {false, true}) {
      for (const uint64_t id :
           as_candidate ? save.removed_candidates : save.removed_rows) {
        if (is_there(id, as_candidate)) continue;
        buckets[BucketOfRow(id)].AddRemoved(id, as_candidate);
      }
    }
  }
  absl::Status status = writer->BeginRows(rows);
  for (uint32_t b = rows.buckets.begin; status.ok() && b < rows.buckets.end;
       ++b) {
    status = buckets[b].Write(writer);
  }
  return status;
}

}  // namespace

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

std::vector<TestTable> SmallTables() {
  return {{"user", 2, 1, 40, 8}, {"nobody", 3, 0, 0, 0}};
}

proto::Manifest TestManifest(const proto::CheckpointName& name,
                             const std::vector<TestVariable>& variables,
                             const std::vector<TestTable>& tables) {
  proto::Manifest manifest;
  *manifest.mutable_name() = name;
  for (const TestVariable& variable : variables) {
    proto::Variable* declared = manifest.mutable_declaration()->add_variables();
    declared->set_name(variable.name);
    declared->mutable_shape()->Add(variable.shape.begin(),
                                   variable.shape.end());
    declared->set_dtype(proto::FLOAT32);
  }
  for (const TestTable& table : tables) {
    proto::EmbeddingTable* declared =
        manifest.mutable_declaration()->add_tables();
    declared->set_name(table.name);
    declared->set_row_length(table.row_length);
  }
  manifest.mutable_position()->set_step(name.step());
  return manifest;
}

TestState MakeTestState(const std::vector<TestVariable>& variables,
                        uint32_t seed, const std::vector<TestTable>& tables) {
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
  for (const TestTable& table : tables) {
    auto& rows = state[table.name];
    for (uint64_t id = 0; id < table.rows + table.candidates; ++id) {
      rows.push_back(TestRow(table, id, seed));
    }
  }
  return state;
}

absl::Status SaveTestCheckpoint(const CheckpointDirectory& directory,
                                const proto::CheckpointName& name,
                                const std::vector<TestVariable>& variables,
                                uint32_t num_ps, uint32_t seed,
                                const std::vector<TestTable>& tables) {
  const TestState state = MakeTestState(variables, seed);
  proto::Manifest manifest = TestManifest(name, variables, tables);
  for (uint32_t ps = 0; ps < num_ps; ++ps) {
    HOLDFAST_ASSIGN_OR_RETURN(
        auto writer, DataFileWriter::Create(directory, name, ps, num_ps));
    absl::Status status = WriteVariables(state, ps, num_ps, writer.get());
    if (!status.ok()) return status;
    for (const TestTable& table : tables) {
      status = WriteTable(table, seed, BucketsOfPs(ps, num_ps), writer.get());
      if (!status.ok()) return status;
    }
    HOLDFAST_ASSIGN_OR_RETURN(auto file, writer->Finish());
    *manifest.add_files() = std::move(file);
  }
  return directory.WriteManifest(manifest);
}

absl::StatusOr<TestState> LoadTestCheckpoint(
    const CheckpointDirectory& directory, const proto::CheckpointName& name) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto reader,
                            CheckpointReader::Open(directory, name));
  TestState state;
  for (const proto::Variable& variable :
       reader->manifest().declaration().variables()) {
    auto& arrays = state[variable.name()];
    for (uint32_t slot = 0; slot <= reader->num_slots(variable.name());
         ++slot) {
      arrays.emplace_back(*NumElements(variable.shape()));
      HOLDFAST_RETURN_IF_ERROR(reader->Read(variable.name(), slot, 0,
                                            absl::MakeSpan(arrays.back())));
    }
  }
  for (const proto::EmbeddingTable& table :
       reader->manifest().declaration().tables()) {
    auto& rows = state[table.name()];
    const absl::Status read =
        reader->ReadRows(table.name(), {}, [&](const StoredRow& row) {
          EXPECT_EQ(row.is_candidate, row.floats.empty());
          rows.push_back({static_cast<float>(row.id),
                          static_cast<float>(row.step),
                          static_cast<float>(row.count)});
          rows.back().insert(rows.back().end(), row.floats.begin(),
                             row.floats.end());
          return absl::OkStatus();
        });
    if (!read.ok()) return read;
    std::sort(rows.begin(), rows.end());
  }
  return state;
}

TestEntry TestRowOf(uint64_t id, uint64_t step) {
  TestEntry row;
  row.step = step;
  for (int i = 0; i < 4; ++i) {
    row.floats.push_back(static_cast<float>(1000 * step + 10 * (id % 100) + i));
  }
  return row;
}

void AddRemoved(const TestEntries& before, const TestEntries& after,
                TestSave* save) {
  for (const auto& [id, entry] : before) {
    const auto now = after.find(id);
    if (now != after.end() && now->second.is_row() == entry.is_row()) continue;
    (entry.is_row() ? save->removed_rows : save->removed_candidates).insert(id);
  }
}

absl::Status SaveTestTable(const CheckpointDirectory& directory,
                           const TestSave& save) {
  proto::Manifest manifest =
      TestManifest(save.name, SmallVariables(), {{"user", 2}});
  const TestState state = MakeTestState(SmallVariables(), save.seed);
  for (uint32_t ps = 0; ps < save.num_ps; ++ps) {
    HOLDFAST_ASSIGN_OR_RETURN(
        auto writer,
        DataFileWriter::Create(directory, save.name, ps, save.num_ps));
    absl::Status status = WriteVariables(state, ps, save.num_ps, writer.get());
    if (status.ok()) status = WriteEntries(save, ps, writer.get());
    if (!status.ok()) return status;
    HOLDFAST_ASSIGN_OR_RETURN(auto file, writer->Finish());
    *manifest.add_files() = std::move(file);
  }
  if (save.previous.has_value()) *manifest.mutable_previous() = *save.previous;
  for (const proto::CheckpointName& name : save.chain) {
    proto::ChainLink* const link = manifest.add_chain();
    *link->mutable_checkpoint() = name;
    HOLDFAST_ASSIGN_OR_RETURN(const auto of_link, directory.ReadManifest(name));
    for (const proto::DataFile& file : of_link.files()) {
      link->set_bytes(link->bytes() + file.size());
    }
  }
  return directory.WriteManifest(manifest);
}

absl::StatusOr<TestEntries> LoadTestEntries(
    const CheckpointDirectory& directory, const proto::CheckpointName& name,
    BucketRange buckets) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto reader,
                            CheckpointReader::Open(directory, name));
  TestEntries entries;
  const absl::Status read =
      reader->ReadRows("user", buckets, [&](const StoredRow& row) {
        EXPECT_EQ(row.is_candidate, row.floats.empty());
        const bool is_first =
            entries
                .try_emplace(row.id,
                             TestEntry{row.step,
                                       row.count,
                                       {row.floats.begin(), row.floats.end()}})
                .second;
        EXPECT_TRUE(is_first) << row.id;
        return absl::OkStatus();
      });
  if (!read.ok()) return read;
  return entries;
}

}  // namespace holdfast
