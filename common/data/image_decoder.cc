// SPDX-License-Identifier: Apache-2.0
#include "common/data/image_decoder.h"

// jpeglib.h needs <cstdio>, and jerror.h needs jpeglib.h.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <png.h>
#include <setjmp.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// libpng and libjpeg report errors by a longjmp(). The functions that call
// setjmp() here have no local objects with destructors.

constexpr uint8_t kPngBegin[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr uint8_t kJpegBegin[] = {0xff, 0xd8, 0xff};

template <size_t kSize>
bool BeginsWith(absl::Span<const uint8_t> file, const uint8_t (&begin)[kSize]) {
  return file.size() >= kSize && std::equal(begin, begin + kSize, file.data());
}

absl::Status CheckSize(int64_t height, int64_t width) {
  if (height <= kMostImagePixels / width) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the image is ", height, " high and ", width,
                   " wide; the limit is ", kMostImagePixels, " pixels"));
}

uint8_t Grey(uint32_t red, uint32_t green, uint32_t blue) {
  return static_cast<uint8_t>(
      (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

// Converts a row of `samples` (1: grey, 2: grey and alpha, 3: RGB, 4: RGBA) to
// `channels`.
void ConvertRow(const uint8_t* from, int samples, int64_t width,
                int64_t channels, uint32_t background, uint8_t* to) {
  if (samples == channels) {
    std::copy_n(from, width * channels, to);
    return;
  }
  const bool has_alpha = samples % 2 == 0;
  const int green = samples > 2 ? 1 : 0;
  const int blue = samples > 2 ? 2 : 0;
  for (int64_t x = 0; x < width; ++x, from += samples, to += channels) {
    const uint32_t alpha = has_alpha ? from[samples - 1] : 255;
    const auto laid = [&](uint32_t value) {
      return (value * alpha + background * (255 - alpha) + 127) / 255;
    };
    const uint32_t red = laid(from[0]);
    if (samples <= 2) {
      std::fill_n(to, channels, static_cast<uint8_t>(red));
    } else if (channels == 1) {
      *to = Grey(red, laid(from[green]), laid(from[blue]));
    } else {
      to[0] = static_cast<uint8_t>(red);
      to[1] = static_cast<uint8_t>(laid(from[green]));
      to[2] = static_cast<uint8_t>(laid(from[blue]));
    }
  }
}

class PngReader {
 public:
  explicit PngReader(absl::Span<const uint8_t> file) : file_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &PngReader::Fail,
                                  &PngReader::Ignore);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  absl::StatusOr<ImageHeader> ReadHeader() {
    if (info_ == nullptr || !ReadInfo()) return Error();
    constexpr const char* kKinds[] = {
        "grey", "", "RGB", "palette", "grey with alpha", "", "RGBA"};
    ImageHeader header;
    header.height = png_get_image_height(png_, info_);
    header.width = png_get_image_width(png_, info_);
    header.description = absl::StrCat(
        "PNG, ", int{png_get_bit_depth(png_, info_)}, " bits, ",
        kKinds[png_get_color_type(png_, info_)],
        png_get_valid(png_, info_, PNG_INFO_tRNS) != 0 ? " with alpha" : "");
    HOLDFAST_RETURN_IF_ERROR(CheckSize(header.height, header.width));
    return header;
  }

  absl::StatusOr<ImagePixels> Decode(int64_t channels, uint8_t background) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto header, ReadHeader());
    if (!ToBytes()) return Error();
    const int samples = png_get_channels(png_, info_);
    const int64_t row_bytes = header.width * samples;
    ImagePixels pixels;
    pixels.height = header.height;
    pixels.width = header.width;
    pixels.channels = channels;
    // All rows, with the file's samples, because the rows of an interlaced
    // image come in pieces.
    std::unique_ptr<uint8_t[]> rows(new uint8_t[header.height * row_bytes]);
    std::vector<png_bytep> places(header.height);
    for (int64_t y = 0; y < header.height; ++y) {
      places[y] = rows.get() + y * row_bytes;
    }
    if (!ReadRows(places.data())) return Error();
    if (samples == channels) {
      pixels.bytes = std::move(rows);
      return pixels;
    }
    pixels.bytes.reset(new uint8_t[header.height * header.width * channels]);
    for (int64_t y = 0; y < header.height; ++y) {
      ConvertRow(places[y], samples, header.width, channels, background,
                 pixels.bytes.get() + y * header.width * channels);
    }
    return pixels;
  }

 private:
  static void Fail(png_structp png, png_const_charp what) {
    auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(reader->error_, sizeof(error_), "%s", what);
    png_longjmp(png, 1);
  }
  static void Ignore(png_structp png, png_const_charp what) {}
  static void Take(png_structp png, png_bytep to, size_t size) {
    auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader->file_.size() - reader->at_) {
      png_error(png, "the file ends early");
    }
    std::memcpy(to, reader->file_.data() + reader->at_, size);
    reader->at_ += size;
  }

  bool ReadInfo() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, &PngReader::Take);
    png_set_user_limits(png_, 1 << 24, 1 << 24);
    // Of the optional chunks only transparent colours are used.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_AS_DEFAULT,
                                reinterpret_cast<png_const_bytep>("tRNS"), 1);
    png_read_info(png_, info_);
    return true;
  }
  // Makes libpng deliver samples as bytes, palettes as colours, and transparent
  // colours as alpha.
  bool ToBytes() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    png_set_scale_16(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool ReadRows(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }
  absl::Status Error() const {
    return absl::DataLossError(absl::StrCat("the PNG is damaged: ", error_));
  }

  const absl::Span<const uint8_t> file_;
  size_t at_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char error_[200] = "no memory to decode it";
};

