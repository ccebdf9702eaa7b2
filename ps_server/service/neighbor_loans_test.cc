// SPDX-License-Identifier: Apache-2.0

// Values that are lent over a link, and gradients that are borrowed.

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc/rpc_limits.h"
#include "common/shared_memory/board.h"
#include "common/shared_memory/sealed_file.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard.pb.h"
#include "ps_server/service/neighbor_link.h"
#include "ps_server/service/neighbors.h"
#include "ps_server/service/testing/neighbors_testing.h"

namespace holdfast::link_testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

using LendTest = NeighborsTest;

TEST_F(LendTest, TheClientReadsTheValuesWhereTheyLie) {
  Start();
  ValuesToLend before = MakeVersion(kPage, 'a');
  ValuesToLend version = MakeVersion(kMinLentBytes, 'b');
  const auto client = MakeLink(SenderOf(0));
  const auto file = client->ReceiveFile(1);
  const LoanId loan = client->Offer();
  const TensorPiece piece = Lend(client.get(), &version, loan);
  ASSERT_TRUE(piece.shared.has_value());
  EXPECT_EQ(piece.data.size(), 0u);
  EXPECT_EQ(piece.shared->file(), 1u);
  EXPECT_EQ(piece.shared->size(), kMinLentBytes);
  EXPECT_EQ(piece.shared->loan().link(), client->link());
  EXPECT_EQ(piece.shared->loan().slot(), loan.slot);
  EXPECT_EQ(piece.shared->loan().serial(), loan.serial);
  ASSERT_LE(piece.shared->offset() + piece.shared->size(), file->size());
  EXPECT_EQ(
      std::string(file->data() + piece.shared->offset(), piece.shared->size()),
      std::string(kMinLentBytes, 'b'));
  EXPECT_FALSE(version.IsGone());
  EXPECT_EQ(neighbors_->figures().lent_now, kMinLentBytes);
  EXPECT_EQ(neighbors_->figures().lent, kMinLentBytes);
}

TEST_F(LendTest, WhatIsReturnedIsLetGoAtTheNextLoan) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  ValuesToLend first = MakeVersion(kMinLentBytes, 'a');
  ValuesToLend second = MakeVersion(kMinLentBytes, 'b');
  const LoanId loan = client->Offer();
  ASSERT_TRUE(Lend(client.get(), &first, loan).shared.has_value());
  client->board().Return(loan);
  EXPECT_FALSE(first.IsGone());
  ASSERT_TRUE(Lend(client.get(), &second, client->Offer()).shared.has_value());
  EXPECT_TRUE(first.IsGone());
  EXPECT_FALSE(second.IsGone());
  EXPECT_EQ(neighbors_->figures().lent_now, kMinLentBytes);
}

TEST_F(LendTest, WhatIsReturnedIsUsedForTheNextVersion) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  ValuesToLend version = MakeVersion(kMinLentBytes, 'a');
  const LoanId loan = client->Offer();
  ASSERT_TRUE(Lend(client.get(), &version, loan).shared.has_value());
  client->board().Return(loan);
  const int64_t bytes = options_.arena->bytes();
  ValuesToLend next = MakeVersion(kMinLentBytes, 'b');
  EXPECT_TRUE(version.IsGone());
  EXPECT_EQ(options_.arena->bytes(), bytes);
}

TEST_F(LendTest, ALoanThatIsNotReturnedKeepsItsMemory) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  ValuesToLend version = MakeVersion(kMinLentBytes, 'a');
  const TensorPiece piece = Lend(client.get(), &version, client->Offer());
  ASSERT_TRUE(piece.shared.has_value());
  clock_.now += absl::Hours(1);
  ValuesToLend next = MakeVersion(kMinLentBytes, 'b');
  EXPECT_FALSE(version.IsGone());
  EXPECT_EQ(client->ReceiveFile(1)->data()[piece.shared->offset()], 'a');
}

