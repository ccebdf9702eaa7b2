// SPDX-License-Identifier: Apache-2.0
#include "common/data/unpack.h"

#include <vector>

#include "common/base/status_macros.h"

namespace holdfast {
namespace {

class MemorySink final : public ByteSink {
 public:
  absl::Status Append(absl::Span<const uint8_t> bytes) override {
    bytes_->insert(bytes_->end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  std::shared_ptr<const std::vector<uint8_t>> Take() {
    bytes_->shrink_to_fit();
    return std::move(bytes_);
  }

 private:
  std::shared_ptr<std::vector<uint8_t>> bytes_ =
      std::make_shared<std::vector<uint8_t>>();
};

}  // namespace

absl::StatusOr<Unpacked> Unpack(
    const ReadingOptions& options, absl::string_view kind,
    const std::string& path, absl::string_view what,
    absl::FunctionRef<absl::Status(ByteSink* bytes)> write) {
  if (options.cache == nullptr) {
    MemorySink sink;
    HOLDFAST_RETURN_IF_ERROR(write(&sink));
    const auto bytes = sink.Take();
    return Unpacked{*bytes, bytes, /*mapped=*/false};
  }
  DataCache::Key key(kind);
  HOLDFAST_RETURN_IF_ERROR(key.AddFile(path));
  key.Add(what);
  auto entry = options.cache->Get(
      key, [&](ByteSink* payload, std::string*) { return write(payload); });
  if (!entry.ok()) return entry.status();
  return Unpacked{entry->bytes, entry->owner, /*mapped=*/true};
}

}  // namespace holdfast
