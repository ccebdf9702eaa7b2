// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/buffer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

std::string Flat(const Buffer& buffer) {
  std::string bytes(buffer.size(), '\0');
  buffer.CopyTo(bytes.data());
  return bytes;
}

// `bytes` as a chain of spans of `piece` bytes each.
Buffer Chain(const std::string& bytes, size_t piece) {
  Buffer buffer;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    buffer.Append(Buffer::FromString(bytes.substr(at, piece)));
  }
  return buffer;
}

TEST(BufferTest, AppendAndSub) {
  const Buffer chain = Chain("abcdefghij", 3);
  EXPECT_EQ(chain.size(), 10u);
  EXPECT_EQ(chain.spans().size(), 4u);
  EXPECT_EQ(Flat(chain), "abcdefghij");
  for (size_t offset = 0; offset <= 10; ++offset) {
    for (size_t size = 0; size <= 10 - offset; ++size) {
      EXPECT_EQ(Flat(chain.Sub(offset, size)),
                std::string("abcdefghij").substr(offset, size));
    }
  }
  EXPECT_TRUE(Buffer::FromString("").spans().empty());
}

TEST(BufferTest, SubKeepsTheMemoryAlive) {
  Buffer tail;
  {
    const Buffer whole = Buffer::FromString(std::string(1000, 'x') + "end");
    tail = whole.Sub(1000, 3);
  }
  EXPECT_EQ(Flat(tail), "end");
}

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

std::vector<float> ReadAll(FloatReader reader, size_t count, size_t most) {
  std::vector<float> read(count);
  for (size_t at = 0; at < count;) {
    float cut;
    const FloatReader::Run run = reader.Next(std::min(most, count - at), &cut);
    EXPECT_GT(run.size, 0u);
    EXPECT_LE(run.size, std::min(most, count - at));
    std::memcpy(&read[at], run.data, run.size * sizeof(float));
    at += run.size;
  }
  return read;
}

// Tests borders at every place inside an element, reads that begin at every
// element, and reads of every length.
TEST(FloatReaderTest, ReadsAcrossBorders) {
  std::vector<float> values(23);
  std::iota(values.begin(), values.end(), 1.0f);
  const std::string bytes = Bytes(values);
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Buffer chain = Chain(bytes, piece);
    FloatReader reader(&chain);
    for (size_t begin = 0; begin < values.size(); ++begin) {
      const std::vector<float> rest(values.begin() + begin, values.end());
      for (size_t most = 1; most <= values.size(); ++most) {
        ASSERT_EQ(ReadAll(reader, rest.size(), most), rest)
            << "from " << begin << ", pieces of " << piece << ", reads of "
            << most;
      }
      FloatReader skipping(&chain);
      skipping.Skip(begin);
      ASSERT_EQ(ReadAll(skipping, rest.size(), values.size()), rest)
          << "from " << begin << ", pieces of " << piece;
      reader.Skip(1);
    }
  }
}

TEST(FloatReaderTest, ReadsWhereTheElementsLie) {
  const std::string bytes = Bytes({1, 2, 3, 4, 5});
  // The third element is split; the others are at odd addresses.
  auto owner = std::make_shared<std::string>("x" + bytes.substr(0, 9));
  Buffer buffer = Buffer::FromMemory(owner->data() + 1, 9, owner);
  buffer.Append(Buffer::FromString(bytes.substr(9)));
  FloatReader reader(&buffer);
  float cut;
  FloatReader::Run run = reader.Next(5, &cut);
  EXPECT_EQ(run.data, owner->data() + 1);
  EXPECT_EQ(run.size, 2u);
  run = reader.Next(3, &cut);
  EXPECT_EQ(run.data, &cut);
  EXPECT_EQ(run.size, 1u);
  EXPECT_EQ(cut, 3);
  run = reader.Next(2, &cut);
  EXPECT_EQ(run.data, buffer.spans()[1].data + 3);
  EXPECT_EQ(run.size, 2u);
}

}  // namespace
}  // namespace holdfast
