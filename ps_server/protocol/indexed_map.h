#ifndef HOLDFAST_PS_SERVER_PROTOCOL_INDEXED_MAP_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_INDEXED_MAP_H_

#include <cstddef>
#include <map>

#include "absl/container/flat_hash_map.h"

namespace holdfast {

// A std::map whose look-ups take the same time however many entries there are:
// for what is found at every call, such as a worker's session, and changes
// rarely. Iteration is in the order of keys, so that no order of hashes reaches
// any result.
//
// Thread-compatible. Key needs operator<, operator== and AbslHashValue. The
// members are those of std::map; iterators and references stay valid as there.
template <typename Key, typename Value>
class IndexedMap {
 public:
  using iterator = typename std::map<Key, Value>::iterator;
  using const_iterator = typename std::map<Key, Value>::const_iterator;

  IndexedMap() = default;
  IndexedMap(const IndexedMap& other) : entries_(other.entries_) {
    for (auto it = begin(); it != end(); ++it) index_.emplace(it->first, it);
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
    return found == index_.end() ? entries_.end() : found->second;
  }
  const_iterator find(const Key& key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? entries_.end()
                                 : const_iterator(found->second);
  }
  size_t count(const Key& key) const { return index_.count(key); }
  // There must be such an entry.
  Value& at(const Key& key) { return index_.at(key)->second; }
  const Value& at(const Key& key) const { return index_.at(key)->second; }

  Value& operator[](const Key& key) {
    const auto found = index_.find(key);
    if (found != index_.end()) return found->second->second;
    const iterator entry = entries_.try_emplace(key).first;
    index_.emplace(key, entry);
    return entry->second;
  }
  void erase(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    entries_.erase(found->second);
    index_.erase(found);
  }

 private:
  std::map<Key, Value> entries_;
  absl::flat_hash_map<Key, iterator> index_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_INDEXED_MAP_H_
