// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/neighbors.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/nonce.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_limits.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// How long no connection is accepted after there was no descriptor for one.
constexpr int kPauseMs = 100;

TaskId TaskOf(const proto::Sender& sender) {
  return {sender.task().job(), sender.task().index()};
}

std::string MakeSecret() {
  std::string secret;
  while (secret.size() < LinkMessage::kSecretBytes) {
    const uint64_t random = MakeNonce();
    secret.append(reinterpret_cast<const char*>(&random), sizeof(random));
  }
  secret.resize(LinkMessage::kSecretBytes);
  return secret;
}

// Compares in a time that does not reveal how much of `b` is right.
bool IsSame(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

// A copy of `data`, in memory to which no other process can write.
Buffer Copy(const Buffer& data) {
  std::string bytes(data.size(), '\0');
  data.CopyTo(bytes.data());
  return Buffer::FromString(std::move(bytes));
}

}  // namespace

std::shared_ptr<NeighborLink> Neighbors::Links::Find(uint64_t number) const {
  absl::MutexLock lock(&mutex);
  const auto found = by_number.find(number);
  return found == by_number.end() ? nullptr : found->second;
}

void Neighbors::Links::TakeBack() const {
  std::vector<std::shared_ptr<NeighborLink>> all;
  {
    absl::MutexLock lock(&mutex);
    for (const auto& [number, link] : by_number) all.push_back(link);
  }
  for (const auto& link : all) link->TakeBack();
}

absl::StatusOr<std::unique_ptr<Neighbors>> Neighbors::Start(Options options) {
  auto neighbors = absl::WrapUnique(new Neighbors(std::move(options)));
  if (neighbors->quit_ < 0) {
    return absl::UnavailableError(
        absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto listener,
                            LinkListener::Listen(neighbors->options_.directory,
                                                 neighbors->options_.kind));
  neighbors->listener_ = std::move(listener);
  neighbors->options_.arena->set_reclaim(
      [weak = std::weak_ptr<Links>(neighbors->links_)] {
        if (const auto links = weak.lock()) links->TakeBack();
      });
  neighbors->thread_ = std::thread([self = neighbors.get()] { self->Run(); });
  pthread_setname_np(neighbors->thread_.native_handle(), "neighbors");
  return neighbors;
}

Neighbors::Neighbors(Options options)
    : options_(std::move(options)), quit_(eventfd(0, EFD_CLOEXEC)) {}

Neighbors::~Neighbors() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    PCHECK(write(quit_, &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
  if (quit_ >= 0) close(quit_);
  std::map<uint64_t, std::shared_ptr<NeighborLink>> links;
  {
    absl::MutexLock lock(&links_->mutex);
    links.swap(links_->by_number);
  }
  for (const auto& [number, link] : links) {
    link->End(absl::CancelledError("the ps is shutting down"));
  }
}

proto::LinkResponse Neighbors::Refuse(const std::string& why) {
  ++refused_requests_;
  proto::LinkResponse response;
  response.set_refusal(why);
  return response;
}

proto::LinkResponse Neighbors::Link(const proto::LinkRequest& request) {
  if (options_.boot_id.empty()) {
    return Refuse("this ps cannot determine which kernel it runs on");
  }
  if (request.boot_id() != options_.boot_id) {
    return Refuse("this ps is on another host");
  }
  {
    absl::MutexLock lock(&links_->mutex);
    if (links_->by_number.size() >= kMaxLinks) {
      return Refuse(absl::StrCat("this ps already has ", kMaxLinks,
                                 " links, the maximum"));
    }
  }
  Pending pending;
  pending.number = MakeNonce();
  pending.peer = TaskOf(request.sender());
  pending.secret = MakeSecret();
  const absl::Time now = options_.clock->Now();
  pending.deadline = now + kSecretLife;

  proto::LinkResponse response;
  response.set_path(listener_->path());
  response.set_uid(geteuid());
  response.set_link(pending.number);
  response.set_secret(pending.secret);

  absl::MutexLock lock(&mutex_);
  size_t of_one = 0;
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->deadline <= now) {
      it = pending_.erase(it);
      continue;
    }
    of_one += it->peer == pending.peer ? 1 : 0;
    ++it;
  }
  if (of_one >= kMaxSecretsOfOne) {
    // A task that asks again has given up what it asked for before.
    for (auto it = pending_.begin(); it != pending_.end(); ++it) {
      if (it->peer != pending.peer) continue;
      pending_.erase(it);
      break;
    }
  } else if (pending_.size() >= kMaxSecrets) {
    return Refuse(
        absl::StrCat(kMaxSecrets, " links are being made, the maximum"));
  }
  pending_.push_back(std::move(pending));
  return response;
}

