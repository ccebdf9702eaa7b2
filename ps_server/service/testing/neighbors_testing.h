// SPDX-License-Identifier: Apache-2.0

// Links with clients that a test controls by hand.
#ifndef HOLDFAST_PS_SERVER_SERVICE_TESTING_NEIGHBORS_TESTING_H_
#define HOLDFAST_PS_SERVER_SERVICE_TESTING_NEIGHBORS_TESTING_H_

#include <fcntl.h>
#include <google/protobuf/repeated_field.h>
#include <poll.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/board.h"
#include "common/shared_memory/link_socket.h"
#include "common/shared_memory/sealed_file.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"
#include "gtest/gtest.h"
#include "proto/shard.pb.h"
#include "ps_server/service/neighbors.h"

namespace holdfast::link_testing {

inline constexpr char kBootId[] = "this host";
// How long to wait for something that is expected to come at once.
inline constexpr absl::Duration kPatience = absl::Seconds(30);
inline constexpr size_t kPage = 4096;

class LinkClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
};

inline proto::Sender SenderOf(uint32_t worker, uint64_t incarnation = 1) {
  proto::Sender sender;
  sender.mutable_task()->set_job("worker");
  sender.mutable_task()->set_index(worker);
  sender.set_incarnation(incarnation);
  return sender;
}

inline proto::LinkRequest RequestOf(const proto::Sender& sender) {
  proto::LinkRequest request;
  *request.mutable_sender() = sender;
  request.set_boot_id(kBootId);
  return request;
}

