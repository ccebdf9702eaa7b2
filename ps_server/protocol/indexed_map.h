// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_INDEXED_MAP_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_INDEXED_MAP_H_

#include <cstddef>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "glog/logging.h"

namespace holdfast {

// A std::map with look-ups in constant time, for entries that are looked up at
// every call and change rarely, such as a worker's session. Iteration is in the
// order of keys, so that no result depends on the order of hashes.
//
// Thread-compatible. Key needs operator<, operator== and AbslHashValue. The
// members are those of std::map, with the same validity of iterators and
// references.
template <typename Key, typename Value>
class IndexedMap {
 public:
  using iterator = typename std::map<Key, Value>::iterator;
  using const_iterator = typename std::map<Key, Value>::const_iterator;

  IndexedMap() = default;
  IndexedMap(const IndexedMap& other) : entries_(other.entries_) {
    for (auto it = begin(); it != end(); ++it) index_.insert(it);
  }
  IndexedMap(IndexedMap&&) = default;
  IndexedMap& operator=(IndexedMap&&) = default;

  size_t size() const { return entries_.size(); }
  iterator begin() { return entries_.begin(); }
  iterator end() { return entries_.end(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }

  iterator find(const Key& key) {
    const auto found = index_.find(key);
    return found == index_.end() ? entries_.end() : *found;
  }
  const_iterator find(const Key& key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? entries_.end() : const_iterator(*found);
  }
  size_t count(const Key& key) const { return index_.contains(key) ? 1 : 0; }
  // The entry must exist.
  Value& at(const Key& key) { return Entry(key)->second; }
  const Value& at(const Key& key) const { return Entry(key)->second; }

  Value& operator[](const Key& key) {
    const auto found = index_.find(key);
    if (found != index_.end()) return (*found)->second;
    const iterator entry = entries_.try_emplace(key).first;
    index_.insert(entry);
    return entry->second;
  }
  void erase(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    const iterator entry = *found;
    index_.erase(found);
    entries_.erase(entry);
  }

 private:
  // The index holds no keys, so it stays small, and a look-up reads no memory
  // but the index and the entry.
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Key& key) const { return absl::Hash<Key>()(key); }
    size_t operator()(iterator entry) const { return (*this)(entry->first); }
  };
  struct Same {
    using is_transparent = void;
    bool operator()(iterator a, iterator b) const { return a == b; }
    bool operator()(iterator a, const Key& b) const { return a->first == b; }
  };

  iterator Entry(const Key& key) const {
    const auto found = index_.find(key);
    CHECK(found != index_.end());
    return *found;
  }

  std::map<Key, Value> entries_;
  absl::flat_hash_set<iterator, Hash, Same> index_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_INDEXED_MAP_H_
