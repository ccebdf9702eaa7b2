#ifndef HOLDFAST_PS_SERVER_LISTEN_ADDRESS_H_
#define HOLDFAST_PS_SERVER_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// The IP address and port on which to listen for `address` ("host:port"), as
// gRPC takes it. A name with several addresses stands for its first IPv4 one,
// or else for its first. Looks the name up, which may block, and tries the
// port. Errors: INVALID_ARGUMENT when the host has no address;
// PERMISSION_DENIED when others than this machine could connect, and `others`
// does not allow it; UNAVAILABLE when the port is in use, or the address is not
// this machine's.
absl::StatusOr<std::string> ListenAddress(absl::string_view address,
                                          bool others);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_LISTEN_ADDRESS_H_
