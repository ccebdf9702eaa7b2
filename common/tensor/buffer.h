// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TENSOR_BUFFER_H_
#define HOLDFAST_COMMON_TENSOR_BUFFER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace holdfast {

// Immutable bytes: a chain of reference-counted spans.
//
// A tensor that was received stays in the pieces of memory in which it arrived,
// so the border between two spans may be inside an element. Copying a Buffer
// copies references.
//
// Thread-compatible; the bytes themselves may be shared between threads.
class Buffer {
 public:
  struct Span {
    const char* data;
    size_t size;
    // Keeps the bytes alive.
    std::shared_ptr<const void> owner;
    // The index, in the buffer, of the span's first byte.
    size_t begin = 0;
  };

  Buffer() = default;

  // Takes over `bytes` without copying them.
  static Buffer FromString(std::string bytes);
  // Refers to the `size` bytes at `data`, which must stay valid as long as
  // `owner` lives.
  static Buffer FromMemory(const void* data, size_t size,
                           std::shared_ptr<const void> owner);

  size_t size() const { return size_; }
  absl::Span<const Span> spans() const { return spans_; }
  // The index of the span that holds the byte at `offset`, which must be inside
  // the buffer.
  size_t FindSpan(size_t offset) const;

  // Adds the bytes of `tail` at the end.
  void Append(const Buffer& tail);
  void Append(Span tail);
  // Returns a Buffer that refers to bytes [offset, offset + size), which must
  // be inside this buffer.
  Buffer Sub(size_t offset, size_t size) const;
  // Copies all bytes to `out`.
  void CopyTo(void* out) const;

 private:
  std::vector<Span> spans_;
  size_t size_ = 0;
};

// Reads a Buffer of float32 from front to back, without copying the elements.
//
// A copy of the reader continues from the same position, independently.
class FloatReader {
 public:
  // `size` elements at `data`, at any alignment.
  struct Run {
    const void* data;
    size_t size;

    // The elements after the first `count`.
    Run From(size_t count) const {
      return {static_cast<const char*>(data) + count * sizeof(float),
              size - count};
    }
  };

  // `buffer` must outlive the reader.
  explicit FloatReader(const Buffer* buffer) : buffer_(buffer) {}

  // Returns the next elements that are in one span: at least one, which must
  // exist, and at most `most`. An element that is split between two spans is
  // copied to `cut` and returned alone.
  Run Next(size_t most, float* cut);
  // Skips `count` elements, which must exist.
  void Skip(size_t count);

 private:
  const Buffer* buffer_;
  size_t span_ = 0;
  size_t offset_ = 0;  // in the span
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_BUFFER_H_
