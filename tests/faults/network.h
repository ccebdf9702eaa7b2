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

// A machine of its own for each task, as far as the network goes: a network
// namespace with one link to a router, which is a namespace too and drops what
// it is told to. This process is on it as well.
//
//   task 10.X.1.2 ---- 10.X.1.1 router 10.X.2.1 ---- 10.X.2.2 task
//
// Made with iproute2; needs root. Thread-compatible.
class TestNetwork {
 public:
  // Errors: with what `ip` says; PERMISSION_DENIED where namespaces may not be
  // made.
  static absl::StatusOr<std::unique_ptr<TestNetwork>> Create(
      const std::vector<std::string>& tasks);
  ~TestNetwork();

  TestNetwork(const TestNetwork&) = delete;
  TestNetwork& operator=(const TestNetwork&) = delete;

  std::string Address(const std::string& task) const;
  // What a command that is to run on the machine of `task` begins with.
  std::vector<std::string> Launcher(const std::string& task) const;

  // Bytes over the link of `task`'s machine, with the headers of packets.
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
  // X.
  const int number_;
  std::map<std::string, int> places_;
  // As `ip rule` takes them.
  std::vector<std::string> cuts_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_NETWORK_H_
