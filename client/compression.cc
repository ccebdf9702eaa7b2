// SPDX-License-Identifier: Apache-2.0
#include "client/compression.h"

#include <atomic>
#include <utility>

namespace holdfast::client {
namespace {

// How a range is sent.
struct Form {
  proto::Encoding encoding;
  uint64_t kept;  // TOP_K
  uint64_t bytes;
};

Form FormOf(const proto::Compression& compression, const ElementRange& range) {
  const uint64_t exact = EncodedBytes(proto::EXACT, range.size, 0);
  const uint64_t kept = TopKCount(TopK(compression), range.size);
  const uint64_t bytes = EncodedBytes(compression.push(), range.size, kept);
  if (bytes >= exact) return {proto::EXACT, 0, exact};
  return {compression.push(), kept, bytes};
}

// The size, rounded up to the alignment of elements.
uint64_t Aligned(uint64_t bytes) {
  return (bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

}  // namespace

GradientEncoder::GradientEncoder(const Layout& layout, const Plan& push)
    : variables_(layout.variables().size()) {
  for (size_t i = 0; i < variables_.size(); ++i) {
    variables_[i].compression = layout.declaration().variables(i).compression();
    variables_[i].size = layout.variables()[i].size;
  }
  for (const std::vector<Plan::Part>& parts : push.parts) {
    for (const Plan::Part& part : parts) {
      for (const ElementRange& range : part) {
        Variable& variable = variables_[range.variable];
        if (variable.compression.push() == proto::EXACT) continue;
        variable.ranges.push_back(range);
        variable.encoded_bytes +=
            Aligned(FormOf(variable.compression, range).bytes);
      }
    }
  }
}

GradientEncoder::Values GradientEncoder::TakeSpare(Variable* variable) {
  if (variable->spare != nullptr) return std::move(variable->spare);
  return std::make_shared<std::vector<float>>(variable->size);
}

std::shared_ptr<char> GradientEncoder::FindMemory(Variable* variable) {
  for (const std::shared_ptr<char>& memory : variable->memory) {
    if (memory.use_count() > 1) continue;
    // Orders this after the last read by the thread that released the memory.
    std::atomic_thread_fence(std::memory_order_acquire);
    return memory;
  }
  return variable->memory.emplace_back(new char[variable->encoded_bytes],
                                       std::default_delete<char[]>());
}

GradientEncoder::Encoded GradientEncoder::Encode(
    PushSequence push, size_t index, absl::Span<const float> gradient) {
  Variable& variable = variables_[index];
  Change change;
  bool again;
  std::shared_ptr<char> memory;
  {
    absl::MutexLock lock(&mutex_);
    const auto [kept, fresh] = changes_[push].try_emplace(index);
    again = !fresh;
    if (fresh) {
      if (variable.residual == nullptr) {
        variable.residual = std::make_shared<std::vector<float>>(variable.size);
      }
      kept->second = {variable.residual, TakeSpare(&variable)};
      variable.residual = kept->second.after;
    }
    change = kept->second;
    // Encoding a push again gives the same residual, but it is written to other
    // memory, because later pushes may already use the residual that is kept.
    if (again) change.after = TakeSpare(&variable);
    memory = FindMemory(&variable);
  }

  // No other thread uses change.after and memory: a push that is settled
  // meanwhile leaves them alone.
  char* to = memory.get();
  Encoded encoded;
  for (const ElementRange& range : variable.ranges) {
    const Form form = FormOf(variable.compression, range);
    encoded[range.begin] = EncodeWithFeedback(
        form.encoding, form.kept, gradient.subspan(range.begin, range.size),
        absl::MakeConstSpan(*change.before).subspan(range.begin, range.size),
        absl::MakeSpan(*change.after).subspan(range.begin, range.size),
        std::shared_ptr<char>(memory, to));
    to += Aligned(form.bytes);
  }
  if (again) {
    absl::MutexLock lock(&mutex_);
    variable.spare = std::move(change.after);
  }
  return encoded;
}

void GradientEncoder::Settle(PushSequence push, bool counts) {
  absl::MutexLock lock(&mutex_);
  auto changes = changes_.extract(push);
  if (changes.empty()) return;
  if (counts) {
    Keep(std::move(changes.mapped()));
  } else {
    Undo(std::move(changes.mapped()));
  }
}

void GradientEncoder::Forget(PushSequence through) {
  absl::MutexLock lock(&mutex_);
  while (!changes_.empty() && changes_.begin()->first <= through) {
    Keep(std::move(changes_.begin()->second));
    changes_.erase(changes_.begin());
  }
}

void GradientEncoder::Keep(Changes changes) {
  for (auto& [index, change] : changes) {
    // The memory may be reused unless an earlier or a later push may still be
    // undone.
    if (change.before.use_count() == 1) {
      variables_[index].spare = std::move(change.before);
    }
  }
}

void GradientEncoder::Undo(Changes changes) {
  for (auto& [index, change] : changes) {
    Variable& variable = variables_[index];
    if (variable.residual == change.after) {
      variable.residual = change.before;
      if (change.after.use_count() == 1) {
        variable.spare = std::move(change.after);
      }
      continue;
    }
    // In separate memory, since later pushes keep references to the residuals
    // they started from.
    const Values undone = TakeSpare(&variable);
    for (size_t i = 0; i < undone->size(); ++i) {
      (*undone)[i] =
          (*variable.residual)[i] + ((*change.before)[i] - (*change.after)[i]);
    }
    variable.residual = undone;
  }
}

}  // namespace holdfast::client
