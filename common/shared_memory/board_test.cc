// SPDX-License-Identifier: Apache-2.0
#include "common/shared_memory/board.h"

#include <fcntl.h>

#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

// As in docs/protocol/same_host.md.
enum State : uint64_t { kFree = 0, kOffered = 1, kHeld = 2, kReturned = 3 };
uint64_t Word(LoanId loan, State state) { return loan.serial << 2 | state; }

// A board with both of its ends.
struct Board {
  std::unique_ptr<LoanMaker> client;
  std::unique_ptr<LoanTaker> ps;

  std::atomic<uint64_t>& word(uint32_t slot) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(
        client->file().data())[slot];
  }
  uint64_t at(LoanId loan) const { return word(loan.slot); }
};

Board MakeBoard() {
  auto client = LoanMaker::Create();
  EXPECT_TRUE(client.ok()) << client.status();
  auto ps = LoanTaker::Map(
      UniqueFd(fcntl((*client)->file().fd(), F_DUPFD_CLOEXEC, 0)));
  EXPECT_TRUE(ps.ok()) << ps.status();
  return {*std::move(client), *std::move(ps)};
}

// Offers all words but `left`.
void Exhaust(const Board& board, size_t left) {
  for (size_t i = left; i < kBoardSlots; ++i) {
    ASSERT_TRUE(board.client->Offer().has_value());
  }
}

TEST(BoardTest, ALoanOfValues) {
  const Board board = MakeBoard();
  const std::optional<LoanId> loan = board.client->Offer();
  ASSERT_TRUE(loan.has_value());
  EXPECT_EQ(loan->serial, 1u);
  EXPECT_EQ(board.at(*loan), Word(*loan, kOffered));
  EXPECT_TRUE(board.ps->Hold(*loan));
  EXPECT_EQ(board.at(*loan), Word(*loan, kHeld));
  EXPECT_FALSE(board.ps->Hold(*loan)) << "twice";
  EXPECT_FALSE(board.ps->IsReturned(*loan));
  board.client->Return(*loan);
  EXPECT_EQ(board.at(*loan), Word(*loan, kReturned));
  EXPECT_TRUE(board.ps->IsReturned(*loan));
  board.ps->Free(*loan);
  EXPECT_EQ(board.at(*loan), Word(*loan, kFree));
  EXPECT_FALSE(board.ps->Hold(*loan)) << "again";
}

TEST(BoardTest, ALoanOfAGradient) {
  const Board board = MakeBoard();
  const LoanId loan = *board.client->Offer();
  EXPECT_FALSE(board.client->IsOver(loan)) << "it may still be held";
  EXPECT_TRUE(board.ps->Hold(loan));
  EXPECT_FALSE(board.client->IsOver(loan));
  EXPECT_FALSE(board.client->Withdraw(loan));
  EXPECT_EQ(board.at(loan), Word(loan, kHeld));
  board.ps->Free(loan);
  EXPECT_EQ(board.at(loan), Word(loan, kFree));
  EXPECT_TRUE(board.client->IsOver(loan));
}

TEST(BoardTest, WhatIsWithdrawnCannotBeHeld) {
  const Board board = MakeBoard();
  const LoanId loan = *board.client->Offer();
  EXPECT_TRUE(board.client->Withdraw(loan));
  EXPECT_EQ(board.at(loan), Word(loan, kFree));
  EXPECT_FALSE(board.ps->Hold(loan));
  const LoanId other = *board.client->Offer();
  board.client->Return(other);
  EXPECT_EQ(board.at(other), Word(other, kFree));
  EXPECT_FALSE(board.ps->Hold(other));
}

TEST(BoardTest, AWordIsOfferedAgainWhenItIsFree) {
  const Board board = MakeBoard();
  Exhaust(board, 1);
  LoanId loan = *board.client->Offer();
  EXPECT_EQ(board.client->Offer(), std::nullopt) << "all are lent";
  const uint32_t slot = loan.slot;

  const auto next = [&](uint64_t serial) {
    const std::optional<LoanId> offered = board.client->Offer();
    ASSERT_TRUE(offered.has_value());
    EXPECT_EQ(*offered, (LoanId{slot, serial}));
    loan = *offered;
  };
  EXPECT_TRUE(board.client->Withdraw(loan));
  next(2);
  board.client->Return(loan);
  next(3);
  EXPECT_TRUE(board.ps->Hold(loan));
  board.client->Return(loan);
  EXPECT_EQ(board.client->Offer(), std::nullopt) << "RETURNED";
  board.ps->Free(loan);
  next(4);
  EXPECT_TRUE(board.ps->Hold(loan));
  board.ps->Free(loan);
  EXPECT_EQ(board.client->Offer(), std::nullopt) << "its memory is in use";
  board.client->Forget(loan);
  next(5);
  EXPECT_EQ(board.client->Offer(), std::nullopt);
}

