// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/checkpoint_export.h"
#include "cli/checkpoint_report.h"
#include "cli/cluster_address.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/process/daemon.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast checkpoint VERB: inspects what a job has saved, or saves it

  holdfast checkpoint list DIR              list checkpoints, and say which one a
                                            restart would use
holdfast checkpoint inspect DIR [flags]   show what a checkpoint holds
  holdfast checkpoint verify DIR [flags]    read every byte, and name what is damaged
  holdfast checkpoint export DIR --output=FILE.npz|FILE.safetensors|FILE.onnx [flags]
export variables for NumPy or as
                                            safetensors, and tables for NumPy; or
                                            the whole model as ONNX
  holdfast checkpoint delta DIR --since=STEP --output=FILE.npz [flags]
export the changes of tables since a
                                            step, to update a copy that is served
  holdfast checkpoint save [flags]          make a running job save its state, and
                                            wait until it is on disk

DIR is the --checkpoint_dir of the ps. Only save talks to the job, and only the job
changes DIR.

  holdfast checkpoint list runs/first/checkpoints
  holdfast checkpoint save --run_dir=runs/first

Exits 0 on success, 1 when something failed or is damaged, 2 for wrong flags.

)";

// The values of the flags.
struct CheckpointFlags {
  std::string checkpoint;
  ExportOptions to_export;
  std::string since;
  ClusterAddress cluster;
  absl::Duration wait = absl::Minutes(10);
};

void AddCheckpoint(absl::string_view otherwise, CheckpointFlags* flags,
                   FlagSet* set) {
  set->Add(
      "checkpoint", "NAME", &flags->checkpoint,
      absl::StrCat("Which checkpoint, such as g0001-step00001000. Default: ",
                   otherwise, "."));
}

// The checkpoint named by --checkpoint, if it is given. Errors:
// INVALID_ARGUMENT.
absl::StatusOr<std::optional<proto::CheckpointName>> GivenName(
    const CheckpointDirectory& directory, const CheckpointFlags& flags) {
  if (flags.checkpoint.empty()) return std::nullopt;
  auto name = ParseFolderName(flags.checkpoint);
  if (!name.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--checkpoint: ", name.status().message()));
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory.Folder(*name), ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--checkpoint=", flags.checkpoint, ": not in ",
                     directory.path(), "; `holdfast checkpoint list ",
                     directory.path(), "` lists the existing ones"));
  }
  return *std::move(name);
}

// The given checkpoint, or the newest in the journal.
absl::StatusOr<proto::CheckpointName> ChooseName(
    const CheckpointDirectory& directory, const CheckpointFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(auto given, GivenName(directory, flags));
  if (given.has_value()) return *std::move(given);
  HOLDFAST_ASSIGN_OR_RETURN(const auto journal, JournalOf(directory));
  if (journal.checkpoints().empty()) {
    return absl::NotFoundError(
        absl::StrCat(directory.path(), ": there is no durable checkpoint"));
  }
  return *journal.checkpoints().rbegin();
}

absl::Status List(const CheckpointDirectory& directory,
                  const CheckpointFlags& flags) {
  return ListCheckpoints(directory, std::cout);
}

absl::Status Inspect(const CheckpointDirectory& directory,
                     const CheckpointFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto name, ChooseName(directory, flags));
  return InspectCheckpoint(directory, name, std::cout);
}

absl::Status Verify(const CheckpointDirectory& directory,
                    const CheckpointFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto name, GivenName(directory, flags));
  return VerifyCheckpoints(directory, name, std::cout);
}

absl::Status Export(const CheckpointDirectory& directory,
                    const CheckpointFlags& flags) {
  if (flags.to_export.output.empty()) {
    return absl::InvalidArgumentError(
        "--output is required: the file to write, FILE.npz, FILE.safetensors "
        "or FILE.onnx");
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto name, ChooseName(directory, flags));
  HOLDFAST_ASSIGN_OR_RETURN(const auto reader,
                            CheckpointReader::Open(directory, name));
  return ExportCheckpoint(reader.get(), flags.to_export);
}

absl::Status Delta(const CheckpointDirectory& directory,
                   const CheckpointFlags& flags) {
  uint64_t since;
  if (!absl::SimpleAtoi(flags.since, &since)) {
    return absl::InvalidArgumentError(absl::StrCat(
        flags.since.empty() ? "--since is required"
                            : absl::StrCat("--since=", flags.since),
        ": the step of the copy, as printed by `holdfast checkpoint delta` and "
        "contained in the names of checkpoints"));
  }
  if (flags.to_export.output.empty()) {
    return absl::InvalidArgumentError(
        "--output is required: with F.npz the files are F.NAME.ids.npy, "
        "F.NAME.values.npy and F.NAME.removed.npy for each table NAME");
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto name, ChooseName(directory, flags));
  HOLDFAST_ASSIGN_OR_RETURN(const auto reader,
                            CheckpointReader::Open(directory, name));
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto changes, ExportChanges(reader.get(), flags.to_export, since));
  for (const TableChanges& table : changes) {
    std::cout << "table " << table.table << ": " << table.rows
              << " rows changed, " << table.removed << " removed\n";
  }
  std::cout << "Updates a copy of step " << since << " to step " << name.step()
            << "." << std::endl;
  return absl::OkStatus();
}