TEST_F(LendTest, TheEndOfAReaderReturnsItsLoans) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto other = MakeLink(SenderOf(1));
  ValuesToLend version = MakeVersion(kMinLentBytes, 'a');
  ValuesToLend kept = MakeVersion(kMinLentBytes, 'b');
  ASSERT_TRUE(Lend(client.get(), &version, client->Offer()).shared.has_value());
  ASSERT_TRUE(Lend(other.get(), &kept, other->Offer()).shared.has_value());
  client->Close();
  version.AwaitGone();
  EXPECT_FALSE(kept.IsGone());
}

TEST_F(LendTest, TheEndOfThePsEndsLinksAndLoans) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  ValuesToLend version = MakeVersion(kMinLentBytes, 'a');
  ASSERT_TRUE(Lend(client.get(), &version, client->Offer()).shared.has_value());
  neighbors_.reset();
  EXPECT_TRUE(version.IsGone());
  EXPECT_TRUE(client->IsClosed());
  // The arena no longer calls it.
  MakeVersion(kMinLentBytes, 'b');
}

TEST_F(LendTest, AFileThatIsMadeLaterIsSentBeforeItsPlace) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  ValuesToLend version = MakeVersion(2 * kHugePageBytes, 'a');
  ValuesToLend second = MakeVersion(2 * kHugePageBytes, 'b');
  const TensorPiece one = Lend(client.get(), &version, client->Offer());
  const TensorPiece two = Lend(client.get(), &second, client->Offer());
  ASSERT_TRUE(one.shared.has_value() && two.shared.has_value());
  ASSERT_NE(one.shared->file(), two.shared->file());
  EXPECT_EQ(client->ReceiveFile(1)->data()[one.shared->offset()], 'a');
  EXPECT_EQ(client->ReceiveFile(2)->data()[two.shared->offset()], 'b');
}

TEST_F(LendTest, SpansThatFollowEachOtherAreOnePlace) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const std::shared_ptr<char> memory = *options_.arena->Take(3 * kMinLentBytes);
  Buffer data;
  data.Append({memory.get(), kMinLentBytes, memory});
  data.Append({memory.get() + kMinLentBytes, kMinLentBytes, memory});
  const TensorPiece piece = Answer(
      client->sender(), client->Range(data.size(), client->Offer()), data);
  ASSERT_TRUE(piece.shared.has_value());
  EXPECT_EQ(piece.shared->size(), 2 * kMinLentBytes);

  Buffer gap;
  gap.Append({memory.get(), kMinLentBytes, memory});
  gap.Append({memory.get() + 2 * kMinLentBytes, kMinLentBytes, memory});
  EXPECT_FALSE(
      Answer(client->sender(), client->Range(gap.size(), client->Offer()), gap)
          .shared.has_value());
}

