// SPDX-License-Identifier: Apache-2.0
#include "client/link.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_limits.h"
#include "common/shared_memory/sealed_file.h"
#include "glog/logging.h"

namespace holdfast::client {
namespace {

// A peer that sends more files than this is not our ps.
constexpr uint32_t kMaxFiles = 1 << 16;

LoanId IdOf(const proto::Loan& loan) { return {loan.slot(), loan.serial()}; }

absl::StatusOr<UniqueFd> Duplicate(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return absl::UnavailableError(
        absl::StrCat("fcntl(F_DUPFD_CLOEXEC): ", std::strerror(errno)));
  }
  return copy;
}

}  // namespace

// Kept by a Buffer that Read has returned.
struct Link::Borrowed {
  ~Borrowed() { link->board_->Return(loan); }

  std::shared_ptr<Link> link;
  std::shared_ptr<const LentFile> file;
  LoanId loan;
};

absl::StatusOr<std::shared_ptr<Link>> Link::Greet(
    const proto::LinkResponse& offer, const SharedArena* regions,
    HostMemory* host_memory) {
  if (!offer.refusal().empty()) {
    return absl::FailedPreconditionError(offer.refusal());
  }
  if (offer.secret().size() != LinkMessage::kSecretBytes) {
    return absl::InternalError("it offers a link without a secret");
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto socket, LinkSocket::Connect(offer.path()));
  HOLDFAST_ASSIGN_OR_RETURN(const auto uid, socket->PeerUid());
  if (uid != offer.uid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(offer.path(), " is served by user ", uid,
                     ", but the ps runs as user ", offer.uid()));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto board, LoanMaker::Create());
  const std::shared_ptr<Link> link(new Link(
      offer.link(), std::move(socket), std::move(board), regions, host_memory));
  HOLDFAST_RETURN_IF_ERROR(link->SendHello(offer.secret()));
  return link;
}

Link::Link(uint64_t number, std::unique_ptr<LinkSocket> socket,
           std::unique_ptr<LoanMaker> board, const SharedArena* regions,
           HostMemory* host_memory)
    : number_(number),
      socket_(std::move(socket)),
      board_(std::move(board)),
      regions_(*regions),
      host_memory_(host_memory) {}

absl::Status Link::SendHello(const std::string& secret) {
  HOLDFAST_ASSIGN_OR_RETURN(auto board, Duplicate(board_->file().fd()));
  LinkMessage hello;
  hello.kind = LinkMessage::Kind::kHello;
  hello.link = number_;
  hello.secret = secret;
  hello.size = board_->file().size();
  hello.fd = std::move(board);
  return socket_->Send(hello);
}

absl::Status Link::AwaitWelcome(absl::Duration timeout) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto welcome, socket_->Receive(timeout));
  if (welcome.kind != LinkMessage::Kind::kWelcome) {
    return absl::InternalError("it does not answer with a welcome");
  }
  absl::MutexLock lock(&mutex_);
  Look();
  return absl::OkStatus();
}

proto::Loan Link::LoanOf(LoanId loan) const {
  proto::Loan message;
  message.set_link(number_);
  message.set_slot(loan.slot);
  message.set_serial(loan.serial);
  return message;
}

void Link::Look() {
  while (!ended_ && !broken_) {
    absl::StatusOr<std::optional<LinkMessage>> message = socket_->TryReceive();
    if (absl::IsUnavailable(message.status())) {
      ended_ = true;
      return;
    }
    if (message.ok() && !message->has_value()) return;
    absl::Status status = message.ok() ? TakeFile(**message) : message.status();
    if (!status.ok()) {
      LOG(WARNING) << "a ps of this host has violated the link protocol; "
                      "continuing without shared memory: "
                   << status.message();
      broken_ = true;
    }
  }
}

absl::Status Link::TakeFile(const LinkMessage& message) {
  if (message.kind != LinkMessage::Kind::kFile ||
      message.file != files_.size() + 1 || message.file > kMaxFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", static_cast<uint32_t>(message.kind),
                     " with file ", message.file, " after ", files_.size()));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto file, PeerFile::Map(message.fd, message.size,
                                                     PeerFile::Access::kRead));
  files_.push_back(std::make_shared<LentFile>(std::move(file), host_memory_));
  return absl::OkStatus();
}

