// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/random.h"
#include "common/base/simd.h"
#include "common/tensor/encoding_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t RandomBits(uint32_t i, uint32_t stream = 0) {
  return Philox4x32({i, stream}, {6})[0];
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Like gradients: most values are small, some are large.
std::vector<float> RandomValues(size_t size, uint32_t stream) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) {
    const auto random = Philox4x32({static_cast<uint32_t>(i), stream}, {7});
    const float a = static_cast<float>(random[0] >> 8) / (1 << 23) - 1;
    const float b = static_cast<float>(random[1] >> 8) / (1 << 24);
    values[i] = a * b * b * b;
  }
  return values;
}

// Every exponent, ties in the last place of either format, infinities, NaN and
// subnormals.
std::vector<float> StrangeValues() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 1 << 13; ++upper) {
    const uint32_t bits = upper << 19;
    for (const uint32_t lower :
         {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u,
          0x8001u, 0x18000u, 0x18001u, 0x7ffffu}) {
      values.push_back(FromBits(bits | lower));
    }
    values.push_back(FromBits(RandomBits(upper)));
  }
  return values;
}

Buffer BufferOf(const void* data, size_t size) {
  return Buffer::FromString(std::string(static_cast<const char*>(data), size));
}

Buffer BufferOf(const std::vector<float>& values) {
  return BufferOf(values.data(), values.size() * sizeof(float));
}

std::string BytesOf(const Buffer& buffer) {
  std::string bytes(buffer.size(), '\0');
  buffer.CopyTo(&bytes[0]);
  return bytes;
}

std::vector<uint16_t> HalvesOf(const EncodedElements& elements) {
  std::vector<uint16_t> halves(elements.data.size() / 2);
  elements.data.CopyTo(halves.data());
  return halves;
}

std::vector<float> Decoded(const EncodedElements& elements) {
  std::vector<float> values(elements.size, kNan);
  Decode(elements, 0, absl::MakeSpan(values));
  return values;
}

// Encodes gradients one after another as a worker does.
struct Sender {
  Sender(proto::Encoding encoding, uint64_t kept, size_t size)
      : encoding(encoding), kept(kept), residual(size, 0.0f) {}

  EncodedElements Send(const std::vector<float>& gradient) {
    std::vector<float> after(residual.size(), kNan);
    EncodedElements elements = EncodeWithFeedback(
        encoding, kept, gradient, residual, absl::MakeSpan(after));
    residual = after;
    return elements;
  }

  const proto::Encoding encoding;
  const uint64_t kept;
  std::vector<float> residual;
};

// 0x3c00 is 1: sign, 5 bits of exponent with bias 15, 10 of mantissa (IEEE 754,
// binary16).
TEST(EncodingTest, Float16IsIeeeButForItsEnds) {
  const float kTiny = std::ldexp(1.0f, -24);  // the smallest above 0
  const struct {
    float value;
    uint16_t half;
  } kCases[] = {
      {0, 0x0000},
      {-0.0f, 0x8000},
      {1, 0x3c00},
      {-2, 0xc000},
      {1.0f / 3, 0x3555},
      {1 + std::ldexp(1.0f, -11), 0x3c00},  // a tie, to even
      {1 + 3 * std::ldexp(1.0f, -11), 0x3c02},
      {65504, 0x7bff},
      {65519, 0x7bff},
      {65520, 0x7bff},  // IEEE 754: infinity
      {-1e30f, 0xfbff},
      {kInfinity, 0x7bff},
      {kNan, 0x7e00},
      {std::ldexp(1.0f, -14), 0x0400},  // the smallest normal
      {std::ldexp(1023.0f, -24), 0x03ff},
      {kTiny, 0x0001},
      {-1.5f * kTiny, 0x8002},
      {0.5f * kTiny, 0x0000},  // a tie
      {0.50001f * kTiny, 0x0001},
      {1e-40f, 0x0000},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.value);
    const EncodedElements elements =
        Encode(proto::FLOAT16, BufferOf(std::vector<float>{c.value}));
    EXPECT_THAT(HalvesOf(elements), ElementsAre(c.half));
  }
}

