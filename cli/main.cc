// SPDX-License-Identifier: Apache-2.0

// The command `holdfast`.
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cli/bench.h"
#include "cli/certs.h"
#include "cli/checkpoint.h"
#include "cli/completion.h"
#include "cli/data.h"
#include "cli/datagen.h"
#include "cli/evaluate.h"
#include "cli/flag_set.h"
#include "cli/local.h"
#include "cli/printable_output.h"
#include "cli/set.h"
#include "cli/status.h"
#include "cli/stop.h"
#include "cli/top.h"
#include "cli/trace.h"
#include "common/process/daemon.h"
#include "common/process/text_log.h"
#include "common/process/version.h"
#include "common/rpc/grpc_log.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

struct Command {
  const char* name;
  const char* what;
  int (*run)(const std::vector<std::string>& args);
};

int Completion(const std::vector<std::string>& args) {
  std::vector<CommandWords> all;
  for (const std::vector<CommandWords>& words :
       {LocalWords(), CheckpointWords(), StatusWords(), TopWords(),
        TraceWords(), StopWords(), SetWords(), EvaluateWords(), DataWords(),
        DatagenWords(), CertsWords(), BenchWords()}) {
    all.insert(all.end(), words.begin(), words.end());
  }
  return CompletionCommand(args, all);
}

constexpr Command kCommands[] = {
    {"local", "train a job on this machine", LocalCommand},
    {"checkpoint", "inspect what a job has saved, or make it save",
     CheckpointCommand},
    {"status", "show the state of a running job", StatusCommand},
    {"top", "show a running job live on a terminal", TopCommand},
    {"events", "list what has happened to a running job", EventsCommand},
    {"history", "show loss, scores and rate over a job's life", HistoryCommand},
    {"trace", "record what all tasks of a running job do", TraceCommand},
    {"stop", "stop a running job so that it can go on later", StopCommand},
    {"set", "change a running job's learning rate", SetCommand},
    {"eval", "compute loss and scores of a checkpoint's model", EvalCommand},
    {"predict", "write predictions of a checkpoint's model", PredictCommand},
    {"data", "describe and split training data files", DataCommand},
    {"datagen", "generate training data from a known model", DatagenCommand},
    {"certs", "create certificates for a cluster", CertsCommand},
    {"bench", "measure a cluster on this machine", BenchCommand},
    {"completion", "complete commands and flags in bash", Completion},
};

void PrintUsage(std::ostream& out) {
  out << "usage: holdfast COMMAND [flags]\n\n";
  for (const Command& command : kCommands) {
    out << absl::StreamFormat("  %-11s %s\n", command.name, command.what);
  }
  out << "\nholdfast COMMAND --help lists its flags; holdfast --version\n"
         "prints the version."
      << std::endl;
}

int Main(int argc, char** argv) {
  MakeOutputPrintable();
  // Applies to the libraries; commands print their own messages.
  FLAGS_minloglevel = google::GLOG_WARNING;
  google::InitGoogleLogging(argv[0]);
  StartTextLog();
  LimitGrpcLog();

  const std::vector<std::string> args(argv + (argc > 0), argv + argc);
  if (args.empty()) {
    PrintUsage(std::cerr);
    return kExitUsage;
  }
  if (args[0] == "--help" || args[0] == "help") {
    PrintUsage(std::cout);
    return kExitDone;
  }
  if (args[0] == "--version") {
    std::cout << VersionLine("holdfast") << std::endl;
    return kExitDone;
  }
  for (const Command& command : kCommands) {
    if (args[0] == command.name) {
      return command.run({args.begin() + 1, args.end()});
    }
  }
  std::cerr << "holdfast: unknown command \"" << args[0] << "\"\n";
  PrintUsage(std::cerr);
  return kExitUsage;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) { return holdfast::Main(argc, argv); }
