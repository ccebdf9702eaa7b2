#include "common/data/file_bytes.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "common/data/file_mapping.h"
#include "common/data/unpacked_file.h"

namespace holdfast {
namespace {

// How much more memory is taken at once, beside half of what there is.
constexpr size_t kPiece = 1 << 20;

}  // namespace

absl::StatusOr<FileBytes> ReadFileBytes(const std::string& path,
                                        absl::string_view kind) {
  const auto file = UnpackedFile::Open(path, kind);
  if (!file.ok()) return file.status();
  FileBytes read;
  read.is_gzip = (*file)->is_gzip();
  if (!read.is_gzip) {
    const auto mapping = FileMapping::Open(path);
    if (!mapping.ok()) return mapping.status();
    read.bytes = (*mapping)->bytes();
    read.owner = *mapping;
    return read;
  }
  const auto unpacked = std::make_shared<std::vector<uint8_t>>();
  size_t size = 0;
  while (true) {
    if (unpacked->size() == size) {
      unpacked->resize(size + std::max(kPiece, size / 2));
    }
    const absl::StatusOr<size_t> n =
        (*file)->Read(unpacked->data() + size, unpacked->size() - size);
    if (!n.ok()) return n.status();
    size += *n;
    if (size < unpacked->size()) break;
  }
  unpacked->resize(size);
  unpacked->shrink_to_fit();
  read.bytes = *unpacked;
  read.owner = unpacked;
  return read;
}

}  // namespace holdfast