TEST(EncodingTest, Bfloat16IsTheUpperHalfRoundedToEven) {
  const struct {
    uint32_t bits;
    uint16_t half;
  } kCases[] = {
      {0x3f800000, 0x3f80}, {0xbf807fff, 0xbf80}, {0x3f808000, 0x3f80},
      {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x7f800000, 0x7f80},
      {0x7fc00000, 0x7fc0}, {0x7f800001, 0x7fc0}, {0x00010000, 0x0001},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.bits);
    const EncodedElements elements =
        Encode(proto::BFLOAT16, BufferOf(std::vector<float>{FromBits(c.bits)}));
    EXPECT_THAT(HalvesOf(elements), ElementsAre(c.half));
  }
}

TEST(EncodingTest, HalvesComeBackAsTheyWere) {
  std::vector<uint16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), uint16_t{0});
  for (const proto::Encoding encoding : {proto::FLOAT16, proto::BFLOAT16}) {
    const EncodedElements elements{encoding, all.size(),
                                   BufferOf(all.data(), 2 * all.size())};
    const std::vector<float> values = Decoded(elements);
    const std::vector<uint16_t> again =
        HalvesOf(Encode(encoding, BufferOf(values)));
    for (size_t i = 0; i < all.size(); ++i) {
      // Infinity is sent as the greatest finite number, and NaN as a quiet NaN.
      if (encoding == proto::FLOAT16 && (i & 0x7fff) == 0x7c00) continue;
      if (std::isnan(values[i])) {
        EXPECT_EQ(again[i] | 0x240, i | 0x240);
      } else {
        ASSERT_EQ(again[i], i);
      }
    }
  }
}

TEST(EncodingTest, Int8ByHand) {
  // Scale 254 / 127 = 2.
  Sender sender(proto::INT8, 0, 6);
  const EncodedElements elements = sender.Send({254, -254, 3, 5, -7.5f, 0.5f});
  EXPECT_EQ(elements.size, 6u);
  const float kScale = 2;
  std::string bytes(reinterpret_cast<const char*>(&kScale), 4);
  // 1.5 and 2.5 are ties; -3.75 is nearest to -4.
  for (const int q : {127, -127, 2, 2, -4, 0}) {
    bytes.push_back(static_cast<char>(q));
  }
  EXPECT_EQ(BytesOf(elements.data), bytes);
  EXPECT_THAT(Decoded(elements), ElementsAre(254, -254, 4, 4, -8, 0));
  EXPECT_THAT(sender.residual, ElementsAre(0, 0, -1, 1, 0.5f, 0.5f));
  // The next push makes up for what this one lost.
  EXPECT_THAT(Decoded(sender.Send({254, 0, -1, 1, 1, 1})),
              ElementsAre(254, 0, -2, 2, 2, 2));
}

TEST(EncodingTest, Int8HasAScaleForEachRange) {
  for (const size_t size : {1u, 511u, 512u, 513u, 1024u, 1100u}) {
    SCOPED_TRACE(size);
    std::vector<float> gradient(size, 1.0f);
    for (size_t i = 512; i < size; ++i) gradient[i] = 1000.0f;
    Sender sender(proto::INT8, 0, size);
    const EncodedElements elements = sender.Send(gradient);
    EXPECT_EQ(elements.data.size(), size + 4 * ((size + 511) / 512));
    EXPECT_EQ(EncodedBytes(proto::INT8, size, 0), elements.data.size());
    // All elements of the range have one value: 127 x (value / 127).
    const std::vector<float> values = Decoded(elements);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_FLOAT_EQ(values[i], gradient[i]) << i;
    }
    const auto parsed = ParseElements(proto::INT8, 0, elements.data);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->size, size);
  }
}

TEST(EncodingTest, Int8OfWhatIsTooSmallForAScaleWaits) {
  Sender sender(proto::INT8, 0, 2);
  EXPECT_THAT(Decoded(sender.Send({9e-31f, -1e-44f})), Each(0.0f));
  EXPECT_THAT(sender.residual, ElementsAre(9e-31f, -1e-44f));
  EXPECT_FLOAT_EQ(Decoded(sender.Send({9e-31f, 0}))[0], 1.8e-30f);
}

