// SPDX-License-Identifier: Apache-2.0
#include "common/shared_memory/arena.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/numeric/bits.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

constexpr size_t kAlignment = 64;

size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

struct SharedArena::State {
  // Pieces with huge pages are taken from the front, each aligned to a huge
  // page; others from the back.
  struct File {
    std::shared_ptr<const SealedFile> memory;
    size_t front = 0;
    size_t back = 0;
  };

  State(std::string name, size_t file_bytes)
      : name(std::move(name)), file_bytes(file_bytes) {}

  // Takes a spare piece of `bytes` bytes. Returns null if there is none.
  char* TakeSpare(size_t bytes);
  // Takes a piece from memory of spare pieces of before the last Renew. Returns
  // null if none fits.
  char* TakeLoose(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Loosen(char* piece, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Takes a piece as TakeLoose does or, if none fits, from memory that no piece
  // has used yet.
  absl::StatusOr<char*> TakeFresh(size_t bytes);
  std::shared_ptr<char> Refer(char* piece, size_t bytes,
                              std::shared_ptr<State> self);

  const std::string name;
  const size_t file_bytes;
  std::function<void()> reclaim;

  // Not held while huge pages are made, which takes the kernel long.
  mutable absl::Mutex mutex;
  std::vector<File> files ABSL_GUARDED_BY(mutex);
  // Indices into files, by the files' addresses.
  std::map<uintptr_t, size_t> by_address ABSL_GUARDED_BY(mutex);
  // Spare pieces, by their size.
  absl::flat_hash_map<size_t, std::vector<char*>> spare ABSL_GUARDED_BY(mutex);
  // Memory of spare pieces from before the last Renew, by address; adjacent
  // memory in one file is one range.
  std::map<char*, size_t> loose ABSL_GUARDED_BY(mutex);
  uint64_t renewals ABSL_GUARDED_BY(mutex) = 0;
  int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
};

void SharedArena::State::Loosen(char* piece, size_t bytes) {
  const auto is_begin_of_file = [&](const char* at) {
    mutex.AssertHeld();
    return by_address.count(reinterpret_cast<uintptr_t>(at)) > 0;
  };
  const auto after = loose.lower_bound(piece);
  if (after != loose.end() && after->first == piece + bytes &&
      !is_begin_of_file(after->first)) {
    bytes += after->second;
    loose.erase(after);
  }
  auto before = loose.lower_bound(piece);
  if (before != loose.begin()) {
    --before;
    if (before->first + before->second == piece && !is_begin_of_file(piece)) {
      before->second += bytes;
      return;
    }
  }
  loose.emplace(piece, bytes);
}

char* SharedArena::State::TakeLoose(size_t size) {
  const size_t alignment = size >= kHugePageBytes ? kHugePageBytes : kAlignment;
  const auto skip_of = [alignment](char* begin) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(begin);
    return RoundUp(at, alignment) - at;
  };
  // The shortest range that fits: if sizes have not changed, it is a former
  // piece of this size.
  auto best = loose.end();
  for (auto it = loose.begin(); it != loose.end(); ++it) {
    if (skip_of(it->first) + size > it->second) continue;
    if (best == loose.end() || it->second < best->second) best = it;
  }
  if (best == loose.end()) return nullptr;
  char* const begin = best->first;
  const size_t skip = skip_of(begin);
  const size_t left = best->second - skip - size;
  loose.erase(best);
  if (skip > 0) loose.emplace(begin, skip);
  if (left > 0) loose.emplace(begin + skip + size, left);
  return begin + skip;
}

char* SharedArena::State::TakeSpare(size_t bytes) {
  absl::MutexLock lock(&mutex);
  const auto found = spare.find(bytes);
  if (found == spare.end() || found->second.empty()) return nullptr;
  char* const piece = found->second.back();
  found->second.pop_back();
  return piece;
}

absl::StatusOr<char*> SharedArena::State::TakeFresh(size_t size) {
  const bool is_huge = size >= kHugePageBytes;
  std::shared_ptr<const SealedFile> memory;
  size_t offset = 0;
  absl::ReleasableMutexLock lock(&mutex);
  if (char* const loose_piece = TakeLoose(size); loose_piece != nullptr) {
    const auto& [begin, index] = *std::prev(
        by_address.upper_bound(reinterpret_cast<uintptr_t>(loose_piece)));
    memory = files[index].memory;
    offset = reinterpret_cast<uintptr_t>(loose_piece) - begin;
  } else {
    const auto has_room = [&](const File& file) {
      const size_t begin =
          is_huge ? RoundUp(file.front, kHugePageBytes) : file.front;
      return begin <= file.back && size <= file.back - begin;
    };
    auto file = std::find_if(files.begin(), files.end(), has_room);
    if (file == files.end()) {
      // Creating a file is fast and takes no memory: none of its pages is
      // touched here.
      HOLDFAST_ASSIGN_OR_RETURN(
          auto made, SealedFile::Create(
                         absl::StrCat("holdfast-", name),
                         std::max(file_bytes, RoundUp(size, kHugePageBytes)),
                         SealedFile::Writers::kOwner));
      File fresh;
      fresh.memory = std::move(made);
      fresh.back = fresh.memory->size();
      by_address.emplace(reinterpret_cast<uintptr_t>(fresh.memory->data()),
                         files.size());
      file = files.insert(files.end(), std::move(fresh));
    }
    if (is_huge) {
      offset = RoundUp(file->front, kHugePageBytes);
      file->front = offset + size;
    } else {
      file->back -= size;
      offset = file->back;
    }
    memory = file->memory;
    bytes += static_cast<int64_t>(size);
  }
  lock.Release();
  if (is_huge) {
    memory->MakeHuge(offset, size / kHugePageBytes * kHugePageBytes);
  }
  return memory->data() + offset;
}

std::shared_ptr<char> SharedArena::State::Refer(char* piece, size_t bytes,
                                                std::shared_ptr<State> self) {
  uint64_t renewals;
  {
    absl::MutexLock lock(&mutex);
    renewals = this->renewals;
  }
  return std::shared_ptr<char>(
      piece, [bytes, renewals, state = std::move(self)](char* returned) {
        absl::MutexLock lock(&state->mutex);
        if (renewals == state->renewals) {
          state->spare[bytes].push_back(returned);
        } else {
          state->Loosen(returned, bytes);
        }
      });
}

SharedArena::SharedArena(Options options)
    : state_(std::make_shared<State>(
          std::move(options.name),
          RoundUp(std::max<size_t>(options.file_bytes, 1), kHugePageBytes))) {}

absl::StatusOr<std::shared_ptr<char>> SharedArena::Take(size_t bytes) {
  if (bytes > static_cast<size_t>(std::numeric_limits<int64_t>::max()) / 2) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory \"", state_->name, "\" of ", bytes,
                     " bytes: no system has that much"));
  }
  const size_t size = RoundUp(std::max<size_t>(bytes, 1), kAlignment);
  char* piece = state_->TakeSpare(size);
  if (piece == nullptr && state_->reclaim != nullptr) {
    Reclaim();
    piece = state_->TakeSpare(size);
  }
  if (piece == nullptr) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto fresh, state_->TakeFresh(size));
    piece = fresh;
  }
  return state_->Refer(piece, size, state_);
}

