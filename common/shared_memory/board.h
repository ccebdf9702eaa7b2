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

// Loans of one link, and their states, as docs/protocol/same_host.md tells ("A
// loan's word"). The words are shared with a process that may write anything
// there.

// Which word of a board, and with which number.
struct LoanId {
  uint32_t slot = 0;
  uint64_t serial = 0;

  friend bool operator==(const LoanId& a, const LoanId& b) {
    return a.slot == b.slot && a.serial == b.serial;
  }
};

inline constexpr uint32_t kBoardSlots = 4096;
inline constexpr size_t kBoardBytes = kBoardSlots * sizeof(uint64_t);

// The client's end: it makes the board, and all loans.
//
// Thread-safe.
class LoanMaker {
 public:
  // Errors: those of SealedFile::Create.
  static absl::StatusOr<std::unique_ptr<LoanMaker>> Create();

  const SealedFile& file() const { return *file_; }

  // FREE -> OFFERED. Nullopt: no word is free.
  std::optional<LoanId> Offer();

  // The other side has not held it, and cannot any more: true, and it is over
  // (OFFERED -> FREE). False: it is HELD.
  bool Withdraw(LoanId loan);
  // Of values: they have been read, or never will be. OFFERED -> FREE, HELD ->
  // RETURNED.
  void Return(LoanId loan);
  // Of a gradient that is HELD: whether the other side has given it back.
  bool IsOver(LoanId loan) const;
  // Of a loan that is over by the other side's hand: the word may be offered
  // again. To be called once, as Withdraw (when true) and Return do by
  // themselves.
  void Forget(LoanId loan);

 private:
  LoanMaker() = default;

  std::unique_ptr<SealedFile> file_;
  std::atomic<uint64_t>* words_ = nullptr;
  absl::Mutex mutex_;
  // Words that no loan of ours uses; one that was RETURNED may not be FREE yet.
  std::deque<uint32_t> unused_ ABSL_GUARDED_BY(mutex_);
  struct Slot {
    // Of the loan that was the last here.
    uint64_t serial = 0;
    bool lent = false;
  };
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

// The other end: it takes what it is offered. A serial number or slot that does
// not exist is no loan.
//
// Thread-safe.
class LoanTaker {
 public:
  // Errors: those of PeerFile::Map.
  static absl::StatusOr<std::unique_ptr<LoanTaker>> Map(const UniqueFd& fd);

  // OFFERED -> HELD. False: it is not offered.
  bool Hold(LoanId loan);
  // Of values, HELD: whether the client does not hold it any more, in whatever
  // way it says so.
  bool IsReturned(LoanId loan) const;
  // The loan is over: whatever stands there with its serial is FREE. Of values
  // that are returned, and of gradients that are read.
  void Free(LoanId loan);

 private:
  LoanTaker() = default;

  std::unique_ptr<PeerFile> file_;
  std::atomic<uint64_t>* words_ = nullptr;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_BOARD_H_