TEST_F(LendTest, WhatCannotBeLentIsSent) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto other = MakeLink(SenderOf(1));
  ValuesToLend version = MakeVersion(kMinLentBytes, 'a');
  const Buffer data = version.data;
  const auto expect_sent = [&](const char* what, const TensorPiece& piece) {
    EXPECT_FALSE(piece.shared.has_value()) << what;
    EXPECT_GT(piece.data.size(), 0u) << what;
  };
  const auto range = [&](LinkClient* from, LoanId loan) {
    return from->Range(data.size(), loan);
  };

  proto::ReadRange without = range(client.get(), client->Offer());
  without.clear_loan();
  expect_sent("no loan", Answer(client->sender(), without, data));
  expect_sent("too small",
              Answer(client->sender(), range(client.get(), client->Offer()),
                     data.Sub(0, kMinLentBytes - 1)));
  expect_sent("not in the arena",
              Answer(client->sender(), range(client.get(), client->Offer()),
                     Buffer::FromString(std::string(kMinLentBytes, 'x'))));
  expect_sent(
      "another's link",
      Answer(client->sender(), range(other.get(), other->Offer()), data));
  proto::ReadRange unknown = range(client.get(), client->Offer());
  unknown.mutable_loan()->set_link(client->link() + 1);
  expect_sent("no such link", Answer(client->sender(), unknown, data));
  const LoanId withdrawn = client->Offer();
  ASSERT_TRUE(client->board().Withdraw(withdrawn));
  expect_sent("withdrawn",
              Answer(client->sender(), range(client.get(), withdrawn), data));
  expect_sent(
      "no such word",
      Answer(client->sender(), range(client.get(), {kBoardSlots, 1}), data));
  LoanId wrong = client->Offer();
  ++wrong.serial;
  expect_sent("another serial",
              Answer(client->sender(), range(client.get(), wrong), data));
  const LoanId once = client->Offer();
  EXPECT_TRUE(Answer(client->sender(), range(client.get(), once), data)
                  .shared.has_value());
  expect_sent("held",
              Answer(client->sender(), range(client.get(), once), data));
  EXPECT_EQ(neighbors_->figures().refused_loans, 7u);

  google::protobuf::RepeatedPtrField<proto::ReadRange> ranges;
  *ranges.Add() = range(client.get(), client->Offer());
  std::vector<TensorPiece> encoded(1);
  encoded[0].encoding = proto::FLOAT16;
  encoded[0].data = data;
  neighbors_->Lend(client->sender(), {1, 0}, ranges, &encoded);
  expect_sent("encoded", encoded[0]);
}

// Each version takes memory that the shard's plan must provide for.
TEST_F(LendTest, MoreVersionsThanMayBeLentAreSent) {
  Start();
  neighbors_->set_max_lent(1 << 30, /*versions=*/2);
  const auto one = MakeLink(SenderOf(0));
  const auto two = MakeLink(SenderOf(1));
  const auto is_lent = [&](LinkClient* client, LoanId loan, uint64_t number) {
    ValuesToLend version = MakeVersion(kMinLentBytes, 'v');
    return Lend(client, &version, loan, number).shared.has_value();
  };
  const LoanId loan_of_5 = one->Offer(), again = two->Offer();
  EXPECT_TRUE(is_lent(one.get(), loan_of_5, 5));
  EXPECT_TRUE(is_lent(two.get(), again, 5));
  EXPECT_TRUE(is_lent(two.get(), two->Offer(), 6));
  EXPECT_TRUE(is_lent(one.get(), one->Offer(), 6)) << "it is lent already";
  EXPECT_FALSE(is_lent(one.get(), one->Offer(), 7));
  one->board().Return(loan_of_5);
  EXPECT_FALSE(is_lent(two.get(), two->Offer(), 7)) << "another reads 5";
  two->board().Return(again);
  EXPECT_TRUE(is_lent(one.get(), one->Offer(), 7));
  EXPECT_FALSE(is_lent(one.get(), one->Offer(), 8));
  // A link's loans end with it.
  one->Close();
  while (neighbors_->figures().links == 2) sched_yield();
  EXPECT_TRUE(is_lent(two.get(), two->Offer(), 8));
  neighbors_->set_max_lent(1 << 30, /*versions=*/0);
  EXPECT_FALSE(is_lent(two.get(), two->Offer(), 9));
}

