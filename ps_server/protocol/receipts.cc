// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/receipts.h"

#include <cstring>
#include <set>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// The words as bytes, little-endian.
std::string Bytes(absl::Span<const uint64_t> words) {
  std::string bytes;
  for (const uint64_t word : words) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes.push_back(static_cast<char>(word >> shift));
    }
  }
  return bytes;
}

uint64_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

uint64_t Get(const Receipts::ByPs& receipts, uint32_t ps) {
  return ps < static_cast<uint32_t>(receipts.size()) ? receipts.Get(ps) : 0;
}

absl::Status NotProven(const PushId& push, const char* what, uint32_t ps,
                       uint64_t receipt) {
  return absl::FailedPreconditionError(absl::StrCat(
      push.ToString(), " is not proven to be ", what, " /job:ps/task:", ps,
      ": its receipt is ", receipt == 0 ? "missing" : "wrong"));
}

}  // namespace

std::string Receipts::MakeKey(absl::string_view secret, Generation generation) {
  const SipHash hash(secret);
  return Bytes(
      {hash.Of({generation.value(), 0}), hash.Of({generation.value(), 1})});
}

Receipts::Receipts(
    absl::string_view key, Generation generation,
    const proto::Declaration& declaration,
    const google::protobuf::RepeatedPtrField<proto::Slice>& slices,
    uint32_t num_ps)
    : hash_(key),
      generation_(generation),
      receives_(num_ps, declaration.tables_size() > 0) {
  std::set<std::string> frozen;
  for (const proto::Variable& variable : declaration.variables()) {
    if (variable.has_trainable() && !variable.trainable()) {
      frozen.insert(variable.name());
    }
  }
  for (const proto::Slice& slice : slices) {
    if (slice.size() > 0 && slice.ps() < num_ps &&
        frozen.count(slice.variable()) == 0) {
      receives_[slice.ps()] = true;
    }
  }
}

// All the words before `rest` are always present, so that no two statements
// have the same bytes.
uint64_t Receipts::Make(Kind kind, uint32_t ps, const PushId& push,
                        absl::Span<const uint64_t> rest) const {
  absl::InlinedVector<uint64_t, 16> words = {
      kind,
      ps,
      generation_.value(),
      push.from.worker.job == kChiefJob ? uint64_t{1} : uint64_t{0},
      push.from.worker.index,
      push.from.incarnation.value(),
      push.sequence.value()};
  words.insert(words.end(), rest.begin(), rest.end());
  const uint64_t code = hash_.Of(words);
  return code == 0 ? 1 : code;
}

uint64_t Receipts::Held(uint32_t ps, const PushId& push,
                        std::optional<GlobalStep> step) const {
  if (!step.has_value()) return Make(kHeld, ps, push, {});
  return Make(kHeld, ps, push, {step->value()});
}

uint64_t Receipts::Applied(uint32_t ps, const PushId& push) const {
  return Make(kApplied, ps, push, {});
}

uint64_t Receipts::OfTicket(const PushId& push, const Scalars& scalars) const {
  absl::InlinedVector<uint64_t, 6> bits;
  for (const proto::StepScalars& s : scalars) {
    bits.push_back(Bits(s.learning_rate()));
    bits.push_back(Bits(s.bias_correction1()));
    bits.push_back(Bits(s.bias_correction2()));
  }
  return Make(kTicket, 0, push, bits);
}

// Receipts are compared as machine words, in a time that does not depend on how
// many of their bits match.

absl::Status Receipts::CheckHeld(const PushId& push,
                                 std::optional<GlobalStep> step,
                                 const ByPs& receipts,
                                 std::optional<uint32_t> own) const {
  for (uint32_t ps = 0; ps < receives_.size(); ++ps) {
    if (!receives_[ps] || own == ps) continue;
    const uint64_t receipt = Get(receipts, ps);
    if (receipt != Held(ps, push, step)) {
      return NotProven(push, "held whole by", ps, receipt);
    }
  }
  return absl::OkStatus();
}

absl::Status Receipts::CheckApplied(const PushId& push,
                                    const ByPs& receipts) const {
  for (uint32_t ps = 0; ps < receives_.size(); ++ps) {
    if (!receives_[ps]) continue;
    const uint64_t receipt = Get(receipts, ps);
    if (receipt != Applied(ps, push)) {
      return NotProven(push, "applied by", ps, receipt);
    }
  }
  return absl::OkStatus();
}

absl::Status Receipts::CheckTicket(const PushId& push, const Scalars& scalars,
                                   uint64_t receipt) const {
  if (receipt == OfTicket(push, scalars)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      push.ToString(), ": these scalars are not proven to be its ticket's: ",
      "the ticket's receipt is ", receipt == 0 ? "missing" : "wrong"));
}

}  // namespace holdfast
