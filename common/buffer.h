#ifndef HOLDFAST_COMMON_BUFFER_H_
#define HOLDFAST_COMMON_BUFFER_H_

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
  };

  Buffer() = default;

  // Takes `bytes` over without a copy.
  static Buffer FromString(std::string bytes);
  // The bytes at `data`, alive as long as `owner` is.
  static Buffer FromMemory(const void* data, size_t size,
                           std::shared_ptr<const void> owner);

  size_t size() const { return size_; }
  absl::Span<const Span> spans() const { return spans_; }

  // Adds the bytes of `tail` at the end.
  void Append(const Buffer& tail);
  // Bytes [offset, offset + size). They must be inside.
  Buffer Sub(size_t offset, size_t size) const;
  // Copies all bytes to `out`.
  void CopyTo(void* out) const;

 private:
  std::vector<Span> spans_;
  size_t size_ = 0;
};

// Reads a Buffer of float32 from front to back.
class FloatReader {
 public:
  // `buffer` must outlive the reader.
  explicit FloatReader(const Buffer* buffer) : buffer_(buffer) {}

  // The next `count` elements, which must exist: where they lie, when they lie
  // there whole and aligned; otherwise copied to `scratch` [count].
  const float* Next(size_t count, float* scratch);

 private:
  const Buffer* buffer_;
  size_t span_ = 0;
  size_t offset_ = 0;  // in the span
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BUFFER_H_
