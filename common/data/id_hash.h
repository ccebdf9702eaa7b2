// SPDX-License-Identifier: Apache-2.0

// Hashes texts to ids of rows of embedding tables: docs/data.md, "Ids".
//
// The results depend only on the bytes and are the same on every machine and in
// every version, because checkpoints have rows under these ids.
#ifndef HOLDFAST_COMMON_DATA_ID_HASH_H_
#define HOLDFAST_COMMON_DATA_ID_HASH_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// All of xxHash (0.8) is in its header; nothing has to be linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace holdfast {

// The seed of a group: the same text has different ids in different groups.
inline uint64_t IdSeed(absl::string_view group) {
  return XXH64(group.data(), group.size(), 0);
}

// The id of `text` in the group with this seed.
inline uint64_t IdHash(uint64_t seed, absl::string_view text) {
  return XXH64(text.data(), text.size(), seed);
}

// IdField::origin of ids that IdHash makes from the texts of this group.
inline std::string HashedIdOrigin(absl::string_view group) {
  return absl::StrCat("texts of the group \"", group, "\"");
}

// IdField::origin of ids that are numbers in the data already.
inline constexpr char kNumbersAsIds[] = "numbers";

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_ID_HASH_H_