// The shard itself limits how much memory it takes for rows.
TEST_F(LendTest, RowsAreNoVersion) {
  Start();
  neighbors_->set_max_lent(kMinLentBytes, /*versions=*/1);
  const auto client = MakeLink(SenderOf(0));
  ValuesToLend rows = MakeVersion(kMinLentBytes, 'r');
  google::protobuf::RepeatedPtrField<proto::ReadRange> ranges;
  const LoanId loan = client->Offer();
  *ranges.Add() = client->Range(kMinLentBytes, loan);
  *ranges.Add() = client->Range(kMinLentBytes, client->Offer());
  std::vector<TensorPiece> pieces(2);
  for (TensorPiece& piece : pieces) {
    piece.rows.emplace();
    piece.data = rows.data;
  }
  neighbors_->Lend(client->sender(), {1, 0}, ranges, &pieces);
  EXPECT_TRUE(pieces[0].shared.has_value());
  EXPECT_TRUE(pieces[1].shared.has_value());
  EXPECT_EQ(neighbors_->figures().lent_now, 2 * kMinLentBytes);
  ValuesToLend version = MakeVersion(kMinLentBytes, 'v');
  ASSERT_TRUE(Lend(client.get(), &version, client->Offer()).shared.has_value());
  EXPECT_EQ(neighbors_->figures().lent_now, 3 * kMinLentBytes);

  client->board().Return(loan);
  ValuesToLend more = MakeVersion(kMinLentBytes, 'w');
  EXPECT_FALSE(Lend(client.get(), &more, client->Offer()).shared.has_value());
  EXPECT_EQ(neighbors_->figures().lent_now, 2 * kMinLentBytes);
  rows.data = Buffer();
  EXPECT_FALSE(rows.IsGone()) << "one loan is left";
  client->Close();
  rows.AwaitGone();
  version.AwaitGone();
  EXPECT_EQ(neighbors_->figures().lent_now, 0u);
}

// The files that the ps makes fill the socket, and then are not sent; no thread
// waits.
TEST_F(LendTest, APeerThatNeverReadsItsSocketIsSentBytes) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  constexpr int kFiles = 600;
  std::vector<std::shared_ptr<char>> others;
  for (int i = 0; i < kFiles; ++i) {
    // A file each, whose pages are never touched.
    others.push_back(*options_.arena->Take(kHugePageBytes - 64));
  }
  ValuesToLend version = MakeVersion(kMinLentBytes, 'v');
  const Buffer data = version.data;
  ASSERT_THAT(options_.arena->files(), SizeIs(kFiles + 1));
  EXPECT_FALSE(
      Lend(client.get(), &version, client->Offer()).shared.has_value());
  EXPECT_EQ(neighbors_->figures().refused_loans, 1);
  // Once the peer reads, it gets loans.
  uint32_t read = 0;
  for (;;) {
    version.data = data;
    const LoanId loan = client->Offer();
    const TensorPiece piece = Lend(client.get(), &version, loan);
    if (piece.shared.has_value()) break;
    while (read < kFiles + 1) {
      const auto file = client->socket().TryReceive();
      ASSERT_TRUE(file.ok()) << file.status();
      if (!file->has_value()) break;
      EXPECT_EQ((*file)->file, ++read);
    }
  }
  EXPECT_EQ(neighbors_->figures().links, 1);
}

TEST_F(LendTest, MoreThanALinkMayHaveIsSent) {
  Start();
  neighbors_->set_max_lent(2 * kMinLentBytes, /*versions=*/100);
  const auto client = MakeLink(SenderOf(0));
  const auto other = MakeLink(SenderOf(1));
  ValuesToLend version = MakeVersion(kMinLentBytes, 'a');
  const auto lend = [&](LinkClient* to, LoanId loan) {
    return Answer(to->sender(), to->Range(kMinLentBytes, loan), version.data)
        .shared.has_value();
  };
  const LoanId first = client->Offer();
  EXPECT_TRUE(lend(client.get(), first));
  EXPECT_TRUE(lend(client.get(), client->Offer()));
  EXPECT_FALSE(lend(client.get(), client->Offer()));
  EXPECT_TRUE(lend(other.get(), other->Offer()));
  client->board().Return(first);
  EXPECT_TRUE(lend(client.get(), client->Offer()));
}

using BorrowTest = NeighborsTest;

std::unique_ptr<SealedFile> MakeRegion(size_t size, const std::string& text) {
  auto file = *SealedFile::Create("region", size, SealedFile::Writers::kOwner);
  std::memcpy(file->data(), text.data(), text.size());
  return file;
}