TEST(BoardTest, AWordIsNotOfferedTwiceWhoeverForgetsTwice) {
  const Board board = MakeBoard();
  Exhaust(board, 1);
  const LoanId first = *board.client->Offer();
  EXPECT_TRUE(board.client->Withdraw(first));
  board.client->Forget(first);
  board.client->Return(first);
  const LoanId second = *board.client->Offer();
  board.client->Forget(first);  // late
  EXPECT_EQ(board.client->Offer(), std::nullopt);
  EXPECT_EQ(board.at(second), Word(second, kOffered));
}

TEST(BoardTest, HandsOutEachWordOnce) {
  const Board board = MakeBoard();
  std::set<uint32_t> slots;
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    const std::optional<LoanId> loan = board.client->Offer();
    ASSERT_TRUE(loan.has_value());
    EXPECT_LT(loan->slot, kBoardSlots);
    EXPECT_TRUE(slots.insert(loan->slot).second);
    EXPECT_TRUE(board.ps->Hold(*loan));
  }
  EXPECT_EQ(board.client->Offer(), std::nullopt);
  EXPECT_EQ(board.client->Offer(), std::nullopt);
}

TEST(BoardTest, LateMessagesFindNothing) {
  const Board board = MakeBoard();
  Exhaust(board, 1);
  const LoanId first = *board.client->Offer();
  EXPECT_TRUE(board.client->Withdraw(first));
  const LoanId second = *board.client->Offer();
  ASSERT_EQ(first.slot, second.slot);

  EXPECT_FALSE(board.ps->Hold(first));
  board.ps->Free(first);
  board.client->Return(first);
  EXPECT_FALSE(board.client->Withdraw(first));
  EXPECT_TRUE(board.client->IsOver(first));
  EXPECT_TRUE(board.ps->IsReturned(first));
  EXPECT_EQ(board.at(second), Word(second, kOffered));

  EXPECT_TRUE(board.ps->Hold(second));
  board.ps->Free(first);
  board.client->Return(first);
  EXPECT_TRUE(board.ps->IsReturned(first));
  EXPECT_EQ(board.at(second), Word(second, kHeld));
}

TEST(BoardTest, WhatDoesNotExistIsNoLoan) {
  const Board board = MakeBoard();
  const LoanId loan = *board.client->Offer();
  const uint64_t most = ~uint64_t{0};
  const std::vector<LoanId> kNone = {
      {loan.slot, 0},
      {loan.slot, loan.serial + 1},
      // Truncated to 62 bits it would be ours.
      {loan.slot, loan.serial + (uint64_t{1} << 62)},
      {loan.slot, loan.serial + (uint64_t{3} << 62)},
      {loan.slot, most},
      {loan.slot + 1, 0},
      {loan.slot + 1, loan.serial},
      {kBoardSlots, loan.serial},
      {~uint32_t{0}, loan.serial},
  };
  for (const bool held : {false, true}) {
    for (const LoanId& none : kNone) {
      SCOPED_TRACE(absl::StrCat(none.slot, " ", none.serial));
      EXPECT_FALSE(board.ps->Hold(none));
      EXPECT_TRUE(board.ps->IsReturned(none));
      board.ps->Free(none);
      EXPECT_FALSE(board.client->Withdraw(none));
      board.client->Return(none);
      board.client->Forget(none);
      EXPECT_TRUE(board.client->IsOver(none));
      EXPECT_EQ(board.at(loan), Word(loan, held ? kHeld : kOffered));
    }
    EXPECT_EQ(board.ps->Hold(loan), !held);
  }
}

