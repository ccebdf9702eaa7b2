// SPDX-License-Identifier: Apache-2.0
#include "common/job/job_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/validate.h"
#include "common/job/job_data_rules.h"
#include "common/job/job_model_rules.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "re2/re2.h"

namespace holdfast {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::TextFormat;
using ::google::protobuf::io::ArrayInputStream;
using ::google::protobuf::io::Tokenizer;

constexpr size_t kMaxFileBytes = 1 << 20;
// The maximum nesting of messages. A job has at most 7 levels, and 2 more for
// each nested residual layer.
constexpr int kMaxDepth = 100;
constexpr uint64_t kMaxSteps = 1'000'000'000'000'000;
constexpr uint64_t kMaxTickets = 1000 * kMaxSteps;

// The first error of protobuf's parser, and its place in the parser's counting:
// from 0, with tabs advancing to the next multiple of 8.
struct ParseError : google::protobuf::io::ErrorCollector {
  void AddError(int at_line, int at_column,
                const std::string& message) override {
    if (!said.empty()) return;
    line = at_line;
    column = at_column;
    said = message;
  }

  int line = 0;
  int column = 0;
  std::string said;
};

// `error`, in `text`, as a message for people. The parser reports most errors
// at the token after the wrong word, which may be lines below, and does not
// always name the field. So if the error quotes the last word before that
// token, the place of that word is given; otherwise the word, usually the
// field's name, is added.
std::string Describe(const ParseError& error, absl::string_view text) {
  ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  ParseError ignored;
  Tokenizer tokens(&stream, &ignored);
  tokens.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  Tokenizer::Token word;
  while (tokens.Next() &&
         std::tie(tokens.current().line, tokens.current().column) <
             std::tie(error.line, error.column)) {
    if (tokens.current().type == Tokenizer::TYPE_IDENTIFIER) {
      word = tokens.current();
    }
  }
  const std::string quoted = absl::StrCat("\"", word.text, "\"");
  if (!word.text.empty() && absl::StrContains(error.said, quoted)) {
    return absl::StrCat(word.line + 1, ":", word.column + 1, ": ", error.said);
  }
  return absl::StrCat(
      error.line + 1, ":", error.column + 1, ": ",
      word.text.empty() ? "" : absl::StrCat("after ", quoted, ": "), error.said,
      absl::EndsWith(error.said, "got: ") ? "the end of the file" : "");
}

// The line of the field at `path` of a Job, counted from 1, or of the innermost
// enclosing message that is in the text; 0 if that is the job itself.
int LineOf(const std::string& path, const TextFormat::ParseInfoTree* places) {
  int line = 0;
  const Descriptor* type = proto::Job::descriptor();
  for (const absl::string_view step : absl::StrSplit(path, '.')) {
    if (places == nullptr) break;
    // "layers[2]", or a field without an index.
    const std::vector<std::string> parts =
        absl::StrSplit(step, absl::ByAnyChar("[]"));
    int index = -1;
    if (parts.size() > 1 && !absl::SimpleAtoi(parts[1], &index)) break;
    const FieldDescriptor* const field = type->FindFieldByName(parts[0]);
    if (field == nullptr || (index >= 0 && !field->is_repeated())) break;
    if (field->is_repeated() && index < 0) {
      // The whole list: the line where it begins.
      const int begin = places->GetLocation(field, 0).line;
      if (begin >= 0) line = begin + 1;
      break;
    }
    // A list in brackets has one location for all its elements. Then there are
    // fewer locations than elements, and they cannot be matched.
    int last = index;
    while (field->is_repeated() && places->GetTreeForNested(field, last + 1)) {
      ++last;
    }
    if (places->GetLocation(field, last).line >= 0) {
      line = places->GetLocation(field, index).line + 1;
    }
    places = places->GetTreeForNested(field, index);
    type = field->message_type();
  }
  return line;
}

// The names to which a compression rule applies.
RE2 NamesOf(const proto::Compression& rule) {
  return RE2(rule.variables().empty() ? ".*" : rule.variables(), RE2::Quiet);
}

// Checks the rules between the fields of a job, apart from those that hold for
// any message.
void CheckJob(const proto::Job& job, std::vector<BrokenRule>* broken) {
  CheckModel(job, broken);
  CheckData(job.data(), broken);
  if (job.has_evaluation() && job.has_data() && !job.data().has_test() &&
      !job.data().has_holdout()) {
    broken->push_back({"evaluation", "needs data.test or data.holdout"});
  }
  const proto::Evaluation& evaluation = job.evaluation();
  const auto check_metric = [&](const char* field,
                                const proto::Metric& metric) {
    const std::string& name = metric.name();
    if (name == "top_k_accuracy" && !evaluation.has_top_k()) {
      broken->push_back({field, "top_k_accuracy needs evaluation.top_k"});
    } else if (name == "auc" && !evaluation.auc()) {
      broken->push_back({field, "auc needs evaluation.auc"});
    } else if (name == "calibration") {
      broken->push_back({field,
                         "calibration is best at 1, so neither its minimum nor "
                         "its maximum is best: use loss or auc"});
    } else if (!name.empty() && name != "loss" && name != "accuracy" &&
               name != "top_k_accuracy" && name != "auc" &&
               name != "mean_absolute_error" && name != "mean_squared_error") {
      broken->push_back(
          {field,
           absl::StrCat("must be loss, accuracy, top_k_accuracy, auc, "
                        "mean_absolute_error or mean_squared_error, is \"",
                        name, "\"; other names are for your own programs")});
    }
  };
  check_metric("evaluation.keep_best.metric.name",
               evaluation.keep_best().metric());
  check_metric("evaluation.early_stopping.metric.name",
               evaluation.early_stopping().metric());
  if (job.micro_batches() > job.batch_size()) {
    broken->push_back(
        {"micro_batches",
         absl::StrCat("must be at most batch_size, which is ", job.batch_size(),
                      ", is ", job.micro_batches())});
  }
  for (int i = 0;
       i < job.compression_size() && broken->size() <= kMaxBrokenRulesTold;
       ++i) {
    const RE2 names = NamesOf(job.compression(i));
    if (names.ok()) continue;
    broken->push_back({absl::StrCat("compression[", i, "].variables"),
                       absl::StrCat("is not a regular expression: ",
                                    absl::CEscape(names.error()))});
  }
  for (BrokenRule& rule :
       FindBrokenConsistencyRules(ConsistencyFieldsOf(job))) {
    broken->push_back(std::move(rule));
  }
  const auto& sync = job.consistency().synchronous();
  const proto::LostWorkers& lost = job.lost_workers();
  if (!job.local().has_workers()) return;
  if (lost.has_max_workers()) {
    if (job.local().workers() > lost.max_workers()) {
      broken->push_back(
          {"local.workers",
           absl::StrCat("must be at most lost_workers.max_workers, which is ",
                        lost.max_workers(), ", is ", job.local().workers())});
    }
  } else if (sync.has_total_num_replicas() &&
             job.local().workers() != sync.total_num_replicas()) {
    broken->push_back(
        {"local.workers", absl::StrCat("must be total_num_replicas, which is ",
                                       sync.total_num_replicas(), ", is ",
                                       job.local().workers())});
  }
}

// Checks `job`, which was read from `filename`; `places` are the locations of
// its fields.
absl::Status CheckRules(const proto::Job& job, absl::string_view filename,
                        const TextFormat::ParseInfoTree& places) {
  std::vector<BrokenRule> broken = FindBrokenRules(job);
  CheckJob(job, &broken);
  std::multimap<int, std::string> by_line;
  for (const BrokenRule& rule : broken) {
    const int line = LineOf(rule.path, &places);
    by_line.emplace(
        line,
        absl::StrCat(filename, line == 0 ? "" : absl::StrCat(":", line), ": ",
                     rule.path, rule.path.empty() ? "" : ": ", rule.what));
  }
  std::vector<std::string> lines;
  for (const auto& [line, text] : by_line) {
    if (lines.size() == kMaxBrokenRulesTold) {
      lines.push_back(absl::StrCat(filename, ": and more"));
      break;
    }
    lines.push_back(text);
  }
  if (lines.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

void ResolvePath(absl::string_view folder, std::string* path) {
  if (!path->empty() && !absl::StartsWith(*path, "/")) {
    *path = absl::StrCat(folder, *path);
  }
}

void ResolveData(absl::string_view filename, proto::Data* data) {
  // Includes the slash; empty if the file's name has none.
  const absl::string_view folder = filename.substr(0, filename.rfind('/') + 1);
  for (proto::Dataset* dataset :
       {data->mutable_train(),
        data->has_test() ? data->mutable_test() : nullptr}) {
    if (dataset == nullptr) continue;
    for (std::string* path : DataPaths(dataset)) ResolvePath(folder, path);
  }
}

// The steps of `seats` batches that the job's epochs over `num_examples` make,
// from 1 to `limit`.
uint64_t StepsOfEpochs(const proto::Job& job, uint64_t num_examples,
                       uint32_t seats, uint64_t limit) {
  const uint64_t size = uint64_t{seats} * job.batch_size();
  const double per_epoch =
      static_cast<double>(num_examples) / static_cast<double>(size);
  // 0.1 epochs of 30 examples are 3 steps, although the rounding error of 0.1
  // would add another.
  const double slack = 1e-9 * job.epochs() * per_epoch;
  const auto round_up = [slack](double steps) {
    const double nearest = std::floor(steps + 0.5);
    return std::abs(steps - nearest) <= slack ? nearest : std::ceil(steps);
  };
  double steps = 0;
  if (job.data().short_last_batch()) {
    const double whole = std::floor(job.epochs());
    const uint64_t each = num_examples == 0 ? 0 : (num_examples - 1) / size + 1;
    steps = whole * static_cast<double>(each) +
            round_up((job.epochs() - whole) * per_epoch);
  } else {
    steps = round_up(job.epochs() * per_epoch);
  }
  return static_cast<uint64_t>(
      std::clamp(steps, 1.0, static_cast<double>(limit)));
}

}  // namespace

absl::StatusOr<proto::Job> ParseJobFile(absl::string_view text,
                                        absl::string_view filename) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        filename, ": a job file has at most ", kMaxFileBytes, " bytes"));
  }
  proto::Job job;
  ParseError error;
  TextFormat::ParseInfoTree places;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&places);
  parser.SetRecursionLimit(kMaxDepth);
  if (!parser.ParseFromString(std::string(text), &job)) {
    return absl::InvalidArgumentError(
        absl::StrCat(filename, ":", Describe(error, text)));
  }
  HOLDFAST_RETURN_IF_ERROR(CheckRules(job, filename, places));
  ResolveData(filename, job.mutable_data());
  return job;
}

