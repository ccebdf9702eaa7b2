// SPDX-License-Identifier: Apache-2.0
#include "cli/inspect_images.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/table.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/data/file_mapping.h"
#include "common/data/image_decoder.h"
#include "common/data/image_folder.h"

namespace holdfast {
namespace {

constexpr size_t kBrokenTold = 5;
constexpr size_t kSizesTold = 3;

// Number of images of each kind; shown as "a (7), b (2), ...".
using Counts = std::map<std::string, int64_t>;
std::string Text(const Counts& counts, size_t most) {
  std::vector<std::pair<int64_t, std::string>> ordered;
  for (const auto& [what, count] : counts) ordered.emplace_back(-count, what);
  std::sort(ordered.begin(), ordered.end());
  std::string text;
  for (size_t i = 0; i < std::min(most, ordered.size()); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", ordered[i].second, " (",
                    -ordered[i].first, ")");
  }
  return absl::StrCat(text, ordered.size() > most ? ", ..." : "");
}

absl::StatusOr<ImageHeader> HeaderOf(const std::string& path) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(path));
  return ReadImageHeader(mapping->bytes());
}

}  // namespace

absl::Status InspectImages(const std::string& folder) {
  const auto classes = ListImageClasses(folder, {});
  if (!classes.ok()) return classes.status();
  Table table({{"class"},
               {"images", true},
               {"broken", true},
               {"height x width"},
               {"formats"}});
  std::vector<std::string> broken;
  int64_t images = 0;
  int64_t not_read = 0;
  int64_t least_height = 0, least_width = 0;
  bool one_size = true;
  bool all_grey = true;
  for (const ImageClass& each : *classes) {
    Counts sizes, formats;
    int64_t read = 0;
    for (const std::string& file : each.files) {
      const std::string path = absl::StrCat(folder, "/", each.name, "/", file);
      const absl::StatusOr<ImageHeader> header = HeaderOf(path);
      if (!header.ok()) {
        ++not_read;
        if (broken.size() < kBrokenTold) {
          broken.push_back(
              absl::StrCat("\"", path, "\": ", header.status().message()));
        }
        continue;
      }
      ++read;
      ++sizes[absl::StrCat(header->height, " x ", header->width)];
      ++formats[header->description];
      all_grey = all_grey && absl::StrContains(header->description, "grey");
      if (images++ == 0) {
        least_height = header->height;
        least_width = header->width;
      }
      one_size = one_size && header->height == least_height &&
                 header->width == least_width;
      least_height = std::min(least_height, header->height);
      least_width = std::min(least_width, header->width);
    }
    const int64_t failed = static_cast<int64_t>(each.files.size()) - read;
    table.Add({EscapedText(each.name), absl::StrCat(read),
               failed > 0 ? absl::StrCat(failed) : "", Text(sizes, kSizesTold),
               Text(formats, kSizesTold)});
  }
  if (images == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read the images in \"", folder, "\": there are none",
        broken.empty() ? "" : absl::StrCat("; the first fault: ", broken[0])));
  }
  std::cout << images << " images in " << classes->size() << " classes\n\n";
  for (const std::string& line : table.Lines()) std::cout << line << "\n";
  if (not_read > 0) {
    std::cout << "\n"
              << not_read << (not_read == 1 ? " file" : " files")
              << " cannot be read; the first:\n";
    for (const std::string& each : broken) std::cout << each << "\n";
  }
  std::cout << "\n# A schema to start from.\nimages {\n  folder: \""
            << EscapedText(folder) << "\"\n";
  for (const ImageClass& each : *classes) {
    std::cout << "  classes: \"" << EscapedText(each.name) << "\"\n";
  }
  std::cout << "  picture { height: " << least_height
            << " width: " << least_width << (one_size ? "" : " resize: CROP")
            << (all_grey ? " channels: 1" : "") << " }\n"
            << (not_read > 0 ? "  skip_bad_rows: true\n" : "") << "}\n";
  return absl::OkStatus();
}

}  // namespace holdfast