TEST(BoardTest, IsMadeOfASealedFileOfItsSize) {
  const auto small =
      *SealedFile::Create("t", kBoardBytes / 2, SealedFile::Writers::kAll);
  const auto own =
      *SealedFile::Create("t", kBoardBytes, SealedFile::Writers::kOwner);
  for (const SealedFile* file : {small.get(), own.get()}) {
    EXPECT_EQ(LoanTaker::Map(UniqueFd(fcntl(file->fd(), F_DUPFD_CLOEXEC, 0)))
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(LoanTaker::Map(UniqueFd()).ok());
}

// ---- A misbehaving peer ----

TEST(BoardTest, SurvivesWhateverAPeerWrites) {
  const Board board = MakeBoard();
  std::mt19937_64 random(7);
  std::vector<LoanId> loans;
  std::set<std::pair<uint32_t, uint64_t>> given;
  for (int round = 0; round < 20; ++round) {
    while (const std::optional<LoanId> loan = board.client->Offer()) {
      EXPECT_TRUE(given.insert({loan->slot, loan->serial}).second)
          << "a serial number comes once";
      loans.push_back(*loan);
      // Each word is offered once before it is given back.
      ASSERT_LE(loans.size(), kBoardSlots);
    }
    for (uint32_t slot = 0; slot < kBoardSlots; ++slot) {
      // Serial numbers near existing ones, or arbitrary ones.
      board.word(slot) = random() >> (random() % 2 == 0 ? 58 : 0);
    }
    for (const LoanId& loan : loans) {
      switch (random() % 4) {
        case 0:
          board.ps->Hold(loan);
          break;
        case 1:
          board.ps->Free(loan);
          break;
        case 2:
          board.ps->IsReturned(loan);
          break;
        default:
          board.client->IsOver(loan);
      }
      if (!board.client->Withdraw(loan)) board.client->Return(loan);
    }
    loans.clear();
  }
  // FREE words are used again, whatever their serial number.
  for (uint32_t slot = 0; slot < kBoardSlots; ++slot) {
    board.word(slot) = random() << 2;
  }
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    const std::optional<LoanId> loan = board.client->Offer();
    ASSERT_TRUE(loan.has_value());
    EXPECT_TRUE(given.insert({loan->slot, loan->serial}).second);
    EXPECT_TRUE(board.ps->Hold(*loan));
  }
}

TEST(BoardTest, APeerThatNeverRestsHoldsNobodyUp) {
  const Board board = MakeBoard();
  const LoanId loan = *board.client->Offer();
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    for (uint64_t i = 0; !stop; ++i) {
      board.word(loan.slot) = Word(loan, static_cast<State>(i % 4));
    }
  });
  for (int i = 0; i < 20000; ++i) {
    board.ps->Free(loan);
    board.ps->Hold(loan);
    board.client->Return(loan);
    board.client->Withdraw(loan);
  }
  stop = true;
  peer.join();
}

// ---- Both ends at the same time ----

// Offers many loans, calls `before` for each, then `client` and `ps` for each
// at the same time, and when both are done, `after` for each, with their
// results.
void Race(const Board& board, const std::function<void(LoanId)>& before,
          const std::function<bool(LoanId)>& client,
          const std::function<bool(LoanId)>& ps,
          const std::function<void(LoanId, bool, bool)>& after) {
  constexpr int kRounds = 100;
  constexpr size_t kLoans = 200;
  std::vector<LoanId> loans(kLoans);
  std::vector<char> of_client(kLoans), of_ps(kLoans);
  // The rounds that have begun, and the rounds that the ps has finished.
  std::atomic<int> begun{0}, done{0};
  std::thread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun < round) std::this_thread::yield();
      for (size_t i = 0; i < kLoans; ++i) {
        // In every other round they go in opposite directions, because one of
        // them may be faster.
        const size_t k = round % 2 == 0 ? i : kLoans - 1 - i;
        of_ps[k] = ps(loans[k]);
      }
      done = round;
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    for (LoanId& loan : loans) {
      const std::optional<LoanId> offered = board.client->Offer();
      EXPECT_TRUE(offered.has_value());
      loan = offered.value_or(LoanId());
      before(loan);
    }
    begun = round;
    for (size_t i = 0; i < kLoans; ++i) of_client[i] = client(loans[i]);
    while (done < round) std::this_thread::yield();
    for (size_t i = 0; i < kLoans; ++i) after(loans[i], of_client[i], of_ps[i]);
  }
  other.join();
}

