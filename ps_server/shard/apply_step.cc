// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/apply_step.h"

#include <algorithm>
#include <array>
#include <utility>

namespace holdfast {
namespace {

// The number of elements that are decoded at a time: few enough to stay in a
// near cache.
using Decoded = std::array<float, 2048>;

// The number of elements of a slice that a thread works on at a time: few
// enough that all threads end together, but enough that starting each piece
// costs nothing.
constexpr size_t kPiece = size_t{1} << 16;
static_assert(kChunkElements % kPiece == 0);

// The number of elements of a step from which helpers are called. That costs
// the caller about 5 us, and a helper starts even later; a single thread
// updates as many elements in 50 us.
constexpr size_t kWorthHelpers = size_t{1} << 18;

// The number of elements of a step from which the next values are written past
// the caches: 32 MiB of them, as much of current values and more of gradients
// would not stay in any cache until they are pulled.
constexpr size_t kWorthStreaming = size_t{1} << 23;

// Reads the pieces of a slice's gradient from front to back.
//
// A copy continues from the same place, independently.
class GradientReader {
 public:
  // `pieces` must outlive the reader.
  explicit GradientReader(const std::vector<EncodedElements>* pieces)
      : pieces_(pieces) {
    Enter(0);
  }

  // Returns at least one and at most `most` of the next elements, which must
  // exist: in place if they need no decoding, otherwise decoded into `scratch`.
  FloatReader::Run Next(size_t most, Decoded& scratch) {
    PassWhole();
    const EncodedElements& piece = (*pieces_)[piece_];
    most = std::min<uint64_t>(most, piece.size - at_);
    FloatReader::Run run;
    if (piece.encoding == proto::EXACT) {
      run = exact_.Next(most, scratch.data());
    } else {
      run = {scratch.data(), std::min(most, scratch.size())};
      Decode(piece, at_, {scratch.data(), run.size});
    }
    at_ += run.size;
    return run;
  }

  // Skips `count` elements, which must exist.
  void Skip(size_t count) {
    while (count > 0) {
      PassWhole();
      const EncodedElements& piece = (*pieces_)[piece_];
      const size_t passed = std::min<uint64_t>(count, piece.size - at_);
      if (piece.encoding == proto::EXACT) exact_.Skip(passed);
      at_ += passed;
      count -= passed;
    }
  }

 private:
  void Enter(size_t piece) {
    piece_ = piece;
    at_ = 0;
    if (piece < pieces_->size()) exact_ = FloatReader(&(*pieces_)[piece].data);
  }
  void PassWhole() {
    while (at_ == (*pieces_)[piece_].size) Enter(piece_ + 1);
  }

  const std::vector<EncodedElements>* pieces_;
  size_t piece_;
  uint64_t at_;  // in the piece
  FloatReader exact_{nullptr};
};

// The update of one step.
class Update {
 public:
  Update(const GradientSum& sum, const std::vector<proto::StepScalars>& scalars,
         const std::vector<std::unique_ptr<Optimizer>>& optimizers,
         const ApplyOptions& options, DenseStore* store)
      : sum_(sum),
        scalars_(scalars),
        optimizers_(optimizers),
        options_(options),
        store_(*store),
        before_(store->newest()),
        draft_(store->Reserve()) {}

  void Run() {
    size_t elements = 0;
    for (size_t i = 0; i < store_.slices().size(); ++i) {
      if (!store_.slices()[i].trainable()) continue;
      elements += store_.slices()[i].size;
      Divide(i);
    }
    streams_ = elements >= kWorthStreaming;
    const auto work = [this](size_t piece) { Work(piece); };
    if (options_.threads != nullptr && elements >= kWorthHelpers) {
      options_.threads->ParallelFor(pieces_.size(), work);
    } else {
      for (size_t i = 0; i < pieces_.size(); ++i) work(i);
    }
    store_.Publish(std::move(draft_));
  }

 private:
  // Elements [begin, begin + size) of a slice, in one chunk.
  struct Piece {
    size_t slice;
    uint64_t begin;
    size_t size;
  };