TEST(EncodingTest, TopKByHand) {
  Sender sender(proto::TOP_K, 2, 6);
  const EncodedElements elements = sender.Send({1, -3, 2, 0, 3, -3});
  // Of three elements of magnitude 3, the first two are kept.
  const float kValues[] = {-3, 3};
  EXPECT_EQ(
      BytesOf(elements.data),
      absl::StrCat(absl::string_view(reinterpret_cast<const char*>(kValues), 8),
                   absl::string_view("\1\0\4\0", 4)));
  EXPECT_THAT(Decoded(elements), ElementsAre(0, -3, 0, 0, 3, 0));
  EXPECT_THAT(sender.residual, ElementsAre(1, 0, 2, 0, 0, -3));
  EXPECT_THAT(Decoded(sender.Send({2, 0, 2, 0, 0, 0})),
              ElementsAre(3, 0, 4, 0, 0, 0));
}

// Up to 65536 elements have indices of 2 bytes, more of 4.
TEST(EncodingTest, TopKWidensItsIndices) {
  for (const size_t size : {65536, 65537}) {
    const size_t width = size == 65536 ? 6 : 8;
    EXPECT_EQ(EncodedBytes(proto::TOP_K, size, 3), 3 * width);
    Sender sender(proto::TOP_K, 2, size);
    std::vector<float> gradient(size);
    gradient[1] = 1;
    gradient[size - 1] = 2;
    const EncodedElements elements = sender.Send(gradient);
    EXPECT_EQ(elements.data.size(), 2 * width);
    EXPECT_EQ(KeptElements(elements), 2u);
    const auto parsed = ParseElements(proto::TOP_K, size, elements.data);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(Decoded(*parsed), gradient);
  }
}

TEST(EncodingTest, TopKSendsNoZeros) {
  Sender sender(proto::TOP_K, 3, 5);
  const EncodedElements elements = sender.Send({0, -0.0f, 5, 0, 0});
  EXPECT_EQ(KeptElements(elements), 1u);
  EXPECT_THAT(Decoded(elements), ElementsAre(0, 0, 5, 0, 0));
  EXPECT_EQ(sender.Send({0, 0, 0, 0, 0}).data.size(), 0u);
}

TEST(EncodingTest, TopKCountRoundsUp) {
  EXPECT_EQ(TopKCount(0.01, 0), 0u);
  EXPECT_EQ(TopKCount(0.01, 1), 1u);
  EXPECT_EQ(TopKCount(0.01, 100), 1u);
  EXPECT_EQ(TopKCount(0.01, 101), 2u);
  EXPECT_EQ(TopKCount(0.5, 9), 5u);
  EXPECT_EQ(TopKCount(1, 9), 9u);
}

// Compared with sorting all elements.
TEST(EncodingTest, TopKKeepsTheGreatest) {
  const auto test = [](const std::vector<float>& gradient, uint64_t kept) {
    SCOPED_TRACE(absl::StrCat(kept, " of ", gradient.size()));
    std::vector<size_t> order(gradient.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(gradient[a]) > std::abs(gradient[b]);
    });
    std::vector<float> sent(gradient.size(), 0.0f);
    std::vector<float> left = gradient;
    for (size_t i = 0; i < kept; ++i) {
      std::swap(sent[order[i]], left[order[i]]);
    }
    Sender sender(proto::TOP_K, kept, gradient.size());
    EXPECT_EQ(Decoded(sender.Send(gradient)), sent);
    EXPECT_EQ(sender.residual, left);
  };
  for (const size_t size : {1u, 16u, 1000u, 8192u, 50000u}) {
    for (const double share : {0.001, 0.01, 0.1, 0.5}) {
      test(RandomValues(size, 1), TopKCount(share, size));
    }
  }
  // Few distinct values, so that there are many ties.
  std::vector<float> gradient(50000);
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>(RandomBits(i) % 7) - 3;
  }
  test(gradient, 500);
  // The sampled elements are large, so the guessed threshold finds too few.
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = (i % 24 == 0 ? 100 : 1) + static_cast<float>(i) * 1e-5f;
  }
  test(gradient, 5000);
}

