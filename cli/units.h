// SPDX-License-Identifier: Apache-2.0

// Formats values for people in the output of `holdfast`.
#ifndef HOLDFAST_CLI_UNITS_H_
#define HOLDFAST_CLI_UNITS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// "17 B", "1.5 KiB", "12.0 GiB".
std::string BytesText(uint64_t bytes);

// "0 s", "0.42 ms", "12 ms", "3.2 s", "2m5s"; "-" if not finite.
std::string SecondsText(double seconds);

// A rate with two significant digits, or with all digits before the decimal
// point if there are more: "0.57", "5.7", "57", "5700"; "-" if not finite.
std::string RateText(double per_second);

// "worker:1".
std::string TaskText(const proto::TaskId& task);

// The number of terminal columns that printable `text` takes, which is its
// number of characters.
size_t TextWidth(absl::string_view text);

// The first `width` characters of printable `text`; the last one is '>' if
// anything was cut off.
std::string CutText(absl::string_view text, size_t width);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_UNITS_H_