absl::StatusOr<proto::Job> LoadJobFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  // One byte more than the limit, which ParseJobFile rejects.
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(&text[0], static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (!file.eof() && text.size() <= kMaxFileBytes) {
    return absl::NotFoundError(absl::StrCat("cannot read job file \"", path,
                                            "\": ", std::strerror(errno)));
  }
  return ParseJobFile(text, path);
}

std::string SharedJob(const proto::Job& job) {
  proto::Job shared = job;
  shared.clear_local();
  for (proto::Dataset* dataset : {shared.mutable_data()->mutable_train(),
                                  shared.mutable_data()->mutable_test()}) {
    for (std::string* path : DataPaths(dataset)) path->clear();
    // The number of files does not matter either.
    if (dataset->has_csv()) dataset->mutable_csv()->clear_files();
    if (dataset->has_tfrecord()) dataset->mutable_tfrecord()->clear_files();
    if (dataset->has_criteo()) dataset->mutable_criteo()->clear_files();
    if (dataset->has_libsvm()) dataset->mutable_libsvm()->clear_files();
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    shared.SerializeToCodedStream(&out);
  }
  return bytes;
}

std::string JobDigest(const proto::Job& job) {
  return Sha256::Hex(SharedJob(job));
}

absl::StatusOr<proto::Job> DeclaredJobFile(
    const proto::Declaration& declaration) {
  if (!declaration.has_job()) {
    return absl::NotFoundError(
        "no job file was declared: the workers were scripts or your own "
        "programs, or of a version that did not keep it");
  }
  proto::Job job;
  if (!job.ParseFromString(declaration.job().job_file())) {
    return absl::DataLossError("the declared job file does not parse");
  }
  // SharedJob adds an empty `test` to a job that has none, and digests depend
  // on that.
  if (job.data().test().kind_case() == proto::Dataset::KIND_NOT_SET) {
    job.mutable_data()->clear_test();
  }
  return job;
}

