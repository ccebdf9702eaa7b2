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
// A tensor keeps the pieces of memory that it came in; the border between two
// spans may lie inside an element. Copying a Buffer copies references.
//
// Thread-compatible; the bytes themselves may be shared between threads.
class Buffer {
 public:
  struct Span {
    const char* data;
    size_t size;
    // Keeps the bytes alive.
    std::shared_ptr<const void> owner;
    // Index of the first byte in the buffer.
    size_t begin = 0;
  };

  Buffer() = default;

  // Takes `bytes` over without a copy.
  static Buffer FromString(std::string bytes);
  // The bytes at `data`, alive as long as `owner` is.
  static Buffer FromMemory(const void* data, size_t size,
                           std::shared_ptr<const void> owner);

  size_t size() const { return size_; }
  absl::Span<const Span> spans() const { return spans_; }
  // The index of the span that holds the byte at `offset`, which must be
  // inside.
  size_t FindSpan(size_t offset) const;

  // Adds the bytes of `tail` at the end.
  void Append(const Buffer& tail);
  void Append(Span tail);
  // Bytes [offset, offset + size). They must be inside.
  Buffer Sub(size_t offset, size_t size) const;
  // Copies all bytes to `out`.
  void CopyTo(void* out) const;

 private:
  std::vector<Span> spans_;
  size_t size_ = 0;
};

// Reads a Buffer of float32 from front to back, where the elements lie.
//
// A copy goes on from the same place by itself.
class FloatReader {
 public:
  // Elements at `data`, at any alignment.
  struct Run {
    const void* data;
    size_t size;

    // What is left behind the first `count`.
    Run From(size_t count) const {
      return {static_cast<const char*>(data) + count * sizeof(float),
              size - count};
    }
  };

  // `buffer` must outlive the reader.
  explicit FloatReader(const Buffer* buffer) : buffer_(buffer) {}

  // The elements that come next in one span: at least one, at most `most`; they
  // must exist. One that is cut by a border is copied to `cut`, and comes
  // alone.
  Run Next(size_t most, float* cut);
  // Passes over `count` elements, which must exist.
  void Skip(size_t count);

 private:
  const Buffer* buffer_;
  size_t span_ = 0;
  size_t offset_ = 0;  // in the span
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_BUFFER_H_
