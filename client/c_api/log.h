// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_LOG_H_
#define HOLDFAST_CLIENT_C_API_LOG_H_

namespace holdfast::c_api {

// Sets up the log as documented in holdfast.h, once; holdfast_set_log may have
// been called before.
void BeginLog();

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_LOG_H_
