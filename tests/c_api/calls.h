#ifndef HOLDFAST_TESTS_C_API_CALLS_H_
#define HOLDFAST_TESTS_C_API_CALLS_H_

#include "client/c_api/holdfast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls every function that takes a handle with these, which are none. Returns
 * the name of the first that does not answer HOLDFAST_BAD_HANDLE with an error
 * that says so, or NULL. */
const char* CallAllWith(holdfast_cluster* cluster, holdfast_loop* loop,
                        holdfast_values* values);

/* Trains to the end, as holdfast.h shows it, with the gradient `gradient` in
 * all elements of all of at most 8 variables of at most 16 elements each, and
 * leaves. `sum`: of all final values. Returns NULL, or what went wrong, to be
 * freed by free(). */
char* TrainInC(const holdfast_option* options, size_t num_options,
               const char* declaration, float gradient, double* sum);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HOLDFAST_TESTS_C_API_CALLS_H_ */