bool IsComputed(const proto::CsvColumn& column) {
  return column.number().computed() || column.category().computed() ||
         column.label().computed();
}

bool IsComputed(const proto::TfRecordFeature& feature) {
  return feature.numbers().computed() || feature.label().computed();
}

std::vector<std::string*> DataPaths(proto::Dataset* dataset) {
  switch (dataset->kind_case()) {
    case proto::Dataset::kIdx: {
      proto::Idx* const idx = dataset->mutable_idx();
      return {idx->mutable_images(), idx->mutable_labels(),
              idx->mutable_targets(), idx->mutable_weights()};
    }
    case proto::Dataset::kNpy: {
      proto::Npy* const npy = dataset->mutable_npy();
      return {npy->mutable_inputs(), npy->mutable_labels(),
              npy->mutable_targets(), npy->mutable_weights()};
    }
    case proto::Dataset::kCsv: {
      auto* const files = dataset->mutable_csv()->mutable_files();
      return {files->pointer_begin(), files->pointer_end()};
    }
    case proto::Dataset::kTfrecord: {
      auto* const files = dataset->mutable_tfrecord()->mutable_files();
      return {files->pointer_begin(), files->pointer_end()};
    }
    case proto::Dataset::kCriteo: {
      auto* const files = dataset->mutable_criteo()->mutable_files();
      return {files->pointer_begin(), files->pointer_end()};
    }
    case proto::Dataset::kLibsvm: {
      auto* const files = dataset->mutable_libsvm()->mutable_files();
      return {files->pointer_begin(), files->pointer_end()};
    }
    case proto::Dataset::kImages:
      return {dataset->mutable_images()->mutable_folder()};
    case proto::Dataset::kRegistered:
    case proto::Dataset::KIND_NOT_SET:
      break;
  }
  return {};
}

