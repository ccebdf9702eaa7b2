// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_lists.h"

#include <algorithm>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/byte_size.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

constexpr int64_t kMostBytes = 4000000000;

template <typename T>
absl::StatusOr<std::vector<T>> ParseList(
    absl::string_view flag, const std::string& text,
    const std::function<absl::StatusOr<T>(const std::string& item)>& parse) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", text, ": ", why));
  };
  std::vector<T> items;
  for (const std::string& item :
       std::vector<std::string>(absl::StrSplit(text, ','))) {
    absl::StatusOr<T> parsed = parse(item);
    if (!parsed.ok()) return wrong(parsed.status().message());
    if (std::count(items.begin(), items.end(), *parsed) > 0) {
      return wrong(absl::StrCat("\"", item, "\" is given twice"));
    }
    items.push_back(*std::move(parsed));
  }
  return items;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view flag,
                                              const std::string& text,
                                              int most) {
  return ParseList<int>(
      flag, text, [&](const std::string& item) -> absl::StatusOr<int> {
        int number;
        if (absl::SimpleAtoi(item, &number) && number >= 1 && number <= most) {
          return number;
        }
        return absl::InvalidArgumentError(absl::StrCat(
            "\"", item, "\" is not a whole number from 1 to ", most));
      });
}

absl::StatusOr<std::vector<uint64_t>> ParseSizes(absl::string_view flag,
                                                 const std::string& text) {
  return ParseList<uint64_t>(
      flag, text, [](const std::string& item) -> absl::StatusOr<uint64_t> {
        HOLDFAST_ASSIGN_OR_RETURN(const auto bytes, ParseBytes(item));
        if (bytes % sizeof(float) == 0 && bytes <= kMostBytes) return bytes;
        return absl::InvalidArgumentError(absl::StrCat(
            "\"", item, "\" is not a multiple of 4 bytes up to 4GB"));
      });
}

absl::StatusOr<std::vector<std::string>> ParseWords(
    absl::string_view flag, const std::string& text,
    const std::vector<std::string>& words) {
  return ParseList<std::string>(
      flag, text, [&](const std::string& item) -> absl::StatusOr<std::string> {
        if (std::count(words.begin(), words.end(), item) > 0) return item;
        return absl::InvalidArgumentError(absl::StrCat(
            "\"", item, "\" is not one of ", absl::StrJoin(words, ", ")));
      });
}

absl::Status CheckWord(absl::string_view flag, const std::string& text,
                       const std::vector<std::string>& words) {
  if (std::count(words.begin(), words.end(), text) > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", text, ": is not one of ", absl::StrJoin(words, ", ")));
}

absl::Status CheckSeconds(double seconds) {
  if (seconds > 0 && seconds <= 3600) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--seconds=", seconds, ": must be above 0 and at most 3600"));
}

}  // namespace holdfast
