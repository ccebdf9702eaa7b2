// Values as people read them in the output of `holdfast`.
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

// "0 s", "0.42 ms", "12 ms", "3.2 s", "2m5s"; "-" for what is not finite.
std::string SecondsText(double seconds);

// As many digits as tell something: "0.57", "5.7", "57", "5700"; "-" for what
// is not finite.
std::string RateText(double per_second);

// "worker:1".
std::string TaskText(const proto::TaskId& task);

// `text` without what a terminal would not show as one character: control
// characters, and bytes that are not UTF-8, become '?', line breaks and tabs
// spaces. Whatever comes from a cluster goes through this before it is shown.
std::string PrintableText(absl::string_view text);

// Columns that `text`, printable, takes on a terminal: its characters.
size_t TextWidth(absl::string_view text);

// The first `width` characters of `text`, printable; the last of them is '>'
// where something was cut off.
std::string CutText(absl::string_view text, size_t width);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_UNITS_H_
