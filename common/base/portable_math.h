// Exponentials and logarithms whose bits are the same on every machine: they
// are made of sums, products and quotients in double, which IEEE 754 rounds in
// one way. A math library's differ from one version, or one CPU, to another.
//
// Within a few units in the last place. Pure functions.
#ifndef HOLDFAST_COMMON_BASE_PORTABLE_MATH_H_
#define HOLDFAST_COMMON_BASE_PORTABLE_MATH_H_

namespace holdfast {

// e^x. 0 and infinity where it is beyond double; denormal results are 0.
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
