// SPDX-License-Identifier: Apache-2.0
#include "common/job/declaration_change.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "google/protobuf/io/printer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/message_differencer.h"

namespace holdfast {
namespace {

using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;

// Reports differences in the opposite direction: the first argument of a
// partial comparison must be the message whose fields are compared.
class Backwards final : public MessageDifferencer::StreamReporter {
 public:
  using StreamReporter::StreamReporter;
  using Path = std::vector<MessageDifferencer::SpecificField>;
  void ReportAdded(const Message& first, const Message& second,
                   const Path& path) override {
    StreamReporter::ReportDeleted(second, first, Swapped(path));
  }
  void ReportDeleted(const Message& first, const Message& second,
                     const Path& path) override {
    StreamReporter::ReportAdded(second, first, Swapped(path));
  }
  void ReportModified(const Message& first, const Message& second,
                      const Path& path) override {
    StreamReporter::ReportModified(second, first, Swapped(path));
  }
  // Ignored fields would be reported before the first difference.
  void ReportIgnored(const Message&, const Message&, const Path&) override {}

 private:
  static Path Swapped(Path path) {
    for (auto& field : path) std::swap(field.index, field.new_index);
    return path;
  }
};

// All differences, each like "optimizers[0].learning_rate: 0.1 -> 0.2".
std::vector<std::string> Compare(MessageDifferencer* differencer,
                                 const Message& stands,
                                 const Message& declared) {
  std::string text;
  {
    google::protobuf::io::StringOutputStream stream(&text);
    google::protobuf::io::Printer printer(&stream, '$');
    Backwards reporter(&printer);
    differencer->ReportDifferencesTo(&reporter);
    // The reporter crashes at fields of another version, which it cannot name.
    const auto known = [](const Message& message) {
      std::unique_ptr<Message> copy(message.New());
      copy->CopyFrom(message);
      copy->DiscardUnknownFields();
      return copy;
    };
    if (differencer->Compare(*known(declared), *known(stands))) return {};
  }
  std::vector<std::string> changes;
  for (absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    absl::ConsumePrefix(&line, "modified: ");
    changes.emplace_back(line);
  }
  return changes;
}

std::string First(const std::vector<std::string>& changes) {
  return changes.empty() ? "" : changes.front();
}

// job_digest ensures that workers have the same job file; checkpoints of
// earlier versions contain none. agreed_facts.h compares agreed facts.
void IgnoreJobAndFacts(MessageDifferencer* differencer) {
  const auto& fields = *proto::Declaration::descriptor();
  differencer->IgnoreField(fields.FindFieldByName("job"));
  differencer->IgnoreField(fields.FindFieldByName("agreed"));
}

}  // namespace

std::string FirstChange(const proto::Declaration& stands,
                        const proto::Declaration& declared, Declarer declarer) {
  MessageDifferencer differencer;
  IgnoreJobAndFacts(&differencer);
  if (declarer == Declarer::kOther) {
    differencer.set_scope(MessageDifferencer::PARTIAL);
  }
  if (declarer != Declarer::kChief) {
    differencer.IgnoreField(
        proto::Initializer::Given::descriptor()->FindFieldByName("sha256"));
  }
  return First(Compare(&differencer, stands, declared));
}

std::vector<std::string> AllChanges(const proto::Declaration& stands,
                                    const proto::Declaration& declared) {
  MessageDifferencer differencer;
  IgnoreJobAndFacts(&differencer);
  return Compare(&differencer, stands, declared);
}

std::string FirstChange(const proto::Job& stands, const proto::Job& given) {
  MessageDifferencer differencer;
  return First(Compare(&differencer, stands, given));
}

std::string WaysOutOfChange(const proto::Declaration& stands) {
  // `checkpoints` is set if the job has a checkpoint directory.
  return stands.has_checkpoints()
             ? std::string("; ") + kWaysOutOfOtherJob
             : "; start all workers with the same settings";
}

}  // namespace holdfast
