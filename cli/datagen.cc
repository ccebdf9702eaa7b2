// SPDX-License-Identifier: Apache-2.0
#include "cli/datagen.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/criteo_files.h"
#include "cli/criteo_generator.h"
#include "cli/table.h"
#include "common/base/status_macros.h"
#include "common/process/exit_code.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast datagen criteo --out=DIR [flags]

Writes files in the layout of the Criteo data sets, DIR/train-*.tsv and
DIR/test-*.tsv: a label, 13 numbers and 26 categories, whose ids follow Zipf's law.
The labels are drawn by a hidden model, fixed by the seed: weights of the ids, the
numbers, and pairs of ids of six categories. Its own scores on the test part, which
no trained model can be expected to exceed, are printed, and written to
DIR/datagen.json with the ids of each category. See docs/data.md.

  holdfast datagen criteo --out=/data/clicks --examples=10000000 --gzip
  holdfast datagen criteo --out=/data/clicks --examples=1000000 --min_occurrences=200

Exits 0 on success, 1 when a file cannot be written, 2 for wrong flags.

)";

constexpr int64_t kMostExamples = 1'000'000'000'000;
constexpr uint32_t kSmallCardinality = 1000;

struct Flags {
  std::string out;
  int64_t examples = 1'000'000;
  int64_t test_examples = 100'000;
  uint64_t seed = 0;
  int64_t files = 1;
  bool gzip = false;
  std::string cardinalities = "kaggle";
  int64_t min_occurrences = 0;
  double zipf = 1.05;
  int threads = 0;
  bool force = false;
};

FlagSet MakeFlagSet(Flags* flags) {
  FlagSet set;
  set.Add("out", "DIR", &flags->out,
          "Folder for the files; created if it does not exist. Required.");
  set.Add("examples", "N", &flags->examples,
          "Training examples. Default: 1000000.");
  set.Add("test_examples", "N", &flags->test_examples,
          "Additional test examples. Default: 100000.");
  set.Add("seed", "N", &flags->seed,
          "Determines the model and the examples. Default: 0.");
  set.Add("files", "K", &flags->files, "Files of each part. Default: 1.");
  set.Add("gzip", "", &flags->gzip, "Write .tsv.gz.");
  set.Add("cardinalities", "kaggle|small|LIST", &flags->cardinalities,
          "Numbers of ids of C1 to C26: as in Kaggle's Display Advertising\n"
          "Challenge, 33.8 million in total; the same, but at most 1000 each;\n"
          "or 26 numbers separated by commas. Default: kaggle.");
  set.Add("min_occurrences", "M", &flags->min_occurrences,
          "Make each id in the training part occur at least M times: the\n"
          "rarest ids are left out, so categories have fewer. Default: 0, no\n"
          "minimum.");
  set.Add("zipf", "S", &flags->zipf,
          "The probability of the k-th most frequent id of a category is\n"
          "proportional to k^-S. Default: 1.05.");
  set.Add("threads", "N", &flags->threads,
          "Number of threads, which does not affect the output. Default: one\n"
          "per CPU.");
  set.Add("force", "", &flags->force,
          "Replace all existing train-* and test-* files in the folder.");
  return set;
}

absl::Status SetCardinalities(const std::string& text,
                              CriteoGenerator::Options* options) {
  if (text == "kaggle") return absl::OkStatus();
  if (text == "small") {
    for (uint32_t& each : options->cardinalities) {
      each = std::min(each, kSmallCardinality);
    }
    return absl::OkStatus();
  }
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  bool fits = words.size() == options->cardinalities.size();
  for (size_t i = 0; fits && i < words.size(); ++i) {
    uint32_t& each = options->cardinalities[i];
    fits = absl::SimpleAtoi(words[i], &each) && each > 0;
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--cardinalities=", text, ": must be kaggle, small, or ",
      options->cardinalities.size(), " whole numbers from 1 to 4294967295"));
}

absl::StatusOr<CriteoFilesOptions> OptionsOf(const Flags& flags) {
  const auto error = [](absl::string_view flag, const auto& value,
                        const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", value, ": ", what...));
  };
  if (flags.out.empty()) return error("out", "", "name a folder");
  for (const auto& [flag, value] :
       {std::pair("examples", flags.examples),
        std::pair("test_examples", flags.test_examples),
        std::pair("files", flags.files)}) {
    if (value >= 1 && value <= kMostExamples) continue;
    return error(flag, value, "must be from 1 to ", kMostExamples);
  }
  if (!(flags.zipf >= 0 && flags.zipf <= 10)) {
    return error("zipf", flags.zipf, "must be from 0 to 10");
  }
  if (flags.min_occurrences < 0) {
    return error("min_occurrences", flags.min_occurrences, "is below 0");
  }
  if (flags.min_occurrences > 0) {
    const double fewest =
        CriteoGenerator::FewestExpected(flags.min_occurrences);
    if (fewest > static_cast<double>(flags.examples)) {
      return error("min_occurrences", flags.min_occurrences, "takes at least ",
                   std::ceil(fewest), " examples");
    }
  }
  CriteoFilesOptions options;
  options.out = flags.out;
  options.generator.seed = flags.seed;
  options.generator.zipf = flags.zipf;
  options.generator.min_occurrences = flags.min_occurrences;
  options.generator.examples = flags.examples;
  HOLDFAST_RETURN_IF_ERROR(
      SetCardinalities(flags.cardinalities, &options.generator));
  options.test_examples = flags.test_examples;
  options.files = flags.files;
  options.gzip = flags.gzip;
  options.force = flags.force;
  options.threads = flags.threads > 0
                        ? flags.threads
                        : std::max<int>(std::thread::hardware_concurrency(), 1);
  return options;
}

