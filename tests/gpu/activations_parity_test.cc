// SPDX-License-Identifier: Apache-2.0

// Values between products and batch norms, kept in 16 bits
// (DeviceOptions::activations), on the device and the CPU.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/parity.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace holdfast {
namespace {

class ActivationsParityTest : public DeviceComparison {
 protected:
  // Uses backends that round activations to `precision`.
  void UseRoundedActivations(Precision precision) {
    cpu_ = *CpuBackend::Create({.precision = precision, .activations = true});
    auto device =
        MakeDeviceUnderTest({.precision = precision, .activations = true});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  static Values Identity(int64_t n) {
    Values identity = {n, n, std::vector<float>(n * n)};
    for (int64_t i = 0; i < n; ++i) identity.values[i * n + i] = 1;
    return identity;
  }

  static Values PositiveRow(int64_t n) {
    Values row = Values::Random(1, n, 9);
    for (float& value : row.values) value = value * value + 0.1f;
    return row;
  }

  // Reserves a matrix of which only the rounded values exist, `shift` values
  // after an aligned address.
  static absl::StatusOr<Matrix> ReserveAlone(Backend* backend, int64_t rows,
                                             int64_t cols, int shift,
                                             DeviceBuffer* buffer) {
    HOLDFAST_ASSIGN_OR_RETURN(
        auto matrix, backend->ReserveRounded(1, rows * cols + shift, buffer));
    EXPECT_TRUE(matrix.rounded_alone);
    matrix.rows = rows;
    matrix.cols = cols;
    if (matrix.rounded != nullptr) {
      matrix.rounded = static_cast<uint16_t*>(matrix.rounded) + shift;
    } else {
      matrix.data += shift;
    }
    return matrix;
  }

  // Rounds x, with one column for each of `identity`'s.
  static absl::StatusOr<Matrix> Halves(Backend* backend, ConstMatrix x,
                                       ConstMatrix identity, int shift,
                                       DeviceBuffer* buffer) {
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto made, ReserveAlone(backend, x.rows, x.cols, shift, buffer));
    backend->MatMul(Form::kPlain, x, Form::kPlain, identity, made);
    return made;
  }

