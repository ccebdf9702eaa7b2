// SPDX-License-Identifier: Apache-2.0
#include "tests/exploration/transcript.h"

#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "tests/world/world.h"

namespace holdfast::exploration {
namespace {

using google::protobuf::FieldDescriptor;

const std::set<std::string>& Left() {
  static const auto* const kLeft = new std::set<std::string>{"data_digest",
                                                             "declaration",
                                                             "directory_nonce",
                                                             "index_crc32c",
                                                             "job_digest",
                                                             "lease_ms",
                                                             "loss",
                                                             "nonce",
                                                             "num_ps",
                                                             "num_workers",
                                                             "process",
                                                             "progress",
                                                             "protocol_version",
                                                             "ps_addresses",
                                                             "receipt",
                                                             "receipt_key",
                                                             "receipts",
                                                             "scalars",
                                                             "sender",
                                                             "share",
                                                             "share_divisor",
                                                             "slices",
                                                             "ticket_receipt",
                                                             "wait_ms",
                                                             "waited_ms"};
  return *kLeft;
}

void Shorten(google::protobuf::Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (Left().count(std::string(field->name())) > 0) {
      reflection.ClearField(message, field);
      continue;
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Shorten(reflection.MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      Shorten(reflection.MutableRepeatedMessage(message, field, i));
    }
  }
}

std::string TextOf(const sim::Message& message) {
  if (message.body() == nullptr) return message.Text();
  const std::unique_ptr<google::protobuf::Message> shortened(
      message.body()->New());
  shortened->CopyFrom(*message.body());
  Shorten(shortened.get());
  return shortened->ShortDebugString();
}

}  // namespace

std::string TranscriptLine(const sim::Message& message) {
  return absl::StrCat(sim::World::NameOfNode(message.from), " -> ",
                      sim::World::NameOfNode(message.to), ": ",
                      message.is_request ? "" : "answer to ", *message.rpc,
                      " {", TextOf(message), "}");
}

}  // namespace holdfast::exploration
