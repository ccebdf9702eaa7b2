// SPDX-License-Identifier: Apache-2.0
#include "client/neighbors.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/lent_file.h"
#include "client/link.h"
#include "client/rpc.h"
#include "client/shared_attempt.h"
#include "client/transport.h"
#include "common/process/testing/host_memory_testing.h"
#include "common/rpc/rpc_limits.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/board.h"
#include "common/shared_memory/link_socket.h"
#include "common/shared_memory/sealed_file.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard.pb.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr size_t kElements = 2 * kMinLentBytes / sizeof(float);
constexpr size_t kBytes = kElements * sizeof(float);

LoanId IdOf(const proto::Loan& loan) { return {loan.slot(), loan.serial()}; }

// A ps, as far as it concerns its neighbors.
class PsEnd {
 public:
  PsEnd() {
    // A socket's path has to be short.
    EXPECT_NE(mkdtemp(directory_), nullptr);
    auto listener = LinkListener::Listen(directory_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  ~PsEnd() {
    if (greeter_.joinable()) greeter_.join();
    listener_.reset();
    rmdir(directory_);
  }

  proto::LinkResponse Offer() const {
    proto::LinkResponse offer;
    offer.set_path(listener_->path());
    offer.set_uid(getuid());
    offer.set_link(77);
    offer.set_secret(std::string(LinkMessage::kSecretBytes, 's'));
    return offer;
  }

  // Welcomes the next client, on a separate thread.
  void Greet() {
    greeter_ = std::thread([this] {
      pollfd listening = {listener_->fd(), POLLIN, 0};
      ASSERT_EQ(poll(&listening, 1, 10000), 1);
      auto socket = listener_->TryAccept();
      ASSERT_TRUE(socket.ok()) << socket.status();
      socket_ = *std::move(socket);
      const auto hello = socket_->Receive(kPatience);
      ASSERT_TRUE(hello.ok()) << hello.status();
      EXPECT_EQ(hello->kind, LinkMessage::Kind::kHello);
      EXPECT_EQ(hello->link, 77);
      EXPECT_EQ(hello->secret, Offer().secret());
      auto board = LoanTaker::Map(hello->fd);
      ASSERT_TRUE(board.ok()) << board.status();
      board_ = *std::move(board);
      LinkMessage welcome;
      welcome.kind = LinkMessage::Kind::kWelcome;
      welcome.link = hello->link;
      ASSERT_EQ(socket_->Send(welcome), absl::OkStatus());
    });
  }
  void AwaitGreeted() { greeter_.join(); }
  // So many clients, or one more, may be connected but not accepted.
  void LetWait(int clients) { ASSERT_EQ(listen(listener_->fd(), clients), 0); }
  // Hangs up on a client that has connected.
  void HangUp() {
    auto socket = listener_->TryAccept();
    EXPECT_TRUE(socket.ok() && *socket != nullptr);
  }

  LoanTaker& board() { return *board_; }
  void Close() { socket_.reset(); }

  void SendFile(uint32_t number, const SealedFile& file) {
    LinkMessage message;
    message.kind = LinkMessage::Kind::kFile;
    message.link = 77;
    message.file = number;
    message.size = file.size();
    message.fd = UniqueFd(dup(file.fd()));
    EXPECT_EQ(socket_->Send(message), absl::OkStatus());
  }
  // The location of new values, all of them `value`, in a file that is
  // announced to the client.
  proto::SharedBytes MakeValues(float value) {
    if (file_ == nullptr) {
      auto file =
          SealedFile::Create("values", 1 << 20, SealedFile::Writers::kOwner);
      EXPECT_TRUE(file.ok()) << file.status();
      file_ = *std::move(file);
      SendFile(1, *file_);
    }
    proto::SharedBytes bytes;
    bytes.set_file(1);
    bytes.set_offset(128);
    bytes.set_size(kBytes);
    const std::vector<float> values(kElements, value);
    std::memcpy(file_->data() + bytes.offset(), values.data(), kBytes);
    return bytes;
  }
  // The first value of what the client has lent; the client must have announced
  // the file.
  float FirstOf(const proto::SharedBytes& bytes) {
    while (files_.size() < bytes.file()) {
      auto message = socket_->TryReceive();
      EXPECT_TRUE(message.ok() && message->has_value());
      EXPECT_EQ((*message)->kind, LinkMessage::Kind::kFile);
      EXPECT_EQ((*message)->file, files_.size() + 1);
      auto file = PeerFile::Map((*message)->fd, (*message)->size,
                                PeerFile::Access::kRead);
      EXPECT_TRUE(file.ok()) << file.status();
      files_.push_back(*std::move(file));
    }
    float first;
    std::memcpy(&first, files_[bytes.file() - 1]->data() + bytes.offset(),
                sizeof(first));
    return first;
  }

 private:
  char directory_[32] = "/tmp/holdfast-XXXXXX";
  std::unique_ptr<LinkListener> listener_;
  std::thread greeter_;
  std::unique_ptr<LinkSocket> socket_;
  std::unique_ptr<LoanTaker> board_;
  std::unique_ptr<SealedFile> file_;
  std::vector<std::unique_ptr<PeerFile>> files_;
};

class NeighborsTest : public ::testing::Test {
 protected:
  void Join() {
    ps_.Greet();
    neighbors_.Join(0, ps_.Offer(), kPatience);
    ps_.AwaitGreeted();
    ASSERT_THAT(neighbors_.linked(), ElementsAre(true));
  }
  Link& link() { return *neighbors_.link(0); }

  // A gradient in the regions.
  Buffer MakeGradient(float value) {
    const auto region = neighbors_.Take(kBytes);
    EXPECT_TRUE(region.ok()) << region.status();
    const std::vector<float> values(kElements, value);
    std::memcpy(region->get(), values.data(), kBytes);
    return Buffer::FromMemory(region->get(), kBytes, *region);
  }
  // The place of the next gradient.
  const void* NextPlace() { return neighbors_.Take(kBytes)->get(); }

  PsEnd ps_;
  Neighbors neighbors_{{"/job:ps/task:0"}};
};

TEST_F(NeighborsTest, NoLinkIsMadeAgainstARefusal) {
  EXPECT_THAT(neighbors_.linked(), ElementsAre(false));
  EXPECT_EQ(neighbors_.link(0), nullptr);
  proto::LinkResponse refusal;
  refusal.set_refusal("another kernel runs there");
  neighbors_.Join(0, refusal, kPatience);
  neighbors_.Join(0, absl::UnimplementedError("an old ps"), kPatience);
  EXPECT_EQ(neighbors_.link(0), nullptr);
}

TEST_F(NeighborsTest, NoLinkIsMadeToAnotherUser) {
  proto::LinkResponse offer = ps_.Offer();
  offer.set_uid(getuid() + 1);
  SharedArena regions({.name = "regions"});
  EXPECT_THAT(std::string(Link::Greet(offer, &regions).status().message()),
              HasSubstr("is served by user"));
}

// As in containers that mount a volume at different paths.
TEST_F(NeighborsTest, APsIsLookedForInTheDirectoryOfTheTask) {
  proto::LinkResponse offer = ps_.Offer();
  const std::string path = offer.path();
  const size_t slash = path.rfind('/');
  offer.set_path(absl::StrCat("/elsewhere", path.substr(slash)));
  Neighbors here({"/job:ps/task:0"}, path.substr(0, slash));
  ps_.Greet();
  here.Join(0, offer, kPatience);
  ps_.AwaitGreeted();
  EXPECT_THAT(here.linked(), ElementsAre(true));
}

TEST_F(NeighborsTest, APsThatIsNotThereIsOfAnotherHost) {
  Neighbors elsewhere({"/job:ps/task:0"}, "/tmp");
  elsewhere.Join(0, ps_.Offer(), kPatience);
  EXPECT_THAT(elsewhere.linked(), ElementsAre(false));
}

TEST_F(NeighborsTest, WhatIsReadIsPinnedUntilItsFileGoes) {
  FakeHostMemory memory;
  auto here = std::make_unique<Neighbors>(
      std::vector<std::string>{"/job:ps/task:0"}, "", &memory);
  ps_.Greet();
  here->Join(0, ps_.Offer(), kPatience);
  ps_.AwaitGreeted();
  ASSERT_THAT(here->linked(), ElementsAre(true));
  std::optional<Buffer> values;
  for (int i = 0; i < 2; ++i) {
    proto::SharedBytes told = ps_.MakeValues(i);
    *told.mutable_loan() = *here->link(0)->OfferRead();
    auto read = here->link(0)->Read(told);
    ASSERT_TRUE(read.ok()) << read.status();
    values = *std::move(read);
    EXPECT_TRUE(memory.IsRegistered(values->spans()[0].data, kBytes));
    // The place is the same.
    EXPECT_EQ(memory.requests(), 1);
  }
  here.reset();
  EXPECT_EQ(memory.num_ranges(), 1);
  values.reset();
  EXPECT_EQ(memory.num_ranges(), 0);
}

class LentFileTest : public ::testing::Test {
 protected:
  LentFileTest() {
    auto file =
        SealedFile::Create("values", 16 * page_, SealedFile::Writers::kOwner);
    EXPECT_TRUE(file.ok()) << file.status();
    auto mapped = PeerFile::Map(UniqueFd(dup((*file)->fd())), (*file)->size(),
                                PeerFile::Access::kRead);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    size_ = (*file)->size();
    file_ = std::make_unique<LentFile>(*std::move(mapped), &memory_);
  }
  bool IsPinned(size_t page, size_t pages = 1) const {
    return memory_.IsRegistered(file_->data() + page * page_, pages * page_);
  }

  const size_t page_ = sysconf(_SC_PAGESIZE);
  FakeHostMemory memory_;
  size_t size_ = 0;
  std::unique_ptr<LentFile> file_;
};

TEST_F(LentFileTest, NoPageIsPinnedTwice) {
  file_->Pin(2 * page_ + 64, 2 * page_);
  EXPECT_TRUE(IsPinned(2, 3));
  EXPECT_FALSE(IsPinned(1));
  EXPECT_FALSE(IsPinned(5));
  // Neighbors share pages.
  file_->Pin(4 * page_ + 64, 2 * page_);
  EXPECT_EQ(memory_.requests(), 2);
  EXPECT_TRUE(IsPinned(2, 5));
  EXPECT_FALSE(IsPinned(7));
  file_->Pin(9 * page_, page_);
  EXPECT_EQ(memory_.requests(), 3);
  // Fills all gaps.
  file_->Pin(64, 11 * page_);
  EXPECT_EQ(memory_.requests(), 6);
  EXPECT_TRUE(IsPinned(0, 12));
  EXPECT_FALSE(IsPinned(12));
  file_->Pin(page_, 9 * page_);
  EXPECT_EQ(memory_.requests(), 6);
  file_->Pin(size_ - 64, 64);
  EXPECT_TRUE(memory_.IsRegistered(file_->data() + size_ - 64, 64));
}

TEST_F(LentFileTest, ARefusalIsTheLastRequest) {
  file_->Pin(0, page_);
  memory_.refuses = true;
  file_->Pin(0, 2 * page_);
  file_->Pin(0, 3 * page_);
  EXPECT_EQ(memory_.requests(), 2);
  EXPECT_TRUE(IsPinned(0));
  file_.reset();
  EXPECT_EQ(memory_.num_ranges(), 0);
}

TEST_F(NeighborsTest, NoLinkIsMadeWithoutAWelcome) {
  SharedArena regions({.name = "regions"});
  const auto link = Link::Greet(ps_.Offer(), &regions);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ((*link)->AwaitWelcome(absl::Milliseconds(1)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

// The ps is suspended, and its queue of connections to be accepted is full.
TEST_F(NeighborsTest, APsThatAcceptsNobodyIsNotWaitedFor) {
  ps_.LetWait(1);
  std::vector<std::unique_ptr<LinkSocket>> waiting;
  absl::Status refused;
  while (refused.ok()) {
    auto socket = LinkSocket::Connect(ps_.Offer().path());
    refused = socket.status();
    if (socket.ok()) waiting.push_back(*std::move(socket));
  }
  ASSERT_TRUE(absl::IsUnavailable(refused)) << refused;
  neighbors_.Join(0, ps_.Offer(), kPatience);
  EXPECT_THAT(neighbors_.linked(), ElementsAre(false));
}

// The ps is suspended after its welcome: files pile up until no more fit.
TEST_F(NeighborsTest, APsThatReadsNothingIsSentBytesAndNotWaitedFor) {
  constexpr size_t kFile = 2 << 20;
  // No file has room for two of these.
  constexpr size_t kPiece = (1 << 20) + 64;
  SharedArena regions({.name = "regions", .file_bytes = kFile});
  ps_.Greet();
  const auto link = Link::Greet(ps_.Offer(), &regions);
  ASSERT_TRUE(link.ok()) << link.status();
  ASSERT_EQ((*link)->AwaitWelcome(kPatience), absl::OkStatus());
  ps_.AwaitGreeted();
  std::vector<Buffer> gradients;
  proto::SharedBytes told;
  for (;;) {
    const auto region = regions.Take(kPiece);
    ASSERT_TRUE(region.ok()) << region.status();
    std::memset(region->get(), 0, sizeof(float));
    gradients.push_back(Buffer::FromMemory(region->get(), kPiece, *region));
    const auto lent = (*link)->Lend(gradients.back());
    if (!lent.has_value()) break;
    told = *lent;
  }
  EXPECT_TRUE((*link)->usable());
  // The ps resumes, and finds the files that were announced before, and those
  // announced next.
  EXPECT_EQ(ps_.FirstOf(told), 0);
  const auto lent = (*link)->Lend(gradients.back());
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->file(), told.file() + 1);
  EXPECT_EQ(ps_.FirstOf(*lent), 0);
}

TEST_F(NeighborsTest, ALateWelcomeMakesTheLinkAndNobodyWaitsForIt) {
  int lost = 0;
  neighbors_.set_on_lost([&](uint32_t) { ++lost; });
  neighbors_.Join(0, ps_.Offer(), absl::ZeroDuration());
  EXPECT_EQ(neighbors_.link(0), nullptr);
  neighbors_.Lose(0);
  EXPECT_EQ(lost, 0) << "one is being made";
  ps_.Greet();
  ps_.AwaitGreeted();
  EXPECT_NE(neighbors_.link(0), nullptr);
  EXPECT_THAT(neighbors_.linked(), ElementsAre(true));
  neighbors_.Lose(0);
  EXPECT_EQ(lost, 1);
  neighbors_.set_on_lost(nullptr);
}

TEST_F(NeighborsTest, APsThatHangsUpInPlaceOfAWelcomeIsAskedAgain) {
  neighbors_.Join(0, ps_.Offer(), absl::ZeroDuration());
  ps_.HangUp();
  EXPECT_THAT(neighbors_.linked(), ElementsAre(false));
  int lost = 0;
  neighbors_.set_on_lost([&](uint32_t) { ++lost; });
  neighbors_.Lose(0);
  EXPECT_EQ(lost, 1);
  neighbors_.set_on_lost(nullptr);
}

TEST_F(NeighborsTest, AGradientIsReadWhereItLies) {
  Join();
  const auto lent = link().Lend(MakeGradient(3));
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->size(), kBytes);
  EXPECT_EQ(lent->loan().link(), 77);
  EXPECT_TRUE(ps_.board().Hold(IdOf(lent->loan())));
  EXPECT_EQ(ps_.FirstOf(*lent), 3);
}

TEST_F(NeighborsTest, WhatIsNotLentHasToBeSent) {
  Join();
  const std::vector<float> elsewhere(kElements);
  EXPECT_EQ(link().Lend(Buffer::FromMemory(elsewhere.data(), kBytes, nullptr)),
            std::nullopt);
  const Buffer gradient = MakeGradient(1);
  EXPECT_EQ(link().Lend(gradient.Sub(0, kMinLentBytes - 4)), std::nullopt);
  EXPECT_NE(link().Lend(gradient.Sub(0, kMinLentBytes)), std::nullopt);
  Buffer two = gradient;
  two.Append(MakeGradient(2));
  EXPECT_EQ(link().Lend(two), std::nullopt);
}

TEST_F(NeighborsTest, AGradientThatWasNotHeldIsOverWithItsCall) {
  Join();
  Buffer gradient = MakeGradient(1);
  const void* const place = gradient.spans()[0].data;
  const auto lent = link().Lend(std::exchange(gradient, {}));
  const auto next = neighbors_.Take(kBytes);
  EXPECT_NE(next->get(), place);
  link().TakeBack(lent->loan());
  EXPECT_FALSE(ps_.board().Hold(IdOf(lent->loan())));
  EXPECT_EQ(NextPlace(), place);
}

TEST_F(NeighborsTest, AGradientThatIsHeldIsKeptUntilItIsGivenBack) {
  Join();
  Buffer gradient = MakeGradient(1);
  const void* const place = gradient.spans()[0].data;
  const auto lent = link().Lend(std::exchange(gradient, {}));
  ASSERT_TRUE(ps_.board().Hold(IdOf(lent->loan())));
  link().TakeBack(lent->loan());
  const auto next = neighbors_.Take(kBytes);  // checks what was returned
  EXPECT_NE(next->get(), place);
  ps_.board().Free(IdOf(lent->loan()));
  EXPECT_EQ(NextPlace(), place);
}

TEST_F(NeighborsTest, AGradientIsBackWhenThePsHasDied) {
  Join();
  Buffer gradient = MakeGradient(1);
  const void* const place = gradient.spans()[0].data;
  const auto lent = link().Lend(std::exchange(gradient, {}));
  const auto in_flight = link().Lend(MakeGradient(2));
  ASSERT_TRUE(ps_.board().Hold(IdOf(lent->loan())));
  ASSERT_TRUE(ps_.board().Hold(IdOf(in_flight->loan())));
  link().TakeBack(lent->loan());
  ps_.Close();
  EXPECT_EQ(NextPlace(), place);
  EXPECT_THAT(neighbors_.linked(), ElementsAre(false));
  link().TakeBack(in_flight->loan());
  EXPECT_FALSE(link().holds());
  EXPECT_EQ(link().Lend(MakeGradient(1)), std::nullopt);
}

TEST_F(NeighborsTest, AFormerLinkKeepsWhatThePsHolds) {
  Join();
  Buffer gradient = MakeGradient(1);
  const void* const place = gradient.spans()[0].data;
  const auto lent = link().Lend(std::exchange(gradient, {}));
  ASSERT_TRUE(ps_.board().Hold(IdOf(lent->loan())));
  link().TakeBack(lent->loan());
  PsEnd again;
  again.Greet();
  neighbors_.Join(0, again.Offer(), kPatience);
  again.AwaitGreeted();
  const auto next = neighbors_.Take(kBytes);
  EXPECT_NE(next->get(), place);
  ps_.board().Free(IdOf(lent->loan()));
  EXPECT_EQ(NextPlace(), place);
}

TEST_F(NeighborsTest, ValuesAreReturnedWithTheLastReference) {
  Join();
  const auto loan = link().OfferRead();
  ASSERT_TRUE(loan.has_value());
  ASSERT_TRUE(ps_.board().Hold(IdOf(*loan)));
  proto::SharedBytes values = ps_.MakeValues(5);
  *values.mutable_loan() = *loan;
  auto read = link().Read(values);
  ASSERT_TRUE(read.ok()) << read.status();
  std::vector<float> copy(kElements);
  read->CopyTo(copy.data());
  EXPECT_EQ(copy, std::vector<float>(kElements, 5));
  Buffer part = read->Sub(0, 4);
  read = Buffer();
  EXPECT_FALSE(ps_.board().IsReturned(IdOf(*loan)));
  part = Buffer();
  EXPECT_TRUE(ps_.board().IsReturned(IdOf(*loan)));
}

TEST(KeptValuesTest, TwoPullsMayKeepWhatTheyRead) {
  auto neighbors =
      std::make_unique<Neighbors>(std::vector<std::string>{"ps 0", "ps 1"});
  auto first = neighbors->Keep(0);
  const auto second = neighbors->Keep(0);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(neighbors->Keep(0), nullptr);
  EXPECT_NE(neighbors->Keep(1), nullptr);
  // With the last reference.
  auto other = first;
  first.reset();
  EXPECT_EQ(neighbors->Keep(0), nullptr);
  other.reset();
  first = neighbors->Keep(0);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(neighbors->Keep(0), nullptr);
  // Kept values may outlive the neighbors.
  neighbors.reset();
}

TEST_F(NeighborsTest, ValuesLieInsideAFileThatWasToldOf) {
  Join();
  proto::SharedBytes values = ps_.MakeValues(5);
  *values.mutable_loan() = *link().OfferRead();
  values.set_offset((1 << 20) - kBytes);
  EXPECT_TRUE(link().Read(values).ok());
  for (const auto& [file, offset, size] :
       std::vector<std::tuple<uint32_t, uint64_t, uint64_t>>{
           {0, 0, kBytes},
           {2, 0, kBytes},
           {1, (1 << 20) - kBytes + 1, kBytes},
           {1, (1 << 20) + 1, 0},
           {1, ~uint64_t{0}, kBytes},
           {1, 1, ~uint64_t{0}}}) {
    values.set_file(file);
    values.set_offset(offset);
    values.set_size(size);
    EXPECT_EQ(link().Read(values).status().code(), absl::StatusCode::kInternal)
        << values.ShortDebugString();
  }
}

TEST_F(NeighborsTest, APsThatSendsWhatItMustNotIsNotSharedWith) {
  Join();
  auto file =
      SealedFile::Create("values", 1 << 20, SealedFile::Writers::kOwner);
  ASSERT_TRUE(file.ok());
  ps_.SendFile(2, **file);  // the first is 1
  EXPECT_THAT(neighbors_.linked(), ElementsAre(false));
  EXPECT_EQ(link().Lend(MakeGradient(1)), std::nullopt);
}

// A PushPull of one variable.
class SharedAttemptTest : public NeighborsTest {
 protected:
  SharedAttemptTest() {
    TensorPiece piece;
    piece.variable = "a";
    tensors_ = {piece};
    request_.add_ranges()->set_variable("a");
    request_.mutable_ranges(0)->set_size(kElements);
    attempt_.rpc = &rpc::kPushPull;
    attempt_.ps = 0;
    attempt_.request = &request_;
  }

  absl::StatusOr<std::unique_ptr<SharedAttempt>> Begin() {
    attempt_.request_tensors = tensors_;
    return SharedAttempt::Begin(&neighbors_, attempt_);
  }

  proto::PushPullRequest request_;
  std::vector<TensorPiece> tensors_;
  Attempt attempt_;
};

const proto::PushPullRequest& RequestOf(const SharedAttempt& shared) {
  return static_cast<const proto::PushPullRequest&>(shared.request());
}

TEST_F(SharedAttemptTest, LendsAndReadsUnderLoansOfItsOwn) {
  Join();
  tensors_[0].data = MakeGradient(4);
  auto shared = Begin();
  ASSERT_TRUE(shared.ok()) << shared.status();
  ASSERT_NE(*shared, nullptr);
  EXPECT_FALSE(request_.ranges(0).has_loan());
  EXPECT_EQ(tensors_[0].shared, std::nullopt);
  const proto::Loan reads = RequestOf(**shared).ranges(0).loan();
  ASSERT_THAT((*shared)->request_tensors(), SizeIs(1));
  const proto::SharedBytes lent = *(*shared)->request_tensors()[0].shared;
  EXPECT_EQ(ps_.FirstOf(lent), 4);
  const auto other = Begin();
  EXPECT_NE(RequestOf(**other).ranges(0).loan().slot(), reads.slot());

  ASSERT_TRUE(ps_.board().Hold(IdOf(reads)));
  std::vector<TensorPiece> answer(1);
  answer[0].shared = ps_.MakeValues(6);
  *answer[0].shared->mutable_loan() = reads;
  EXPECT_EQ((*shared)->TakeValues(&answer), absl::OkStatus());
  EXPECT_EQ(answer[0].data.size(), kBytes);
  EXPECT_EQ(answer[0].shared, std::nullopt);
  // The ps did not need the gradient; the values are still being read.
  shared->reset();
  EXPECT_FALSE(ps_.board().Hold(IdOf(lent.loan())));
  EXPECT_FALSE(ps_.board().IsReturned(IdOf(reads)));
  answer.clear();
  EXPECT_TRUE(ps_.board().IsReturned(IdOf(reads)));
}

TEST_F(SharedAttemptTest, WithoutAnAnswerItsLoansAreOver) {
  Join();
  request_.add_ranges()->set_size(kElements);
  auto shared = Begin();
  ASSERT_NE(*shared, nullptr);
  const proto::Loan held = RequestOf(**shared).ranges(0).loan();
  const proto::Loan offered = RequestOf(**shared).ranges(1).loan();
  ASSERT_TRUE(ps_.board().Hold(IdOf(held)));
  shared->reset();
  EXPECT_TRUE(ps_.board().IsReturned(IdOf(held)));
  EXPECT_FALSE(ps_.board().Hold(IdOf(offered)));
}

TEST_F(SharedAttemptTest, ValuesUnderALoanThatWasNotOfferedAreRefused) {
  Join();
  auto shared = Begin();
  std::vector<TensorPiece> answer(2);
  answer[0].shared = ps_.MakeValues(6);
  *answer[0].shared->mutable_loan() = RequestOf(**shared).ranges(0).loan();
  answer[1] = answer[0];
  EXPECT_EQ((*shared)->TakeValues(&answer).code(), absl::StatusCode::kInternal);
}

TEST_F(SharedAttemptTest, WhatIsSmallOrEncodedIsSentAsItIs) {
  Join();
  request_.mutable_ranges(0)->set_encoding(proto::FLOAT16);
  tensors_[0].data = Buffer::FromString(std::string(100, 'x'));
  auto shared = Begin();
  EXPECT_EQ(*shared, nullptr);
  request_.mutable_ranges(0)->set_encoding(proto::EXACT);
  request_.mutable_ranges(0)->set_size(kMinLentBytes / sizeof(float) - 1);
  shared = Begin();
  EXPECT_EQ(*shared, nullptr);
}

TEST_F(SharedAttemptTest, WhatDoesNotFitWithoutALinkIsToBeSentInParts) {
  std::vector<uint32_t> lost;
  neighbors_.set_on_lost([&](uint32_t ps) { lost.push_back(ps); });
  Join();
  request_.mutable_ranges(0)->set_size(kMaxMessageBytes);
  EXPECT_TRUE(Begin().ok());
  ps_.Close();
  EXPECT_EQ(Begin().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(lost, ElementsAre(0));
  request_.mutable_ranges(0)->set_size(kElements);
  const auto small = Begin();
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(*small, nullptr);
  neighbors_.set_on_lost(nullptr);
}

}  // namespace
}  // namespace holdfast::client
