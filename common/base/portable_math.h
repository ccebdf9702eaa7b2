// SPDX-License-Identifier: Apache-2.0

// Exponentials and logarithms whose bits are the same on every machine: they
// use only sums, products and quotients in double, whose rounding IEEE 754
// defines. The results of math libraries differ between versions and between
// CPUs.
//
// Accurate to a few units in the last place. Pure functions.
#ifndef HOLDFAST_COMMON_BASE_PORTABLE_MATH_H_
#define HOLDFAST_COMMON_BASE_PORTABLE_MATH_H_

namespace holdfast {

// e^x. Returns 0 or infinity if the result is out of double's range; denormal
// results are 0.
double PortableExp(double x);
// e^x - 1.
double PortableExpm1(double x);
// The natural logarithm of a positive, normal (not subnormal), finite number,
// within 2 units in the last place.
double PortableLog(double x);
// log(1 + x), with x finite and at least -0.5.
double PortableLog1p(double x);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_PORTABLE_MATH_H_
