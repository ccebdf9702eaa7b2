#include "common/buffer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "glog/logging.h"

namespace holdfast {

Buffer Buffer::FromString(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  return FromMemory(owner->data(), owner->size(), owner);
}

Buffer Buffer::FromMemory(const void* data, size_t size,
                          std::shared_ptr<const void> owner) {
  Buffer buffer;
  if (size > 0) {
    buffer.spans_.push_back(
        {static_cast<const char*>(data), size, std::move(owner)});
    buffer.size_ = size;
  }
  return buffer;
}

void Buffer::Append(const Buffer& tail) {
  spans_.insert(spans_.end(), tail.spans_.begin(), tail.spans_.end());
  size_ += tail.size_;
}

Buffer Buffer::Sub(size_t offset, size_t size) const {
  CHECK_LE(offset, size_);
  CHECK_LE(size, size_ - offset);
  Buffer result;
  for (const Span& span : spans_) {
    if (size == 0) break;
    if (offset >= span.size) {
      offset -= span.size;
      continue;
    }
    const size_t taken = std::min(size, span.size - offset);
    result.spans_.push_back({span.data + offset, taken, span.owner});
    result.size_ += taken;
    size -= taken;
    offset = 0;
  }
  return result;
}

void Buffer::CopyTo(void* out) const {
  char* to = static_cast<char*>(out);
  for (const Span& span : spans_) {
    std::memcpy(to, span.data, span.size);
    to += span.size;
  }
}

const float* FloatReader::Next(size_t count, float* scratch) {
  if (count == 0) return scratch;
  const absl::Span<const Buffer::Span> spans = buffer_->spans();
  size_t bytes = count * sizeof(float);
  while (span_ < spans.size() && offset_ == spans[span_].size) {
    ++span_;
    offset_ = 0;
  }
  CHECK_LT(span_, spans.size()) << "read past the end of a buffer";
  const char* front = spans[span_].data + offset_;
  if (spans[span_].size - offset_ >= bytes &&
      reinterpret_cast<uintptr_t>(front) % alignof(float) == 0) {
    offset_ += bytes;
    return reinterpret_cast<const float*>(front);
  }
  char* to = reinterpret_cast<char*>(scratch);
  while (bytes > 0) {
    CHECK_LT(span_, spans.size()) << "read past the end of a buffer";
    const Buffer::Span& span = spans[span_];
    const size_t taken = std::min(bytes, span.size - offset_);
    std::memcpy(to, span.data + offset_, taken);
    to += taken;
    bytes -= taken;
    offset_ += taken;
    if (offset_ == span.size) {
      ++span_;
      offset_ = 0;
    }
  }
  return scratch;
}

}  // namespace holdfast