class JpegReader {
 public:
  explicit JpegReader(absl::Span<const uint8_t> file) : file_(file) {
    jpeg_.err = jpeg_std_error(&manager_);
    manager_.error_exit = &JpegReader::Fail;
    manager_.emit_message = &JpegReader::Warn;
    jpeg_.client_data = this;
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }

  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  absl::StatusOr<ImageHeader> ReadHeader() {
    if (!ReadInfo()) return Error();
    absl::string_view kind;
    switch (jpeg_.jpeg_color_space) {
      case JCS_GRAYSCALE:
        kind = "grey";
        break;
      case JCS_YCbCr:
        kind = "YCbCr";
        break;
      case JCS_RGB:
        kind = "RGB";
        break;
      default:
        return absl::InvalidArgumentError(
            "the JPEG is neither grey nor of three colours, but of four inks "
            "(CMYK): save it as RGB");
    }
    ImageHeader header;
    header.height = jpeg_.image_height;
    header.width = jpeg_.image_width;
    header.description = absl::StrCat("JPEG, ", kind);
    HOLDFAST_RETURN_IF_ERROR(CheckSize(header.height, header.width));
    return header;
  }

  absl::StatusOr<ImagePixels> Decode(int64_t channels) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto header, ReadHeader());
    const int samples = jpeg_.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
    const int64_t row_bytes = header.width * samples;
    std::unique_ptr<uint8_t[]> row(new uint8_t[row_bytes]);
    ImagePixels pixels;
    pixels.height = header.height;
    pixels.width = header.width;
    pixels.channels = channels;
    pixels.bytes.reset(new uint8_t[header.height * header.width * channels]);
    if (!ReadRows(samples, row.get(), &pixels)) return Error();
    return pixels;
  }

 private:
  static JpegReader* Of(j_common_ptr jpeg) {
    return static_cast<JpegReader*>(jpeg->client_data);
  }
  static void Fail(j_common_ptr jpeg) {
    JpegReader* const reader = Of(jpeg);
    jpeg->err->format_message(jpeg, reader->error_);
    longjmp(reader->jump_, 1);
  }
  // Any guess of the library ends the decoding, because the pixels would not be
  // those that were stored. Extra bytes between markers, which some cameras
  // write, and odd versions are harmless.
  static void Warn(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    switch (jpeg->err->msg_code) {
      case JWRN_EXTRANEOUS_DATA:
      case JWRN_JFIF_MAJOR:
      case JWRN_ADOBE_XFORM:
        return;
      default:
        Fail(jpeg);
    }
  }

  bool ReadInfo() {
    if (setjmp(jump_) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_mem_src(&jpeg_, file_.data(), file_.size());
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }
  bool ReadRows(int samples, uint8_t* row, ImagePixels* pixels) {
    if (setjmp(jump_) != 0) return false;
    jpeg_.out_color_space = samples == 1 ? JCS_GRAYSCALE : JCS_RGB;
    // These settings give the same bits on all machines, with and without SIMD.
    jpeg_.dct_method = JDCT_ISLOW;
    jpeg_.do_fancy_upsampling = TRUE;
    jpeg_.do_block_smoothing = FALSE;
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      uint8_t* const to = pixels->bytes.get() + int64_t{jpeg_.output_scanline} *
                                                    pixels->width *
                                                    pixels->channels;
      JSAMPROW line = row;
      if (jpeg_read_scanlines(&jpeg_, &line, 1) != 1) return false;
      ConvertRow(row, samples, pixels->width, pixels->channels,
                 /*background=*/0, to);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }
  absl::Status Error() const {
    return absl::DataLossError(absl::StrCat("the JPEG is damaged: ", error_));
  }

  const absl::Span<const uint8_t> file_;
  jpeg_decompress_struct jpeg_ = {};
  jpeg_error_mgr manager_;
  jmp_buf jump_;
  char error_[JMSG_LENGTH_MAX] = "it ends early";
};

absl::Status NoImage(absl::Span<const uint8_t> file) {
  return absl::InvalidArgumentError(
      file.empty() ? "it is empty"
                   : "it is neither a PNG nor a JPEG file: save it as one "
                     "of these");
}

}  // namespace

absl::StatusOr<ImageHeader> ReadImageHeader(absl::Span<const uint8_t> file) {
  if (BeginsWith(file, kPngBegin)) return PngReader(file).ReadHeader();
  if (BeginsWith(file, kJpegBegin)) return JpegReader(file).ReadHeader();
  return NoImage(file);
}

absl::StatusOr<ImagePixels> DecodeImage(absl::Span<const uint8_t> file,
                                        int64_t channels, uint8_t background) {
  if (BeginsWith(file, kPngBegin)) {
    return PngReader(file).Decode(channels, background);
  }
  if (BeginsWith(file, kJpegBegin)) return JpegReader(file).Decode(channels);
  return NoImage(file);
}

}  // namespace holdfast