  // Appends a slice's pieces, with readers at the beginning of each.
  void Divide(size_t slice) {
    std::vector<GradientReader> readers;
    for (const WeightedGradient& term : sum_.terms) {
      readers.emplace_back(&term.by_slice[slice]);
    }
    const uint64_t size = store_.slices()[slice].size;
    for (uint64_t at = 0; at < size;) {
      const size_t taken = std::min<uint64_t>(kPiece, size - at);
      pieces_.push_back({slice, at, taken});
      readers_.insert(readers_.end(), readers.begin(), readers.end());
      at += taken;
      if (at == size) break;
      for (GradientReader& reader : readers) reader.Skip(taken);
    }
  }

  void Work(size_t index) {
    const Piece& piece = pieces_[index];
    const size_t chunk = piece.begin / kChunkElements;
    const size_t offset = piece.begin % kChunkElements;
    std::vector<Optimizer::Slot> slots;
    for (const auto& [before, after] :
         store_.slots(draft_, piece.slice, chunk)) {
      slots.push_back({before + offset, after + offset});
    }
    Optimizer::Elements elements;
    elements.value = before_->slices[piece.slice][chunk].get() + offset;
    elements.slots = slots;
    elements.stream_out = streams_;
    elements.next = draft_.written[piece.slice][chunk].get() + offset;

    const proto::Variable& variable = store_.slices()[piece.slice].variable;
    const bool averages = variable.has_moving_average();
    const std::unique_ptr<Optimizer> average =
        averages ? MakeMovingAverage(variable.moving_average()) : nullptr;
    const Optimizer& rule =
        averages ? *average : *optimizers_[variable.optimizer()];
    const proto::StepScalars& scalars = scalars_[variable.optimizer()];

    const size_t num_gradients = sum_.terms.size();
    GradientReader* const readers = &readers_[index * num_gradients];
    // The next contiguous elements of each gradient. The gradient with the
    // fewest determines how many are worked on at a time.
    std::vector<FloatReader::Run> runs(num_gradients, {nullptr, 0});
    const std::unique_ptr<Decoded[]> decoded(new Decoded[num_gradients]);
    std::vector<Optimizer::Gradient> gradients(num_gradients);
    elements.gradients = gradients;
    elements.divisor = averages ? sum_.share_divisor : sum_.weight_divisor;
    if (options_.clip_value && !averages) {
      elements.clip_value = *options_.clip_value;
    }
    for (size_t left = piece.size; left > 0; left -= elements.size) {
      elements.size = left;
      for (size_t g = 0; g < num_gradients; ++g) {
        if (runs[g].size == 0) runs[g] = readers[g].Next(left, decoded[g]);
        const WeightedGradient& term = sum_.terms[g];
        gradients[g] = {averages ? term.share : term.weight, runs[g].data};
        elements.size = std::min(elements.size, runs[g].size);
      }
      rule.Apply(options_.simd, scalars, elements);
      for (FloatReader::Run& run : runs) run = run.From(elements.size);
      elements.value += elements.size;
      for (Optimizer::Slot& slot : slots) {
        slot.before += elements.size;
        slot.after += elements.size;
      }
      elements.next += elements.size;
    }
    if (streams_) FinishStreams();
  }

  const GradientSum& sum_;
  const std::vector<proto::StepScalars>& scalars_;
  const std::vector<std::unique_ptr<Optimizer>>& optimizers_;
  const ApplyOptions& options_;
  DenseStore& store_;
  const std::shared_ptr<const StoreVersion> before_;
  DenseStore::Draft draft_;
  bool streams_ = false;
  std::vector<Piece> pieces_;
  // Indexed by piece and gradient.
  std::vector<GradientReader> readers_;
};

}  // namespace

void ApplyStep(const GradientSum& sum,
               const std::vector<proto::StepScalars>& scalars,
               const std::vector<std::unique_ptr<Optimizer>>& optimizers,
               const ApplyOptions& options, DenseStore* store) {
  Update(sum, scalars, optimizers, options, store).Run();
}

}  // namespace holdfast
