#include "common/buffer.h"

#include <cstring>
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

// Borders at every place inside an element, reads of every length.
TEST(FloatReaderTest, ReadsAcrossBorders) {
  std::vector<float> values(23);
  std::iota(values.begin(), values.end(), 1.0f);
  const std::string bytes(reinterpret_cast<const char*>(values.data()),
                          values.size() * sizeof(float));
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Buffer chain = Chain(bytes, piece);
    for (size_t count = 1; count <= values.size(); ++count) {
      FloatReader reader(&chain);
      std::vector<float> read, scratch(count);
      while (read.size() < values.size()) {
        const size_t n = std::min(count, values.size() - read.size());
        const float* next = reader.Next(n, scratch.data());
        read.insert(read.end(), next, next + n);
      }
      ASSERT_EQ(read, values)
          << "pieces of " << piece << ", reads of " << count;
    }
  }
}

TEST(FloatReaderTest, ReadsWholeAlignedRunsInPlace) {
  auto owner =
      std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const Buffer buffer =
      Buffer::FromMemory(owner->data(), 3 * sizeof(float), owner);
  FloatReader reader(&buffer);
  float scratch[3];
  EXPECT_EQ(reader.Next(2, scratch), owner->data());
  EXPECT_EQ(reader.Next(1, scratch), owner->data() + 2);
}

}  // namespace
}  // namespace holdfast