  // An operation that makes a matrix of which only the rounded values exist,
  // and writes these to the last of its matrices, by a product with x[2], the
  // identity.
  static Operation Alone(
      int64_t rows, int64_t cols, int shift,
      std::function<absl::Status(Backend*, const Matrices&, Matrix)>
          operation) {
    return [=](Backend* backend, const Matrices& x) -> absl::Status {
      DeviceBuffer buffer;
      HOLDFAST_ASSIGN_OR_RETURN(
          auto made, ReserveAlone(backend, rows, cols, shift, &buffer));
      HOLDFAST_RETURN_IF_ERROR(operation(backend, x, made));
      const Matrix& to = x.back();
      made.rows = to.rows;
      made.cols = to.cols;
      backend->MatMul(Form::kPlain, made, Form::kPlain, x[2], to);
      return absl::OkStatus();
    };
  }
};

// A convolution of m images.
struct Images {
  int64_t m;
  Window window;
  int64_t filters;
  int64_t groups;
};

// With as much padding before an image as after it.
Images MakeImages(int64_t m, int64_t height, int64_t width, int64_t channels,
                  int64_t size, int64_t stride, int64_t pad, int64_t filters,
                  int64_t groups) {
  const auto places = [&](int64_t pixels) {
    return (pixels + 2 * pad - size) / stride + 1;
  };
  return {m,
          {height, width, channels, size, size, stride, stride, pad, pad,
           places(height), places(width)},
          filters,
          groups};
}

std::string Name(const char* what, const Images& images) {
  const Window& w = images.window;
  return absl::StrCat(what, " over ", images.m, " images of ", w.height, " x ",
                      w.width, " x ", w.channels, ", window ", w.window_height,
                      ", stride ", w.stride_height, ", filters ",
                      images.filters, ", groups ", images.groups);
}

// Every way to compute a gradient with respect to images: a product by pixels,
// a convolution of dy, and folded columns, in vectors and one by one; also
// without images.
const std::vector<Images>& AllImages() {
  static const auto* const all = new std::vector<Images>{
      MakeImages(5, 6, 5, 7, 1, 1, 0, 9, 1),
      MakeImages(9, 6, 5, 8, 1, 1, 0, 16, 1),
      MakeImages(3, 4, 5, 8, 1, 1, 0, 4, 2),
      MakeImages(3, 6, 5, 8, 3, 1, 1, 8, 1),
      MakeImages(2, 5, 7, 3, 3, 1, 1, 4, 1),
      MakeImages(0, 5, 7, 3, 3, 1, 1, 4, 1),
      MakeImages(2, 7, 6, 12, 3, 2, 1, 16, 1),
      MakeImages(3, 5, 5, 16, 3, 1, 1, 12, 2),
      MakeImages(2, 9, 6, 6, 2, 3, 0, 6, 6),
      MakeImages(DeviceIsSlow() ? 1 : 33, 28, 28, 16, 5, 1, 2, 32, 1),
  };
  return *all;
}

// The spacing of 16-bit numbers, relative to the greatest of some: two
// roundings of nearly equal values differ by this much at most.
double Spacing(Precision precision) {
  return precision == Precision::kFloat16 ? 0x1p-10 : 0x1p-7;
}

// The results of products, rounded where the CPU's are, or to the number
// beside.
TEST_F(ActivationsParityTest, ProductsToSixteenBits) {
  for (const Precision precision :
       {Precision::kBfloat16, Precision::kFloat16}) {
    UseRoundedActivations(precision);
    if (HasFatalFailure()) return;
    has_products_ = true;
    const double tolerance = Spacing(precision);
    for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{
             {5, 7, 3}, {4, 0, 8}, {0, 4, 4}, {64, 33, 12}}) {
      Compare(absl::StrCat("MatMul to halves, ", m, " x ", k, " x ", n),
              {Values::Random(m, k, 1), Values::Random(k, n, 2), Identity(n),
               Values::Unset(m, n)},
              tolerance,
              Alone(m, n, 0, [](Backend* backend, const Matrices& x, Matrix y) {
                backend->MatMul(Form::kPlain, x[0], Form::kPlain, x[1], y);
                return absl::OkStatus();
              }));
    }
    for (const Images& images : AllImages()) {
      const auto& [m, window, filters, groups] = images;
      const Convolution convolution = {window, filters, groups};
      const int64_t inputs = window.input_size();
      const int64_t outputs = convolution.output_size();
      const int64_t rows = convolution.kernel_rows();
      const int64_t places = window.output_places();
      const int64_t pixels = window.height * window.width;
      Compare(Name("Convolve to halves", images),
              {Values::Random(m, inputs, 1), Values::Random(rows, filters, 2),
               Identity(filters), Values::Unset(m * places, filters)},
              tolerance,
              Alone(m, outputs, 0,
                    [&](Backend* backend, const Matrices& x, Matrix y) {
                      return backend->Convolve(convolution, x[0], x[1], y);
                    }));
      Compare(Name("ConvolveInputGradient to halves", images),
              {Values::Random(rows, filters, 1), Values::Random(m, outputs, 2),
               Identity(window.channels),
               Values::Unset(m * pixels, window.channels)},
              tolerance,
              Alone(m, inputs, 0,
                    [&](Backend* backend, const Matrices& x, Matrix dx) {
                      return backend->ConvolveInputGradient(convolution, x[0],
                                                            x[1], dx);
                    }));
    }
  }
}

