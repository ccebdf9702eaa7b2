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

// What reading a tensor costs at the least: touches all of its bytes.
uint64_t SumOf(absl::Span<const float> values);

// What moving a tensor costs at the least on this machine: a TCP connection on
// loopback, over which it goes, to be answered when the last byte has been
// read. The reader keeps nothing.
//
// Thread-compatible.
class TcpLimit {
 public:
  // Each exchange is of so many `bytes`. Errors: as the system says, when there
  // is no loopback.
  static absl::StatusOr<std::unique_ptr<TcpLimit>> Start(size_t bytes);
  ~TcpLimit();

  TcpLimit(const TcpLimit&) = delete;
  TcpLimit& operator=(const TcpLimit&) = delete;

  // Sends `data`, of the length told to Start, and waits for the answer.
  absl::Status Exchange(absl::Span<const char> data);

 private:
  TcpLimit(int client, int server, size_t bytes);

  const int client_;
  const int server_;
  std::thread reader_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_LIMITS_H_
