// SPDX-License-Identifier: Apache-2.0
#include "common/shared_memory/board.h"

#include "common/base/status_macros.h"

namespace holdfast {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

// word := serial << 2 | state
enum State : uint64_t { kFree = 0, kOffered = 1, kHeld = 2, kReturned = 3 };
constexpr uint64_t kStateMask = 3;
constexpr uint64_t kMaxSerial = ~uint64_t{0} >> 2;

// `loan` must exist: the serial number of another could be truncated to the
// same word.
uint64_t Word(LoanId loan, State state) { return loan.serial << 2 | state; }

bool Exists(LoanId loan) {
  return loan.slot < kBoardSlots && loan.serial > 0 &&
         loan.serial <= kMaxSerial;
}

// Acquire and release: whoever sees the new word sees all earlier writes to the
// lent memory, and earlier reads of it are not reordered after the change.
bool Change(std::atomic<uint64_t>& word, uint64_t from, uint64_t to) {
  return word.compare_exchange_strong(from, to, std::memory_order_acq_rel,
                                      std::memory_order_acquire);
}

std::atomic<uint64_t>* Words(char* data) {
  return reinterpret_cast<std::atomic<uint64_t>*>(data);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoanMaker>> LoanMaker::Create() {
  HOLDFAST_ASSIGN_OR_RETURN(auto file,
                            SealedFile::Create("holdfast-board", kBoardBytes,
                                               SealedFile::Writers::kAll));
  auto maker = std::unique_ptr<LoanMaker>(new LoanMaker);
  maker->file_ = std::move(file);
  maker->words_ = Words(maker->file_->data());
  absl::MutexLock lock(&maker->mutex_);
  maker->slots_.resize(kBoardSlots);
  for (uint32_t slot = 0; slot < kBoardSlots; ++slot) {
    maker->unused_.push_back(slot);
  }
  return maker;
}

std::optional<LoanId> LoanMaker::Offer() {
  absl::MutexLock lock(&mutex_);
  // Words that were given up longest ago come first: they are likely to be
  // FREE.
  for (size_t left = unused_.size(); left > 0; --left) {
    const uint32_t slot = unused_.front();
    unused_.pop_front();
    const LoanId loan{slot, slots_[slot].serial + 1};
    const uint64_t word = words_[slot].load(std::memory_order_acquire);
    if ((word & kStateMask) == kFree && Exists(loan) &&
        Change(words_[slot], word, Word(loan, kOffered))) {
      slots_[slot] = {loan.serial, /*lent=*/true};
      return loan;
    }
    unused_.push_back(slot);
  }
  return std::nullopt;
}

bool LoanMaker::Withdraw(LoanId loan) {
  if (!Exists(loan) ||
      !Change(words_[loan.slot], Word(loan, kOffered), Word(loan, kFree))) {
    return false;
  }
  Forget(loan);
  return true;
}

void LoanMaker::Return(LoanId loan) {
  if (!Exists(loan)) return;
  std::atomic<uint64_t>& word = words_[loan.slot];
  // If the other side holds the loan between the two changes, the second change
  // finds the word HELD.
  if (!Change(word, Word(loan, kOffered), Word(loan, kFree))) {
    Change(word, Word(loan, kHeld), Word(loan, kReturned));
  }
  Forget(loan);
}

bool LoanMaker::IsOver(LoanId loan) const {
  if (!Exists(loan)) return true;
  const uint64_t word = words_[loan.slot].load(std::memory_order_acquire);
  return word != Word(loan, kOffered) && word != Word(loan, kHeld);
}

void LoanMaker::Forget(LoanId loan) {
  if (!Exists(loan)) return;
  absl::MutexLock lock(&mutex_);
  Slot& slot = slots_[loan.slot];
  if (slot.serial != loan.serial || !slot.lent) return;
  slot.lent = false;
  unused_.push_back(loan.slot);
}

absl::StatusOr<std::unique_ptr<LoanTaker>> LoanTaker::Map(const UniqueFd& fd) {
  HOLDFAST_ASSIGN_OR_RETURN(
      auto file, PeerFile::Map(fd, kBoardBytes, PeerFile::Access::kReadWrite));
  auto taker = std::unique_ptr<LoanTaker>(new LoanTaker);
  taker->file_ = std::move(file);
  taker->words_ = Words(taker->file_->data());
  return taker;
}

bool LoanTaker::Hold(LoanId loan) {
  return Exists(loan) &&
         Change(words_[loan.slot], Word(loan, kOffered), Word(loan, kHeld));
}

bool LoanTaker::IsReturned(LoanId loan) const {
  return !Exists(loan) ||
         words_[loan.slot].load(std::memory_order_acquire) != Word(loan, kHeld);
}

void LoanTaker::Free(LoanId loan) {
  if (!Exists(loan)) return;
  // The client changes a word with this serial number at most once more; a
  // client that keeps changing it harms only itself.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const uint64_t word = words_[loan.slot].load(std::memory_order_acquire);
    if (word >> 2 != loan.serial ||
        Change(words_[loan.slot], word, Word(loan, kFree))) {
      return;
    }
  }
}

}  // namespace holdfast
