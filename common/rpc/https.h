// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_HTTPS_H_
#define HOLDFAST_COMMON_RPC_HTTPS_H_

#include "common/process/http_server.h"
#include "common/rpc/credentials.h"

namespace holdfast {

// HTTPS with the certificate of `credentials`, which must be secure, for the
// operators of the same training. Certificates replaced in the folder of the
// credentials take effect as soon as they do in gRPC.
HttpServer::Tls HttpsForOperators(const Credentials& credentials);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_HTTPS_H_