void Neighbors::Lend(
    const proto::Sender& sender, const LentVersion& version,
    const google::protobuf::RepeatedPtrField<proto::ReadRange>& ranges,
    std::vector<TensorPiece>* pieces) {
  const TaskId reader = TaskOf(sender);
  if (!versions_->HasRoomFor(version)) links_->TakeBack();
  // Nearly always all of them name the same link.
  std::shared_ptr<NeighborLink> link;
  uint64_t number = 0;
  const size_t count =
      std::min(pieces->size(), static_cast<size_t>(ranges.size()));
  for (size_t i = 0; i < count; ++i) {
    const proto::ReadRange& range = ranges[static_cast<int>(i)];
    TensorPiece& piece = (*pieces)[i];
    if (!range.has_loan() || piece.encoding != proto::EXACT ||
        piece.data.size() < kMinLentBytes) {
      continue;
    }
    if (const uint64_t named = range.loan().link(); named != number) {
      number = named;
      link = links_->Find(number);
      if (link != nullptr && link->peer() != reader) link = nullptr;
      if (link != nullptr) link->TakeBack();
    }
    std::optional<proto::SharedBytes> place;
    const LoanId loan{range.loan().slot(), range.loan().serial()};
    if (link != nullptr) {
      place = piece.rows.has_value()
                  ? link->LendRows(loan, piece.data)
                  : link->Lend(loan, piece.data, version, max_lent_bytes_);
    }
    if (!place.has_value()) {
      ++refused_loans_;
      continue;
    }
    piece.shared = *std::move(place);
    piece.data = Buffer();
  }
}

absl::Status Neighbors::Borrow(const proto::Sender& sender,
                               std::vector<TensorPiece>* pieces) {
  const TaskId owner = TaskOf(sender);
  std::shared_ptr<NeighborLink> link;
  uint64_t number = 0;
  uint64_t copied = 0;
  for (TensorPiece& piece : *pieces) {
    if (!piece.shared.has_value()) continue;
    const auto refuse = [&](absl::StatusCode code, absl::string_view why) {
      ++refused_places_;
      return absl::Status(
          code, absl::StrCat("variable \"", piece.variable, "\": ", why));
    };
    if (const uint64_t named = piece.shared->loan().link();
        link == nullptr || named != number) {
      number = named;
      link = links_->Find(number);
      if (link == nullptr) {
        return refuse(
            absl::StatusCode::kUnavailable,
            "the link of its shared bytes does not exist, or has ended");
      }
    }
    if (link->peer() != owner) {
      return refuse(absl::StatusCode::kInvalidArgument,
                    absl::StrCat("its shared bytes belong to a link with ",
                                 link->peer().ToString()));
    }
    const bool copy = piece.encoding != proto::EXACT;
    if (copy && piece.shared->size() > kMaxCopiedBytes - copied) {
      return refuse(absl::StatusCode::kInvalidArgument,
                    absl::StrCat("encoded elements of more than ",
                                 kMaxCopiedBytes, " bytes in one call"));
    }
    absl::StatusOr<Buffer> data = link->Borrow(*piece.shared);
    if (!data.ok()) {
      return refuse(data.status().code(), data.status().message());
    }
    piece.shared.reset();
    piece.data = *std::move(data);
    if (copy) {
      // Copied so that the bytes that are checked are the bytes that are used.
      copied += piece.data.size();
      piece.data = Copy(piece.data);
    }
  }
  return absl::OkStatus();
}

NeighborFigures Neighbors::figures() const {
  NeighborFigures figures;
  {
    absl::MutexLock lock(&links_->mutex);
    figures.links = links_->by_number.size();
  }
  figures.lent_now = counters_->lent_now;
  figures.borrowed_now = counters_->borrowed_now;
  figures.lent = counters_->lent;
  figures.borrowed = counters_->borrowed;
  figures.refused_requests = refused_requests_;
  figures.refused_peers = refused_peers_;
  figures.refused_loans = refused_loans_;
  figures.refused_places = refused_places_;
  return figures;
}

