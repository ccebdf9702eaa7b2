#include "ps_server/coordinator/checkpoint_chain.h"

namespace holdfast {
namespace {

constexpr uint32_t kDefaultMaxDeltas = 16;

}  // namespace

void CheckpointChain::OnDurable(const proto::Manifest& manifest) {
  Last last{manifest.name(), manifest.chain()};
  proto::ChainLink* const link = last.links.Add();
  *link->mutable_checkpoint() = manifest.name();
  uint64_t bytes = 0;
  for (const proto::DataFile& file : manifest.files()) bytes += file.size();
  link->set_bytes(bytes);
  last_ = std::move(last);
}

bool CheckpointChain::AddTo(proto::Manifest* next) const {
  const proto::Declaration& declaration = next->declaration();
  if (!last_.has_value() || declaration.tables().empty()) return false;
  const proto::Checkpoints& config = declaration.checkpoints();
  const uint32_t max_deltas =
      config.has_max_deltas() ? config.max_deltas() : kDefaultMaxDeltas;
  if (max_deltas == 0) return false;
  // One of the same step may have the same files.
  if (last_->name.step() == next->name().step()) return false;
  *next->mutable_previous() = last_->name;
  // The last of all is for people, who may take its folder elsewhere.
  if (next->finished()) return false;
  if (static_cast<uint32_t>(last_->links.size()) > max_deltas) return false;
  // Whoever restores reads all of them.
  uint64_t deltas = 0;
  for (int i = 1; i < last_->links.size(); ++i) {
    deltas += last_->links[i].bytes();
  }
  if (deltas > last_->links[0].bytes() / 2) return false;
  *next->mutable_chain() = last_->links;
  return true;
}

}  // namespace holdfast
