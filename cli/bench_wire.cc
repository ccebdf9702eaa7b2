// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_wire.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/bench_lists.h"
#include "cli/bench_worker.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

constexpr int kMostShards = 64;
constexpr char kControl[] = "control";

// The parsed flags.
struct Plan {
  std::vector<uint64_t> sizes;
  std::vector<int> shards;
  std::vector<std::string> codecs;
  // Operations on tensors.
  std::vector<std::string> ops;
  bool control = false;
  uint64_t load = 0;
};

// Errors: INVALID_ARGUMENT.
absl::StatusOr<Plan> MakePlan(const WireFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(auto sizes, ParseSizes("sizes", flags.sizes));
  HOLDFAST_ASSIGN_OR_RETURN(auto shards,
                            ParseNumbers("shards", flags.shards, kMostShards));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto codecs,
      ParseWords("codecs",
                 flags.codecs.empty() ? absl::StrJoin(BenchCodecs(), ",")
                                      : flags.codecs,
                 BenchCodecs()));
  auto ops =
      ParseWords("ops", flags.ops,
                 {"push", "push_in_place", "pull", "pull_in_place", "pushpull",
                  "ticket", "tcp", "memcpy", "read", kControl});
  if (!ops.ok()) return ops.status();
  HOLDFAST_ASSIGN_OR_RETURN(const auto load, ParseSizes("load", flags.load));
  absl::Status status = CheckSeconds(flags.seconds);
  if (!status.ok()) return status;
  const auto same_host =
      ParseWords("same_host", flags.same_host, {"auto", "off"});
  if (!same_host.ok()) return same_host.status();

  Plan plan{std::move(sizes), std::move(shards), std::move(codecs),
            *std::move(ops)};
  plan.load = load.front();
  const auto control = std::remove(plan.ops.begin(), plan.ops.end(), kControl);
  plan.control = control != plan.ops.end();
  plan.ops.erase(control, plan.ops.end());
  return plan;
}

std::vector<std::string> ClientFlags(absl::string_view role, uint64_t bytes,
                                     int shards, absl::string_view codec,
                                     const WireFlags& flags) {
  return {absl::StrCat("--role=", role),
          absl::StrCat("--bytes=", bytes),
          absl::StrCat("--shards=", shards),
          absl::StrCat("--codec=", codec),
          absl::StrCat("--seconds=", flags.seconds),
          absl::StrCat("--same_host=", flags.same_host)};
}

// Runs the clients, the last of which measures, with `shards` ps.
absl::Status Measure(const WireFlags& flags, int shards,
                     const std::vector<BenchCluster::Client>& clients,
                     const std::string& folder, SignalWatch* signals,
                     BenchReport* report) {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto cluster,
      BenchCluster::Start(flags.ps, shards, /*num_workers=*/1, clients, folder,
                          signals));
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto results,
      cluster->AwaitResults(static_cast<int>(clients.size()) - 1));
  for (const proto::BenchmarkResult& result : results) {
    HOLDFAST_RETURN_IF_ERROR(report->Add(result));
  }
  return absl::OkStatus();
}

}  // namespace

void WireFlags::AddTo(FlagSet* set) {
  set->Add(
      "sizes", "LIST", &sizes,
      absl::StrCat("Sizes of the tensor in float32. Default:\n", sizes, "."));
  set->Add("shards", "LIST", &shards,
           absl::StrCat("Numbers of ps, each with a slice of the tensor.\n"
                        "Default: ",
                        shards, "."));
  set->Add("codecs", "LIST", &codecs,
           absl::StrCat("Encodings of the tensor on the wire. Default:\n",
                        absl::StrJoin(BenchCodecs(), ","), "."));
  set->Add("ops", "LIST", &ops,
           absl::StrCat(
               "push: a gradient, until SGD has applied it on every shard.\n"
               "push_in_place: the same for a gradient that is already in\n"
               "shared memory. pull: the values, into the same memory each\n"
               "time. pull_in_place: pull, and read every byte in place.\n"
               "pushpull: push and pull. ticket: the control call before\n"
               "each push. tcp: as many bytes over a bare connection, and 16\n"
               "back. memcpy: a copy by one thread. read: one thread reads\n"
               "as many bytes. control: GetStatus alone, and while another\n"
               "process pushes. Default:\n",
               ops, "."));
  set->Add(
      "load", "SIZE", &load,
      absl::StrCat("Size of the pushes during control. Default: ", load, "."));
  set->Add("seconds", "NUMBER", &seconds,
           "Measuring time for each operation of each point. Default: 1.");
  set->Add("same_host", "auto|off", &same_host,
           "off: tensors pass over the network. Default: auto.");
  ps.AddTo(set);
}

absl::Status BenchWire(const WireFlags& flags, const std::string& folder,
                       SignalWatch* signals, BenchReport* report) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto plan, MakePlan(flags));
  for (const int shards : plan.shards) {
    for (const std::string& codec : plan.codecs) {
      for (const uint64_t bytes : plan.sizes) {
        if (plan.ops.empty()) continue;
        std::vector<std::string> client =
            ClientFlags("wire", bytes, shards, codec, flags);
        client.push_back(absl::StrCat("--ops=", absl::StrJoin(plan.ops, ",")));
        absl::Status status =
            Measure(flags, shards, {client}, folder, signals, report);
        if (!status.ok()) return status;
      }
    }
    if (!plan.control) continue;
    for (const uint64_t load : {uint64_t{0}, plan.load}) {
      absl::Status status =
          Measure(flags, shards,
                  {ClientFlags("load", load, shards, "exact", flags),
                   ClientFlags("control", load, shards, "exact", flags)},
                  folder, signals, report);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
