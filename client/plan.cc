#include "client/plan.h"

#include <algorithm>

namespace holdfast::client {
namespace {

// Bytes of names, shapes and the like in one part, at most.
constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 20;

// What surrounds the values of one stretch in a message, at most: see
// EncodedBytes in common/rpc/tensor_codec.cc.
uint64_t HeaderBytes(const Layout::Variable& variable) {
  return 66 + variable.name.size() + 10 * variable.shape.size();
}

// Fills the parts of one ps, stretch by stretch.
class Packer {
 public:
  Packer(const Layout& layout, int64_t part_bytes)
      : layout_(layout),
        part_elements_(std::max<uint64_t>(part_bytes / sizeof(float), 1)) {}

  void Add(Stretch stretch) {
    const uint64_t header = HeaderBytes(layout_.variables()[stretch.variable]);
    const bool fits = elements_ + stretch.size <= part_elements_ &&
                      header_bytes_ + header <= kMaxHeaderBytes;
    if (!fits && !parts_.back().empty()) NextPart();
    while (stretch.size > part_elements_) {
      parts_.back().push_back(
          {stretch.variable, stretch.begin, part_elements_});
      stretch.begin += part_elements_;
      stretch.size -= part_elements_;
      NextPart();
    }
    parts_.back().push_back(stretch);
    elements_ += stretch.size;
    header_bytes_ += header;
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
  }

  const Layout& layout_;
  const uint64_t part_elements_;
  std::vector<Plan::Part> parts_ = std::vector<Plan::Part>(1);
  // In the last part.
  uint64_t elements_ = 0;
  uint64_t header_bytes_ = 0;
};

void FillPlaces(const Layout& layout, Plan* plan) {
  plan->places.resize(layout.variables().size());
  for (uint32_t ps = 0; ps < plan->parts.size(); ++ps) {
    for (uint32_t part = 0; part < plan->parts[ps].size(); ++part) {
      for (const Stretch& stretch : plan->parts[ps][part]) {
        plan->places[stretch.variable].push_back({ps, part});
      }
    }
  }
}

}  // namespace

Plan PlanPush(const Layout& layout, int64_t part_bytes) {
  Plan plan;
  for (uint32_t ps = 0; ps < layout.num_ps(); ++ps) {
    Packer packer(layout, part_bytes);
    const std::vector<Stretch>& slices = layout.slices(ps);
    for (auto it = slices.rbegin(); it != slices.rend(); ++it) {
      if (layout.variables()[it->variable].trainable) packer.Add(*it);
    }
    plan.parts.push_back(packer.Take());
  }
  FillPlaces(layout, &plan);
  return plan;
}

Plan PlanPull(const Layout& layout, int64_t part_bytes) {
  Plan plan;
  for (uint32_t ps = 0; ps < layout.num_ps(); ++ps) {
    Packer packer(layout, part_bytes);
    for (const Stretch& slice : layout.slices(ps)) packer.Add(slice);
    plan.parts.push_back(packer.Take());
  }
  if (std::all_of(plan.parts.begin(), plan.parts.end(),
                  [](const auto& parts) { return parts.empty(); })) {
    plan.parts.front().emplace_back();
  }
  FillPlaces(layout, &plan);
  return plan;
}

}  // namespace holdfast::client