Shuffle ShuffleOf(const proto::Data& data) {
  Shuffle shuffle;
  switch (data.shuffle()) {
    case proto::Data::BLOCKS:
      shuffle.kind = Shuffle::Kind::kBlocks;
      break;
    case proto::Data::NONE:
      shuffle.kind = Shuffle::Kind::kNone;
      break;
    default:
      break;
  }
  if (data.has_shuffle_block()) shuffle.block = data.shuffle_block();
  return shuffle;
}

absl::StatusOr<std::vector<proto::Compression>> ResolveCompression(
    const proto::Job& job, absl::Span<const std::string> names) {
  std::vector<proto::Compression> resolved(names.size());
  std::vector<bool> found(names.size(), false);
  for (int i = 0; i < job.compression_size(); ++i) {
    const RE2 pattern = NamesOf(job.compression(i));
    bool any = false;
    for (size_t j = 0; j < names.size(); ++j) {
      if (!RE2::FullMatch(names[j], pattern)) continue;
      any = true;
      if (found[j]) continue;
      found[j] = true;
      resolved[j] = job.compression(i);
      resolved[j].clear_variables();
    }
    if (!any) {
      return absl::InvalidArgumentError(absl::StrCat(
          "compression[", i, "].variables: \"",
          absl::CEscape(job.compression(i).variables()),
          "\" is not the whole name of any variable; the variables are ",
          absl::StrJoin(names, ", ")));
    }
  }
  return resolved;
}

std::vector<std::string> LayerNames(
    const google::protobuf::RepeatedPtrField<proto::Layer>& layers) {
  std::vector<std::string> names;
  std::map<int, int> counts;
  for (const proto::Layer& layer : layers) {
    const int count = counts[layer.kind_case()]++;
    const FieldDescriptor* const kind =
        proto::Layer::descriptor()->FindFieldByNumber(layer.kind_case());
    if (!layer.name().empty()) {
      names.push_back(layer.name());
    } else if (kind == nullptr) {
      names.push_back("");
    } else if (count == 0) {
      names.push_back(kind->name());
    } else {
      names.push_back(absl::StrCat(kind->name(), "_", count));
    }
  }
  return names;
}

absl::StatusOr<Replicas> ResolveConsistency(const proto::Job& job,
                                            uint32_t workers) {
  absl::StatusOr<Replicas> replicas =
      ResolveConsistency(ConsistencyFieldsOf(job), workers);
  if (!replicas.ok()) return replicas;
  // Seats without examples would fill first, and close the step before the
  // seats that have some.
  if (job.data().short_last_batch() && !replicas->by_ticket() &&
      replicas->to_aggregate < replicas->total) {
    return absl::InvalidArgumentError(
        "data.short_last_batch with backup replicas needs examples: BY_TICKET");
  }
  return replicas;
}

uint64_t TotalTickets(const proto::Job& job, uint64_t num_examples,
                      const Replicas& replicas) {
  if (!replicas.by_ticket()) return 0;
  const uint64_t per_step = replicas.tickets_per_step();
  const uint64_t limit =
      per_step < kMaxTickets / kMaxSteps ? kMaxSteps * per_step : kMaxTickets;
  if (job.length_case() != proto::Job::kSteps) {
    return StepsOfEpochs(job, num_examples, /*seats=*/1, limit);
  }
  const uint64_t steps = std::max<uint64_t>(job.steps(), 1);
  return steps <= limit / per_step ? steps * per_step : limit;
}

uint64_t TotalSteps(const proto::Job& job, uint64_t num_examples,
                    const Replicas& replicas) {
  if (replicas.by_ticket()) {
    return replicas.StepsOfTickets(TotalTickets(job, num_examples, replicas));
  }
  if (job.length_case() != proto::Job::kSteps) {
    return StepsOfEpochs(job, num_examples, replicas.seats(), kMaxSteps);
  }
  return std::clamp<uint64_t>(job.steps(), 1, kMaxSteps);
}

}  // namespace holdfast