TEST(EncodingTest, WhatIsLostIsSentLater) {
  constexpr size_t kSize = 3000;
  for (const proto::Encoding encoding :
       {proto::EXACT, proto::FLOAT16, proto::BFLOAT16, proto::INT8,
        proto::TOP_K}) {
    SCOPED_TRACE(proto::Encoding_Name(encoding));
    Sender sender(encoding, kSize / 100, kSize);
    std::vector<double> gradients(kSize), received(kSize);
    for (uint32_t step = 0; step < 50; ++step) {
      const std::vector<float> gradient = RandomValues(kSize, step);
      const std::vector<float> values = Decoded(sender.Send(gradient));
      for (size_t i = 0; i < kSize; ++i) {
        gradients[i] += gradient[i];
        received[i] += values[i];
      }
    }
    for (size_t i = 0; i < kSize; ++i) {
      // 50 roundings to float32 of sums below 8.
      ASSERT_NEAR(received[i] + sender.residual[i], gradients[i], 1e-5) << i;
    }
    if (encoding == proto::EXACT) {
      EXPECT_THAT(sender.residual, Each(0.0f));
    }
  }
}

TEST(EncodingTest, Float16SendsTheRestOfWhatIsTooGreat) {
  Sender sender(proto::FLOAT16, 0, 1);
  EXPECT_THAT(Decoded(sender.Send({100000})), ElementsAre(65504));
  EXPECT_THAT(Decoded(sender.Send({0})), ElementsAre(34496));
}

TEST(EncodingTest, AGradientThatIsNotFiniteDoesNotSpoilTheNext) {
  for (const proto::Encoding encoding :
       {proto::FLOAT16, proto::BFLOAT16, proto::INT8, proto::TOP_K}) {
    for (const float bad : {kNan, kInfinity, -kInfinity, 3.4e38f}) {
      SCOPED_TRACE(absl::StrCat(proto::Encoding_Name(encoding), " of ", bad));
      // 20 elements: whole vectors and a remainder.
      Sender sender(encoding, 2, 20);
      std::vector<float> gradient(20, 0.25f);
      for (const size_t at : {0, 7, 12, 19}) gradient[at] = bad;
      const std::vector<float> sent = Decoded(sender.Send(gradient));
      if (std::isnan(bad)) {
        EXPECT_TRUE(std::isnan(sent[0]));
      }
      sender.Send(gradient);
      for (const float value : sender.residual) {
        EXPECT_TRUE(std::isfinite(value)) << value;
      }
    }
  }
}

TEST(EncodingTest, ReadsFromAnywhereInAChainThatIsCutAnywhere) {
  const std::vector<float> gradient = RandomValues(1200, 3);
  for (const proto::Encoding encoding :
       {proto::EXACT, proto::FLOAT16, proto::BFLOAT16, proto::INT8,
        proto::TOP_K}) {
    SCOPED_TRACE(proto::Encoding_Name(encoding));
    Sender sender(encoding, 100, gradient.size());
    const EncodedElements whole = sender.Send(gradient);
    const std::vector<float> values = Decoded(whole);
    for (uint32_t round = 0; round < 20; ++round) {
      // Spans of 1 to 64 bytes, each in its own memory.
      Buffer chain;
      for (size_t at = 0; at < whole.data.size();) {
        const size_t size = std::min<size_t>(RandomBits(at, round) % 64 + 1,
                                             whole.data.size() - at);
        chain.Append(Buffer::FromString(BytesOf(whole.data.Sub(at, size))));
        at += size;
      }
      const auto elements =
          ParseElements(encoding, gradient.size(), std::move(chain));
      ASSERT_TRUE(elements.ok()) << elements.status();
      EXPECT_EQ(Decoded(*elements), values);
      for (uint32_t i = 0; i < 20; ++i) {
        const size_t begin = RandomBits(i, 100 + round) % gradient.size();
        const size_t size =
            RandomBits(i, 200 + round) % (gradient.size() - begin + 1);
        std::vector<float> some(size, kNan);
        Decode(*elements, begin, absl::MakeSpan(some));
        EXPECT_EQ(some, std::vector<float>(values.begin() + begin,
                                           values.begin() + begin + size));
      }
    }
  }
}

