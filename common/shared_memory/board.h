// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_SHARED_MEMORY_BOARD_H_
#define HOLDFAST_COMMON_SHARED_MEMORY_BOARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/shared_memory/sealed_file.h"

namespace holdfast {

// The loans of one link and their states (docs/protocol/same_host.md, "A loan's
// word"). A board is memory with a word for each loan, which says the loan's
// state. The board is shared with a process that may write anything there.

// Identifies a loan by the index of its word on the board, and by its serial
// number.
struct LoanId {
  uint32_t slot = 0;
  uint64_t serial = 0;

  friend bool operator==(const LoanId& a, const LoanId& b) {
    return a.slot == b.slot && a.serial == b.serial;
  }
};

inline constexpr uint32_t kBoardSlots = 4096;
inline constexpr size_t kBoardBytes = kBoardSlots * sizeof(uint64_t);

// The client's end, which makes the board and all loans.
//
// Thread-safe.
class LoanMaker {
 public:
  // Errors: those of SealedFile::Create.
  static absl::StatusOr<std::unique_ptr<LoanMaker>> Create();

  const SealedFile& file() const { return *file_; }

  // Makes a loan, from FREE to OFFERED. Returns nullopt if no word is free.
  std::optional<LoanId> Offer();

  // Takes back an offer, from OFFERED to FREE, and returns true: the other side
  // can no longer hold the loan. Returns false if the loan is HELD.
  bool Withdraw(LoanId loan);
  // Returns a loan of values, after they have been read or if they never will
  // be: from OFFERED to FREE, or from HELD to RETURNED.
  void Return(LoanId loan);
  // Whether the other side has given the loan back. For the loan of a gradient
  // that is HELD.
  bool IsOver(LoanId loan) const;
  // Makes the loan's word available again after the other side has ended the
  // loan. Must be called once for each loan; Withdraw (if it returns true) and
  // Return call it themselves.
  void Forget(LoanId loan);

 private:
  LoanMaker() = default;

  std::unique_ptr<SealedFile> file_;
  std::atomic<uint64_t>* words_ = nullptr;
  absl::Mutex mutex_;
  // The indices of words without a current loan. A word that was RETURNED may
  // not be FREE yet.
  std::deque<uint32_t> unused_ ABSL_GUARDED_BY(mutex_);
  struct Slot {
    // The serial number of the last loan in this slot.
    uint64_t serial = 0;
    bool lent = false;
  };
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

// The other end, which takes the loans that it is offered. A LoanId with an
// invalid slot or serial number is not a loan.
//
// Thread-safe.
class LoanTaker {
 public:
  // Errors: those of PeerFile::Map.
  static absl::StatusOr<std::unique_ptr<LoanTaker>> Map(const UniqueFd& fd);

  // Holds a loan, from OFFERED to HELD. Returns false if the loan is not
  // OFFERED.
  bool Hold(LoanId loan);
  // Whether the client no longer uses the values that are lent, as any change
  // of the word means. For the loan of values that is HELD.
  bool IsReturned(LoanId loan) const;
  // Ends the loan: its word becomes FREE, from whatever state, if it still has
  // the loan's serial number. For values that are returned, and gradients that
  // have been read.
  void Free(LoanId loan);

 private:
  LoanTaker() = default;

  std::unique_ptr<PeerFile> file_;
  std::atomic<uint64_t>* words_ = nullptr;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_BOARD_H_
