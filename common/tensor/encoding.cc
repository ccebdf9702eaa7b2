// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/encoding_kernels.h"

namespace holdfast {
namespace {

constexpr size_t kFloat = sizeof(float);
constexpr size_t kHalf = 2;
// The bytes of a whole INT8 range with its scale.
constexpr size_t kInt8Bytes = kFloat + kInt8Range;
// The maximum number of elements whose indices TOP_K writes in 16 bits.
constexpr uint64_t kShortIndices = 1 << 16;

constexpr uint32_t kInfinity = 0x7f800000;

// The bytes of an element that TOP_K keeps out of `size`: its value and its
// index.
size_t KeptBytes(uint64_t size) {
  return kFloat + (size <= kShortIndices ? sizeof(uint16_t) : sizeof(uint32_t));
}

uint32_t Magnitude(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & 0x7fffffff;
}

std::shared_ptr<char> Allocate(size_t size) {
  return {new char[size], std::default_delete<char[]>()};
}

HalfFormat FormatOf(proto::Encoding encoding) {
  return encoding == proto::FLOAT16 ? HalfFormat::kFloat16
                                    : HalfFormat::kBfloat16;
}

// Reads a buffer from a given offset.
class Cursor {
 public:
  Cursor(const Buffer& buffer, size_t offset)
      : span_(buffer.spans().data() +
              (offset < buffer.size() ? buffer.FindSpan(offset) : 0)),
        skipped_(offset < buffer.size() ? offset - span_->begin : 0) {}

  // Reads the next `size` bytes, which must exist.
  void Read(void* out, size_t size) {
    for (char* to = static_cast<char*>(out); size > 0;) {
      Advance();
      const size_t taken = std::min(size, span_->size - skipped_);
      std::memcpy(to, span_->data + skipped_, taken);
      skipped_ += taken;
      to += taken;
      size -= taken;
    }
  }

  // Calls take(bytes, n) for runs that add up to `count` elements of `width`
  // bytes each (at most 4). Each run is in one span, or is a single element
  // that is split by a border.
  template <typename Take>
  void ReadRuns(size_t width, size_t count, const Take& take) {
    while (count > 0) {
      Advance();
      const size_t run = std::min(count, (span_->size - skipped_) / width);
      if (run > 0) {
        take(span_->data + skipped_, run);
        skipped_ += run * width;
        count -= run;
      } else {
        alignas(float) char element[kFloat];
        Read(element, width);
        take(element, 1);
        --count;
      }
    }
  }

 private:
  void Advance() {
    while (skipped_ == span_->size) {
      ++span_;
      skipped_ = 0;
    }
  }

  const Buffer::Span* span_;
  size_t skipped_;
};

// The number of elements in `bytes` bytes of INT8, or nothing if they are not
// whole elements.
std::optional<uint64_t> Int8Size(uint64_t bytes) {
  const uint64_t rest = bytes % kInt8Bytes;
  if (rest > 0 && rest <= kFloat) return std::nullopt;
  return bytes / kInt8Bytes * kInt8Range + (rest > 0 ? rest - kFloat : 0);
}

// The elements that TOP_K keeps, contiguous and aligned.
template <typename Index>
struct Kept {
  explicit Kept(const EncodedElements& elements)
      : count(KeptElements(elements)) {
    if (count == 0) return;
    values = reinterpret_cast<const float*>(elements.data.spans()[0].data);
    indices = reinterpret_cast<const Index*>(values + count);
  }

  const size_t count;
  const float* values = nullptr;
  const Index* indices = nullptr;
};

// Calls use(kept) with the type of Kept that fits `elements`.
template <typename Use>
auto WithKept(const EncodedElements& elements, const Use& use) {
  return elements.size <= kShortIndices ? use(Kept<uint16_t>(elements))
                                        : use(Kept<uint32_t>(elements));
}

Buffer InOnePiece(Buffer data) {
  if (data.spans().size() == 0 ||
      (data.spans().size() == 1 &&
       reinterpret_cast<uintptr_t>(data.spans()[0].data) % kFloat == 0)) {
    return data;
  }
  std::shared_ptr<char> memory = Allocate(data.size());
  data.CopyTo(memory.get());
  return Buffer::FromMemory(memory.get(), data.size(), memory);
}

template <typename Index>
absl::Status CheckKept(const Kept<Index>& kept, uint64_t size) {
  for (size_t i = 0; i < kept.count; ++i) {
    if (kept.indices[i] >= size) {
      return absl::InvalidArgumentError(
          absl::StrCat("TOP_K with element ", kept.indices[i], " of ", size));
    }
    if (i > 0 && kept.indices[i] <= kept.indices[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat("TOP_K with element ",
                                                     kept.indices[i], " after ",
                                                     kept.indices[i - 1]));
    }
  }
  return absl::OkStatus();
}

// A magnitude above which there are most likely more than `kept` elements, but
// not many times more. At least 1, because zeros are not sent.
uint32_t GuessLeast(uint64_t kept, absl::Span<const float> gradient,
                    absl::Span<const float> before) {
  constexpr size_t kSamples = 2048;
  // Added to twice the required number, for small samples.
  constexpr size_t kMore = 8;
  const size_t size = gradient.size();
  const size_t rank = 2 * kept * kSamples / size + kMore;
  if (size < 4 * kSamples || rank >= kSamples) return 1;
  std::vector<uint32_t> samples(kSamples);
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t at = i * (size / kSamples);
    samples[i] = Magnitude(gradient[at] + before[at]);
  }
  std::nth_element(samples.begin(), samples.begin() + rank, samples.end(),
                   std::greater<>());
  return std::max(samples[rank], 1u);
}

// Sets after = gradient + before, and returns the indices of the elements of
// `after` whose magnitude is at least `least`.
std::vector<uint32_t> Find(uint32_t least, absl::Span<const float> gradient,
                           absl::Span<const float> before,
                           absl::Span<float> after) {
  constexpr size_t kBlock = 4096;
  std::vector<uint32_t> found;
  size_t count = 0;
  for (size_t begin = 0; begin < gradient.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, gradient.size() - begin);
    if (found.size() < count + kBlock) found.resize(2 * count + kBlock);
    count +=
        AddAndFind(BestSimd(), gradient.data() + begin, before.data() + begin,
                   size, least, static_cast<uint32_t>(begin),
                   after.data() + begin, found.data() + count);
  }
  found.resize(count);
  return found;
}