TEST(EncodingTest, EncodesFromAChain) {
  const std::vector<float> values = RandomValues(5000, 4);
  Buffer chain;
  for (size_t at = 0; at < values.size(); at += 625) {
    chain.Append(BufferOf(values.data() + at, 625 * sizeof(float)));
  }
  for (const proto::Encoding encoding :
       {proto::EXACT, proto::FLOAT16, proto::BFLOAT16}) {
    EXPECT_EQ(BytesOf(Encode(encoding, chain).data),
              BytesOf(Encode(encoding, BufferOf(values)).data));
  }
}

TEST(EncodingTest, SizesAreToldByTheBytes) {
  const struct {
    proto::Encoding encoding;
    size_t bytes;
    uint64_t size;
  } kCases[] = {
      {proto::EXACT, 0, 0},      {proto::EXACT, 12, 3},
      {proto::FLOAT16, 6, 3},    {proto::BFLOAT16, 2, 1},
      {proto::INT8, 0, 0},       {proto::INT8, 5, 1},
      {proto::INT8, 516, 512},   {proto::INT8, 521, 513},
      {proto::INT8, 1032, 1024},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(absl::StrCat(c.encoding, " ", c.bytes));
    for (const uint64_t told : {uint64_t{0}, c.size}) {
      const auto elements = ParseElements(
          c.encoding, told, Buffer::FromString(std::string(c.bytes, 'x')));
      ASSERT_TRUE(elements.ok()) << elements.status();
      EXPECT_EQ(elements->size, c.size);
      EXPECT_EQ(elements->encoding, c.encoding);
    }
  }
  const auto none = ParseElements(proto::TOP_K, 7, Buffer());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(Decoded(*none), std::vector<float>(7, 0.0f));
}

TEST(EncodingTest, RefusesWhatIsNoEncoding) {
  const auto expect = [](proto::Encoding encoding, uint64_t size,
                         const std::string& bytes, const char* what) {
    SCOPED_TRACE(what);
    const auto elements =
        ParseElements(encoding, size, Buffer::FromString(bytes));
    EXPECT_EQ(elements.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(elements.status().message()), HasSubstr(what));
  };
  const auto bytes = [](size_t count) { return std::string(count, '\0'); };
  expect(static_cast<proto::Encoding>(17), 1, bytes(4), "encoding 17");
  expect(static_cast<proto::Encoding>(-1), 1, bytes(4), "encoding -1");
  expect(proto::EXACT, 0, bytes(6), "6 bytes, which is not a whole number");
  expect(proto::EXACT, 2, bytes(12),
         "12 bytes, which is 3 elements in EXACT, but the message says 2");
  expect(proto::FLOAT16, 0, bytes(3), "3 bytes, which is not a whole number");
  expect(proto::BFLOAT16, 3, bytes(4),
         "is 2 elements in BFLOAT16, but the message says 3");
  for (const size_t rest : {1, 2, 3, 4}) {
    // A scale without elements.
    expect(proto::INT8, 0, bytes(rest),
           "not a whole number of elements in INT8");
    expect(proto::INT8, 0, bytes(516 + rest), "not a whole number");
  }
  expect(proto::INT8, 512, bytes(517 + 4), "is 513 elements");
  expect(proto::TOP_K, 9, bytes(8), "8 bytes, which is not a whole number");
  expect(proto::TOP_K, 65537, bytes(12),
         "12 bytes, which is not a whole number");
  const auto kept = [](const auto& indices) {
    const size_t width = sizeof(indices[0]);
    return std::string(4 * indices.size(), 'v') +
           std::string(reinterpret_cast<const char*>(indices.data()),
                       width * indices.size());
  };
  using Short = std::vector<uint16_t>;
  using Long = std::vector<uint32_t>;
  expect(proto::TOP_K, 9, kept(Short{9}), "element 9 of 9");
  expect(proto::TOP_K, 9, kept(Short{1, 0xffff}), "element 65535 of 9");
  expect(proto::TOP_K, 0, kept(Short{0}), "element 0 of 0");
  expect(proto::TOP_K, 9, kept(Short{3, 3}), "element 3 after 3");
  expect(proto::TOP_K, 9, kept(Short{4, 8, 7}), "element 7 after 8");
  expect(proto::TOP_K, 65537, kept(Long{1, 0xffffffff}),
         "element 4294967295 of 65537");
  expect(proto::TOP_K, 65537, kept(Long{4, 8, 7}), "element 7 after 8");
}

