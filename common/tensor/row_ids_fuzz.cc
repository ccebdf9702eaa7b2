// SPDX-License-Identifier: Apache-2.0

// A libFuzzer target: bytes that DecodeRowIds accepts must be the encoding of
// its result. Run by row_ids_fuzz_test.sh.
//
// Byte 0 of an input is the claimed number of ids; their bytes follow.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tensor/row_ids.h"

namespace holdfast {
namespace {

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void Check(uint64_t count, absl::string_view bytes) {
  const absl::StatusOr<std::vector<uint64_t>> ids = DecodeRowIds(bytes, count);
  if (!ids.ok()) return;
  Expect(ids->size() == count, "wrong number of ids");
  Expect(std::is_sorted(ids->begin(), ids->end()) &&
             std::adjacent_find(ids->begin(), ids->end()) == ids->end(),
         "ids are not increasing");
  Expect(EncodeRowIds(*ids) == bytes, "encoded differently");
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // In memory of exactly this size, so that reads past the end are detected.
  const std::vector<char> bytes(data + 1, data + size);
  const absl::string_view view(bytes.data(), bytes.size());
  holdfast::Check(data[0], view);
  // The number of bytes that end a varint, which is the right count for most
  // inputs.
  holdfast::Check(std::count_if(bytes.begin(), bytes.end(),
                                [](char byte) { return byte >= 0; }),
                  view);
  return 0;
}
