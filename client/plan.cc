// SPDX-License-Identifier: Apache-2.0
#include "client/plan.h"

#include <algorithm>

namespace holdfast::client {
namespace {

// The maximum size of everything in a message for one range but its values: see
// EncodedBytes in common/rpc/tensor_codec.cc.
uint64_t HeaderBytes(const Layout::Variable& variable) {
  return 66 + variable.name.size() + 10 * variable.shape.size();
}

// The maximum size of a SharedBytes with its Loan, in bytes.
constexpr uint64_t kPlaceBytes = 90;

bool HasCompression(const proto::Declaration& declaration) {
  return std::any_of(declaration.variables().begin(),
                     declaration.variables().end(),
                     [](const proto::Variable& variable) {
                       return variable.compression().push() != proto::EXACT ||
                              variable.compression().pull() != proto::EXACT;
                     });
}

// Decides what is lent to which ps.
class Lender {
 public:
  Lender(const Layout& layout, const std::vector<bool>& neighbors,
         uint64_t min_bytes)
      : neighbors_(HasCompression(layout.declaration()) ? std::vector<bool>()
                                                        : neighbors),
        min_elements_(min_bytes / sizeof(float)) {}

  bool Lends(uint32_t ps, const ElementRange& range) const {
    return !neighbors_.empty() && neighbors_[ps] && range.size >= min_elements_;
  }

 private:
  const std::vector<bool> neighbors_;
  const uint64_t min_elements_;
};

// Fills the parts of one ps, range by range.
class Packer {
 public:
  Packer(const Layout& layout, int64_t part_bytes, const Lender& lender,
         uint32_t ps)
      : layout_(layout),
        part_elements_(std::max<uint64_t>(part_bytes / sizeof(float), 1)),
        lender_(lender),
        ps_(ps) {}

  void Add(ElementRange range) {
    const bool lent = lender_.Lends(ps_, range);
    const uint64_t header = HeaderBytes(layout_.variables()[range.variable]) +
                            (lent ? kPlaceBytes : 0);
    const bool fits = elements_ + (lent ? 0 : range.size) <= part_elements_ &&
                      header_bytes_ + header <= kMaxHeaderBytes &&
                      loans_ + lent <= kMaxLoansInPart;
    if (!fits && !parts_.back().empty()) NextPart();
    while (!lent && range.size > part_elements_) {
      parts_.back().push_back({range.variable, range.begin, part_elements_});
      range.begin += part_elements_;
      range.size -= part_elements_;
      NextPart();
    }
    parts_.back().push_back(range);
    elements_ += lent ? 0 : range.size;
    header_bytes_ += header;
    loans_ += lent;
  }

  std::vector<Plan::Part> Take() {
    if (parts_.back().empty()) parts_.pop_back();
    return std::move(parts_);
  }

 private:
  void NextPart() {
    parts_.emplace_back();
    elements_ = 0;
    header_bytes_ = 0;
    loans_ = 0;
  }

  const Layout& layout_;
  const uint64_t part_elements_;
  const Lender& lender_;
  const uint32_t ps_;
  std::vector<Plan::Part> parts_ = std::vector<Plan::Part>(1);
  // The number of elements in the last part, and the size of everything else in
  // it, in bytes.
  uint64_t elements_ = 0;
  uint64_t header_bytes_ = 0;
  size_t loans_ = 0;
};

void FillPlaces(const Layout& layout, const Lender& lender, Plan* plan) {
  plan->places.resize(layout.variables().size());
  plan->lent.resize(layout.variables().size());
  for (uint32_t ps = 0; ps < plan->parts.size(); ++ps) {
    for (uint32_t part = 0; part < plan->parts[ps].size(); ++part) {
      for (const ElementRange& range : plan->parts[ps][part]) {
        plan->places[range.variable].push_back({ps, part});
        if (lender.Lends(ps, range)) {
          plan->lent[range.variable].push_back(range);
        }
      }
    }
  }
}

}  // namespace

Plan PlanPush(const Layout& layout, int64_t part_bytes,
              const std::vector<bool>& neighbors, uint64_t min_lent_bytes) {
  const Lender lender(layout, neighbors, min_lent_bytes);
  Plan plan;
  plan.part_bytes = part_bytes;
  for (uint32_t ps = 0; ps < layout.num_ps(); ++ps) {
    Packer packer(layout, part_bytes, lender, ps);
    const std::vector<ElementRange>& slices = layout.slices(ps);
    for (auto it = slices.rbegin(); it != slices.rend(); ++it) {
      if (layout.variables()[it->variable].trainable) packer.Add(*it);
    }
    plan.parts.push_back(packer.Take());
  }
  FillPlaces(layout, lender, &plan);
  return plan;
}

Plan PlanPull(const Layout& layout, int64_t part_bytes,
              const std::vector<bool>& neighbors, uint64_t min_lent_bytes) {
  const Lender lender(layout, neighbors, min_lent_bytes);
  Plan plan;
  plan.part_bytes = part_bytes;
  for (uint32_t ps = 0; ps < layout.num_ps(); ++ps) {
    Packer packer(layout, part_bytes, lender, ps);
    for (const ElementRange& slice : layout.slices(ps)) packer.Add(slice);
    plan.parts.push_back(packer.Take());
  }
  if (std::all_of(plan.parts.begin(), plan.parts.end(),
                  [](const auto& parts) { return parts.empty(); })) {
    plan.parts.front().emplace_back();
  }
  FillPlaces(layout, lender, &plan);
  return plan;
}

}  // namespace holdfast::client
