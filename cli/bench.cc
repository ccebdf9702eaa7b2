// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include <signal.h>

#include <algorithm>
#include <iostream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cli/bench_client.h"
#include "cli/bench_cluster.h"
#include "cli/bench_report.h"
#include "cli/bench_rows.h"
#include "cli/bench_scale.h"
#include "cli/bench_step.h"
#include "cli/bench_wire.h"
#include "cli/signal_watch.h"
#include "common/base/status_macros.h"
#include "common/process/daemon.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast bench VERB [flags]: measures a cluster on this machine

  holdfast bench wire    push and pull of one tensor, by one worker, compared with
                         a bare TCP connection and memcpy
  holdfast bench rows    push and pull of an embedding table's rows, by one worker,
                         and deduplication of ids
  holdfast bench step    whole training, as `holdfast local` runs it
  holdfast bench scale   many workers that only push and pull

Every ps and worker is a process of its own, on loopback. Prints a table; rates are
in 1e9 bytes of float32 per second, whatever the encoding on the wire. The fields of
the JSON are described in proto/benchmark.proto.

  holdfast bench wire
  holdfast bench step --json=step.json

Exits 0 when everything was measured, 1 when something failed, 2 for wrong flags, 130 when
interrupted.

)";

// The values of the flags.
struct BenchFlags {
  std::string json;
  WireFlags wire;
  RowsFlags rows;
  StepFlags step;
  ScaleFlags scale;
};

// Adds the flags of every verb.
void AddCommonFlags(BenchFlags* flags, FlagSet* set) {
  set->Add(
      "json", "FILE", &flags->json,
      "File that gets a line of JSON for each result. -: standard output,\n"
      "and the table goes to standard error. Default: none.");
}

struct Verb {
  const char* name;
  void (*add_flags)(BenchFlags* flags, FlagSet* set);
  absl::Status (*run)(const BenchFlags& flags, const std::string& folder,
                      SignalWatch* signals, BenchReport* report);
};

constexpr Verb kVerbs[] = {
    {"wire", [](BenchFlags* flags, FlagSet* set) { flags->wire.AddTo(set); },
     [](const BenchFlags& flags, const std::string& folder,
        SignalWatch* signals, BenchReport* report) {
       return BenchWire(flags.wire, folder, signals, report);
     }},
    {"rows", [](BenchFlags* flags, FlagSet* set) { flags->rows.AddTo(set); },
     [](const BenchFlags& flags, const std::string& folder,
        SignalWatch* signals, BenchReport* report) {
       return BenchRows(flags.rows, folder, signals, report);
     }},
    {"step", [](BenchFlags* flags, FlagSet* set) { flags->step.AddTo(set); },
     [](const BenchFlags& flags, const std::string& folder,
        SignalWatch* signals, BenchReport* report) {
       return BenchStep(flags.step, folder, signals, report);
     }},
    {"scale", [](BenchFlags* flags, FlagSet* set) { flags->scale.AddTo(set); },
     [](const BenchFlags& flags, const std::string& folder,
        SignalWatch* signals, BenchReport* report) {
       return BenchScale(flags.scale, folder, signals, report);
     }},
};

absl::Status Run(const Verb& verb, const BenchFlags& flags) {
  // Must exist before the first child process and the second thread.
  SignalWatch signals;
  HOLDFAST_ASSIGN_OR_RETURN(const auto folder, ScratchFolder::Make());
  HOLDFAST_ASSIGN_OR_RETURN(const auto report, BenchReport::Open(flags.json));
  return verb.run(flags, folder->path(), &signals, report.get());
}

}  // namespace

int BenchCommand(const std::vector<std::string>& args) {
  const absl::Span<const std::string> rest =
      absl::MakeConstSpan(args).subspan(std::min<size_t>(args.size(), 1));
  if (!args.empty() && args[0] == "client") {
    return BenchClient({rest.begin(), rest.end()});
  }
  const auto wanted = [&](const Verb& verb) {
    return !args.empty() && args[0] == verb.name;
  };
  const Verb* const verb =
      std::find_if(std::begin(kVerbs), std::end(kVerbs), wanted);
  BenchFlags flags;
  FlagSet set;
  if (verb != std::end(kVerbs)) {
    AddCommonFlags(&flags, &set);
    verb->add_flags(&flags, &set);
  }
  if (std::count(args.begin(), args.end(), "--help") > 0) {
    std::cout << kUsage;
    if (!set.Help().empty()) std::cout << "Flags:\n" << set.Help();
    return kExitDone;
  }
  if (verb == std::end(kVerbs)) {
    std::cerr << "holdfast bench: "
              << (args.empty() ? "a verb is required"
                               : absl::StrCat("unknown verb \"", args[0], "\""))
              << "; --help lists them" << std::endl;
    return kExitUsage;
  }
  absl::Status status = set.Parse(rest);
  if (status.ok()) status = Run(*verb, flags);
  if (status.ok()) return kExitDone;
  std::cerr << "holdfast bench " << verb->name << ": " << status.message()
            << std::endl;
  if (absl::IsCancelled(status)) return kExitInterrupted;
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

std::vector<CommandWords> BenchWords() {
  std::vector<CommandWords> words;
  for (const Verb& verb : kVerbs) {
    BenchFlags flags;
    FlagSet set;
    AddCommonFlags(&flags, &set);
    verb.add_flags(&flags, &set);
    words.push_back({absl::StrCat("bench ", verb.name), set.Names()});
  }
  return words;
}

}  // namespace holdfast
