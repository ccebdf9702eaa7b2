// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/handles.h"

#include <pthread.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace holdfast::c_api {
namespace {

constexpr int kKindBits = 4;

struct Table {
  absl::Mutex mutex;
  uintptr_t last ABSL_GUARDED_BY(mutex) = 0;
  std::map<uintptr_t, std::shared_ptr<void>> objects ABSL_GUARDED_BY(mutex);
};

// Never destroyed: threads may use it until the process ends.
Table& TheTable() {
  static Table* const table = new Table;
  return *table;
}

std::atomic<bool> is_forked_child{false};

}  // namespace

void Handles::Begin() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; });
  });
}

bool Handles::IsForkedChild() { return is_forked_child; }

void* Handles::Add(Kind kind, std::shared_ptr<void> object) {
  Table& table = TheTable();
  absl::MutexLock lock(&table.mutex);
  const uintptr_t number =
      (++table.last << kKindBits) | static_cast<uintptr_t>(kind);
  table.objects.emplace(number, std::move(object));
  return reinterpret_cast<void*>(number);
}

std::shared_ptr<void> Handles::Find(Kind kind, const void* handle) {
  const uintptr_t number = reinterpret_cast<uintptr_t>(handle);
  if (is_forked_child ||
      (number & ((1 << kKindBits) - 1)) != static_cast<uintptr_t>(kind)) {
    return nullptr;
  }
  Table& table = TheTable();
  absl::MutexLock lock(&table.mutex);
  const auto found = table.objects.find(number);
  return found == table.objects.end() ? nullptr : found->second;
}

std::shared_ptr<void> Handles::Remove(Kind kind, const void* handle) {
  std::shared_ptr<void> object = Find(kind, handle);
  if (object == nullptr) return nullptr;
  Table& table = TheTable();
  absl::MutexLock lock(&table.mutex);
  table.objects.erase(reinterpret_cast<uintptr_t>(handle));
  return object;
}

}  // namespace holdfast::c_api