bool Link::SendFiles(uint32_t through) {
  if (files_sent_ >= through) return true;
  const auto files = regions_.files();
  while (files_sent_ < through) {
    const SealedFile& file = *files[files_sent_];
    absl::StatusOr<UniqueFd> fd = Duplicate(file.fd());
    if (!fd.ok()) return false;
    LinkMessage message;
    message.kind = LinkMessage::Kind::kFile;
    message.link = number_;
    message.file = files_sent_ + 1;
    message.size = file.size();
    message.fd = *std::move(fd);
    if (!socket_->Send(message).ok()) return false;
    ++files_sent_;
  }
  return true;
}

bool Link::usable() {
  absl::MutexLock lock(&mutex_);
  Look();
  return !ended_ && !broken_;
}

bool Link::holds() const {
  absl::MutexLock lock(&mutex_);
  return !lent_.empty();
}

std::optional<proto::Loan> Link::OfferRead() {
  const std::optional<LoanId> loan = board_->Offer();
  if (!loan.has_value()) return std::nullopt;
  return LoanOf(*loan);
}

absl::StatusOr<Buffer> Link::Read(const proto::SharedBytes& values) {
  std::shared_ptr<LentFile> file;
  {
    absl::MutexLock lock(&mutex_);
    if (values.file() > files_.size()) Look();
    if (values.file() >= 1 && values.file() <= files_.size()) {
      file = files_[values.file() - 1];
    }
  }
  if (file == nullptr || values.offset() > file->size() ||
      values.size() > file->size() - values.offset()) {
    return absl::InternalError(absl::StrCat(
        "values are at [", values.offset(), ", +", values.size(), ") of file ",
        values.file(), ", which ",
        file == nullptr ? "is unknown"
                        : absl::StrCat("has ", file->size(), " bytes")));
  }
  file->Pin(values.offset(), values.size());
  const char* const data = file->data() + values.offset();
  return Buffer::FromMemory(
      data, values.size(),
      std::shared_ptr<Borrowed>(new Borrowed{
          shared_from_this(), std::move(file), IdOf(values.loan())}));
}

void Link::Return(const proto::Loan& loan) { board_->Return(IdOf(loan)); }

std::optional<proto::SharedBytes> Link::Lend(const Buffer& gradient) {
  if (gradient.size() < kMinLentBytes || gradient.spans().size() != 1) {
    return std::nullopt;
  }
  const std::optional<SharedArena::Place> place =
      regions_.Find(gradient.spans()[0].data, gradient.size());
  if (!place.has_value()) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  if (ended_ || broken_ || !SendFiles(place->file)) return std::nullopt;
  const std::optional<LoanId> loan = board_->Offer();
  if (!loan.has_value()) return std::nullopt;
  lent_[loan->slot] = {loan->serial, gradient};
  proto::SharedBytes bytes;
  bytes.set_file(place->file);
  bytes.set_offset(place->offset);
  bytes.set_size(gradient.size());
  *bytes.mutable_loan() = LoanOf(*loan);
  return bytes;
}

void Link::TakeBack(const proto::Loan& loan) {
  const LoanId id = IdOf(loan);
  Buffer over;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  const auto found = lent_.find(id.slot);
  const bool withdrawn = board_->Withdraw(id);
  if (!withdrawn && !ended_ && !board_->IsOver(id)) {
    found->second.held = true;
    ++num_held_;
    return;
  }
  if (!withdrawn) board_->Forget(id);
  over = std::move(found->second.gradient);
  lent_.erase(found);
}

void Link::Sweep() {
  std::vector<Buffer> over;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  if (num_held_ == 0) return;
  Look();
  for (auto it = lent_.begin(); it != lent_.end();) {
    Lent& lent = it->second;
    const LoanId loan{it->first, lent.serial};
    if (!lent.held || !(ended_ || board_->IsOver(loan))) {
      ++it;
      continue;
    }
    board_->Forget(loan);
    over.push_back(std::move(lent.gradient));
    it = lent_.erase(it);
    --num_held_;
  }
}

}  // namespace holdfast::client
