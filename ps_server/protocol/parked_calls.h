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
    const auto after = by_key_.upper_bound(key);
    Park(after, std::move(key), std::move(reply), deadline, std::move(request));
  }

  struct Latest {
    // Calls with the same key, to be answered now: who asks again does not wait
    // for the earlier answer any more.
    std::vector<Call> earlier;
    // There are more calls than there is room for: the owner takes this one out
    // again, unless it can be answered at once.
    bool no_room = false;
  };
  // Parks the call in place of those with its key.
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

  // Takes out that call, which Next() or Between() has found.
  Call TakeCall(const Call* call) { return TakeOut(call); }

  // Takes out the calls with `key`.
  std::vector<Call> Take(const Key& key) {
    const auto first = by_key_.lower_bound(key);
    auto last = first;
    while (last != by_key_.end() && !(key < last->first)) ++last;
    return TakeOut(Find(first, last));
  }
  // Takes out those whose keys are not below `first` and not above `last`.
  std::vector<Call> TakeBetween(const Key& first, const Key& last) {
    return TakeOut(Find(by_key_.lower_bound(first), by_key_.upper_bound(last)));
  }
  // Takes out those whose deadline is at or before `now`.
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
  // Calls with the same key, or deadline, are in the order of their numbers.
  using ByKey = std::multimap<Key, const Call*>;
  using ByDeadline = std::multimap<absl::Time, const Call*>;
  struct Entry {
    explicit Entry(Call&& c) : call(std::move(c)) {}

    Call call;
    typename ByKey::iterator by_key;
    typename ByDeadline::iterator by_deadline;
  };

  // `after`: the first key behind those that are the same.
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
    // Most deadlines come in order, and then this needs no search.
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
  // By number; the others point into it.
  std::map<uint64_t, Entry> calls_;
  ByKey by_key_;
  ByDeadline by_deadline_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_PARKED_CALLS_H_