TEST(BoardTest, OneOfWithdrawAndHoldWins) {
  const Board board = MakeBoard();
  Race(
      board, [](LoanId) {},
      [&](LoanId loan) { return board.client->Withdraw(loan); },
      [&](LoanId loan) { return board.ps->Hold(loan); },
      [&](LoanId loan, bool withdrawn, bool held) {
        EXPECT_NE(withdrawn, held);
        EXPECT_EQ(board.at(loan), Word(loan, held ? kHeld : kFree));
        if (!held) return;
        board.ps->Free(loan);
        board.client->Forget(loan);
      });
}

TEST(BoardTest, AReturnIsSeenByWhoeverHolds) {
  const Board board = MakeBoard();
  Race(
      board, [](LoanId) {},
      [&](LoanId loan) {
        board.client->Return(loan);
        return true;
      },
      [&](LoanId loan) { return board.ps->Hold(loan); },
      [&](LoanId loan, bool, bool held) {
        EXPECT_EQ(board.at(loan), Word(loan, held ? kReturned : kFree));
        EXPECT_TRUE(board.ps->IsReturned(loan));
        if (held) board.ps->Free(loan);
      });
}

// This happens when a link ends.
TEST(BoardTest, FreeAndReturnEndFree) {
  const Board board = MakeBoard();
  Race(
      board, [&](LoanId loan) { EXPECT_TRUE(board.ps->Hold(loan)); },
      [&](LoanId loan) {
        board.client->Return(loan);
        return true;
      },
      [&](LoanId loan) {
        board.ps->Free(loan);
        return true;
      },
      [&](LoanId loan, bool, bool) {
        EXPECT_EQ(board.at(loan), Word(loan, kFree));
      });
}

// ---- All schedules ----

// The actions of client and ps on one word, for up to kLoans loans, with
// messages that arrive late, twice, or never. The client and the ps learn about
// each other's actions only from the word.
class Schedules {
 public:
  Schedules() : board_(MakeBoard()) { Exhaust(board_, 1); }

  // Explores all schedules. Returns the first that breaks a guarantee, or an
  // empty string.
  std::string Explore() {
    std::vector<std::vector<Action>> open = {{}};
    while (!open.empty()) {
      const std::vector<Action> path = std::move(open.back());
      open.pop_back();
      Begin();
      for (const Action& action : path) Do(action);
      const std::vector<Action> enabled = Enabled();
      for (const Action& action : enabled) {
        Begin();
        for (const Action& before : path) Do(before);
        Do(action);
        ++steps_;
        if (const std::string broken = Broken(); !broken.empty()) {
          std::string text = broken;
          for (const Action& before : path)
            absl::StrAppend(&text, Name(before));
          return absl::StrCat(text, Name(action));
        }
        if (!seen_.insert(Key()).second) continue;
        open.push_back(path);
        open.back().push_back(action);
      }
    }
    return "";
  }
  size_t states() const { return seen_.size(); }
  // How often each outcome occurred.
  const std::map<std::string, int>& happened() const { return happened_; }

 private:
  static constexpr size_t kLoans = 3;
  enum What {
    kOfferValues,
    kOfferGradient,
    // The answer has arrived, and the client reads the lent memory.
    kRead,
    kGiveBack,
    kWithdraw,
    kPoll,
    kHold,
    // Stops using the memory: values once they are returned, a gradient once it
    // is read.
    kDrop,
    // After kDrop, possibly more than once.
    kFree,
  };
  struct Action {
    What what;
    size_t loan;
  };
  struct Loan {
    LoanId id;
    bool values;
    // The client's state.
    bool given_back = false;
    bool reading = false;
    // The ps's state. `held` says whether it reads the memory, or guarantees
    // that it stays valid.
    bool answered = false;
    bool held = false;
    bool dropped = false;
  };

  static std::string Name(const Action& action) {
    static const char* const kNames[] = {
        "offer values", "offer gradient", "read", "give back", "withdraw",
        "poll",         "hold",           "drop", "free"};
    return absl::StrCat(", ", kNames[action.what], " ", action.loan);
  }

  // Sets the word to FREE, and forgets all loans.
  void Begin() {
    for (const Loan& loan : loans_) {
      board_.ps->Free(loan.id);
      if (!loan.given_back) board_.client->Forget(loan.id);
    }
    loans_.clear();
    wrong_.clear();
  }

