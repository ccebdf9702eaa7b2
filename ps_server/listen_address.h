// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_LISTEN_ADDRESS_H_
#define HOLDFAST_PS_SERVER_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Returns the IP address and port on which to listen for `address`
// ("host:port"), in gRPC's format. A name with several addresses resolves to
// its first IPv4 address or, without one, to its first address. Resolves the
// name, which may block, and checks that the port can be bound. Errors:
// INVALID_ARGUMENT when the host has no address; PERMISSION_DENIED when other
// machines could connect and `others` is false; UNAVAILABLE when the port is in
// use, or the address is not this machine's.
absl::StatusOr<std::string> ListenAddress(absl::string_view address,
                                          bool others);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_LISTEN_ADDRESS_H_