void Neighbors::Run() {
  std::list<std::unique_ptr<LinkSocket>> strangers;
  std::list<std::shared_ptr<NeighborLink>> links;
  bool full = false;
  for (;;) {
    std::vector<pollfd> fds;
    fds.push_back({quit_, POLLIN, 0});
    // poll ignores a negative descriptor.
    fds.push_back({full ? -1 : listener_->fd(), POLLIN, 0});
    for (const auto& stranger : strangers) {
      fds.push_back({stranger->fd(), POLLIN, 0});
    }
    for (const auto& link : links) fds.push_back({link->fd(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), full ? kPauseMs : -1) < 0) continue;
    if (fds[0].revents != 0) return;

    auto polled = fds.begin() + 2;
    std::list<std::shared_ptr<NeighborLink>> made;
    for (auto it = strangers.begin(); it != strangers.end(); ++polled) {
      const auto stranger = it++;
      if (polled->revents == 0) continue;
      auto link = Greet(&*stranger);
      if (absl::IsUnavailable(link.status())) {
        // The peer has closed the connection, like one that only checks whether
        // anyone listens.
        strangers.erase(stranger);
      } else if (!link.ok()) {
        ++refused_peers_;
        LOG_EVERY_N(WARNING, 100)
            << options_.name << ": a process that connected to "
            << listener_->path() << " got no link: " << link.status().message()
            << " (refused so far: " << refused_peers_ << ")";
        strangers.erase(stranger);
      } else if (*link != nullptr) {
        made.push_back(*std::move(link));
        strangers.erase(stranger);
      }
    }
    for (auto it = links.begin(); it != links.end(); ++polled) {
      const auto link = it++;
      if (polled->revents == 0) continue;
      if (absl::Status status = (*link)->Receive(); !status.ok()) {
        End(link->get(), status);
        links.erase(link);
      }
    }
    links.splice(links.end(), made);
    const bool connecting = fds[1].revents != 0;
    full = (connecting || full) && !Accept(&strangers);
  }
}

bool Neighbors::Accept(std::list<std::unique_ptr<LinkSocket>>* strangers) {
  for (;;) {
    absl::StatusOr<std::unique_ptr<LinkSocket>> socket = listener_->TryAccept();
    if (!socket.ok()) {
      LOG_EVERY_N(WARNING, 100)
          << options_.name << ": cannot take a connection to "
          << listener_->path() << ": " << socket.status().message();
      return false;
    }
    if (*socket == nullptr) return true;
    if (strangers->size() >= kMaxStrangers) {
      ++refused_peers_;
      strangers->pop_front();
    }
    strangers->push_back(*std::move(socket));
  }
}

absl::StatusOr<TaskId> Neighbors::TakePending(const LinkMessage& hello) {
  const absl::Time now = options_.clock->Now();
  absl::MutexLock lock(&mutex_);
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    if (it->number != hello.link || !IsSame(it->secret, hello.secret)) continue;
    if (it->deadline <= now) break;
    TaskId peer = std::move(it->peer);
    pending_.erase(it);
    return peer;
  }
  return absl::PermissionDeniedError("its secret was not handed out recently");
}

absl::StatusOr<std::shared_ptr<NeighborLink>> Neighbors::Greet(
    std::unique_ptr<LinkSocket>* stranger) {
  HOLDFAST_ASSIGN_OR_RETURN(auto received, (*stranger)->TryReceive());
  if (!received.has_value()) return std::shared_ptr<NeighborLink>();
  const LinkMessage& hello = *received;
  if (hello.kind != LinkMessage::Kind::kHello) {
    return absl::InvalidArgumentError("it has not identified itself");
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto uid, (*stranger)->PeerUid());
  if (!options_.secure && uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "it belongs to user ", uid, ", this ps to ", geteuid(),
        ", and without --tls_dir no certificate shows whose it is"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto peer, TakePending(hello));
  HOLDFAST_ASSIGN_OR_RETURN(auto board, LoanTaker::Map(hello.fd));
  auto link = std::make_shared<NeighborLink>(
      hello.link, peer, std::move(*stranger), std::move(board),
      options_.arena.get(), counters_, versions_);
  {
    // The link is added before the welcome, because the peer's first message
    // may come at once.
    absl::MutexLock lock(&links_->mutex);
    if (links_->by_number.size() >= kMaxLinks) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", kMaxLinks, " links, the maximum"));
    }
    links_->by_number[link->number()] = link;
  }
  if (absl::Status status = link->Welcome(); !status.ok()) {
    End(link.get(), status);
    return status;
  }
  LOG(INFO) << options_.name << " shares memory with " << link->peer()
            << " (user " << uid << ")";
  return link;
}

void Neighbors::End(NeighborLink* link, const absl::Status& why) {
  link->End(why);
  LOG(INFO) << options_.name << " no longer shares memory with " << link->peer()
            << ": " << link->Summary();
  absl::MutexLock lock(&links_->mutex);
  links_->by_number.erase(link->number());
}

}  // namespace holdfast
