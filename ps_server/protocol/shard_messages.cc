// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/shard_messages.h"

#include "absl/strings/str_cat.h"

namespace holdfast {

std::string ShardMethod<proto::RestoreRequest>::Purpose(
    const proto::RestoreRequest& request) {
  if (!request.has_checkpoint()) return "creating the variables";
  return absl::StrCat("the state of step ", request.checkpoint().step());
}

std::string ShardMethod<proto::CommitRequest>::Purpose(
    const proto::CommitRequest& request) {
  return absl::StrCat("the commit of step ", request.step());
}

std::string ShardMethod<proto::FenceRequest>::Purpose(
    const proto::FenceRequest&) {
  return "fencing lost workers";
}

std::string ShardMethod<proto::ResolveRequest>::Purpose(
    const proto::ResolveRequest&) {
  return "fencing lost workers";
}

std::string ShardMethod<proto::HoldRequest>::Purpose(
    const proto::HoldRequest&) {
  return "taking a checkpoint";
}

std::string ShardMethod<proto::SaveRequest>::Purpose(
    const proto::SaveRequest&) {
  return "taking a checkpoint";
}

std::string ShardMethod<proto::AwaitSavedRequest>::Purpose(
    const proto::AwaitSavedRequest&) {
  return "writing a checkpoint";
}

std::string ShardMethod<proto::EndRequest>::Purpose(const proto::EndRequest&) {
  return "the end of the job";
}

}  // namespace holdfast
