// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/neighbor_link.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// A peer's bytes, and what must be kept for as long as something refers to
// them.
struct Borrowed {
  Borrowed(std::shared_ptr<const PeerFile> file,
           std::shared_ptr<LoanTaker> board, LoanId loan, uint64_t bytes,
           std::shared_ptr<NeighborCounters> counters)
      : file(std::move(file)),
        board(std::move(board)),
        loan(loan),
        bytes(bytes),
        counters(std::move(counters)) {
    this->counters->borrowed_now += bytes;
    this->counters->borrowed += bytes;
  }
  ~Borrowed() {
    board->Free(loan);
    counters->borrowed_now -= bytes;
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  const std::shared_ptr<const PeerFile> file;
  const std::shared_ptr<LoanTaker> board;
  const LoanId loan;
  const uint64_t bytes;
  const std::shared_ptr<NeighborCounters> counters;
};

// Whether the bytes are contiguous in memory.
bool IsContiguous(const Buffer& data) {
  const absl::Span<const Buffer::Span> spans = data.spans();
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i - 1].data + spans[i - 1].size != spans[i].data) return false;
  }
  return !spans.empty();
}

}  // namespace

void LentVersions::set_most(size_t versions) {
  absl::MutexLock lock(&mutex_);
  most_ = versions;
}

bool LentVersions::HasRoomFor(const LentVersion& version) const {
  absl::MutexLock lock(&mutex_);
  return loans_.size() < most_ || loans_.count(version) > 0;
}

bool LentVersions::Add(const LentVersion& version) {
  absl::MutexLock lock(&mutex_);
  const auto found = loans_.find(version);
  if (found != loans_.end()) {
    ++found->second;
    return true;
  }
  if (loans_.size() >= most_) return false;
  loans_[version] = 1;
  return true;
}

void LentVersions::Remove(const LentVersion& version) {
  absl::MutexLock lock(&mutex_);
  const auto found = loans_.find(version);
  if (--found->second == 0) loans_.erase(found);
}

NeighborLink::NeighborLink(uint64_t number, TaskId peer,
                           std::unique_ptr<LinkSocket> socket,
                           std::unique_ptr<LoanTaker> board,
                           const SharedArena* arena,
                           std::shared_ptr<NeighborCounters> counters,
                           std::shared_ptr<LentVersions> versions)
    : number_(number),
      peer_(std::move(peer)),
      socket_(std::move(socket)),
      board_(std::move(board)),
      arena_(arena),
      counters_(std::move(counters)),
      versions_(std::move(versions)) {}

NeighborLink::~NeighborLink() {
  End(absl::CancelledError("the ps is shutting down"));
  counters_->files -= files_.size();
}

absl::Status NeighborLink::Welcome() {
  absl::MutexLock lock(&mutex_);
  LinkMessage message;
  message.kind = LinkMessage::Kind::kWelcome;
  message.link = number_;
  HOLDFAST_RETURN_IF_ERROR(socket_->Send(message));
  return SendFiles();
}

absl::Status NeighborLink::SendFiles() {
  const auto files = arena_->files();
  for (; files_sent_ < files.size(); ++files_sent_) {
    const SealedFile& file = *files[files_sent_];
    LinkMessage message;
    message.kind = LinkMessage::Kind::kFile;
    message.file = static_cast<uint32_t>(files_sent_ + 1);
    message.size = file.size();
    // A message owns its descriptor.
    message.fd = UniqueFd(fcntl(file.fd(), F_DUPFD_CLOEXEC, 0));
    if (!message.fd.valid()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("fcntl(F_DUPFD_CLOEXEC): ", strerror(errno)));
    }
    HOLDFAST_RETURN_IF_ERROR(socket_->Send(message));
  }
  return absl::OkStatus();
}

absl::Status NeighborLink::Receive() {
  absl::MutexLock lock(&mutex_);
  return ReceiveLocked();
}

// A peer cannot keep this loop going: each packet either counts towards a limit
// or is the last.
absl::Status NeighborLink::ReceiveLocked() {
  for (;;) {
    if (!why_ended_.ok()) return why_ended_;
    absl::StatusOr<std::optional<LinkMessage>> message = socket_->TryReceive();
    if (message.ok() && !message->has_value()) return absl::OkStatus();
    absl::Status status = message.ok() ? Take(**message) : message.status();
    if (status.ok()) continue;
    // The thread that polls the socket will end the link.
    why_ended_ = status;
    shutdown(socket_->fd(), SHUT_RDWR);
    return status;
  }
}

absl::Status NeighborLink::Take(const LinkMessage& message) {
  if (message.kind != LinkMessage::Kind::kFile) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of kind ", static_cast<uint32_t>(message.kind)));
  }
  if (message.file == 0 || files_.count(message.file) > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number ", message.file, " for another file"));
  }
  if (files_.size() >= kMaxFiles || counters_->files >= kMaxFilesOfAll ||
      message.size > kMaxMappedBytes - mapped_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "files beyond ", files_.size(), " with ", mapped_bytes_, " bytes"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto file, PeerFile::Map(message.fd, message.size,
                                                     PeerFile::Access::kRead));
  files_[message.file] = std::move(file);
  ++counters_->files;
  mapped_bytes_ += message.size;
  return absl::OkStatus();
}

