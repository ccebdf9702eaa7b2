// SPDX-License-Identifier: Apache-2.0
#include "common/data/testing/image_testing.h"

// jpeglib.h needs <cstdio>.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <cstdlib>

#include "common/base/random.h"

namespace holdfast {

std::string EncodePng(const PngImage& image) {
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  // Errors end the test.
  if (setjmp(png_jmpbuf(png)) != 0) std::abort();
  std::string file;
  png_set_write_fn(
      png, &file,
      [](png_structp png, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(png))
            ->append(reinterpret_cast<const char*>(data), size);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, image.width, image.height, image.bits,
               image.color_type,
               image.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!image.palette.empty()) {
    std::vector<png_color> colors;
    std::vector<png_byte> alphas;
    for (const std::vector<uint8_t>& color : image.palette) {
      colors.push_back({color[0], color[1], color[2]});
      alphas.push_back(color[3]);
    }
    png_set_PLTE(png, info, colors.data(), static_cast<int>(colors.size()));
    png_set_tRNS(png, info, alphas.data(), static_cast<int>(alphas.size()),
                 nullptr);
  }
  png_write_info(png, info);
  const size_t row_bytes = image.samples.size() / image.height;
  std::vector<png_bytep> rows;
  for (uint32_t y = 0; y < image.height; ++y) {
    rows.push_back(reinterpret_cast<png_bytep>(
        const_cast<char*>(image.samples.data() + y * row_bytes)));
  }
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

std::string EncodeJpeg(uint32_t height, uint32_t width, int channels,
                       const std::string& pixels, bool progressive) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr manager;
  // Errors end the process.
  jpeg.err = jpeg_std_error(&manager);
  jpeg_create_compress(&jpeg);
  unsigned char* data = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type.
  jpeg_mem_dest(&jpeg, &data, &size);
  jpeg.image_height = height;
  jpeg.image_width = width;
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1   ? JCS_GRAYSCALE
                        : channels == 3 ? JCS_RGB
                                        : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 90, TRUE);
  jpeg.dct_method = JDCT_ISLOW;
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < height) {
    JSAMPROW row = reinterpret_cast<JSAMPROW>(const_cast<char*>(
        pixels.data() + size_t{jpeg.next_scanline} * width * channels));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string file(reinterpret_cast<const char*>(data), size);
  std::free(data);
  return file;
}

std::string RandomPixels(int64_t size, uint32_t seed) {
  std::string pixels(size, '\0');
  for (int64_t i = 0; i < size; ++i) {
    pixels[i] =
        static_cast<char>(Philox4x32({static_cast<uint32_t>(i), 0}, {seed})[0]);
  }
  return pixels;
}

}  // namespace holdfast
