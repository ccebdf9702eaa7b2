// SPDX-License-Identifier: Apache-2.0
#include "common/data/image_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/sha256.h"
#include "common/data/testing/image_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// libpng's PNG_COLOR_TYPE_GRAY and so on.
enum ColorType { kGrey = 0, kRgb = 2, kPalette = 3, kGreyAlpha = 4, kRgba = 6 };

absl::Span<const uint8_t> Bytes(const std::string& file) {
  return {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
}

std::vector<int> Decoded(const std::string& file, int64_t channels,
                         uint8_t background = 0) {
  const auto pixels = DecodeImage(Bytes(file), channels, background);
  EXPECT_TRUE(pixels.ok()) << pixels.status();
  if (!pixels.ok()) return {};
  EXPECT_EQ(pixels->channels, channels);
  return {pixels->bytes.get(),
          pixels->bytes.get() + pixels->height * pixels->width * channels};
}

absl::Status ErrorOf(const std::string& file) {
  return DecodeImage(Bytes(file), 3, 0).status();
}

TEST(ImageDecoderTest, ReadsColoursAndMakesThemGrey) {
  const std::string file =
      EncodePng({1, 3, 8, kRgb, false, "\xff\x01\x01\1\xff\1\1\1\xff"});
  EXPECT_THAT(Decoded(file, 3), ElementsAre(255, 1, 1, 1, 255, 1, 1, 1, 255));
  // (19595 x 255 + 38470 + 7471 + 32768) / 65536 = 77.4; 150.6; 30.5.
  EXPECT_THAT(Decoded(file, 1), ElementsAre(77, 150, 30));
}

TEST(ImageDecoderTest, GreyIsThreeTimesTheSame) {
  const std::string file = EncodePng({2, 1, 8, kGrey, false, "\x05\xfe"});
  EXPECT_THAT(Decoded(file, 3), ElementsAre(5, 5, 5, 254, 254, 254));
  EXPECT_THAT(Decoded(file, 1), ElementsAre(5, 254));
}

// 16 bits: 0x0180 = 384 is 1.494 of 8, 0x0181 = 385 is 1.498, 0x0182 = 386 is
// 1.502. 4 bits: 3 is 51.
TEST(ImageDecoderTest, ScalesOtherDepths) {
  EXPECT_THAT(Decoded(EncodePng({1, 3, 16, kGrey, false,
                                 std::string("\x01\x80\x01\x82\xff\xff", 6)}),
                      1),
              ElementsAre(1, 2, 255));
  EXPECT_THAT(Decoded(EncodePng({1, 2, 4, kGrey, false, "\x3f"}), 1),
              ElementsAre(51, 255));
  EXPECT_THAT(Decoded(EncodePng({1, 3, 1, kGrey, false, "\xa0"}), 1),
              ElementsAre(255, 0, 255));
}

// (200 x 51 + 100 x 204 + 127) / 255 = 120.5, and 10 where the image is
// transparent.
TEST(ImageDecoderTest, LaysTransparentPixelsOnTheBackground) {
  const std::string file = EncodePng(
      {1, 2, 8, kRgba, false, std::string("\xc8\xc8\x64\x33\1\2\3\0", 8)});
  EXPECT_THAT(Decoded(file, 3, 100), ElementsAre(120, 120, 100, 100, 100, 100));
  EXPECT_THAT(Decoded(file, 3, 0), ElementsAre(40, 40, 20, 0, 0, 0));
  EXPECT_THAT(
      Decoded(EncodePng({1, 1, 8, kGreyAlpha, false, "\xc8\x33"}), 1, 100),
      ElementsAre(120));
}

TEST(ImageDecoderTest, ReadsPalettes) {
  PngImage image = {1, 4, 2, kPalette, false, std::string("\x1b", 1)};
  image.palette = {
      {1, 2, 3, 255}, {4, 5, 6, 255}, {7, 8, 9, 0}, {10, 11, 12, 255}};
  EXPECT_THAT(Decoded(EncodePng(image), 3, 99),
              ElementsAre(1, 2, 3, 4, 5, 6, 99, 99, 99, 10, 11, 12));
}

TEST(ImageDecoderTest, InterlacedIsTheSame) {
  const std::string pixels = RandomPixels(37 * 19 * 3, 1);
  EXPECT_EQ(Decoded(EncodePng({19, 37, 8, kRgb, true, pixels}), 3),
            Decoded(EncodePng({19, 37, 8, kRgb, false, pixels}), 3));
}

TEST(ImageDecoderTest, ReadsJpeg) {
  // One colour is stored almost exactly.
  std::string pixels;
  for (int i = 0; i < 16 * 16; ++i) pixels += "\xc8\x64\x32";
  for (const bool progressive : {false, true}) {
    const std::string file = EncodeJpeg(16, 16, 3, pixels, progressive);
    const std::vector<int> decoded = Decoded(file, 3);
    ASSERT_EQ(decoded.size(), 768u);
    EXPECT_NEAR(decoded[0], 200, 2);
    EXPECT_NEAR(decoded[400], 100, 2);
    EXPECT_NEAR(decoded[767], 50, 2);
    EXPECT_NEAR(Decoded(file, 1)[0], 124, 2);
  }
  const std::string grey = EncodeJpeg(8, 8, 1, std::string(64, '\x50'));
  EXPECT_EQ(Decoded(grey, 1), std::vector<int>(64, 80));
  EXPECT_EQ(Decoded(grey, 3), std::vector<int>(192, 80));
}

std::string JpegDigest() {
  const std::string file = EncodeJpeg(61, 83, 3, RandomPixels(61 * 83 * 3, 2));
  const auto pixels = DecodeImage(Bytes(file), 3, 0);
  if (!pixels.ok()) return "";
  Sha256 sha;
  sha.Update(pixels->bytes.get(), 61 * 83 * 3);
  return sha.HexDigest();
}

// With the vector units of this machine and without any.
TEST(ImageDecoderDeathTest, JpegHasTheSameBitsWithoutSimd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = testing::TempDir() + "/digest_without_simd";
  EXPECT_EXIT(
      {
        setenv("JSIMD_FORCENONE", "1", 1);
        std::FILE* const file = std::fopen(path.c_str(), "w");
        std::fputs(JpegDigest().c_str(), file);
        std::fclose(file);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
  char digest[65] = {};
  std::FILE* const file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(std::fread(digest, 1, 64, file), 64u);
  std::fclose(file);
  EXPECT_EQ(JpegDigest(), digest);
}

TEST(ImageDecoderTest, ReadsHeaders) {
  auto header = ReadImageHeader(
      Bytes(EncodePng({2, 3, 8, kRgb, false, std::string(18, 'x')})));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->height, 2);
  EXPECT_EQ(header->width, 3);
  EXPECT_EQ(header->description, "PNG, 8 bits, RGB");
  header = ReadImageHeader(Bytes(EncodeJpeg(8, 9, 1, std::string(72, 'x'))));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->width, 9);
  EXPECT_EQ(header->description, "JPEG, grey");
}

TEST(ImageDecoderTest, RefusesWhatIsNoImage) {
  EXPECT_THAT(ErrorOf("").message(), HasSubstr("it is empty"));
  EXPECT_THAT(ErrorOf("GIF89a").message(),
              HasSubstr("it is neither a PNG nor a JPEG file"));
  EXPECT_THAT(ErrorOf(EncodeJpeg(8, 8, 4, std::string(256, 'x'))).message(),
              HasSubstr("of four inks (CMYK): save it as RGB"));
  // A header of 2^14 times 2^14 pixels, and its checksum.
  std::string vast = EncodePng({1, 1, 8, kGrey, false, "x"});
  vast.replace(16, 8, std::string("\0\0\x40\0\0\0\x40\0", 8));
  const uint32_t crc =
      crc32(0, reinterpret_cast<const uint8_t*>(vast.data()) + 12, 17);
  for (int i = 0; i < 4; ++i)
    vast[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  EXPECT_THAT(ErrorOf(vast).message(),
              HasSubstr("the image is 16384 high and 16384 wide; the "
                        "limit is 67108864 pixels"));
}

TEST(ImageDecoderTest, EveryCutIsNoticed) {
  const std::string pixels = RandomPixels(12 * 12 * 3, 3);
  const std::string png = EncodePng({12, 12, 8, kRgb, false, pixels});
  for (size_t size = 8; size < png.size(); ++size) {
    EXPECT_EQ(ErrorOf(png.substr(0, size)).code(), absl::StatusCode::kDataLoss)
        << size;
  }
  for (const bool progressive : {false, true}) {
    const std::string jpeg = EncodeJpeg(12, 12, 3, pixels, progressive);
    for (size_t size = 3; size < jpeg.size(); ++size) {
      EXPECT_EQ(ErrorOf(jpeg.substr(0, size)).code(),
                absl::StatusCode::kDataLoss)
          << size;
    }
  }
}

// libpng verifies the checksums of all relevant chunks.
TEST(ImageDecoderTest, ADamagedByteOfPngIsNoticed) {
  const std::string png =
      EncodePng({12, 12, 8, kRgb, false, RandomPixels(12 * 12 * 3, 3)});
  // After the signature; the last four bytes are also a checksum.
  for (size_t at = 8; at < png.size(); at += 7) {
    std::string damaged = png;
    damaged[at] ^= 0x10;
    EXPECT_FALSE(ErrorOf(damaged).ok()) << at;
  }
}

}  // namespace
}  // namespace holdfast