std::optional<proto::SharedBytes> NeighborLink::Lend(LoanId loan,
                                                     const Buffer& data,
                                                     const LentVersion& version,
                                                     uint64_t max_lent_bytes) {
  absl::MutexLock lock(&mutex_);
  if (lent_version_bytes_ + data.size() > max_lent_bytes ||
      !versions_->Add(version)) {
    return std::nullopt;
  }
  std::optional<proto::SharedBytes> place = LendLocked(loan, data, version);
  if (place.has_value()) {
    lent_version_bytes_ += data.size();
  } else {
    versions_->Remove(version);
  }
  return place;
}

std::optional<proto::SharedBytes> NeighborLink::LendRows(LoanId loan,
                                                         const Buffer& data) {
  absl::MutexLock lock(&mutex_);
  return LendLocked(loan, data, std::nullopt);
}

std::optional<proto::SharedBytes> NeighborLink::LendLocked(
    LoanId loan, const Buffer& data, std::optional<LentVersion> version) {
  if (!IsContiguous(data)) return std::nullopt;
  const std::optional<SharedArena::Place> found =
      arena_->Find(data.spans()[0].data, data.size());
  if (!found.has_value()) return std::nullopt;
  if (!why_ended_.ok() || lent_.size() >= kBoardSlots) return std::nullopt;
  if (found->file > files_sent_ && !SendFiles().ok()) return std::nullopt;
  if (!board_->Hold(loan)) return std::nullopt;
  lent_.push_back({loan, data, version});
  lent_bytes_ += data.size();
  lent_ever_ += data.size();
  counters_->lent_now += data.size();
  counters_->lent += data.size();

  proto::SharedBytes place;
  place.set_file(found->file);
  place.set_offset(found->offset);
  place.set_size(data.size());
  place.mutable_loan()->set_link(number_);
  place.mutable_loan()->set_slot(loan.slot);
  place.mutable_loan()->set_serial(loan.serial);
  return place;
}

void NeighborLink::TakeBack() {
  // Released without the lock, because their owners have locks of their own.
  std::vector<Lent> returned;
  absl::MutexLock lock(&mutex_);
  size_t kept = 0;
  for (Lent& lent : lent_) {
    if (!board_->IsReturned(lent.loan)) {
      if (&lent_[kept] != &lent) lent_[kept] = std::move(lent);
      ++kept;
      continue;
    }
    board_->Free(lent.loan);
    if (lent.version.has_value()) {
      versions_->Remove(*lent.version);
      lent_version_bytes_ -= lent.data.size();
    }
    lent_bytes_ -= lent.data.size();
    counters_->lent_now -= lent.data.size();
    returned.push_back(std::move(lent));
  }
  lent_.resize(kept);
}

absl::StatusOr<Buffer> NeighborLink::Borrow(const proto::SharedBytes& place) {
  const LoanId loan{place.loan().slot(), place.loan().serial()};
  absl::MutexLock lock(&mutex_);
  auto file = files_.find(place.file());
  if (file == files_.end()) {
    // The file was sent before the message that names it, but may not have been
    // read yet.
    static_cast<void>(ReceiveLocked());
    file = files_.find(place.file());
  }
  if (!why_ended_.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the link has ended: ", why_ended_.message()));
  }
  if (file == files_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("file ", place.file(), " has not been sent"));
  }
  const uint64_t size = file->second->size();
  if (place.offset() > size || place.size() > size - place.offset()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place.size(), " bytes from ", place.offset(), " of file ",
                     place.file(), ", which has ", size));
  }
  if (!board_->Hold(loan)) {
    return absl::UnavailableError(
        absl::StrCat("loan ", loan.serial, " of word ", loan.slot,
                     " is not, or no longer, offered"));
  }
  borrowed_ever_ += place.size();
  auto borrowed = std::make_shared<const Borrowed>(file->second, board_, loan,
                                                   place.size(), counters_);
  return Buffer::FromMemory(file->second->data() + place.offset(), place.size(),
                            std::move(borrowed));
}

void NeighborLink::End(const absl::Status& why) {
  std::vector<Lent> returned;
  absl::MutexLock lock(&mutex_);
  if (why_ended_.ok()) why_ended_ = why;
  shutdown(socket_->fd(), SHUT_RDWR);
  counters_->lent_now -= lent_bytes_;
  lent_bytes_ = 0;
  lent_version_bytes_ = 0;
  for (const Lent& lent : lent_) {
    if (lent.version.has_value()) versions_->Remove(*lent.version);
  }
  returned.swap(lent_);
}

std::string NeighborLink::Summary() const {
  absl::MutexLock lock(&mutex_);
  return absl::StrCat(why_ended_.message(), "; lent ", lent_ever_,
                      " bytes of values, borrowed ", borrowed_ever_,
                      " of gradients");
}

}  // namespace holdfast
