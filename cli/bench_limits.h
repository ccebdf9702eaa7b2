// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_LIMITS_H_
#define HOLDFAST_CLI_BENCH_LIMITS_H_

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

// Touches all bytes of a tensor: a lower bound on the cost of reading it.
uint64_t SumOf(absl::Span<const float> values);

// A lower bound on the cost of moving a tensor on this machine: a TCP
// connection on loopback, whose reader answers when it has read the last byte,
// and discards what it reads.
//
// Thread-compatible.
class TcpLimit {
 public:
  // Each exchange sends `bytes` bytes. Errors: those of the system, when there
  // is no loopback.
  static absl::StatusOr<std::unique_ptr<TcpLimit>> Start(size_t bytes);
  ~TcpLimit();

  TcpLimit(const TcpLimit&) = delete;
  TcpLimit& operator=(const TcpLimit&) = delete;

  // Sends `data`, which must have the length given to Start, and waits for the
  // answer.
  absl::Status Exchange(absl::Span<const char> data);

 private:
  TcpLimit(int client, int server, size_t bytes);

  const int client_;
  const int server_;
  std::thread reader_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_LIMITS_H_
