// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/network.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// Returns the command's output. Errors include the output.
absl::StatusOr<std::string> OutputOf(const std::string& command) {
  FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  if (pipe == nullptr) return absl::InternalError("no shell");
  std::string output;
  char bytes[256];
  while (const size_t size = fread(bytes, 1, sizeof(bytes), pipe)) {
    output.append(bytes, size);
  }
  if (pclose(pipe) == 0) return output;
  return absl::PermissionDeniedError(absl::StrCat(command, ": ", output));
}

absl::Status Run(const std::string& command) {
  return OutputOf(command).status();
}

absl::Status RunAll(const std::vector<std::string>& commands) {
  for (const std::string& command : commands) {
    HOLDFAST_RETURN_IF_ERROR(Run(command));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TestNetwork>> TestNetwork::Create(
    const std::vector<std::string>& tasks) {
  // Each network has its own number: others of this process, those of other
  // processes, and what killed processes have left behind.
  constexpr int kNumbers = 128;
  static std::atomic<int> count(0);
  const int first = getpid() * 16 + count++;
  std::unique_ptr<TestNetwork> network;
  absl::Status status;
  for (int i = 0; i < kNumbers; ++i) {
    const int number = 64 + (first + i) % kNumbers;
    const std::string prefix = absl::StrCat("hf", number);
    status = Run(absl::StrCat("ip netns add ", prefix, "-router"));
    if (status.ok()) {
      network = absl::WrapUnique(new TestNetwork(prefix, number));
      break;
    }
    if (!absl::StrContains(status.message(), "File exists")) break;
  }
  if (network == nullptr) return status;
  const int number = network->number_;
  const std::string& router = network->router_;
  const std::string host_link = absl::StrCat(network->prefix_, "host");
  status = RunAll(
      {absl::StrCat("ip netns exec ", router,
                    " sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'"),
       absl::StrCat("ip link add ", host_link, " type veth peer name r0 netns ",
                    router),
       absl::StrCat("ip address add 10.", number, ".0.2/30 dev ", host_link),
       absl::StrCat("ip link set ", host_link, " up"),
       absl::StrCat("ip route add 10.", number, ".0.0/16 via 10.", number,
                    ".0.1"),
       absl::StrCat("ip -n ", router, " address add 10.", number,
                    ".0.1/30 dev r0"),
       absl::StrCat("ip -n ", router, " link set r0 up")});
  int place = 0;
  for (const std::string& task : tasks) {
    if (status.ok()) status = network->Connect(task, ++place);
  }
  if (!status.ok()) return status;
  return network;
}

TestNetwork::TestNetwork(const std::string& prefix, int number)
    : prefix_(prefix), router_(prefix + "-router"), number_(number) {}

absl::Status TestNetwork::Connect(const std::string& task, int place) {
  places_[task] = place;
  const std::string space = absl::StrCat(prefix_, "-", task);
  const std::string in_space = absl::StrCat("ip -n ", space, " ");
  const std::string in_router = absl::StrCat("ip -n ", router_, " ");
  const std::string net = absl::StrCat("10.", number_, ".", place);
  return RunAll(
      {absl::StrCat("ip netns add ", space),
       absl::StrCat(in_router, "link add r", place,
                    " type veth peer name eth0 netns ", space),
       absl::StrCat(in_router, "address add ", net, ".1/30 dev r", place),
       absl::StrCat(in_router, "link set r", place, " up"),
       absl::StrCat(in_space, "address add ", net, ".2/30 dev eth0"),
       absl::StrCat(in_space, "link set eth0 up"),
       absl::StrCat(in_space, "link set lo up"),
       absl::StrCat(in_space, "route add default via ", net, ".1")});
}

TestNetwork::~TestNetwork() {
  // Deleting a namespace deletes the links that end in it, and their routes.
  for (const auto& [task, place] : places_) {
    Run(absl::StrCat("ip netns del ", prefix_, "-", task)).IgnoreError();
  }
  Run(absl::StrCat("ip link del ", prefix_, "host")).IgnoreError();
  Run(absl::StrCat("ip netns del ", router_)).IgnoreError();
}

std::string TestNetwork::Address(const std::string& task) const {
  return absl::StrCat("10.", number_, ".", places_.at(task), ".2");
}

std::vector<std::string> TestNetwork::Launcher(const std::string& task) const {
  return {"ip", "netns", "exec", absl::StrCat(prefix_, "-", task)};
}

absl::StatusOr<TestNetwork::Traffic> TestNetwork::TrafficOf(
    const std::string& task) const {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto devices,
      OutputOf(absl::StrCat(absl::StrJoin(Launcher(task), " "),
                            " sed -n 's/^ *eth0://p' /proc/net/dev")));
  // Eight figures for received data, followed by those for sent data.
  const std::vector<std::string> figures =
      absl::StrSplit(devices, ' ', absl::SkipWhitespace());
  Traffic traffic;
  if (figures.size() < 9 || !absl::SimpleAtoi(figures[0], &traffic.received) ||
      !absl::SimpleAtoi(figures[8], &traffic.sent)) {
    return absl::InternalError(absl::StrCat("/proc/net/dev: ", devices));
  }
  return traffic;
}

absl::Status TestNetwork::Cut(const std::string& from, const std::string& to) {
  std::string what;
  if (!from.empty()) absl::StrAppend(&what, " from ", Address(from));
  if (!to.empty()) absl::StrAppend(&what, " to ", Address(to));
  what += " blackhole";
  cuts_.push_back(what);
  return Run(absl::StrCat("ip -n ", router_, " rule add", what));
}

absl::Status TestNetwork::HealAll() {
  for (const std::string& cut : cuts_) {
    HOLDFAST_RETURN_IF_ERROR(
        Run(absl::StrCat("ip -n ", router_, " rule del", cut)));
  }
  cuts_.clear();
  return absl::OkStatus();
}

}  // namespace holdfast