// Compares every kind of vectors that this CPU has with the plain loops.
class EncodingKernelsTest : public ::testing::TestWithParam<Simd> {
 protected:
  // The output of run(simd) must not depend on `simd`.
  template <typename Run>
  void ExpectSame(const Run& run) {
    EXPECT_EQ(run(GetParam()), run(Simd::kPlain));
  }
};

std::string BytesOf(const std::vector<float>& values) {
  return BytesOf(BufferOf(values));
}

TEST_P(EncodingKernelsTest, HalvesHaveTheSameBits) {
  const std::vector<float> values = StrangeValues();
  std::vector<float> before(values.size());
  for (size_t i = 0; i < before.size(); ++i) {
    before[i] = std::ldexp(1.0f, static_cast<int>(i % 250) - 125);
  }
  std::vector<uint16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), uint16_t{0});
  for (const HalfFormat format :
       {HalfFormat::kFloat16, HalfFormat::kBfloat16}) {
    // From an odd address, and with a remainder that does not fill a vector.
    for (const size_t size :
         {size_t{0}, size_t{1}, size_t{37}, values.size()}) {
      ExpectSame([&](Simd simd) {
        std::string encoded(2 * 2 * size + 1, 'x');
        std::vector<float> after(size), decoded(size);
        EncodeHalves(simd, format, values.data(), size, &encoded[1]);
        EncodeHalvesWithFeedback(simd, format, values.data(), before.data(),
                                 size, &encoded[1 + 2 * size], after.data());
        DecodeHalves(simd, format, &encoded[1], size, decoded.data());
        return encoded + BytesOf(after) + BytesOf(decoded);
      });
    }
    ExpectSame([&](Simd simd) {
      std::vector<float> decoded(all.size());
      DecodeHalves(simd, format, reinterpret_cast<const char*>(all.data()),
                   all.size(), decoded.data());
      return BytesOf(decoded);
    });
  }
}

TEST_P(EncodingKernelsTest, Int8HasTheSameBits) {
  const std::vector<float> before = RandomValues(512, 5);
  const auto test = [&](const float* values, size_t size) {
    SCOPED_TRACE(size);
    ExpectSame([&](Simd simd) {
      std::string encoded(size + 5, 'x');
      std::vector<float> after(size), decoded(size);
      EncodeInt8(simd, values, before.data(), size, &encoded[1], after.data());
      DecodeInt8(simd, &encoded[5], size, 0.3f, decoded.data());
      return encoded + BytesOf(after) + BytesOf(decoded);
    });
  };
  const std::vector<float> strange = StrangeValues();
  for (size_t at = 0; at + 512 <= strange.size(); at += 100) {
    test(&strange[at], 512);
  }
  const std::vector<float> values = RandomValues(512, 6);
  for (size_t size = 1; size <= 512; ++size) test(values.data(), size);
}

TEST_P(EncodingKernelsTest, AddAndFindFindsAll) {
  const std::vector<float> values = RandomValues(1000, 8);
  const std::vector<float> before = RandomValues(1000, 9);
  for (const float least : {0.0f, 1e-3f, 0.3f, 5.0f}) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{21}, size_t{1000}}) {
      std::vector<float> after(size);
      std::vector<uint32_t> found(size);
      found.resize(AddAndFind(GetParam(), values.data(), before.data(), size,
                              BitsOf(least), 7, after.data(), found.data()));
      std::vector<uint32_t> expected;
      for (size_t i = 0; i < size; ++i) {
        EXPECT_EQ(after[i], values[i] + before[i]);
        if (std::abs(after[i]) >= least) expected.push_back(7 + i);
      }
      EXPECT_EQ(found, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EncodingKernelsTest,
    ::testing::ValuesIn(SupportedSimd().begin(), SupportedSimd().end()),
    [](const auto& info) {
      return absl::StrReplaceAll(SimdName(info.param), {{"-", ""}});
    });

}  // namespace
}  // namespace holdfast
