// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/emulation.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace holdfast {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStack = 64 << 10;

// A thread of the running block, reused for the blocks after it. It is started
// with ucontext and switched with _longjmp, which makes no system call, unlike
// swapcontext.
struct Fiber {
  // Null until the fiber is started.
  std::unique_ptr<char[]> stack;
  jmp_buf context;
  uint3 index;
  bool done = false;
  // The number of times that it has waited for its block and for its warp.
  int64_t block_waits = 0;
  int64_t warp_waits = 0;
  // Its values for the last two shuffles, alternating: no thread is more than
  // one shuffle ahead.
  double given[2] = {};
};

// The running block.
struct Block {
  const std::function<void()>* thread = nullptr;
  // The first `count` are in use; others are kept for larger blocks.
  std::vector<Fiber> fibers;
  size_t count = 0;
  size_t running = 0;
  jmp_buf scheduler;
};

Block g_block;
std::function<void(std::function<void()>)> g_enqueue;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "emulation: %s\n", what);
  std::abort();
}

Fiber& Running() {
  if (g_block.count == 0) {
    Fail("a thread waits for others although the block's first did not");
  }
  return g_block.fibers[g_block.running];
}

// Switches to the next thread, and returns when all have had their turn.
void Yield() {
  if (_setjmp(Running().context) == 0) _longjmp(g_block.scheduler, 1);
}

// Waits until every unfinished fiber in [begin, end) has waited as often as the
// running one, as counted by `waits`.
void AwaitFibers(size_t begin, size_t end, int64_t Fiber::*waits) {
  const int64_t mine = ++(Running().*waits);
  while (true) {
    bool all = true;
    for (size_t i = begin; i < end && all; ++i) {
      const Fiber& other = g_block.fibers[i];
      all = other.done || other.*waits >= mine;
    }
    if (all) return;
    Yield();
  }
}

void AwaitWarp() {
  const size_t begin = g_block.running / kWarp * kWarp;
  AwaitFibers(begin, std::min(begin + kWarp, g_block.count),
              &Fiber::warp_waits);
}

void RunFiber() {
  while (true) {
    (*g_block.thread)();
    Running().done = true;
    Yield();
  }
}

uint3 IndexOf(size_t i, dim3 threads) {
  return {static_cast<unsigned>(i % threads.x),
          static_cast<unsigned>(i / threads.x % threads.y),
          static_cast<unsigned>(i / threads.x / threads.y)};
}

// Runs a thread until it waits or ends.
void Resume(size_t i) {
  g_block.running = i;
  Fiber& fiber = g_block.fibers[i];
  threadIdx = fiber.index;
  if (_setjmp(g_block.scheduler) != 0) return;
  if (fiber.stack != nullptr) _longjmp(fiber.context, 1);
  fiber.stack.reset(new char[kStack]);
  ucontext_t begin;
  getcontext(&begin);
  begin.uc_stack.ss_sp = fiber.stack.get();
  begin.uc_stack.ss_size = kStack;
  makecontext(&begin, RunFiber, 0);
  setcontext(&begin);
}

void Begin(size_t i, dim3 threads) {
  Fiber& fiber = g_block.fibers[i];
  fiber.done = false;
  fiber.block_waits = 0;
  fiber.warp_waits = 0;
  fiber.index = IndexOf(i, threads);
}

void RunBlock(const std::function<void()>& thread, dim3 threads) {
  const size_t count = threads.x * threads.y * threads.z;
  g_block.thread = &thread;
  g_block.count = count;
  if (g_block.fibers.size() < count) g_block.fibers.resize(count);
  for (size_t i = 0; i < count; ++i) Begin(i, threads);
  // If the first thread ends without waiting for others, the rest need no
  // fibers.
  Resume(0);
  if (g_block.fibers[0].done) {
    g_block.count = 0;
    for (size_t i = 1; i < count; ++i) {
      threadIdx = IndexOf(i, threads);
      thread();
    }
    return;
  }
  for (bool done = false; !done;) {
    done = true;
    for (size_t i = 0; i < count; ++i) {
      if (g_block.fibers[i].done) continue;
      Resume(i);
      done = done && g_block.fibers[i].done;
    }
  }
}

}  // namespace

void EmulateOn(std::function<void(std::function<void()>)> enqueue) {
  g_enqueue = std::move(enqueue);
}

namespace kernels {

cudaError_t EmulateLaunch(std::function<void()> thread, dim3 blocks,
                          dim3 threads) {
  g_enqueue([=] {
    blockDim = threads;
    gridDim = blocks;
    for (unsigned z = 0; z < blocks.z; ++z) {
      for (unsigned y = 0; y < blocks.y; ++y) {
        for (unsigned x = 0; x < blocks.x; ++x) {
          blockIdx = {x, y, z};
          RunBlock(thread, threads);
        }
      }
    }
  });
  return cudaSuccess;
}

}  // namespace kernels
}  // namespace holdfast

void __syncthreads() {
  holdfast::AwaitFibers(0, holdfast::g_block.count,
                        &holdfast::Fiber::block_waits);
  threadIdx = holdfast::Running().index;
}

void __syncwarp(unsigned) {
  holdfast::AwaitWarp();
  threadIdx = holdfast::Running().index;
}

double __shfl_xor_sync(unsigned, double value, int lane_mask) {
  holdfast::Fiber& fiber = holdfast::Running();
  const int turn = fiber.warp_waits % 2;
  fiber.given[turn] = value;
  const size_t self = holdfast::g_block.running;
  holdfast::AwaitWarp();
  threadIdx = fiber.index;
  return holdfast::g_block.fibers[self ^ lane_mask].given[turn];
}

// The CUDA functions that CudaDeviceMath calls. Memory is the host's, and the
// only stream is the compute stream.
extern "C" {

cudaError_t cudaMalloc(void** memory, size_t size) {
  *memory = std::malloc(size);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t size,
                            cudaStream_t) {
  holdfast::g_enqueue([=] { std::memset(memory, value, size); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                            cudaMemcpyKind, cudaStream_t) {
  holdfast::g_enqueue([=] { std::memcpy(to, from, size); });
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
}
