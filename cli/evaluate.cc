// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"

#include <unistd.h>

#include <cerrno>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/find_program.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

constexpr char kEvalUsage[] =
    R"(holdfast eval --checkpoint=DIR [flags]: evaluates a checkpoint's model

Computes loss and scores of the model on data, in one pass, without a cluster, and
prints them as JSON. The checkpoint contains the job file with which it was trained,
but not the location of the data: give files, or the job file.

  holdfast eval --checkpoint=runs/first/checkpoints --data=test.csv
  holdfast eval --checkpoint=runs/first/checkpoints --data=x.npy,labels.npy
  holdfast eval --checkpoint=runs/first/checkpoints/g0001-step00003000 --job=first.textproto

Exits 0 on success, 1 when something failed, 2 for wrong flags, data or job file.

)";

constexpr char kPredictUsage[] =
    R"(holdfast predict --checkpoint=DIR --data=FILE --output=FILE.csv [flags]

Writes the predictions of a checkpoint's model for each example, without a cluster:
a line of CSV with the example's number, its class, and a probability for each
class, or the numbers that the model predicts. The data need not contain labels or
targets.

  holdfast predict --checkpoint=runs/first/checkpoints --data=new.csv --output=predicted.csv
  holdfast predict --checkpoint=runs/first/checkpoints --data=x.npy --output=predicted.csv

Exits 0 on success, 1 when something failed, 2 for wrong flags, data or job file.

)";

struct EvaluateFlags {
  std::string checkpoint;
  std::string job;
  std::string data;
  std::string output;
  bool int8 = false;
  std::optional<std::string> device;
  bool tf32 = false;
  std::optional<int> intra_op_threads;
  std::string worker_binary;
};

FlagSet CommonFlags(EvaluateFlags* flags) {
  FlagSet set;
  set.Add("checkpoint", "DIR", &flags->checkpoint,
          "A checkpoint's folder, or a checkpoint directory, whose newest\n"
          "durable checkpoint is used. Required.");
  set.Add(
      "data", "FILE,...", &flags->data,
      "The data, in the format of the job's test set or, if it has none, of\n"
      "its training set. CSV: files or patterns. Arrays: inputs, then labels\n"
      "or targets, then weights. Default: the test set of --job.");
  set.Add(
      "job", "FILE", &flags->job,
      "The job file. Default: the one with which the checkpoint was trained,\n"
      "which has no paths of data.");
  set.Add("device", "cpu|cuda:N|auto", &flags->device,
          "Device to compute on. Default: auto, the first GPU, or the CPU.");
  set.Add("tf32", "", &flags->tf32,
          "Round operands of products on GPUs to TensorFloat-32.");
  set.Add("intra_op_threads", "NUMBER", &flags->intra_op_threads,
          "Threads per operation. Default: 1.");
  set.Add("worker_binary", "FILE", &flags->worker_binary,
          "The worker daemon, for example with your own model. Default:\n"
          "ps_worker next to this program, or in the build's output.");
  return set;
}

FlagSet EvalFlags(EvaluateFlags* flags) {
  FlagSet set = CommonFlags(flags);
  set.Add("output", "FILE", &flags->output,
          "File for the JSON. Default: standard output.");
  set.Add("int8", "", &flags->int8,
          "Also evaluate with weights rounded to 8-bit integers, as in\n"
          "`holdfast checkpoint export --int8`.");
  return set;
}

FlagSet PredictFlags(EvaluateFlags* flags) {
  FlagSet set = CommonFlags(flags);
  set.Add("output", "FILE", &flags->output, "The CSV file to write. Required.");
  return set;
}

// Replaces this process with the worker program. Returns only on errors.
absl::Status RunWorker(const EvaluateFlags& flags,
                       std::vector<std::string> args) {
  if (flags.checkpoint.empty()) {
    return absl::InvalidArgumentError(
        "--checkpoint is required: a checkpoint's folder, or the "
        "--checkpoint_dir of a job");
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto program,
      FindProgram("worker_binary", flags.worker_binary, "worker", "ps_worker"));
  args.push_back(absl::StrCat("--checkpoint=", flags.checkpoint));
  if (!flags.job.empty()) args.push_back(absl::StrCat("--job=", flags.job));
  if (!flags.data.empty()) args.push_back(absl::StrCat("--data=", flags.data));
  if (flags.device.has_value()) {
    args.push_back(absl::StrCat("--device=", *flags.device));
  }
  if (flags.tf32) args.push_back("--tf32");
  if (flags.intra_op_threads.has_value()) {
    args.push_back(
        absl::StrCat("--intra_op_threads=", *flags.intra_op_threads));
  }
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot run ", program));
}

absl::Status Eval(const EvaluateFlags& flags) {
  std::vector<std::string> args;
  if (!flags.output.empty()) {
    args.push_back(absl::StrCat("--result_file=", flags.output));
  }
  if (flags.int8) args.push_back("--int8");
  return RunWorker(flags, std::move(args));
}

absl::Status Predict(const EvaluateFlags& flags) {
  if (flags.output.empty()) {
    return absl::InvalidArgumentError(
        "--output is required: the CSV file to write");
  }
  return RunWorker(flags, {absl::StrCat("--predictions=", flags.output)});
}

}  // namespace

int EvalCommand(const std::vector<std::string>& args) {
  EvaluateFlags flags;
  return RunCommand("eval", kEvalUsage, EvalFlags(&flags), args,
                    [&] { return Eval(flags); });
}

int PredictCommand(const std::vector<std::string>& args) {
  EvaluateFlags flags;
  return RunCommand("predict", kPredictUsage, PredictFlags(&flags), args,
                    [&] { return Predict(flags); });
}

std::vector<CommandWords> EvaluateWords() {
  EvaluateFlags flags;
  return {{"eval", EvalFlags(&flags).Names()},
          {"predict", PredictFlags(&flags).Names()}};
}

}  // namespace holdfast