inline UniqueFd Duplicate(int fd) {
  return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

inline std::string Text(const Buffer& buffer) {
  std::string text(buffer.size(), '\0');
  buffer.CopyTo(text.data());
  return text;
}

// A client's end of a link.
class LinkClient {
 public:
  explicit LinkClient(proto::Sender sender)
      : sender_(std::move(sender)), board_(*LoanMaker::Create()) {}

  const proto::Sender& sender() const { return sender_; }
  LoanMaker& board() { return *board_; }
  LinkSocket& socket() { return *socket_; }
  uint64_t link() const { return link_; }

  // Connects, and identifies itself.
  void Greet(const proto::LinkResponse& response) {
    ASSERT_EQ(response.refusal(), "");
    link_ = response.link();
    auto socket = LinkSocket::Connect(response.path());
    ASSERT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
    LinkMessage hello;
    hello.kind = LinkMessage::Kind::kHello;
    hello.link = response.link();
    hello.secret = response.secret();
    hello.fd = Duplicate(board_->file().fd());
    ASSERT_EQ(socket_->Send(hello), absl::OkStatus());
  }
  bool IsWelcome() {
    const auto message = socket_->Receive(kPatience);
    return message.ok() && message->kind == LinkMessage::Kind::kWelcome &&
           message->link == link_;
  }
  // Waits for the next messages, and returns whether the ps closes the
  // connection after them.
  bool IsClosed() {
    for (;;) {
      const auto message = socket_->Receive(kPatience);
      if (!message.ok()) return absl::IsUnavailable(message.status());
    }
  }
  void Close() { socket_.reset(); }

  // Expects a file as the next message.
  std::unique_ptr<PeerFile> ReceiveFile(uint32_t number) {
    const auto message = socket_->Receive(kPatience);
    EXPECT_TRUE(message.ok()) << message.status();
    if (!message.ok()) return nullptr;
    EXPECT_EQ(message->kind, LinkMessage::Kind::kFile);
    EXPECT_EQ(message->file, number);
    auto file =
        PeerFile::Map(message->fd, message->size, PeerFile::Access::kRead);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  // Sends a file. Waits until the socket takes the message.
  void SendFile(uint32_t number, int fd, uint64_t size) {
    LinkMessage message;
    message.kind = LinkMessage::Kind::kFile;
    message.file = number;
    message.size = size;
    message.fd = Duplicate(fd);
    while (!socket_->Send(message).ok()) {
      pollfd writable = {socket_->fd(), POLLOUT, 0};
      ASSERT_GT(poll(&writable, 1, absl::ToInt64Milliseconds(kPatience)), 0);
      if ((writable.revents & (POLLHUP | POLLERR)) != 0) return;
    }
  }
  void SendFile(uint32_t number, const SealedFile& file) {
    SendFile(number, file.fd(), file.size());
  }

  LoanId Offer() { return *board_->Offer(); }
  proto::ReadRange Range(uint64_t size, LoanId loan) const {
    proto::ReadRange range;
    range.set_variable("w");
    range.set_size(size / sizeof(float));
    range.mutable_loan()->set_link(link_);
    range.mutable_loan()->set_slot(loan.slot);
    range.mutable_loan()->set_serial(loan.serial);
    return range;
  }
  TensorPiece Piece(uint32_t file, uint64_t offset, uint64_t size,
                    LoanId loan) const {
    TensorPiece piece;
    piece.variable = "w";
    piece.shared.emplace();
    piece.shared->set_file(file);
    piece.shared->set_offset(offset);
    piece.shared->set_size(size);
    piece.shared->mutable_loan()->set_link(link_);
    piece.shared->mutable_loan()->set_slot(loan.slot);
    piece.shared->mutable_loan()->set_serial(loan.serial);
    return piece;
  }

 private:
  const proto::Sender sender_;
  std::unique_ptr<LoanMaker> board_;
  std::unique_ptr<LinkSocket> socket_;
  uint64_t link_ = 0;
};

// Values in the arena.
struct ValuesToLend {
  std::shared_ptr<char> memory;
  Buffer data;
  // Notified when there are no more references to the values.
  std::shared_ptr<absl::Notification> gone =
      std::make_shared<absl::Notification>();

  bool IsGone() const { return gone->HasBeenNotified(); }
  void AwaitGone() const {
    EXPECT_TRUE(gone->WaitForNotificationWithTimeout(kPatience));
  }
};

class NeighborsTest : public testing::Test {
 protected:
  NeighborsTest() {
    const char* const folder = std::getenv("TEST_TMPDIR");
    // A socket's path must be short.
    std::string path =
        absl::StrCat(folder == nullptr ? "/tmp" : folder, "/nXXXXXX");
    if (path.size() > 60) path = "/tmp/nXXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    options_.name = "/job:ps/task:0";
    options_.directory = path;
    options_.clock = &clock_;
    options_.boot_id = kBootId;
    SharedArena::Options arena;
    arena.name = "test";
    arena.file_bytes = kHugePageBytes;
    options_.arena = std::make_shared<SharedArena>(arena);
  }
  ~NeighborsTest() override {
    neighbors_.reset();
    rmdir(options_.directory.c_str());
  }

  void Start() {
    auto neighbors = Neighbors::Start(options_);
    ASSERT_TRUE(neighbors.ok()) << neighbors.status();
    neighbors_ = *std::move(neighbors);
  }

  proto::LinkResponse Ask(const proto::Sender& sender) {
    return neighbors_->Link(RequestOf(sender));
  }
  std::unique_ptr<LinkClient> MakeLink(const proto::Sender& sender) {
    auto client = std::make_unique<LinkClient>(sender);
    client->Greet(Ask(sender));
    EXPECT_TRUE(client->IsWelcome());
    return client;
  }

  ValuesToLend MakeVersion(size_t size, char fill) {
    ValuesToLend version;
    version.memory = *options_.arena->Take(size);
    std::memset(version.memory.get(), fill, size);
    auto owner = std::shared_ptr<void>(
        version.memory.get(),
        [memory = version.memory, gone = version.gone](void*) mutable {
          memory.reset();
          gone->Notify();
        });
    version.data =
        Buffer::FromMemory(version.memory.get(), size, std::move(owner));
    version.memory.reset();
    return version;
  }

  // The answer to a pull, which takes over `data`.
  TensorPiece Answer(const proto::Sender& sender, const proto::ReadRange& range,
                     Buffer data, uint64_t version = 0) {
    google::protobuf::RepeatedPtrField<proto::ReadRange> ranges;
    *ranges.Add() = range;
    std::vector<TensorPiece> pieces(1);
    pieces[0].variable = "w";
    pieces[0].data = std::move(data);
    neighbors_->Lend(sender, {/*generation=*/1, version}, ranges, &pieces);
    return std::move(pieces[0]);
  }
  TensorPiece Lend(LinkClient* client, ValuesToLend* version, LoanId loan,
                   uint64_t number = 0) {
    Buffer data = std::exchange(version->data, Buffer());
    const proto::ReadRange range = client->Range(data.size(), loan);
    return Answer(client->sender(), range, std::move(data), number);
  }

  absl::StatusOr<Buffer> Borrow(const proto::Sender& sender,
                                TensorPiece piece) {
    std::vector<TensorPiece> pieces;
    pieces.push_back(std::move(piece));
    HOLDFAST_RETURN_IF_ERROR(neighbors_->Borrow(sender, &pieces));
    EXPECT_FALSE(pieces[0].shared.has_value());
    return std::move(pieces[0].data);
  }

  LinkClock clock_;
  Neighbors::Options options_;
  std::unique_ptr<Neighbors> neighbors_;
};

}  // namespace holdfast::link_testing

#endif  // HOLDFAST_PS_SERVER_SERVICE_TESTING_NEIGHBORS_TESTING_H_