  std::vector<Action> Enabled() const {
    std::vector<Action> actions;
    const size_t last = loans_.size() - 1;
    if (loans_.empty() || loans_[last].given_back) {
      if (loans_.size() < kLoans) {
        actions.push_back({kOfferValues, loans_.size()});
        actions.push_back({kOfferGradient, loans_.size()});
      }
    } else if (loans_[last].values) {
      if (loans_[last].answered) actions.push_back({kRead, last});
      actions.push_back({kGiveBack, last});
    } else {
      actions.push_back({kWithdraw, last});
      actions.push_back({kPoll, last});
    }
    for (size_t i = 0; i < loans_.size(); ++i) {
      actions.push_back({kHold, i});
      if (loans_[i].held) actions.push_back({kDrop, i});
      if (loans_[i].dropped) actions.push_back({kFree, i});
    }
    return actions;
  }

  void Do(const Action& action) {
    if (action.what == kOfferValues || action.what == kOfferGradient) {
      const std::optional<LoanId> id = board_.client->Offer();
      ++happened_[id.has_value() ? "offered" : "not free"];
      if (!id.has_value()) return;
      loans_.push_back({*id, action.what == kOfferValues});
      return;
    }
    Loan& loan = loans_[action.loan];
    switch (action.what) {
      case kRead:
        loan.reading = true;
        break;
      case kGiveBack:
        board_.client->Return(loan.id);
        loan.reading = false;
        loan.given_back = true;
        break;
      case kWithdraw:
        loan.given_back = board_.client->Withdraw(loan.id);
        ++happened_[loan.given_back ? "withdrawn" : "too late"];
        break;
      case kPoll:
        if (!board_.client->IsOver(loan.id)) break;
        ++happened_["over"];
        board_.client->Forget(loan.id);
        loan.given_back = true;
        break;
      case kHold:
        if (!board_.ps->Hold(loan.id)) {
          ++happened_["not held"];
          break;
        }
        ++happened_["held"];
        if (loan.given_back) wrong_ = "held after it was given back";
        if (loan.held || loan.dropped) wrong_ = "held twice";
        loan.held = loan.answered = true;
        break;
      case kDrop:
        if (loan.values && !board_.ps->IsReturned(loan.id)) break;
        ++happened_["dropped"];
        if (loan.values && !loan.given_back) wrong_ = "dropped while lent";
        loan.held = false;
        loan.dropped = true;
        break;
      case kFree:
        board_.ps->Free(loan.id);
        break;
      case kOfferValues:
      case kOfferGradient:
        break;
    }
  }

  std::string Broken() const {
    if (!wrong_.empty()) return wrong_;
    for (const Loan& loan : loans_) {
      if (loan.reading && !loan.held) return "it reads what is not held";
      if (!loan.held) continue;
      if (loan.values) {
        if (!loan.given_back && board_.ps->IsReturned(loan.id)) {
          return "returned by nobody";
        }
      } else if (loan.given_back || board_.client->IsOver(loan.id)) {
        return "over while the ps reads";
      }
    }
    return "";
  }

  std::string Key() const {
    std::string key;
    for (const Loan& loan : loans_) {
      absl::StrAppend(&key, loan.values, loan.given_back, loan.reading,
                      loan.answered, loan.held, loan.dropped, " ");
    }
    if (!loans_.empty()) {
      const uint64_t word = board_.at(loans_[0].id);
      absl::StrAppend(&key, word - (loans_[0].id.serial << 2));
    }
    return key;
  }

  const Board board_;
  // In order; only the last may still be the client's.
  std::vector<Loan> loans_;
  std::string wrong_;
  std::set<std::string> seen_;
  size_t steps_ = 0;
  std::map<std::string, int> happened_;
};

TEST(BoardTest, NoScheduleReadsWhatIsNotLent) {
  Schedules schedules;
  EXPECT_EQ(schedules.Explore(), "");
  // Everything was explored.
  EXPECT_GT(schedules.states(), 200u);
  for (const char* what : {"offered", "not free", "withdrawn", "too late",
                           "over", "held", "not held", "dropped"}) {
    EXPECT_GT(schedules.happened().count(what), 0u) << what;
  }
  RecordProperty("states", static_cast<int>(schedules.states()));
}

}  // namespace
}  // namespace holdfast