TEST_F(BorrowTest, ThePsReadsWhereTheyLieUntilItLetsGo) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto region = MakeRegion(kPage, "0123456789");
  client->SendFile(1, *region);
  const LoanId loan = client->Offer();
  auto data = Borrow(client->sender(), client->Piece(1, 2, 4, loan));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(Text(*data), "2345");
  EXPECT_EQ(neighbors_->figures().borrowed_now, 4u);
  Buffer part = data->Sub(1, 1);
  data = Buffer();
  EXPECT_FALSE(client->board().IsOver(loan));
  EXPECT_EQ(Text(part), "3");
  part = Buffer();
  EXPECT_TRUE(client->board().IsOver(loan));
  EXPECT_EQ(neighbors_->figures().borrowed_now, 0u);
  EXPECT_EQ(neighbors_->figures().borrowed, 4u);
}

// A message may overtake the thread that polls: nothing waits between the two.
TEST_F(BorrowTest, AFileThatHasJustBeenSentIsFound) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  for (uint32_t number = 1; number <= 100; ++number) {
    const auto region = MakeRegion(kPage, absl::StrCat(number));
    client->SendFile(number, *region);
    const auto data =
        Borrow(client->sender(), client->Piece(number, 0, 1, client->Offer()));
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(Text(*data), absl::StrCat(number).substr(0, 1));
  }
}

TEST_F(BorrowTest, ATaskThatRegistersAnewKeepsItsLink) {
  Start();
  const auto client = MakeLink(SenderOf(0, /*incarnation=*/1));
  const auto region = MakeRegion(kPage, "abc");
  client->SendFile(1, *region);
  const auto data = Borrow(SenderOf(0, /*incarnation=*/2),
                           client->Piece(1, 0, 3, client->Offer()));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(Text(*data), "abc");
}

TEST_F(BorrowTest, OutlivesLinkAndPs) {
  Start();
  auto client = MakeLink(SenderOf(0));
  auto region = MakeRegion(kPage, "abc");
  client->SendFile(1, *region);
  const auto data =
      Borrow(client->sender(), client->Piece(1, 0, 3, client->Offer()));
  ASSERT_TRUE(data.ok()) << data.status();
  region.reset();
  client.reset();
  neighbors_.reset();
  EXPECT_EQ(Text(*data), "abc");
}

TEST_F(BorrowTest, WhatIsNoPlaceIsRefusedByName) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto other = MakeLink(SenderOf(1));
  const auto region = MakeRegion(kPage, "abc");
  client->SendFile(1, *region);
  constexpr uint64_t kHuge = ~uint64_t{0};
  struct Case {
    uint32_t file;
    uint64_t offset;
    uint64_t size;
  };
  for (const Case& c :
       {Case{0, 0, 1}, Case{2, 0, 1}, Case{1, kPage, 1}, Case{1, 0, kPage + 1},
        Case{1, kHuge, 2}, Case{1, 2, kHuge}, Case{1, kPage + 1, 0}}) {
    const LoanId loan = client->Offer();
    const auto data =
        Borrow(client->sender(), client->Piece(c.file, c.offset, c.size, loan));
    EXPECT_TRUE(absl::IsInvalidArgument(data.status()))
        << c.file << " " << c.offset << " " << c.size << ": " << data.status();
    EXPECT_THAT(std::string(data.status().message()), HasSubstr("\"w\""));
    EXPECT_TRUE(client->board().Withdraw(loan)) << "it was held";
  }
  const LoanId loan = client->Offer();
  const auto data = Borrow(other->sender(), client->Piece(1, 0, 1, loan));
  EXPECT_TRUE(absl::IsInvalidArgument(data.status())) << data.status();
  EXPECT_TRUE(client->board().Withdraw(loan)) << "it was held";
  EXPECT_EQ(neighbors_->figures().refused_places, 8u);
}

