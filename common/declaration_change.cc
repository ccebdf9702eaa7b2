#include "common/declaration_change.h"

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "google/protobuf/io/printer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/message_differencer.h"

namespace holdfast {
namespace {

using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;

// Tells differences the other way round: a partial comparison begins with the
// message whose fields count.
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
  // It would stand before the first difference.
  void ReportIgnored(const Message&, const Message&, const Path&) override {}

 private:
  static Path Swapped(Path path) {
    for (auto& field : path) std::swap(field.index, field.new_index);
    return path;
  }
};

}  // namespace

std::string FirstChange(const proto::Declaration& stands,
                        const proto::Declaration& declared, Declarer declarer) {
  MessageDifferencer differencer;
  // Workers are held to one by job_digest; checkpoints of earlier versions have
  // none.
  differencer.IgnoreField(
      proto::Declaration::descriptor()->FindFieldByName("job"));
  if (declarer == Declarer::kOther) {
    differencer.set_scope(MessageDifferencer::PARTIAL);
    differencer.IgnoreField(
        proto::Initializer::Given::descriptor()->FindFieldByName("sha256"));
  }
  std::string changes;
  {
    google::protobuf::io::StringOutputStream stream(&changes);
    google::protobuf::io::Printer printer(&stream, '$');
    Backwards reporter(&printer);
    differencer.ReportDifferencesTo(&reporter);
    if (differencer.Compare(declared, stands)) return "";
  }
  // "modified: optimizers[0].learning_rate: 0.1 -> 0.2", then others.
  absl::string_view first = changes;
  first = first.substr(0, first.find('\n'));
  absl::ConsumePrefix(&first, "modified: ");
  return std::string(first);
}

std::string WaysOutOfChange(const proto::Declaration& stands) {
  // Set where the job has a checkpoint directory.
  return stands.has_checkpoints()
             ? "; go on with the same, or train in another checkpoint "
               "directory, from the first values or, with --warm_start, from "
               "those of a checkpoint"
             : "; start all workers with the same";
}

}  // namespace holdfast
