// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_JOB_IDS_H_
#define HOLDFAST_COMMON_JOB_IDS_H_

#include <cstdint>
#include <ostream>

namespace holdfast {

// A number that cannot be confused with the other numbers of the protocol.
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(uint64_t value) : value_(value) {}

  constexpr uint64_t value() const { return value_; }
  constexpr Id next() const { return Id(value_ + 1); }

  friend constexpr bool operator==(Id a, Id b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(Id a, Id b) { return a.value_ != b.value_; }
  friend constexpr bool operator<(Id a, Id b) { return a.value_ < b.value_; }
  friend constexpr bool operator<=(Id a, Id b) { return a.value_ <= b.value_; }
  friend constexpr bool operator>(Id a, Id b) { return a.value_ > b.value_; }
  friend constexpr bool operator>=(Id a, Id b) { return a.value_ >= b.value_; }
  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, Id id) {
    return out << id.value_;
  }

 private:
  uint64_t value_ = 0;
};

// The number of committed steps. It also names a version: the values of the
// variables after that many steps.
using GlobalStep = Id<struct GlobalStepTag>;
// The number of a life of a task, from 1.
using Incarnation = Id<struct IncarnationTag>;
// A push's number within its worker's incarnation, from 1.
using PushSequence = Id<struct PushSequenceTag>;
// The number of a generation, a period of a job's life in which no shard has
// lost state, from 1.
using Generation = Id<struct GenerationTag>;

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_IDS_H_
