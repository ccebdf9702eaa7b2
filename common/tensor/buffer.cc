// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/buffer.h"

#include <algorithm>
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
    buffer.Append({static_cast<const char*>(data), size, std::move(owner)});
  }
  return buffer;
}

void Buffer::Append(const Buffer& tail) {
  // The spans are visited by index, because `tail` may be this buffer.
  const size_t count = tail.spans_.size();
  for (size_t i = 0; i < count; ++i) Append(tail.spans_[i]);
}

size_t Buffer::FindSpan(size_t offset) const {
  const auto after = std::upper_bound(
      spans_.begin(), spans_.end(), offset,
      [](size_t offset, const Span& span) { return offset < span.begin; });
  return after - spans_.begin() - 1;
}

void Buffer::Append(Span tail) {
  if (tail.size == 0) return;
  tail.begin = size_;
  size_ += tail.size;
  spans_.push_back(std::move(tail));
}

Buffer Buffer::Sub(size_t offset, size_t size) const {
  CHECK_LE(offset, size_);
  CHECK_LE(size, size_ - offset);
  Buffer result;
  for (size_t i = size > 0 ? FindSpan(offset) : 0; size > 0; ++i) {
    const Span& span = spans_[i];
    const size_t skipped = offset - span.begin;
    const size_t taken = std::min(size, span.size - skipped);
    result.Append({span.data + skipped, taken, span.owner});
    size -= taken;
    offset += taken;
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

FloatReader::Run FloatReader::Next(size_t most, float* cut) {
  const absl::Span<const Buffer::Span> spans = buffer_->spans();
  while (span_ < spans.size() && offset_ == spans[span_].size) {
    ++span_;
    offset_ = 0;
  }
  CHECK_LT(span_, spans.size()) << "read past the end of a buffer";
  const Buffer::Span& span = spans[span_];
  if (const size_t whole = (span.size - offset_) / sizeof(float); whole > 0) {
    const Run run{span.data + offset_, std::min(most, whole)};
    offset_ += run.size * sizeof(float);
    return run;
  }
  char* to = reinterpret_cast<char*>(cut);
  for (size_t missing = sizeof(float); missing > 0;) {
    CHECK_LT(span_, spans.size()) << "read past the end of a buffer";
    const size_t taken = std::min(missing, spans[span_].size - offset_);
    std::memcpy(to, spans[span_].data + offset_, taken);
    to += taken;
    missing -= taken;
    offset_ += taken;
    if (missing > 0) {
      ++span_;
      offset_ = 0;
    }
  }
  return {cut, 1};
}

void FloatReader::Skip(size_t count) {
  const absl::Span<const Buffer::Span> spans = buffer_->spans();
  size_t bytes = count * sizeof(float);
  while (bytes > 0) {
    CHECK_LT(span_, spans.size()) << "read past the end of a buffer";
    const size_t taken = std::min(bytes, spans[span_].size - offset_);
    bytes -= taken;
    offset_ += taken;
    if (bytes > 0) {
      ++span_;
      offset_ = 0;
    }
  }
}

}  // namespace holdfast
