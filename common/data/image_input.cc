// SPDX-License-Identifier: Apache-2.0
#include "common/data/image_input.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/data/image_decoder.h"
#include "common/data/image_fit.h"

namespace holdfast {

absl::Status ImageInput::CheckSize(int64_t height, int64_t width) const {
  if (config_.resize() != proto::Picture::NONE ||
      (height == config_.height() && width == config_.width())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the image is ", height, " high and ", width, " wide, but must be ",
      config_.height(), " and ", config_.width(),
      "; set `resize: CROP` or `resize: STRETCH` for images of other sizes"));
}

absl::Status ImageInput::CheckHeader(absl::Span<const uint8_t> file) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto header, ReadImageHeader(file));
  return CheckSize(header.height, header.width);
}

absl::Status ImageInput::Read(absl::Span<const uint8_t> file,
                              absl::Span<float> to) const {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto pixels,
      DecodeImage(file, channels(),
                  static_cast<uint8_t>(config_.background())));
  HOLDFAST_RETURN_IF_ERROR(CheckSize(pixels.height, pixels.width));
  if (pixels.height == config_.height() && pixels.width == config_.width()) {
    ReadNumbers(ElementType::kUint8, /*big_endian=*/false, pixels.bytes.get(),
                scaling_, to);
    return absl::OkStatus();
  }
  std::vector<uint8_t> fit(to.size());
  FitImage(pixels,
           config_.resize() == proto::Picture::CROP ? ImageFit::kCrop
                                                    : ImageFit::kStretch,
           config_.height(), config_.width(), fit.data());
  ReadNumbers(ElementType::kUint8, /*big_endian=*/false, fit.data(), scaling_,
              to);
  return absl::OkStatus();
}

}  // namespace holdfast
