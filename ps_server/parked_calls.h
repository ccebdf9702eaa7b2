#ifndef HOLDFAST_PS_SERVER_PARKED_CALLS_H_
#define HOLDFAST_PS_SERVER_PARKED_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/reply.h"

namespace holdfast {

// Calls that an event machine answers later: when what they wait for has
// happened, or at their deadline.
//
// A call is parked under a key by which it is found again, such as the push
// that it asks about or the version that it waits for; several calls may have
// the same key. Calls are taken out in the order in which they were parked,
// whatever they are selected by.
//
// A reply may come back with further calls into the machine that owns this
// object, so calls are answered only after they are taken out.
//
// Thread-compatible. Key needs operator<. To park or take one call costs
// O(log size()), however many calls there are with other keys or deadlines.
template <typename Key, typename Response, typename Request = std::monostate>
class ParkedCalls {
 public:
  // Calls that one object holds before it is full.
  static constexpr size_t kDefaultLimit = 65536;

  struct Call {
    // Calls are numbered from 1 in the order in which they were parked.
    uint64_t number = 0;
    Key key;
    // What the owner needs to answer the call, apart from its key.
    Request request;
    Reply<Response> reply;
    absl::Time deadline;
  };

  explicit ParkedCalls(size_t limit = kDefaultLimit) : limit_(limit) {}
  ParkedCalls(const ParkedCalls&) = delete;
  ParkedCalls& operator=(const ParkedCalls&) = delete;

  size_t size() const { return calls_.size(); }
  bool empty() const { return calls_.empty(); }
  // The owner answers a call at once rather than park it here.
  bool full() const { return calls_.size() >= limit_; }

  void Park(Key key, Reply<Response> reply, absl::Time deadline,
            Request request = {}) {
    const uint64_t number = ++last_number_;
    const auto it = calls_.emplace_hint(calls_.end(), number, Entry{});
    Entry& entry = it->second;
    entry.call = {number, std::move(key), std::move(request), std::move(reply),
                  deadline};
    entry.by_key = by_key_.insert(&entry.call);
    // Most deadlines come in order, and then this needs no search.
    entry.by_deadline = by_deadline_.insert(by_deadline_.end(), &entry.call);
  }

  // Takes out the calls with `key`.
  std::vector<Call> Take(const Key& key) {
    return TakeOut(Find(by_key_.lower_bound(key), by_key_.upper_bound(key)));
  }
  // Takes out those whose keys are not below `first` and not above `last`.
  std::vector<Call> TakeBetween(const Key& first, const Key& last) {
    return TakeOut(Find(by_key_.lower_bound(first), by_key_.upper_bound(last)));
  }
  // Takes out those whose deadline is at or before `now`.
  std::vector<Call> TakeDue(absl::Time now) {
    return TakeOut(Find(by_deadline_.begin(), by_deadline_.upper_bound(now)));
  }
  std::vector<Call> TakeAll() { return TakeDue(absl::InfiniteFuture()); }
  // Takes out those that `ready` holds for. O(size()).
  template <typename Ready>
  std::vector<Call> TakeIf(Ready ready) {
    std::vector<const Call*> found;
    for (const auto& [number, entry] : calls_) {
      if (ready(entry.call)) found.push_back(&entry.call);
    }
    return TakeOut(std::move(found));
  }

  // Those whose keys are not below `first` and not above `last`, by key. Valid
  // until they are taken out.
  std::vector<const Call*> Between(const Key& first, const Key& last) const {
    return Find(by_key_.lower_bound(first), by_key_.upper_bound(last));
  }
  // The first call that was parked after that with `number`, or null; 0 stands
  // for the beginning.
  const Call* Next(uint64_t number) const {
    const auto next = calls_.upper_bound(number);
    return next == calls_.end() ? nullptr : &next->second.call;
  }

 private:
  struct LessByKey {
    using is_transparent = void;
    bool operator()(const Call* a, const Call* b) const {
      return a->key < b->key;
    }
    bool operator()(const Call* a, const Key& b) const { return a->key < b; }
    bool operator()(const Key& a, const Call* b) const { return a < b->key; }
  };
  struct LessByDeadline {
    using is_transparent = void;
    bool operator()(const Call* a, const Call* b) const {
      return a->deadline < b->deadline;
    }
    bool operator()(const Call* a, absl::Time b) const {
      return a->deadline < b;
    }
    bool operator()(absl::Time a, const Call* b) const {
      return a < b->deadline;
    }
  };
  using ByKey = std::multiset<const Call*, LessByKey>;
  using ByDeadline = std::multiset<const Call*, LessByDeadline>;
  struct Entry {
    Call call;
    typename ByKey::iterator by_key;
    typename ByDeadline::iterator by_deadline;
  };

  template <typename Iterator>
  static std::vector<const Call*> Find(Iterator begin, Iterator end) {
    return {begin, end};
  }

  std::vector<Call> TakeOut(std::vector<const Call*> found) {
    std::sort(found.begin(), found.end(), [](const Call* a, const Call* b) {
      return a->number < b->number;
    });
    std::vector<Call> taken;
    taken.reserve(found.size());
    for (const Call* call : found) {
      const auto it = calls_.find(call->number);
      by_key_.erase(it->second.by_key);
      by_deadline_.erase(it->second.by_deadline);
      taken.push_back(std::move(it->second.call));
      calls_.erase(it);
    }
    return taken;
  }

  const size_t limit_;
  uint64_t last_number_ = 0;
  // By number; the others point into it.
  std::map<uint64_t, Entry> calls_;
  ByKey by_key_;
  ByDeadline by_deadline_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PARKED_CALLS_H_
