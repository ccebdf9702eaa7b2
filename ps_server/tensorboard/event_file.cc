// SPDX-License-Identifier: Apache-2.0
#include "ps_server/tensorboard/event_file.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/data/tfrecord_frame.h"

namespace holdfast {
namespace {

// The prefix by which TensorBoard finds its files.
constexpr absl::string_view kPrefix = "events.out.tfevents.";

// The seconds in the name of an event file; 0 for other files.
int64_t SecondsOf(absl::string_view name) {
  if (!absl::StartsWith(name, kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  int64_t seconds;
  return absl::SimpleAtoi(name.substr(0, name.find('.')), &seconds) ? seconds
                                                                    : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(
    FileSystem* files, const std::string& folder, absl::Time date,
    absl::string_view process) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto names, files->List(folder));
  int64_t seconds = absl::ToUnixSeconds(date);
  for (const std::string& name : names) {
    seconds = std::max(seconds, SecondsOf(name) + 1);
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto file, files->Create(absl::StrFormat("%s/%s%010d.%s", folder, kPrefix,
                                               seconds, process)));
  return std::unique_ptr<EventFile>(new EventFile(std::move(file)));
}

absl::Status EventFile::Append(
    const std::vector<proto::tensorboard::Event>& events) {
  std::string records;
  for (const proto::tensorboard::Event& event : events) {
    AppendTfRecord(event.SerializeAsString(), &records);
  }
  return file_->Append(records);
}

}  // namespace holdfast
