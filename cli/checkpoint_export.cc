// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_export.h"

#include <zip.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cli/npy.h"
#include "cli/onnx_model.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/file_system.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

// Elements read at a time.
constexpr uint64_t kChunk = 4 * kCheckpointBlockBytes / sizeof(float);

// One array as the bytes of a .npy file, which are read when libzip asks for
// them.
class NpyArray {
 public:
  NpyArray(CheckpointReader* reader, const proto::Variable& variable,
           uint32_t slot, uint64_t elements)
      : reader_(reader),
        variable_(variable.name()),
        slot_(slot),
        elements_(elements),
        header_(NpyHeader("<f4", variable.shape())) {}

  // Why reading failed.
  const absl::Status& status() const { return status_; }

  // libzip's zip_source_callback.
  static zip_int64_t Serve(void* self, void* data, zip_uint64_t size,
                           zip_source_cmd_t command) {
    return static_cast<NpyArray*>(self)->Do(data, size, command);
  }

 private:
  zip_int64_t Do(void* data, zip_uint64_t size, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        ready_ = header_;
        next_ = 0;
        return 0;
      case ZIP_SOURCE_READ:
        return Read(static_cast<char*>(data), size);
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE:
        return 0;
      case ZIP_SOURCE_STAT: {
        auto* about = static_cast<zip_stat_t*>(data);
        zip_stat_init(about);
        about->size = header_.size() + elements_ * sizeof(float);
        about->valid |= ZIP_STAT_SIZE;
        return sizeof(*about);
      }
      case ZIP_SOURCE_ERROR: {
        const int codes[] = {ZIP_ER_READ, 0};
        std::memcpy(data, codes, sizeof(codes));
        return sizeof(codes);
      }
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT,
            ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, -1);
      default:
        return -1;
    }
  }

  zip_int64_t Read(char* into, zip_uint64_t size) {
    if (ready_.empty() && next_ < elements_) {
      chunk_.resize(std::min(kChunk, elements_ - next_));
      status_ = reader_->Read(variable_, slot_, next_, absl::MakeSpan(chunk_));
      if (!status_.ok()) return -1;
      next_ += chunk_.size();
      ready_ = absl::string_view(reinterpret_cast<const char*>(chunk_.data()),
                                 chunk_.size() * sizeof(float));
    }
    const size_t count = std::min<zip_uint64_t>(size, ready_.size());
    std::memcpy(into, ready_.data(), count);
    ready_.remove_prefix(count);
    return count;
  }

  CheckpointReader* const reader_;
  const std::string variable_;
  const uint32_t slot_;
  const uint64_t elements_;
  const std::string header_;
  // The next bytes, and the index of the element after them.
  absl::string_view ready_;
  uint64_t next_ = 0;
  std::vector<float> chunk_;
  absl::Status status_;
};

// A zip under construction; nothing is written before Close.
class Archive {
 public:
  ~Archive() {
    if (zip_ != nullptr) zip_discard(zip_);
  }

  absl::Status Open(const std::string& path) {
    path_ = path;
    int code;
    zip_ = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (zip_ != nullptr) return absl::OkStatus();
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const absl::Status status = Failed(zip_error_strerror(&error));
    zip_error_fini(&error);
    return status;
  }

  absl::Status Add(const std::string& name, std::unique_ptr<NpyArray> array) {
    arrays_.push_back(std::move(array));
    zip_source_t* const source =
        zip_source_function(zip_, NpyArray::Serve, arrays_.back().get());
    if (source == nullptr) return Failed(zip_strerror(zip_));
    const zip_int64_t index =
        zip_file_add(zip_, name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      return Failed(zip_strerror(zip_));
    }
    if (zip_set_file_compression(zip_, index, ZIP_CM_STORE, 0) != 0) {
      return Failed(zip_strerror(zip_));
    }
    return absl::OkStatus();
  }

  absl::Status Close() {
    if (zip_close(zip_) == 0) {
      zip_ = nullptr;
      return absl::OkStatus();
    }
    for (const auto& array : arrays_) {
      if (!array->status().ok()) return array->status();
    }
    return Failed(zip_strerror(zip_));
  }

 private:
  absl::Status Failed(absl::string_view why) const {
    return absl::UnavailableError(
        absl::StrCat(path_, ": cannot be written: ", why));
  }

  std::string path_;
  zip_t* zip_ = nullptr;
  // Used by libzip until the zip is closed.
  std::vector<std::unique_ptr<NpyArray>> arrays_;
};

bool IsWanted(const std::string& name, const ExportOptions& options) {
  return options.prefixes.empty() ||
         std::any_of(options.prefixes.begin(), options.prefixes.end(),
                     [&](const std::string& prefix) {
                       return absl::StartsWith(name, prefix);
                     });
}

struct WantedArray {
  std::string name;
  const proto::Variable* variable;
  uint32_t slot;
  uint64_t elements;
};

// In the order of the declaration; a variable is followed by its slots.
absl::StatusOr<std::vector<WantedArray>> WantedArrays(
    const CheckpointReader& reader, const ExportOptions& options) {
  std::vector<WantedArray> arrays;
  for (const proto::Variable& variable :
       reader.manifest().declaration().variables()) {
    if (!IsWanted(variable.name(), options)) continue;
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable.shape()));
    const uint32_t slots =
        options.slots ? reader.num_slots(variable.name()) : 0;
    for (uint32_t slot = 0; slot <= slots; ++slot) {
      const std::string name =
          slot == 0 ? variable.name()
                    : absl::StrCat(variable.name(), ":slot", slot - 1);
      arrays.push_back(
          {name, &variable, slot, static_cast<uint64_t>(elements)});
    }
  }
  return arrays;
}

