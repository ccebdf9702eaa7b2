// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_C_API_CALLS_H_
#define HOLDFAST_TESTS_C_API_CALLS_H_

#include "client/c_api/holdfast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls every function that takes a handle with these invalid handles. Returns
 * the name of the first one that does not return HOLDFAST_BAD_HANDLE and a
 * matching error, or NULL. */
const char* CallAllWith(holdfast_cluster* cluster, holdfast_loop* loop,
                        holdfast_values* values);

/* Trains to the end, as holdfast.h shows, and leaves. There may be at most 8
 * variables of at most 16 elements each, and every element has the gradient
 * `gradient`. Sets `sum` to the sum of all final values. Returns NULL, or an
 * error text to be freed by free(). */
char* TrainInC(const holdfast_option* options, size_t num_options,
               const char* declaration, float gradient, double* sum);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HOLDFAST_TESTS_C_API_CALLS_H_ */
