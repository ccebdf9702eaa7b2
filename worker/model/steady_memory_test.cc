// SPDX-License-Identifier: Apache-2.0

// A model takes no memory once it has seen its largest batch.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/model/testing/sequential_testing.h"

// Counts the allocations of the whole program, so that a test can check that
// there are none.
static std::atomic<int64_t> g_allocations{0};

static void* CountedAllocation(size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}

void* operator new(size_t size) { return CountedAllocation(size); }
void* operator new[](size_t size) { return CountedAllocation(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void* operator new(size_t size, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t align = static_cast<size_t>(alignment);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

namespace holdfast {
namespace {

class SteadyMemoryTest : public SequentialTestBase {
 protected:
  // Checks `layers` on images of 8 x 8, after their largest batch.
  void CheckThatNoMemoryIsTaken(const std::string& layers) {
    SCOPED_TRACE(layers);
    const auto model =
        Create(Parse(layers + "loss { sigmoid_cross_entropy {} }"), {8, 8});
    ASSERT_TRUE(model.ok()) << model.status();
    const Tensors parameters = RandomParameters(**model);
    const std::vector<absl::Span<const float>> spans = Spans(parameters);
    const Examples large(50, 64, 10), small(20, 64, 10);
    double sum = 0;
    const auto add = [&](int, absl::Span<const float> gradient) {
      sum += gradient[0];
    };
    const auto train = [&](const Examples& examples) {
      return (*model)->ComputeGradients(spans, examples.training_batch(), add);
    };
    ASSERT_TRUE(train(large).ok());
    const int64_t before = g_allocations;
    ASSERT_GT(before, 0) << "allocations are not counted";
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(train(small).ok());
      ASSERT_TRUE((*model)->Evaluate(spans, large.batch()).ok());
      ASSERT_TRUE(train(large).ok());
    }
    EXPECT_EQ(g_allocations - before, 0);
  }
};

TEST_F(SteadyMemoryTest, TakesNoMemoryInTheSteadyState) {
  for (const char* layers : {
           R"pb(
             layers { dropout { rate: 0.5 } }
             layers { flatten {} }
             layers { dense { units: 32 } }
             layers { relu {} }
             layers { dropout { rate: 0.5 } }
             layers { dense { units: 32 } }
             layers { sigmoid {} }
             layers { dense { units: 10 } }
             layers { tanh {} })pb",
           R"pb(
             layers { conv2d { filters: 4 kernel_size: 3 } }
             layers { batch_norm {} }
             layers {
               residual {
                 layers { conv2d { filters: 6 kernel_size: 3 stride: 2 } }
                 layers { layer_norm {} }
                 shortcut { average_pool2d { size: 3 stride: 2 } }
                 shortcut { conv2d { filters: 6 kernel_size: 1 } }
               }
             }
             layers { max_pool2d { size: 2 } }
             layers { global_average_pool2d {} }
             layers { dense { units: 10 } })pb"}) {
    CheckThatNoMemoryIsTaken(layers);
  }
}

}  // namespace
}  // namespace holdfast
