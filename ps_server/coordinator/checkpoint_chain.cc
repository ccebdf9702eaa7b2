// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/checkpoint_chain.h"

namespace holdfast {
namespace {

constexpr uint32_t kDefaultMaxDeltas = 16;

}  // namespace

void CheckpointChain::OnDurable(const proto::Manifest& manifest) {
  proto::Manifest& last = last_.emplace();
  *last.mutable_name() = manifest.name();
  *last.mutable_files() = manifest.files();
  if (manifest.has_previous()) *last.mutable_previous() = manifest.previous();
  *last.mutable_chain() = manifest.chain();
}

bool CheckpointChain::AddTo(proto::Manifest* next) const {
  const proto::Declaration& declaration = next->declaration();
  if (!last_.has_value() || declaration.tables().empty()) return false;
  const proto::Checkpoints& config = declaration.checkpoints();
  const uint32_t max_deltas =
      config.has_max_deltas() ? config.max_deltas() : kDefaultMaxDeltas;
  if (max_deltas == 0) return false;
  if (last_->name().step() == next->name().step()) {
    if (last_->name().generation() != next->name().generation()) return false;
    if (last_->has_previous()) *next->mutable_previous() = last_->previous();
    *next->mutable_chain() = last_->chain();
    return !next->chain().empty();
  }
  *next->mutable_previous() = last_->name();
  // The final checkpoint is for users, who may take its folder elsewhere.
  if (next->finished()) return false;
  auto links = last_->chain();
  proto::ChainLink* const link = links.Add();
  *link->mutable_checkpoint() = last_->name();
  uint64_t bytes = 0;
  for (const proto::DataFile& file : last_->files()) bytes += file.size();
  link->set_bytes(bytes);
  if (static_cast<uint32_t>(links.size()) > max_deltas) return false;
  // A restore has to read all of them.
  uint64_t deltas = 0;
  for (int i = 1; i < links.size(); ++i) deltas += links[i].bytes();
  if (deltas > links[0].bytes() / 2) return false;
  *next->mutable_chain() = links;
  return true;
}

}  // namespace holdfast