// Removes from `found`, which is in increasing order, all but the indices of
// the `kept` elements of the greatest magnitude; the first ones win among
// equals.
void KeepGreatest(uint64_t kept, absl::Span<const float> values,
                  std::vector<uint32_t>* found) {
  if (found->size() <= kept) return;
  // Greater keys are preferred.
  const auto key = [&](uint32_t index) {
    return uint64_t{Magnitude(values[index])} << 32 | ~index;
  };
  std::vector<uint64_t> keys;
  keys.reserve(found->size());
  for (const uint32_t index : *found) keys.push_back(key(index));
  const auto last = keys.begin() + (kept - 1);
  std::nth_element(keys.begin(), last, keys.end(), std::greater<>());
  const uint64_t least = *last;
  found->erase(std::remove_if(found->begin(), found->end(),
                              [&](uint32_t i) { return key(i) < least; }),
               found->end());
}

// Returns the number of elements kept.
size_t EncodeTopK(uint64_t kept, absl::Span<const float> gradient,
                  absl::Span<const float> before, absl::Span<float> after,
                  char* out) {
  const uint32_t least = GuessLeast(kept, gradient, before);
  std::vector<uint32_t> found = Find(least, gradient, before, after);
  if (found.size() < kept && least > 1) {
    found = Find(1, gradient, before, after);
  }
  KeepGreatest(kept, after, &found);
  const auto write = [&](auto* indices, float* values) {
    bool finite = true;
    for (size_t i = 0; i < found.size(); ++i) {
      float& value = after[found[i]];
      indices[i] = found[i];
      values[i] = value;
      finite = finite && Magnitude(value) < kInfinity;
      value = 0;
    }
    return finite;
  };
  float* const values = reinterpret_cast<float*>(out);
  void* const indices = values + found.size();
  const bool finite = gradient.size() <= kShortIndices
                          ? write(static_cast<uint16_t*>(indices), values)
                          : write(static_cast<uint32_t*>(indices), values);
  // Non-finite values have the greatest magnitudes: if any is left in `after`,
  // at least one was sent.
  if (!finite) {
    for (float& value : after) {
      if (Magnitude(value) >= kInfinity) value = 0;
    }
  }
  return found.size();
}

}  // namespace

uint64_t EncodedBytes(proto::Encoding encoding, uint64_t size, uint64_t kept) {
  switch (encoding) {
    case proto::FLOAT16:
    case proto::BFLOAT16:
      return kHalf * size;
    case proto::INT8:
      return size + (size + kInt8Range - 1) / kInt8Range * kFloat;
    case proto::TOP_K:
      return kept * KeptBytes(size);
    default:
      return size * kFloat;
  }
}

double TopK(const proto::Compression& compression) {
  return compression.has_top_k() ? compression.top_k() : 0.01;
}

uint64_t TopKCount(double top_k, uint64_t size) {
  const double count = std::ceil(top_k * static_cast<double>(size));
  return std::min(static_cast<uint64_t>(std::max(count, 0.0)), size);
}

uint64_t KeptElements(const EncodedElements& elements) {
  return elements.data.size() / KeptBytes(elements.size);
}