// JSON has no representation of NaN.
std::string JsonNumber(double value) {
  return std::isnan(value) ? "null" : absl::StrFormat("%.6f", value);
}

std::string Json(const Flags& flags, const CriteoFiles& files) {
  return absl::StrCat(
      "{\n  \"examples\": ", flags.examples,
      ",\n  \"test_examples\": ", flags.test_examples,
      ",\n  \"seed\": ", flags.seed, ",\n  \"zipf\": ", flags.zipf,
      ",\n  \"min_occurrences\": ", flags.min_occurrences,
      ",\n  \"click_rate\": ", JsonNumber(files.click_rate),
      ",\n  \"hidden_model\": {\n    \"test_auc\": ", JsonNumber(files.auc),
      ",\n    \"test_log_loss\": ", JsonNumber(files.log_loss),
      ",\n    \"test_auc_without_pairs\": ",
      JsonNumber(files.auc_without_pairs),
      "\n  },\n  \"test_log_loss_of_click_rate\": ",
      JsonNumber(files.log_loss_of_rate), ",\n  \"ids\": [",
      absl::StrJoin(files.ids, ", "), "],\n  \"least_occurrences\": [",
      absl::StrJoin(files.least, ", "), "]\n}\n");
}

absl::Status MakeCriteo(const Flags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto options, OptionsOf(flags));
  HOLDFAST_ASSIGN_OR_RETURN(const auto files, WriteCriteoFiles(options));
  const std::string summary = flags.out + "/datagen.json";
  std::ofstream json(summary, std::ios::trunc);
  json << Json(flags, files);
  json.close();
  if (json.fail()) {
    return absl::UnavailableError(
        absl::StrCat("cannot write \"", summary, "\""));
  }
  Table table({{"category"}, {"ids", true}, {"least often", true}});
  for (int i = 0; i < kCriteoCategories; ++i) {
    table.Add({absl::StrCat("C", i + 1), absl::StrCat(files.ids[i]),
               absl::StrCat(files.least[i])});
  }
  const char* const end = flags.gzip ? ".tsv.gz" : ".tsv";
  std::cout
      << flags.out << "/train-*" << end << ": " << flags.examples
      << " examples, " << absl::StreamFormat("%.4f", files.click_rate)
      << " of them clicks\n"
      << flags.out << "/test-*" << end << ": " << flags.test_examples
      << " examples\n\n"
      << "On these, with the probabilities from which the labels were drawn:\n"
      << absl::StreamFormat(
             "  AUC %.4f; without pairs of ids %.4f\n"
             "  log loss %.4f; of the click rate alone %.4f\n\n",
             files.auc, files.auc_without_pairs, files.log_loss,
             files.log_loss_of_rate);
  for (const std::string& line : table.Lines()) std::cout << line << "\n";
  std::cout.flush();
  return absl::OkStatus();
}

}  // namespace

int DatagenCommand(const std::vector<std::string>& args) {
  Flags flags;
  const FlagSet set = MakeFlagSet(&flags);
  if (std::count(args.begin(), args.end(), "--help") > 0) {
    std::cout << kUsage << "Flags:\n" << set.Help();
    return kExitDone;
  }
  if (args.empty() || args[0] != "criteo") {
    std::cerr << "holdfast datagen: "
              << (args.empty() ? "a verb is required"
                               : absl::StrCat("unknown verb \"", args[0], "\""))
              << "; --help lists them" << std::endl;
    return kExitUsage;
  }
  absl::Status status = set.Parse(absl::MakeConstSpan(args).subspan(1));
  if (status.ok()) status = MakeCriteo(flags);
  if (status.ok()) return kExitDone;
  std::cerr << "holdfast datagen criteo: " << status.message() << std::endl;
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

std::vector<CommandWords> DatagenWords() {
  Flags flags;
  return {{"datagen criteo", MakeFlagSet(&flags).Names()}};
}

}  // namespace holdfast
