// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_FAULTS_NETWORK_H_
#define HOLDFAST_TESTS_FAULTS_NETWORK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

// Simulates a separate machine for each task, as far as the network goes: each
// task has a network namespace with one link to a router, which is a namespace,
// too, and drops packets on demand. This process is connected to the router as
// well.
//
//   task 10.X.1.2 ---- 10.X.1.1 router 10.X.2.1 ---- 10.X.2.2 task
//
// Uses iproute2 and needs root. Thread-compatible.
class TestNetwork {
 public:
  // Errors: with the output of `ip`; PERMISSION_DENIED if namespaces may not be
  // created.
  static absl::StatusOr<std::unique_ptr<TestNetwork>> Create(
      const std::vector<std::string>& tasks);
  ~TestNetwork();

  TestNetwork(const TestNetwork&) = delete;
  TestNetwork& operator=(const TestNetwork&) = delete;

  std::string Address(const std::string& task) const;
  // The words that precede a command to run it on the machine of `task`.
  std::vector<std::string> Launcher(const std::string& task) const;

  // Bytes over the link of a task's machine, including packet headers.
  struct Traffic {
    uint64_t sent = 0;
    uint64_t received = 0;
  };
  absl::StatusOr<Traffic> TrafficOf(const std::string& task) const;

  // Drops all packets from one task to another, silently; an empty name stands
  // for all tasks and this process.
  absl::Status Cut(const std::string& from, const std::string& to);
  absl::Status HealAll();

 private:
  explicit TestNetwork(const std::string& prefix, int number);

  absl::Status Connect(const std::string& task, int place);

  const std::string prefix_;
  const std::string router_;
  // X in the addresses above.
  const int number_;
  std::map<std::string, int> places_;
  // Arguments of `ip rule`.
  std::vector<std::string> cuts_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_NETWORK_H_
