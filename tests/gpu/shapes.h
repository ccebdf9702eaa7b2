// SPDX-License-Identifier: Apache-2.0

// Shapes of the matrices of comparisons.
#ifndef HOLDFAST_TESTS_GPU_SHAPES_H_
#define HOLDFAST_TESTS_GPU_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/device_under_test.h"

namespace holdfast {

struct Shape {
  int64_t rows, cols;
};

inline std::string Name(const char* what, Shape shape) {
  return absl::StrCat(what, " of ", shape.rows, " x ", shape.cols);
}

// One value; odd; without rows; a row, a column; more rows or columns than one
// block takes; large. All remainders of the number of values modulo 4 occur.
inline std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {{1, 1},   {3, 5},    {0, 7},    {1, 1000},
                               {777, 1}, {33, 257}, {203, 33}, {6, 7}};
  if (!DeviceIsSlow()) {
    shapes.push_back({2051, 33});
    shapes.push_back({1024, 1030});
  }
  return shapes;
}

// Also shapes with a multiple of 4 columns: few, some, and many.
inline std::vector<Shape> ShapesWithFours() {
  std::vector<Shape> shapes = Shapes();
  shapes.insert(shapes.end(), {{700, 4}, {131, 64}, {70, 516}, {5, 1028}});
  if (!DeviceIsSlow() && !DeviceHasTheCpusBits()) {
    shapes.push_back({20003, 64});
  }
  return shapes;
}

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_SHAPES_H_
