// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_request.h"

#include "proto/shard.pb.h"

namespace holdfast {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

void AddNumber(const Message& message, const char* name,
               TraceSpan::Args* args) {
  const FieldDescriptor* const field =
      message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->is_repeated()) return;
  const auto& reflection = *message.GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    args->emplace_back(name, reflection.GetUInt64(message, field));
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    args->emplace_back(name, reflection.GetUInt32(message, field));
  }
}

}  // namespace

void AddRequestArgs(const Message& request, TraceSpan::Args* args) {
  if (request.GetDescriptor() == proto::PullRequest::descriptor()) {
    const auto& pull = static_cast<const proto::PullRequest&>(request);
    args->emplace_back("version", pull.has_exact_version()
                                      ? pull.exact_version()
                                      : pull.min_version());
    return;
  }
  AddNumber(request, "step", args);
  AddNumber(request, "seat", args);
  if (request.GetDescriptor() == proto::PushPullRequest::descriptor()) {
    const auto& exchange = static_cast<const proto::PushPullRequest&>(request);
    if (exchange.has_contribution()) {
      args->emplace_back("seat", exchange.contribution().seat());
    }
  }
  AddNumber(request, "sequence", args);
}

}  // namespace holdfast
