// SPDX-License-Identifier: Apache-2.0
#include "cli/log_follower.h"

#include "absl/strings/str_cat.h"
#include "cli/run_directory.h"

namespace holdfast {

LogFollower::LogFollower(const std::string& path) : path_(path) {
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  if (file) position_ = file.tellg();
}

std::string LogFollower::NewLines() {
  std::ifstream file(path_, std::ios::binary);
  file.seekg(position_);
  std::string lines;
  std::string line;
  // At the end of the file, a line without a line break is incomplete.
  while (std::getline(file, line)) {
    position_ += line.size();
    begun_ += line;
    if (file.eof()) break;
    ++position_;
    if (!IsLogHeader(begun_)) absl::StrAppend(&lines, begun_, "\n");
    begun_.clear();
  }
  return lines;
}

std::string LogFollower::Rest() {
  std::string lines = NewLines();
  if (!begun_.empty()) absl::StrAppend(&lines, begun_, "\n");
  begun_.clear();
  return lines;
}

}  // namespace holdfast