// Normalization of 16-bit values, at aligned and unaligned addresses. The CPU
// gets the same values: products by the identity, which only round.
TEST_F(ActivationsParityTest, NormalizationOfSixteenBits) {
  for (const Precision precision :
       {Precision::kBfloat16, Precision::kFloat16}) {
    UseRoundedActivations(precision);
    if (HasFatalFailure()) return;
    for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {7, 3}, {5, 4}, {33, 12}, {70, 130}, {600, 8}}) {
      for (const int shift : {0, 1, 4}) {
        SCOPED_TRACE(absl::StrCat(m, " x ", n, ", shift ", shift));
        Compare("ColumnMoments of halves",
                {Values::Random(m, n, 1), Identity(n), Values::Unset(1, n),
                 Values::Unset(1, n)},
                kRounding, [&](Backend* backend, const Matrices& x) {
                  DeviceBuffer buffer;
                  HOLDFAST_ASSIGN_OR_RETURN(
                      const auto halves,
                      Halves(backend, x[0], x[1], shift, &buffer));
                  backend->ColumnMoments(halves, x[2], x[3]);
                  return absl::OkStatus();
                });
        Compare("ReluGradient of halves",
                {Values::Random(m, n, 1), Identity(n), Values::Random(m, n, 2),
                 Values::Unset(m, n)},
                kExact, [&](Backend* backend, const Matrices& x) {
                  DeviceBuffer buffer;
                  HOLDFAST_ASSIGN_OR_RETURN(
                      const auto halves,
                      Halves(backend, x[0], x[1], shift, &buffer));
                  backend->ReluGradient(halves, x[2], x[3]);
                  return absl::OkStatus();
                });
        for (const bool relu : {false, true}) {
          // x, with an addend of float32 or without; the addend or both.
          for (const int which : {0, 1, 2, 3}) {
            Compare(
                absl::StrCat("NormalizeColumns of halves ", which),
                {Values::Random(m, n, 1), Identity(n), Values::Random(m, n, 2),
                 Values::Random(1, n, 3), PositiveRow(n), Values::Unset(m, n)},
                kRounding, [&](Backend* backend, const Matrices& x) {
                  DeviceBuffer buffers[2];
                  ConstMatrix of_x = x[0], addend = x[2];
                  if (which != 2) {
                    HOLDFAST_ASSIGN_OR_RETURN(
                        of_x, Halves(backend, of_x, x[1], shift, &buffers[0]));
                  }
                  if (which >= 2) {
                    HOLDFAST_ASSIGN_OR_RETURN(
                        addend,
                        Halves(backend, addend, x[1], shift, &buffers[1]));
                  }
                  if (which == 0) addend = {};
                  const ColumnNorm norm = {x[3], x[4], 1e-3f, x[4], x[3]};
                  backend->NormalizeColumns(of_x, norm, addend, relu, x[5]);
                  return absl::OkStatus();
                });
          }
          // x, dy or both.
          for (const int which : {1, 2, 3}) {
            Compare(
                absl::StrCat("NormalizeColumnsGradient of halves ", which),
                {Values::Random(m, n, 1), Identity(n), Values::Random(m, n, 2),
                 Values::Random(1, n, 3), PositiveRow(n), Values::Unset(1, n),
                 Values::Unset(1, n), Values::Unset(m, n)},
                kSum, [&](Backend* backend, const Matrices& x) {
                  DeviceBuffer buffers[2];
                  ConstMatrix of_x = x[0], dy = x[2];
                  if ((which & 1) != 0) {
                    HOLDFAST_ASSIGN_OR_RETURN(
                        of_x, Halves(backend, of_x, x[1], shift, &buffers[0]));
                  }
                  if ((which & 2) != 0) {
                    HOLDFAST_ASSIGN_OR_RETURN(
                        dy, Halves(backend, dy, x[1], shift, &buffers[1]));
                  }
                  const ColumnNorm norm = {x[3], x[4], 1e-3f, x[4], x[3]};
                  backend->NormalizeColumnsGradient(of_x, norm, relu, dy, x[5],
                                                    x[6], x[7]);
                  return absl::OkStatus();
                });
          }
        }
        // From halves to halves.
        Compare("NormalizeColumns of halves to halves",
                {Values::Random(m, n, 1), Values::Random(1, n, 3), Identity(n),
                 PositiveRow(n), Values::Unset(m, n)},
                Spacing(precision), [&](Backend* backend, const Matrices& x) {
                  DeviceBuffer from;
                  HOLDFAST_ASSIGN_OR_RETURN(
                      const auto halves,
                      Halves(backend, x[0], x[2], shift, &from));
                  const ColumnNorm norm = {x[1], x[3], 1e-3f, x[3], x[1]};
                  return Alone(
                      x[4].rows, x[4].cols, shift,
                      [&](Backend* backend, const Matrices&, Matrix y) {
                        backend->NormalizeColumns(halves, norm, {}, true, y);
                        return absl::OkStatus();
                      })(backend, x);
                });
      }
    }
  }
}

}  // namespace
}  // namespace holdfast
