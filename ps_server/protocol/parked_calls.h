// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_PARKED_CALLS_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_PARKED_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// Calls that an event machine answers later: when the event that they wait for
// has happened, or at their deadlines.
//
// A call is parked under a key by which it is found again, such as the push
// that it asks about or the version that it waits for; several calls may have
// the same key. However calls are selected, they are taken out in the order in
// which they were parked.
//
// A reply may cause further calls into the machine that owns this object, so
// calls are answered only after they have been taken out.
//
// Thread-compatible. Key needs operator<. Parking or taking one call costs
// O(log size()), however many calls there are with other keys or deadlines.
template <typename Key, typename Response, typename Request = std::monostate>
class ParkedCalls {
 public:
  // The number of calls at which an object is full, by default.
  static constexpr size_t kDefaultLimit = 65536;

  struct Call {
    // Calls are numbered from 1 in the order in which they were parked.
    uint64_t number = 0;
    Key key;
    // What the owner needs to answer the call, besides its key.
    Request request;
    Reply<Response> reply;
    absl::Time deadline;
  };

  explicit ParkedCalls(size_t limit = kDefaultLimit) : limit_(limit) {}
  ParkedCalls(const ParkedCalls&) = delete;
  ParkedCalls& operator=(const ParkedCalls&) = delete;

  size_t size() const { return calls_.size(); }
  bool empty() const { return calls_.empty(); }
  // Whether there is no room. If so, the owner must answer a call at once
  // instead of parking it.
  bool full() const { return calls_.size() >= limit_; }

  void Park(Key key, Reply<Response> reply, absl::Time deadline,
            Request request = {}) {
    const auto after = by_key_.upper_bound(key);
    Park(after, std::move(key), std::move(reply), deadline, std::move(request));
  }

  struct Latest {
    // Calls with the same key, to be answered now: a caller that asks again no
    // longer waits for the earlier answer.
    std::vector<Call> earlier;
    // Whether there was no room for the call, which is parked nevertheless. If
    // so, the owner must answer it at once or take it out again.
    bool no_room = false;
  };
  // Parks the call in place of earlier ones with its key.
  Latest ParkLatest(Key key, Reply<Response> reply, absl::Time deadline,
                    Request request = {}) {
    const auto first = by_key_.lower_bound(key);
    auto last = first;
    while (last != by_key_.end() && !(key < last->first)) ++last;
    Latest latest;
    if (first != last) latest.earlier = TakeOut(Find(first, last));
    latest.no_room = full();
    Park(last, std::move(key), std::move(reply), deadline, std::move(request));
    return latest;
  }

  // Takes out `call`, which Next() or Between() has returned.
  Call TakeCall(const Call* call) { return TakeOut(call); }

  // Takes out the calls with `key`.
  std::vector<Call> Take(const Key& key) {
    const auto first = by_key_.lower_bound(key);
    auto last = first;
    while (last != by_key_.end() && !(key < last->first)) ++last;
    return TakeOut(Find(first, last));
  }
  // Takes out the calls with keys in [first, last].
  std::vector<Call> TakeBetween(const Key& first, const Key& last) {
    return TakeOut(Find(by_key_.lower_bound(first), by_key_.upper_bound(last)));
  }
  // Takes out the calls whose deadline is at or before `now`.
  std::vector<Call> TakeDue(absl::Time now) {
    if (by_deadline_.empty() || now < by_deadline_.begin()->first) return {};
    return TakeOut(Find(by_deadline_.begin(), by_deadline_.upper_bound(now)));
  }
  std::vector<Call> TakeAll() {
    std::vector<Call> taken;
    if (empty()) return taken;
    taken.reserve(calls_.size());
    for (auto& [number, entry] : calls_) {
      taken.push_back(std::move(entry.call));
    }
    by_key_.clear();
    by_deadline_.clear();
    calls_.clear();
    return taken;
  }
  // Takes out the calls for which `ready` returns true. O(size()).
  template <typename Ready>
  std::vector<Call> TakeIf(Ready ready) {
    std::vector<const Call*> found;
    for (const auto& [number, entry] : calls_) {
      if (ready(entry.call)) found.push_back(&entry.call);
    }
    return TakeOut(std::move(found));
  }

  // The calls with keys in [first, last], ordered by key. The pointers are
  // valid until the calls are taken out.
  std::vector<const Call*> Between(const Key& first, const Key& last) const {
    return Find(by_key_.lower_bound(first), by_key_.upper_bound(last));
  }
  // Returns the first call that was parked after call number `number`, or null
  // if there is none. Next(0) returns the first call of all.
  const Call* Next(uint64_t number) const {
    const auto next = calls_.upper_bound(number);
    return next == calls_.end() ? nullptr : &next->second.call;
  }

 private:
  // Calls with the same key or deadline are in the order of their numbers.
  using ByKey = std::multimap<Key, const Call*>;
  using ByDeadline = std::multimap<absl::Time, const Call*>;
  struct Entry {
    explicit Entry(Call&& c) : call(std::move(c)) {}

    Call call;
    typename ByKey::iterator by_key;
    typename ByDeadline::iterator by_deadline;
  };

  // `after`: the first entry with a greater key.
  void Park(typename ByKey::iterator after, Key&& key, Reply<Response>&& reply,
            absl::Time deadline, Request&& request) {
    const uint64_t number = ++last_number_;
    Entry& entry =
        calls_
            .try_emplace(calls_.end(), number,
                         Call{number, std::move(key), std::move(request),
                              std::move(reply), deadline})
            ->second;
    entry.by_key = by_key_.emplace_hint(after, entry.call.key, &entry.call);
    // Deadlines mostly come in increasing order, and then this needs no search.
    entry.by_deadline =
        by_deadline_.emplace_hint(by_deadline_.end(), deadline, &entry.call);
  }

  template <typename Iterator>
  static std::vector<const Call*> Find(Iterator begin, Iterator end) {
    std::vector<const Call*> found;
    for (; begin != end; ++begin) found.push_back(begin->second);
    return found;
  }

  std::vector<Call> TakeOut(std::vector<const Call*> found) {
    std::sort(found.begin(), found.end(), [](const Call* a, const Call* b) {
      return a->number < b->number;
    });
    std::vector<Call> taken;
    taken.reserve(found.size());
    for (const Call* call : found) taken.push_back(TakeOut(call));
    return taken;
  }
  Call TakeOut(const Call* found) {
    const auto it = calls_.find(found->number);
    by_key_.erase(it->second.by_key);
    by_deadline_.erase(it->second.by_deadline);
    Call taken = std::move(it->second.call);
    calls_.erase(it);
    return taken;
  }

  const size_t limit_;
  uint64_t last_number_ = 0;
  // Keyed by number; the other two point into it.
  std::map<uint64_t, Entry> calls_;
  ByKey by_key_;
  ByDeadline by_deadline_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_PARKED_CALLS_H_
