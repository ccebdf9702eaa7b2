// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/row_encoding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "common/base/random.h"
#include "common/tensor/encoding.h"

namespace holdfast {
namespace {

// A row in INT8 consists of its scale, a float32, and its elements.
constexpr size_t kScaleBytes = sizeof(float);
constexpr float kMost = 127;

// Separates these random numbers from those of first values.
constexpr uint32_t kDomain = 0x726f7738;

Buffer InMemory(absl::Span<const float> values) {
  return Buffer::FromMemory(values.data(), values.size() * sizeof(float),
                            nullptr);
}

// Encodes one row.
void EncodeInt8(uint64_t id, absl::Span<const float> row,
                const RowRounding& rounding, char* out) {
  float most = 0;
  bool finite = true;
  for (const float g : row) {
    finite = finite && std::isfinite(g);
    most = std::max(most, std::abs(g));
  }
  const float scale =
      finite ? most / kMost : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(out, &scale, kScaleBytes);
  out += kScaleBytes;
  if (!finite || scale == 0) {
    std::fill_n(out, row.size(), '\0');
    return;
  }
  const std::array<uint32_t, 2> key = {
      static_cast<uint32_t>(rounding.seed) ^ kDomain,
      static_cast<uint32_t>(rounding.seed >> 32)};
  for (size_t begin = 0; begin < row.size(); begin += 4) {
    // Steps have 40 bits, and groups of four elements have 14.
    const std::array<uint32_t, 4> random =
        Philox4x32({static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32),
                    static_cast<uint32_t>(rounding.step),
                    static_cast<uint32_t>(rounding.step >> 32) << 16 |
                        static_cast<uint32_t>(begin / 4)},
                   key);
    for (size_t i = begin; i < std::min(begin + 4, row.size()); ++i) {
      // In [0, 1).
      const float up = static_cast<float>(random[i - begin] >> 8) * 0x1p-24f;
      const float rounded = std::floor(row[i] / scale + up);
      out[i] = static_cast<char>(
          static_cast<int8_t>(std::clamp(rounded, -kMost, kMost)));
    }
  }
}

void DecodeInt8(size_t length, const Buffer& bytes, float* rows) {
  const size_t row_bytes = kScaleBytes + length;
  std::string flat(bytes.size(), '\0');
  bytes.CopyTo(flat.data());
  for (size_t at = 0; at < flat.size(); at += row_bytes) {
    float scale;
    std::memcpy(&scale, &flat[at], kScaleBytes);
    for (size_t i = 0; i < length; ++i) {
      *rows++ = scale * static_cast<float>(
                            static_cast<int8_t>(flat[at + kScaleBytes + i]));
    }
  }
}

}  // namespace

bool IsRowPush(proto::Encoding encoding) {
  return IsRowPull(encoding) || encoding == proto::INT8;
}

bool IsRowPull(proto::Encoding encoding) {
  return encoding == proto::EXACT || encoding == proto::FLOAT16 ||
         encoding == proto::BFLOAT16;
}

size_t EncodedRowBytes(proto::Encoding encoding, size_t length) {
  if (encoding == proto::EXACT) return length * sizeof(float);
  if (encoding == proto::INT8) return kScaleBytes + length;
  return length * sizeof(uint16_t);
}

Buffer EncodeRows(proto::Encoding encoding, size_t length,
                  absl::Span<const uint64_t> ids, absl::Span<const float> rows,
                  const RowRounding& rounding) {
  if (encoding != proto::INT8) return Encode(encoding, InMemory(rows)).data;
  const size_t row_bytes = EncodedRowBytes(encoding, length);
  std::string bytes(ids.size() * row_bytes, '\0');
  for (size_t i = 0; i < ids.size(); ++i) {
    EncodeInt8(ids[i], rows.subspan(i * length, length), rounding,
               &bytes[i * row_bytes]);
  }
  return Buffer::FromString(std::move(bytes));
}

void DecodeRows(proto::Encoding encoding, size_t length, const Buffer& bytes,
                float* rows) {
  if (encoding == proto::INT8) return DecodeInt8(length, bytes, rows);
  if (encoding == proto::EXACT) return bytes.CopyTo(rows);
  const size_t size = bytes.size() / sizeof(uint16_t);
  Decode({encoding, size, bytes}, 0, {rows, size});
}

}  // namespace holdfast