std::vector<std::string> WantedTables(const CheckpointReader& reader,
                                      const ExportOptions& options) {
  std::vector<std::string> tables;
  for (const auto& table : reader.manifest().declaration().tables()) {
    if (IsWanted(table.name(), options)) tables.push_back(table.name());
  }
  return tables;
}

absl::Status WriteNpz(CheckpointReader* reader,
                      const std::vector<WantedArray>& arrays,
                      const std::string& output) {
  Archive archive;
  HOLDFAST_RETURN_IF_ERROR(archive.Open(output));
  for (const WantedArray& array : arrays) {
    HOLDFAST_RETURN_IF_ERROR(
        archive.Add(array.name + ".npy",
                    std::make_unique<NpyArray>(reader, *array.variable,
                                               array.slot, array.elements)));
  }
  return archive.Close();
}

// The length of the header and the header of a .safetensors file: JSON with the
// position of each array, padded so that the arrays begin at a multiple of 8.
// No character of a variable's name needs escaping in JSON. "format" is
// required by Hugging Face's transformers.
std::string SafetensorsHeader(uint64_t step,
                              const std::vector<WantedArray>& arrays) {
  std::string json =
      absl::StrCat(R"({"__metadata__":{"format":"pt","step":")", step, R"("})");
  uint64_t begin = 0;
  for (const WantedArray& array : arrays) {
    const uint64_t end = begin + array.elements * sizeof(float);
    absl::StrAppend(&json, ",\"", array.name, R"(":{"dtype":"F32","shape":[)",
                    absl::StrJoin(array.variable->shape(), ","),
                    R"(],"data_offsets":[)", begin, ",", end, "]}");
    begin = end;
  }
  json += '}';
  while (json.size() % 8 != 0) json += ' ';
  std::string header;
  for (int byte = 0; byte < 8; ++byte) {
    header += static_cast<char>(json.size() >> (8 * byte) & 0xff);
  }
  return header + json;
}

absl::Status AppendArray(CheckpointReader* reader, const WantedArray& array,
                         WritableFile* file) {
  std::vector<float> chunk;
  for (uint64_t next = 0; next < array.elements; next += chunk.size()) {
    chunk.resize(std::min(kChunk, array.elements - next));
    HOLDFAST_RETURN_IF_ERROR(reader->Read(array.variable->name(), array.slot,
                                          next, absl::MakeSpan(chunk)));
    HOLDFAST_RETURN_IF_ERROR(file->Append(
        absl::string_view(reinterpret_cast<const char*>(chunk.data()),
                          chunk.size() * sizeof(float))));
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensors(CheckpointReader* reader,
                              const std::vector<WantedArray>& arrays,
                              const std::string& output) {
  return ReplaceFile(output, [&](WritableFile* file) {
    absl::Status status = file->Append(
        SafetensorsHeader(reader->manifest().name().step(), arrays));
    for (const WantedArray& array : arrays) {
      if (status.ok()) status = AppendArray(reader, array, file);
    }
    return status;
  });
}

absl::Status WriteOnnx(CheckpointReader* reader, const ExportOptions& options) {
  if (options.slots || !options.prefixes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.output,
                     ": an .onnx file is the whole model; --slots and "
                     "--variables are for .npz and .safetensors"));
  }
  const auto read = [reader](const proto::Variable& variable)
      -> absl::StatusOr<std::vector<float>> {
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable.shape()));
    std::vector<float> values(elements);
    HOLDFAST_RETURN_IF_ERROR(
        reader->Read(variable.name(), /*slot=*/0, 0, absl::MakeSpan(values)));
    return values;
  };
  const auto model = MakeOnnxModel(reader->manifest().declaration(), read,
                                   {.int8 = options.int8});
  if (!model.ok()) {
    return absl::Status(model.status().code(),
                        absl::StrCat(FolderName(reader->manifest().name()),
                                     ": ", model.status().message()));
  }
  return ReplaceFile(options.output, [&](WritableFile* file) {
    return file->Append(model->SerializeAsString());
  });
}

}  // namespace

absl::Status ExportCheckpoint(CheckpointReader* reader,
                              const ExportOptions& options) {
  if (absl::EndsWith(options.output, ".onnx")) {
    return WriteOnnx(reader, options);
  }
  if (options.int8) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.output, ": --int8 is for .onnx files"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto arrays, WantedArrays(*reader, options));
  const std::vector<std::string> tables = WantedTables(*reader, options);
  if (arrays.empty() && tables.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        FolderName(reader->manifest().name()), ": no variable begins with \"",
        absl::StrJoin(options.prefixes, "\" or \""), "\""));
  }
  absl::Status status;
  if (!arrays.empty()) {
    status = absl::EndsWith(options.output, ".safetensors")
                 ? WriteSafetensors(reader, arrays, options.output)
                 : WriteNpz(reader, arrays, options.output);
  }
  if (!status.ok()) return status;
  return ExportTables(reader, tables, options.output,
                      options.table_window_bytes);
}

absl::StatusOr<std::vector<TableChanges>> ExportChanges(
    CheckpointReader* reader, const ExportOptions& options,
    uint64_t since_step) {
  const std::vector<std::string> tables = WantedTables(*reader, options);
  if (tables.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        FolderName(reader->manifest().name()), ": ",
        options.prefixes.empty()
            ? "has no tables"
            : absl::StrCat("no table begins with \"",
                           absl::StrJoin(options.prefixes, "\" or \""), "\""),
        "; `holdfast checkpoint export` writes variables, which are always "
        "whole"));
  }
  return ExportTableChanges(reader, tables, since_step, options.output,
                            options.table_window_bytes);
}

}  // namespace holdfast