absl::Status Save(const CheckpointFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto connection,
                            ConnectAsOperator(flags.cluster));
  const auto step = connection->SaveCheckpoint(SteadyNow() + flags.wait);
  if (!step.ok()) return step.status();
  std::cout << "The checkpoint of step " << step->value() << " is on disk."
            << std::endl;
  return absl::OkStatus();
}

using OnDirectory = absl::Status (*)(const CheckpointDirectory& directory,
                                     const CheckpointFlags& flags);

struct Verb {
  const char* name;
  // Null for a verb that needs no directory.
  OnDirectory on_directory;
  void (*add_flags)(CheckpointFlags* flags, FlagSet* set);
};

constexpr Verb kVerbs[] = {
    {"list", List, [](CheckpointFlags*, FlagSet*) {}},
    {"inspect", Inspect,
     [](CheckpointFlags* flags, FlagSet* set) {
       AddCheckpoint("the newest durable one", flags, set);
     }},
    {"verify", Verify,
     [](CheckpointFlags* flags, FlagSet* set) {
       AddCheckpoint("all that are complete", flags, set);
     }},
    {"export", Export,
     [](CheckpointFlags* flags, FlagSet* set) {
       AddCheckpoint("the newest durable one", flags, set);
       set->Add("output", "FILE", &flags->to_export.output,
                "The .npz, .safetensors or .onnx to write. Required.");
       set->Add(
           "int8", "", &flags->to_export.int8,
           "For .onnx: matrices and kernels as 8-bit integers, a quarter of\n"
           "the bytes.");
       set->Add("slots", "", &flags->to_export.slots,
                "Also export the slots of the optimizers, as NAME:slot0.");
       set->Add("variables", "PREFIX,...", &flags->to_export.prefixes,
                "Prefixes of the names of variables and tables. Default: all.");
     }},
    {"delta", Delta,
     [](CheckpointFlags* flags, FlagSet* set) {
       AddCheckpoint("the newest durable one", flags, set);
       set->Add("since", "STEP", &flags->since,
                "The step of the copy. Required.");
       set->Add("output", "FILE", &flags->to_export.output,
                "As for export: F.npz for F.NAME.ids.npy and so on. Required.");
       set->Add("variables", "PREFIX,...", &flags->to_export.prefixes,
                "Prefixes of the names of tables. Default: all.");
     }},
    {"save", nullptr,
     [](CheckpointFlags* flags, FlagSet* set) {
       flags->cluster.AddTo(set);
       set->Add("wait", "DURATION", &flags->wait,
                "How long to wait for the checkpoint. Default: 10m.");
     }},
};

// Errors: INVALID_ARGUMENT for incorrect use; those of the verb.
absl::Status Run(const Verb& verb, absl::Span<const std::string> args,
                 const FlagSet& set, const CheckpointFlags& flags) {
  std::string path;
  if (verb.on_directory != nullptr) {
    if (args.empty() || absl::StartsWith(args[0], "--")) {
      return absl::InvalidArgumentError(
          "the checkpoint directory is required, before the flags");
    }
    path = args[0];
    args.remove_prefix(1);
  }
  HOLDFAST_RETURN_IF_ERROR(set.Parse(args));
  if (verb.on_directory == nullptr) return Save(flags);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", error ? error.message() : "not a directory",
                     "; give the --checkpoint_dir of the ps"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto directory,
      CheckpointDirectory::OpenToRead(path, PosixFileSystem()));
  return verb.on_directory(directory, flags);
}

}  // namespace

int CheckpointCommand(const std::vector<std::string>& args) {
  const auto wanted = [&](const Verb& verb) {
    return !args.empty() && args[0] == verb.name;
  };
  const Verb* const verb =
      std::find_if(std::begin(kVerbs), std::end(kVerbs), wanted);
  CheckpointFlags flags;
  FlagSet set;
  if (verb != std::end(kVerbs)) verb->add_flags(&flags, &set);
  if (std::count(args.begin(), args.end(), "--help") > 0) {
    std::cout << kUsage;
    if (!set.Help().empty()) std::cout << "Flags:\n" << set.Help();
    return kExitDone;
  }
  if (verb == std::end(kVerbs)) {
    std::cerr << "holdfast checkpoint: "
              << (args.empty() ? "a verb is required"
                               : absl::StrCat("unknown verb \"", args[0], "\""))
              << "; --help lists them" << std::endl;
    return kExitUsage;
  }
  const absl::Status status =
      Run(*verb, absl::MakeConstSpan(args).subspan(1), set, flags);
  if (status.ok()) return kExitDone;
  std::cerr << "holdfast checkpoint " << verb->name << ": " << status.message()
            << std::endl;
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

std::vector<CommandWords> CheckpointWords() {
  std::vector<CommandWords> words;
  for (const Verb& verb : kVerbs) {
    CheckpointFlags flags;
    FlagSet set;
    verb.add_flags(&flags, &set);
    words.push_back({absl::StrCat("checkpoint ", verb.name), set.Names()});
  }
  return words;
}

}  // namespace holdfast