TEST_F(BorrowTest, WhatIsNotOfferedIsUnavailable) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto region = MakeRegion(kPage, "abc");
  client->SendFile(1, *region);
  const LoanId withdrawn = client->Offer();
  ASSERT_TRUE(client->board().Withdraw(withdrawn));
  LoanId late = client->Offer();
  ++late.serial;
  for (const LoanId loan :
       {withdrawn, late, LoanId{kBoardSlots, 1}, LoanId{0, 0}}) {
    const auto data = Borrow(client->sender(), client->Piece(1, 0, 3, loan));
    EXPECT_TRUE(absl::IsUnavailable(data.status())) << data.status();
  }
  const LoanId loan = client->Offer();
  const auto held = Borrow(client->sender(), client->Piece(1, 0, 3, loan));
  EXPECT_TRUE(held.ok()) << held.status();
  const auto twice = Borrow(client->sender(), client->Piece(1, 0, 3, loan));
  EXPECT_TRUE(absl::IsUnavailable(twice.status())) << twice.status();
}

TEST_F(BorrowTest, OneThatCannotBeHadGivesTheOthersBack) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto region = MakeRegion(kPage, "abc");
  client->SendFile(1, *region);
  const LoanId loan = client->Offer();
  std::vector<TensorPiece> pieces;
  pieces.push_back(client->Piece(1, 0, 3, loan));
  pieces.push_back(client->Piece(7, 0, 3, client->Offer()));
  EXPECT_FALSE(neighbors_->Borrow(client->sender(), &pieces).ok());
  pieces.clear();
  EXPECT_TRUE(client->board().IsOver(loan));
}

TEST_F(BorrowTest, WithoutALinkItIsUnavailable) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  TensorPiece piece = client->Piece(1, 0, 3, client->Offer());
  piece.shared->mutable_loan()->set_link(client->link() + 1);
  EXPECT_TRUE(absl::IsUnavailable(Borrow(client->sender(), piece).status()));
  piece.shared->clear_loan();
  EXPECT_TRUE(absl::IsUnavailable(Borrow(client->sender(), piece).status()));
}

TEST_F(BorrowTest, EncodedElementsAreCopied) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto region = MakeRegion(kPage, "abc");
  client->SendFile(1, *region);
  const LoanId loan = client->Offer();
  TensorPiece piece = client->Piece(1, 0, 3, loan);
  piece.encoding = proto::TOP_K;
  const auto data = Borrow(client->sender(), piece);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(client->board().IsOver(loan));
  std::memcpy(region->data(), "xyz", 3);
  EXPECT_EQ(Text(*data), "abc");
}

TEST_F(BorrowTest, NoMoreOfThemThanAMessageHolds) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto region = MakeRegion(Neighbors::kMaxCopiedBytes, "abc");
  client->SendFile(1, *region);
  std::vector<TensorPiece> pieces;
  for (int i = 0; i < 2; ++i) {
    pieces.push_back(client->Piece(1, 0, Neighbors::kMaxCopiedBytes / 2 + 1,
                                   client->Offer()));
    pieces.back().encoding = proto::INT8;
  }
  const absl::Status status = neighbors_->Borrow(client->sender(), &pieces);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_F(BorrowTest, APeerThatWritesLaterOrPunchesHolesChangesItsOwnAlone) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  auto region =
      *SealedFile::Create("region", 2 * kPage, SealedFile::Writers::kAll);
  std::memset(region->data(), 'a', 2 * kPage);
  client->SendFile(1, *region);
  const auto data =
      Borrow(client->sender(), client->Piece(1, 0, 2 * kPage, client->Offer()));
  ASSERT_TRUE(data.ok()) << data.status();
  region->data()[0] = 'b';
  EXPECT_EQ(Text(*data)[0], 'b');
  ASSERT_EQ(fallocate(region->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      kPage, kPage),
            0);
  EXPECT_EQ(Text(*data)[kPage], '\0');
  EXPECT_NE(ftruncate(region->fd(), 0), 0) << "a sealed file has shrunk";
  EXPECT_EQ(Text(*data)[1], 'a');
}

TEST_F(BorrowTest, AFileThatCouldShrinkEndsTheLink) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const UniqueFd fd(memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), kPage), 0);
  client->SendFile(1, fd.get(), kPage);
  const auto data =
      Borrow(client->sender(), client->Piece(1, 0, 1, client->Offer()));
  EXPECT_TRUE(absl::IsUnavailable(data.status())) << data.status();
  EXPECT_TRUE(client->IsClosed());
}