absl::StatusOr<std::shared_ptr<char>> SharedArena::TakeAtLeast(size_t bytes) {
  constexpr size_t kGreatest = ~(std::numeric_limits<size_t>::max() / 2);
  return Take(bytes > kGreatest ? bytes : absl::bit_ceil(bytes));
}

void SharedArena::Renew() {
  absl::MutexLock lock(&state_->mutex);
  ++state_->renewals;
  for (auto& [size, pieces] : state_->spare) {
    for (char* const piece : pieces) state_->Loosen(piece, size);
  }
  state_->spare.clear();
}

std::optional<SharedArena::Place> SharedArena::Find(const void* data,
                                                    size_t size) const {
  const uintptr_t at = reinterpret_cast<uintptr_t>(data);
  absl::MutexLock lock(&state_->mutex);
  const auto after = state_->by_address.upper_bound(at);
  if (after == state_->by_address.begin()) return std::nullopt;
  const auto& [begin, index] = *std::prev(after);
  const size_t file_size = state_->files[index].memory->size();
  const size_t offset = at - begin;
  if (offset >= file_size || size > file_size - offset) return std::nullopt;
  return Place{static_cast<uint32_t>(index + 1), offset};
}

std::vector<std::shared_ptr<const SealedFile>> SharedArena::files() const {
  absl::MutexLock lock(&state_->mutex);
  std::vector<std::shared_ptr<const SealedFile>> files;
  for (const State::File& file : state_->files) files.push_back(file.memory);
  return files;
}

int64_t SharedArena::bytes() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->bytes;
}

void SharedArena::set_reclaim(std::function<void()> reclaim) {
  state_->reclaim = std::move(reclaim);
}

void SharedArena::Reclaim() {
  if (state_->reclaim != nullptr) state_->reclaim();
}

bool SharedArena::HugePagesWork() {
  static const bool work = [] {
    const auto file = SealedFile::Create("holdfast-probe", kHugePageBytes,
                                         SealedFile::Writers::kOwner);
    return file.ok() && (*file)->MakeHuge(0, kHugePageBytes);
  }();
  return work;
}

}  // namespace holdfast
