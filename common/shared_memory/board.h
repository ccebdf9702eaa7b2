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
// word"). The words are shared with a process that may write anything there.

// A loan: its word on the board, and its serial number.
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

  // FREE -> OFFERED. Returns nullopt if no word is free.
  std::optional<LoanId> Offer();

  // OFFERED -> FREE: returns true, and the other side can no longer hold the
  // loan. Returns false if it is HELD.
  bool Withdraw(LoanId loan);
  // Returns a loan of values, which have been read or never will be. OFFERED ->
  // FREE, HELD -> RETURNED.
  void Return(LoanId loan);
  // For a gradient that is HELD: whether the other side has given it back.
  bool IsOver(LoanId loan) const;
  // Makes the word available again after the other side has ended the loan.
  // Must be called once; Withdraw (if it returns true) and Return call it
  // themselves.
  void Forget(LoanId loan);

 private:
  LoanMaker() = default;

  std::unique_ptr<SealedFile> file_;
  std::atomic<uint64_t>* words_ = nullptr;
  absl::Mutex mutex_;
  // Words without a current loan; one that was RETURNED may not be FREE yet.
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

  // OFFERED -> HELD. Returns false if it is not offered.
  bool Hold(LoanId loan);
  // For values that are HELD: whether the client no longer uses them. Any
  // change of the word means so.
  bool IsReturned(LoanId loan) const;
  // Ends the loan: any word with its serial number becomes FREE. For values
  // that are returned, and gradients that have been read.
  void Free(LoanId loan);

 private:
  LoanTaker() = default;

  std::unique_ptr<PeerFile> file_;
  std::atomic<uint64_t>* words_ = nullptr;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_BOARD_H_