TEST_F(BorrowTest, AFileOfAnotherSizeEndsTheLink) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto region = MakeRegion(kPage, "abc");
  client->SendFile(1, region->fd(), 2 * kPage);
  EXPECT_TRUE(client->IsClosed());
}

TEST_F(BorrowTest, ANumberThatIsTakenEndsTheLink) {
  Start();
  const auto region = MakeRegion(kPage, "abc");
  const auto twice = MakeLink(SenderOf(0));
  twice->SendFile(1, *region);
  twice->SendFile(1, *region);
  EXPECT_TRUE(twice->IsClosed());
  const auto none = MakeLink(SenderOf(0));
  none->SendFile(0, *region);
  EXPECT_TRUE(none->IsClosed());
}

TEST_F(BorrowTest, FilesWithoutEndEndTheLink) {
  Start();
  const auto region = MakeRegion(kPage, "abc");
  const auto client = MakeLink(SenderOf(0));
  for (uint32_t i = 1; i <= NeighborLink::kMaxFiles; ++i) {
    client->SendFile(i, *region);
  }
  const auto last =
      Borrow(client->sender(),
             client->Piece(NeighborLink::kMaxFiles, 0, 3, client->Offer()));
  ASSERT_TRUE(last.ok()) << last.status();
  client->SendFile(NeighborLink::kMaxFiles + 1, *region);
  EXPECT_TRUE(client->IsClosed());
  EXPECT_EQ(Text(*last), "abc");
}

TEST_F(BorrowTest, FilesOfAllLinksAreBounded) {
  Start();
  const auto region = MakeRegion(kPage, "abc");
  std::vector<std::unique_ptr<LinkClient>> clients;
  const size_t links = NeighborLink::kMaxFilesOfAll / NeighborLink::kMaxFiles;
  for (uint32_t task = 0; task < links; ++task) {
    clients.push_back(MakeLink(SenderOf(task)));
    for (uint32_t i = 1; i <= NeighborLink::kMaxFiles; ++i) {
      clients.back()->SendFile(i, *region);
    }
    // Finds the last file only once all of them have been read.
    const auto last = Borrow(clients.back()->sender(),
                             clients.back()->Piece(NeighborLink::kMaxFiles, 0,
                                                   3, clients.back()->Offer()));
    ASSERT_TRUE(last.ok()) << last.status();
  }
  const auto beyond = MakeLink(SenderOf(links));
  beyond->SendFile(1, *region);
  EXPECT_TRUE(beyond->IsClosed());
  // The files of a link go with it.
  clients.back()->Close();
  while (neighbors_->figures().links == links) sched_yield();
  const auto next = MakeLink(SenderOf(links));
  next->SendFile(1, *region);
  EXPECT_TRUE(Borrow(next->sender(), next->Piece(1, 0, 3, next->Offer())).ok());
}

TEST_F(BorrowTest, TooLargeAFileEndsTheLink) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const UniqueFd fd(memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr uint64_t kSize = NeighborLink::kMaxMappedBytes + kPage;
  ASSERT_EQ(ftruncate(fd.get(), kSize), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  client->SendFile(1, fd.get(), kSize);
  EXPECT_TRUE(client->IsClosed());
}

TEST_F(BorrowTest, TheEndOfALinkEndsItsOffers) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  const auto region = MakeRegion(kPage, "abc");
  client->SendFile(1, *region);
  ASSERT_EQ(write(client->socket().fd(), "garbage", 7), 7);
  EXPECT_TRUE(client->IsClosed());
  const auto data =
      Borrow(client->sender(), client->Piece(1, 0, 3, client->Offer()));
  EXPECT_TRUE(absl::IsUnavailable(data.status())) << data.status();
}

}  // namespace
}  // namespace holdfast::link_testing