absl::StatusOr<EncodedElements> ParseElements(proto::Encoding encoding,
                                              uint64_t size, Buffer data) {
  const auto error = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what...));
  };
  const uint64_t bytes = data.size();
  std::optional<uint64_t> count;
  switch (encoding) {
    case proto::EXACT:
      if (bytes % kFloat == 0) count = bytes / kFloat;
      break;
    case proto::FLOAT16:
    case proto::BFLOAT16:
      if (bytes % kHalf == 0) count = bytes / kHalf;
      break;
    case proto::INT8:
      count = Int8Size(bytes);
      break;
    case proto::TOP_K:
      if (bytes % KeptBytes(size) == 0) count = size;
      break;
    default:
      return error("encoding ", static_cast<int>(encoding), " is not known");
  }
  const std::string& name = proto::Encoding_Name(encoding);
  if (!count.has_value()) {
    return error(bytes, " bytes, which is not a whole number of elements in ",
                 name);
  }
  if (size != 0 && size != *count) {
    return error(bytes, " bytes, which is ", *count, " elements in ", name,
                 ", but the message says ", size);
  }
  EncodedElements elements{encoding, *count, std::move(data)};
  if (encoding == proto::TOP_K) {
    elements.data = InOnePiece(std::move(elements.data));
    absl::Status status = WithKept(
        elements, [&](const auto& kept) { return CheckKept(kept, size); });
    if (!status.ok()) return status;
  }
  return elements;
}

void Decode(const EncodedElements& elements, uint64_t begin,
            absl::Span<float> out) {
  float* to = out.data();
  size_t left = out.size();
  if (left == 0) return;
  const Simd simd = BestSimd();
  switch (elements.encoding) {
    case proto::FLOAT16:
    case proto::BFLOAT16: {
      const HalfFormat format = FormatOf(elements.encoding);
      Cursor(elements.data, begin * kHalf)
          .ReadRuns(kHalf, left, [&](const char* bytes, size_t run) {
            DecodeHalves(simd, format, bytes, run, to);
            to += run;
          });
      return;
    }
    case proto::INT8: {
      while (left > 0) {
        const uint64_t within = begin % kInt8Range;
        const size_t scale_at = begin / kInt8Range * kInt8Bytes;
        Cursor cursor(elements.data, scale_at);
        float scale;
        cursor.Read(&scale, kFloat);
        if (within > 0) cursor = {elements.data, scale_at + kFloat + within};
        const size_t run = std::min<size_t>(left, kInt8Range - within);
        cursor.ReadRuns(1, run, [&](const char* bytes, size_t run) {
          DecodeInt8(simd, bytes, run, scale, to);
          to += run;
        });
        begin += run;
        left -= run;
      }
      return;
    }
    case proto::TOP_K: {
      std::fill(out.begin(), out.end(), 0.0f);
      WithKept(elements, [&](const auto& kept) {
        const auto* const end = kept.indices + kept.count;
        const auto* at = std::lower_bound(kept.indices, end, begin);
        for (; at != end && *at < begin + out.size(); ++at) {
          to[*at - begin] = kept.values[at - kept.indices];
        }
      });
      return;
    }
    default:
      Cursor(elements.data, begin * kFloat).Read(to, left * kFloat);
  }
}

EncodedElements Encode(proto::Encoding encoding, const Buffer& values) {
  const uint64_t size = values.size() / kFloat;
  if (encoding == proto::EXACT || size == 0) return {encoding, size, values};
  std::shared_ptr<char> memory = Allocate(size * kHalf);
  char* to = memory.get();
  Cursor(values, 0).ReadRuns(kFloat, size, [&](const char* bytes, size_t run) {
    EncodeHalves(BestSimd(), FormatOf(encoding),
                 reinterpret_cast<const float*>(bytes), run, to);
    to += run * kHalf;
  });
  return {encoding, size,
          Buffer::FromMemory(memory.get(), size * kHalf, memory)};
}

EncodedElements EncodeWithFeedback(proto::Encoding encoding, uint64_t kept,
                                   absl::Span<const float> gradient,
                                   absl::Span<const float> before,
                                   absl::Span<float> after,
                                   std::shared_ptr<char> memory) {
  const size_t size = gradient.size();
  if (size == 0) return {encoding, 0, Buffer()};
  size_t bytes = EncodedBytes(encoding, size, kept);
  if (memory == nullptr) memory = Allocate(bytes);
  char* const out = memory.get();
  switch (encoding) {
    case proto::FLOAT16:
    case proto::BFLOAT16:
      EncodeHalvesWithFeedback(BestSimd(), FormatOf(encoding), gradient.data(),
                               before.data(), size, out, after.data());
      break;
    case proto::INT8: {
      for (size_t begin = 0; begin < size; begin += kInt8Range) {
        EncodeInt8(BestSimd(), gradient.data() + begin, before.data() + begin,
                   std::min<size_t>(kInt8Range, size - begin),
                   out + begin / kInt8Range * kInt8Bytes, after.data() + begin);
      }
      break;
    }
    case proto::TOP_K:
      bytes = KeptBytes(size) * EncodeTopK(kept, gradient, before, after, out);
      break;
    default:
      for (size_t i = 0; i < size; ++i) {
        const float value = gradient[i] + before[i];
        std::memcpy(out + i * kFloat, &value, kFloat);
        after[i] = 0;
      }
  }
  return {encoding, size, Buffer::FromMemory(out, bytes, std::move(memory))};
}

}  // namespace holdfast
