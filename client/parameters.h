#ifndef HOLDFAST_CLIENT_PARAMETERS_H_
#define HOLDFAST_CLIENT_PARAMETERS_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"

namespace holdfast {

// The values of all variables.
struct Parameters {
  // Whether all that changes is of this version.
  bool AllAt(GlobalStep step) const {
    return version == step &&
           std::all_of(versions.begin(), versions.end(),
                       [step](GlobalStep of_ps) { return of_ps <= step; });
  }

  // Whether the values of a variable are in `memory`.
  bool IsElsewhere(size_t variable) const {
    return !memory.empty() && memory[variable].data() != nullptr;
  }
  // The values of a variable, wherever they are.
  absl::Span<float> Of(size_t variable) {
    return IsElsewhere(variable) ? memory[variable]
                                 : absl::MakeSpan(values[variable]);
  }
  absl::Span<const float> Of(size_t variable) const {
    return const_cast<Parameters*>(this)->Of(variable);
  }

  // Synchronous: of all values. Asynchronous: the least of `versions`, without
  // those of ps that hold nothing that is trained: their values never change.
  GlobalStep version;
  // By ps. Asynchronous: of what that shard sent, or, where it came in several
  // messages, the least of them.
  std::vector<GlobalStep> versions;
  // By variable, in the order declared; each row-major.
  std::vector<std::vector<float>> values;
  // Memory of somebody else's, by variable and of its size, in which its values
  // are in place of `values`; null for those that have none. Empty: none has.
  std::vector<absl::Span<float>> memory;
  // With which gradients on them are computed, so that small ones do not vanish
  // in float16 (proto::LossScale); they are pushed without it. Asynchronous:
  // see Ticket.
  float loss_scale = 1;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_PARAMETERS_H_
