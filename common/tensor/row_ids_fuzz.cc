// libFuzzer: what DecodeRowIds takes is the encoding of what it gives. Run by
// row_ids_fuzz_test.sh.
//
// An input is: how many ids are claimed, byte 0; and their bytes.

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
  Expect(ids->size() == count, "another number of ids");
  Expect(std::is_sorted(ids->begin(), ids->end()) &&
             std::adjacent_find(ids->begin(), ids->end()) == ids->end(),
         "ids do not rise");
  Expect(EncodeRowIds(*ids) == bytes, "encoded otherwise");
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // In memory of its own size, so that no byte beside it can be read unseen.
  const std::vector<char> bytes(data + 1, data + size);
  const absl::string_view view(bytes.data(), bytes.size());
  holdfast::Check(data[0], view);
  // As many as there are ends of varints, which is what most inputs have.
  holdfast::Check(std::count_if(bytes.begin(), bytes.end(),
                                [](char byte) { return byte >= 0; }),
                  view);
  return 0;
}
