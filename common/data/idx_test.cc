// SPDX-License-Identifier: Apache-2.0
#include "common/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/data/data_cache.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Write(const std::string& content) {
  const std::string path = testing::TempDir() + "/test.idx";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

std::string Gzip(const std::string& content) {
  z_stream stream = {};
  EXPECT_EQ(
      deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = content.size();
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = packed.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

std::vector<uint8_t> BytesOf(const TypedArray& array) {
  return {array.bytes.begin(), array.bytes.end()};
}

// [2, 3], values 10 to 15.
std::string Small() { return IdxHeader({2, 3}) + "\x0a\x0b\x0c\x0d\x0e\x0f"; }

// The error of reading `content`.
absl::Status ReadError(const std::string& content) {
  const std::string path = Write(content);
  const absl::Status status = ReadIdx(path).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(path));
  return status;
}

TEST(IdxTest, ReadsPlainAndGzip) {
  // The header written out by hand, according to the format.
  const std::string expected("\0\0\x08\x02\0\0\0\x02\0\0\0\x03", 12);
  EXPECT_EQ(IdxHeader({2, 3}), expected);
  const std::string half = Small().substr(0, 7);
  for (const std::string& content :
       {Small(), Gzip(Small()),
        // The output of `cat a.gz b.gz` is a gzip file, too.
        Gzip(half) + Gzip(Small().substr(7))}) {
    const auto array = ReadIdx(Write(content));
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_THAT(array->shape, ElementsAre(2, 3));
    EXPECT_THAT(BytesOf(*array), ElementsAre(10, 11, 12, 13, 14, 15));
  }
}

TEST(IdxTest, UnpacksIntoTheCache) {
  const std::string folder = testing::TempDir() + "/idx_cache";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::vector<std::string> lines;
  const auto cache = DataCache::Open(
      folder, [&](const std::string& line) { lines.push_back(line); });
  ASSERT_TRUE(cache.ok()) << cache.status();
  ReadingOptions options;
  options.cache = cache->get();
  std::string path = Write(Gzip(Small()));
  for (const std::string told : {"writing", "using"}) {
    lines.clear();
    const auto array = ReadIdx(path, options);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_TRUE(array->mapped);
    EXPECT_THAT(BytesOf(*array), ElementsAre(10, 11, 12, 13, 14, 15));
    EXPECT_THAT(lines, ElementsAre(::testing::StartsWith(told)));
  }
  // Neither a plain file nor a damaged one is cached.
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  EXPECT_EQ(files(), 1);
  EXPECT_TRUE(ReadIdx(Write(Small()), options)->mapped);
  path = Write(Gzip(Small()).substr(0, 30));
  EXPECT_EQ(ReadIdx(path, options).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(files(), 1);
  EXPECT_FALSE(ReadIdx(Write(Gzip(Small())))->mapped);
}

// Written by hand: big-endian, according to the format.
TEST(IdxTest, ReadsEveryType) {
  struct Case {
    char code;
    std::string one_and_minus_two;
    ElementType type;
  };
  for (const Case& c : std::vector<Case>{
           {0x09, "\x01\xfe", ElementType::kInt8},
           {0x0b, std::string("\0\x01\xff\xfe", 4), ElementType::kInt16},
           {0x0c, std::string("\0\0\0\x01\xff\xff\xff\xfe", 8),
            ElementType::kInt32},
           {0x0d, std::string("\x3f\x80\0\0\xc0\0\0\0", 8),
            ElementType::kFloat32},
           {0x0e, std::string("\x3f\xf0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0", 16),
            ElementType::kFloat64}}) {
    std::string content = IdxHeader({2}) + c.one_and_minus_two;
    content[2] = c.code;
    for (const std::string& file : {content, Gzip(content)}) {
      const auto array = ReadIdx(Write(file));
      ASSERT_TRUE(array.ok()) << array.status();
      EXPECT_EQ(array->type, c.type);
      EXPECT_EQ(array->FloatAt(0), 1);
      EXPECT_EQ(array->FloatAt(1), -2);
      EXPECT_EQ(array->header, content.substr(0, 8));
    }
    EXPECT_EQ(ReadError(content.substr(0, content.size() - 1)).code(),
              absl::StatusCode::kDataLoss);
  }
}

// Larger than a chunk of the reader, packed and unpacked.
TEST(IdxTest, ReadsLargeFiles) {
  std::string content = IdxHeader({300, 1001});
  uint32_t state = 1;
  for (int i = 0; i < 300 * 1001; ++i) {
    state = state * 1664525 + 1013904223;
    content.push_back(static_cast<char>(state >> 24));
  }
  const std::string packed = Gzip(content);
  EXPECT_GT(packed.size(), 200000u);
  for (const std::string& file : {content, packed}) {
    const auto array = ReadIdx(Write(file));
    ASSERT_TRUE(array.ok()) << array.status();
    ASSERT_EQ(array->bytes.size(), 300300u);
    EXPECT_EQ(std::string(array->bytes.begin(), array->bytes.end()),
              content.substr(12));
  }
}

TEST(IdxTest, RefusesWhatIsNotTheArrayWanted) {
  const auto changed = [](size_t place, char byte) {
    std::string content = Small();
    content[place] = byte;
    return content;
  };
  struct Case {
    std::string content;
    absl::StatusCode code;
    std::string message;
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto loss = absl::StatusCode::kDataLoss;
  for (const Case& c : std::vector<Case>{
           {"", loss, "at byte 0: the file ends within the magic number"},
           {"P5 ...", invalid,
            "at byte 0: not an IDX file: it begins with 0x50"},
           {changed(2, 0x07), invalid,
            "at byte 2: values have type 0x07, which is not among"},
           {changed(3, 0), invalid, "at byte 3: the array has no dimensions"},
           {changed(2, 0x0e), loss,
            "at byte 18: the file ends early: an array of 2 x 3 float64 has to "
            "end at byte 60"},
           {changed(7, 0), invalid, "at byte 4: dimension 0 is 0"},
           {changed(11, 0), invalid, "at byte 8: dimension 1 is 0"},
           {changed(4, 0x7f), loss, "at byte 4: dimension 0 is 2130706434"},
           {changed(8, 0x7f), loss, "at byte 8: dimension 1 is 2130706435"},
           {changed(11, 4), loss,
            "at byte 18: the file ends early: an array of 2 x 4 uint8 has to "
            "end at byte 20"},
           {changed(11, 2), loss,
            "at byte 16: bytes after the end of the array (2 x 2 uint8)"},
           {Small() + "x", loss, "at byte 18: bytes after the end"},
       }) {
    const absl::Status plain = ReadError(c.content);
    EXPECT_EQ(plain.code(), c.code) << plain;
    EXPECT_THAT(plain.message(), HasSubstr(c.message));

    const absl::Status packed = ReadError(Gzip(c.content));
    EXPECT_EQ(packed.code(), c.code) << packed;
    const std::string unpacked = absl::StrCat(
        c.message.substr(0, c.message.find(':')), " of the unpacked data",
        c.message.substr(c.message.find(':')));
    EXPECT_THAT(packed.message(), HasSubstr(unpacked));
  }
}

TEST(IdxTest, NoticesEveryTruncation) {
  for (size_t size = 0; size < Small().size(); ++size) {
    EXPECT_EQ(ReadError(Small().substr(0, size)).code(),
              absl::StatusCode::kDataLoss);
  }
  const std::string packed = Gzip(Small());
  // The magic of gzip takes two bytes; a shorter file is treated as a plain
  // one.
  for (size_t size = 2; size < packed.size(); ++size) {
    const absl::Status status = ReadError(packed.substr(0, size));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(status.message(),
                HasSubstr(absl::StrCat("the gzip data end early; the file is "
                                       "truncated (byte ",
                                       size, " of the file)")));
  }
}

// A flipped bit is either noticed or does not affect the content: in the
// header's 10 bytes, such as the time of packing, or one of up to 7 padding
// bits in the last byte of the compressed data.
TEST(IdxTest, NeverReadsDamagedGzip) {
  const std::string packed = Gzip(Small());
  int noticed = 0;
  for (size_t place = 0; place < packed.size(); ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = packed;
      damaged[place] ^= 1 << bit;
      const auto array = ReadIdx(Write(damaged));
      if (array.ok()) {
        EXPECT_THAT(array->shape, ElementsAre(2, 3));
        EXPECT_THAT(BytesOf(*array), ElementsAre(10, 11, 12, 13, 14, 15));
      } else {
        ++noticed;
      }
    }
  }
  EXPECT_GE(noticed, 8 * (static_cast<int>(packed.size()) - 10) - 7);
}

TEST(IdxTest, NamesBothOffsetsInDamagedGzip) {
  std::string packed = Gzip(Small());
  const size_t crc = packed.size() - 8;
  packed[crc] ^= 1;
  const absl::Status status = ReadError(packed);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("at byte 18 of the unpacked data"),
                    HasSubstr("damaged (incorrect data check)"),
                    HasSubstr(absl::StrCat("(byte ", crc + 4))));
}

TEST(IdxTest, NoticesBytesBehindGzip) {
  const std::string packed = Gzip(Small());
  const absl::Status status = ReadError(packed + "trailing");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      status.message(),
      HasSubstr(absl::StrCat("bytes after the end of the gzip data (byte ",
                             packed.size(), " of the file)")));
}

TEST(IdxTest, SaysWhyAFileCannotBeRead) {
  const std::string missing = testing::TempDir() + "/missing.idx";
  const absl::Status status = ReadIdx(missing).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(missing));
  EXPECT_THAT(ReadIdx(testing::TempDir()).status().message(),
              HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace holdfast
