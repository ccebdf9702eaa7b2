// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/job_declaration.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/consistency_rules.h"
#include "common/job/declaration_change.h"
#include "common/job/given_values.h"
#include "common/tensor/shape.h"
#include "google/protobuf/util/message_differencer.h"
#include "ps_server/coordinator/loss_scaler.h"
#include "ps_server/coordinator/placement.h"
#include "ps_server/table/embedding_table.h"

namespace holdfast {

using google::protobuf::util::MessageDifferencer;

std::string Shorten(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  const auto inside_character = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
  };
  while (limit > 0 && inside_character(limit)) --limit;
  return text.substr(0, limit) + "...";
}

namespace {

// The first variable whose declarations differ only in the digests of the first
// values; empty if there is none.
std::string OtherFirstValues(const proto::Declaration& a,
                             const proto::Declaration& b) {
  for (int i = 0; i < std::min(a.variables_size(), b.variables_size()); ++i) {
    const proto::Initializer& mine = a.variables(i).initializer();
    proto::Variable other = b.variables(i);
    if (!mine.has_given() || !other.initializer().has_given() ||
        MessageDifferencer::Equals(mine, other.initializer())) {
      continue;
    }
    *other.mutable_initializer() = mine;
    if (MessageDifferencer::Equals(a.variables(i), other)) return other.name();
  }
  return "";
}

// Decisions that depend on evaluations need checkpoints.
absl::Status CheckEvaluation(const proto::Declaration& declaration,
                             bool has_archive) {
  const proto::Evaluation& evaluation = declaration.evaluation();
  if (evaluation.has_keep_best() && !has_archive) {
    return absl::InvalidArgumentError(
        "evaluation.keep_best: the ps have no checkpoint directory "
        "(--checkpoint_dir)");
  }
  if (!evaluation.early_stopping().at_fixed_steps()) return absl::OkStatus();
  constexpr char kField[] = "evaluation.early_stopping.at_fixed_steps: ";
  if (!has_archive) {
    return absl::InvalidArgumentError(absl::StrCat(
        kField, "the ps have no checkpoint directory (--checkpoint_dir)"));
  }
  if (declaration.consistency().has_asynchronous()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kField, "an asynchronous job is not reproducible"));
  }
  if (evaluation.every_steps() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kField, "needs evaluation.every_steps"));
  }
  return absl::OkStatus();
}

// Says that a declaration has no optimizer `index`.
std::string NoSuchOptimizer(uint32_t index,
                            const proto::Declaration& declaration) {
  return absl::StrCat("names optimizer ", index, ", but there are ",
                      declaration.optimizers_size(), ", numbered from 0");
}

// Adds the names of the tables to `names`.
absl::Status CheckTables(const proto::Declaration& declaration,
                         std::set<std::string>* names) {
  for (const proto::EmbeddingTable& table : declaration.tables()) {
    const auto error = [&](auto... what) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", table.name(), "\": ", what...));
    };
    if (!names->insert(table.name()).second) return error("declared twice");
    if (table.optimizer() >=
        static_cast<uint32_t>(declaration.optimizers_size())) {
      return error(NoSuchOptimizer(table.optimizer(), declaration));
    }
    HOLDFAST_RETURN_IF_ERROR(
        EmbeddingTable::Create(table, declaration.optimizers(table.optimizer()),
                               EmbeddingTable::Options())
            .status());
  }
  return absl::OkStatus();
}

absl::Status OtherFiles(const TaskId& task, const char* what,
                        const std::string& digest, const std::string& from,
                        const std::string& theirs, bool journaled) {
  return absl::FailedPreconditionError(
      absl::StrCat(task.ToString(), " has ", what, " ", digest, ", ", from,
                   " has ", theirs, " (SHA-256): ",
                   journaled ? kWaysOutOfOtherJob
                             : "start all workers with the same files"));
}

}  // namespace

absl::Status CheckSameDeclaration(const TaskId& task,
                                  const proto::Declaration& declared,
                                  const proto::Declaration& other) {
  const std::string change = FirstChange(declared, other, Declarer::kChief);
  if (change.empty()) return absl::OkStatus();
  if (const std::string variable = OtherFirstValues(declared, other);
      !variable.empty()) {
    return absl::AlreadyExistsError(absl::StrCat(
        task.ToString(), " has other first values of variable \"", variable,
        "\" than were declared before (by SHA-256): every declaration must "
        "make the same values, for example from a fixed seed"));
  }
  return absl::AlreadyExistsError(absl::StrCat(
      task.ToString(), " declares a different job than was declared before: ",
      Shorten(change, kMaxTextBytes)));
}

absl::Status JobDeclaration::TakeUp(const proto::Journal& journal) {
  job_file_ = {"the job of this checkpoint directory", journal.job_digest()};
  data_digest_ = journal.data_digest();
  declaration_ = journal.declaration();
  standing_ = Standing::kOpen;
  const absl::StatusOr<proto::Declaration> complete = Complete(*declaration_);
  fits_cluster_ =
      complete.ok() && complete->num_workers() == declaration_->num_workers();
  if (journal.finished()) return absl::OkStatus();
  // If the job permits it, the chief may declare another number of workers.
  if (!complete.ok() && declaration_->examples() != proto::BY_TICKET) {
    return complete.status();
  }
  return Set(journal.declaration());
}

absl::StatusOr<proto::Declaration> JobDeclaration::Complete(
    const proto::Declaration& declaration) const {
  proto::Declaration resolved = declaration;
  std::set<std::string> names;
  for (const proto::Variable& variable : resolved.variables()) {
    const auto error = [&](auto... what) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", variable.name(), "\": ", what...));
    };
    if (!names.insert(variable.name()).second) return error("declared twice");
    if (variable.dtype() != proto::FLOAT32) {
      return error("dtype ", proto::DataType_Name(variable.dtype()),
                   " is not supported, only FLOAT32");
    }
    const absl::StatusOr<int64_t> elements = NumElements(variable.shape());
    if (!elements.ok()) return error(elements.status().message());
    if (variable.initializer().has_given()) {
      const absl::Status given =
          CheckGiven(variable.initializer().given(), *elements);
      if (!given.ok()) return error(given.message());
    }
    if (variable.optimizer() >=
        static_cast<uint32_t>(resolved.optimizers_size())) {
      return error(NoSuchOptimizer(variable.optimizer(), resolved));
    }
    if (!variable.compression().variables().empty()) {
      return error("compression.variables is only for job files");
    }
  }

  HOLDFAST_RETURN_IF_ERROR(CheckTables(resolved, &names));
  HOLDFAST_RETURN_IF_ERROR(CheckEvaluation(resolved, has_archive_));
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto replicas,
      ResolveConsistency(ConsistencyFieldsOf(resolved), num_workers_));
  FillIn(replicas, resolved.mutable_consistency());
  FillIn(replicas, resolved.mutable_lost_workers());
  resolved.set_examples(replicas.examples);
  resolved.set_num_workers(replicas.total);
  HOLDFAST_ASSIGN_OR_RETURN(const auto tickets,
                            ResolveTickets(replicas, resolved.total_steps(),
                                           resolved.total_tickets()));
  resolved.set_total_tickets(tickets);
  // A row stores its step in 40 bits.
  const uint64_t versions =
      std::max(resolved.total_steps(), resolved.total_tickets());
  if (resolved.tables_size() > 0 && versions > RowHeader::kMaxStep) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_steps: ", versions, ", but a job with embedding ",
                     "tables can have at most ", RowHeader::kMaxStep));
  }
  if (resolved.has_loss_scale()) {
    *resolved.mutable_loss_scale() = WithDefaults(resolved.loss_scale());
  }
  // Memory for checkpoints is reserved if and only if there can be any.
  if (!has_archive_) {
    resolved.clear_checkpoints();
  } else {
    resolved.mutable_checkpoints();
  }
  return resolved;
}

absl::Status JobDeclaration::Set(const proto::Declaration& complete) {
  HOLDFAST_ASSIGN_OR_RETURN(auto slices, PlaceVariables(complete, num_ps_));
  slices_ = std::move(slices);
  declaration_ = complete;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> JobDeclaration::Resume(
    const proto::Declaration& complete, const ResumePoint& at) {
  const bool other_file =
      offered_.has_value() && offered_->digest != job_file_->digest;
  if (other_file && !declaration_->has_job()) {
    return absl::FailedPreconditionError(
        "the job file differs from the one that the job began with, which is "
        "not in the checkpoint, so they cannot be compared");
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto resumed,
                            ResumeDeclaration(*declaration_, complete, at));
  HOLDFAST_RETURN_IF_ERROR(Set(resumed.declaration));
  refusal_ = absl::OkStatus();
  if (other_file) job_file_ = *offered_;
  if (resumed.changes.empty() && !other_file) {
    Settle();
  } else {
    standing_ = Standing::kChanged;
  }
  return std::move(resumed.changes);
}

absl::StatusOr<bool> JobDeclaration::Agree(const AgreedFacts& facts) {
  if (HasFacts(declaration_->agreed(), facts)) return false;
  proto::Declaration with = *declaration_;
  AddFacts(facts, with.mutable_agreed());
  // Nothing is placed anew: this measures the answer with the placement.
  HOLDFAST_RETURN_IF_ERROR(PlaceVariables(with, num_ps_).status());
  declaration_ = std::move(with);
  return true;
}

bool JobDeclaration::IsOfSameFile(const proto::Declaration& complete) const {
  return job_file_.has_value() && complete.has_job() &&
         ResumeDeclaration(*declaration_, complete, {0, true}).ok();
}

absl::Status JobDeclaration::CheckJobFile(const TaskId& task,
                                          const proto::RegisterRequest& request,
                                          bool journaled) {
  const std::string& digest = request.job_digest();
  if (open()) {
    const bool same = digest == job_file_->digest;
    // A worker that has already trained has the right file, and so has one
    // whose file is known to yield a matching declaration.
    if (same && (request.sender().generation() > 0 ||
                 (!digest.empty() && fits_cluster_ && !offered_.has_value() &&
                  declaration_->has_job()))) {
      Settle();
      return absl::OkStatus();
    }
    // If only this task has offered a file, an earlier process of the task did.
    const std::string name = task.ToString();
    if (!offered_.has_value() || offered_->from == name) {
      offered_ = {name, digest};
    } else if (offered_->digest == digest &&
               !absl::StrContains(offered_->from, name)) {
      absl::StrAppend(&offered_->from, ", ", name);
    }
    // Workers that come later must have the same file.
    journaled = false;
  }
  const JobFile& held_to = offered_.has_value() ? *offered_ : *job_file_;
  if (digest == held_to.digest) return absl::OkStatus();
  return OtherFiles(task, "job file", digest, held_to.from, held_to.digest,
                    journaled);
}

absl::Status JobDeclaration::CheckDigests(const TaskId& task,
                                          const proto::RegisterRequest& request,
                                          bool journaled) {
  if (task.job == kEvaluatorJob) {
    // An evaluator may have other data.
    return !job_file_.has_value() || open() || request.job_digest().empty()
               ? absl::OkStatus()
               : CheckJobFile(task, request, journaled);
  }
  if (!job_file_.has_value()) {
    job_file_ = {task.ToString(), request.job_digest()};
    data_digest_ = request.data_digest();
    return absl::OkStatus();
  }
  if (request.data_digest() != data_digest_) {
    return OtherFiles(task, "data", request.data_digest(), job_file_->from,
                      data_digest_, journaled);
  }
  return CheckJobFile(task, request, journaled);
}

void JobDeclaration::AddTo(proto::Journal* journal) const {
  *journal->mutable_declaration() = *declaration_;
  journal->set_job_digest(job_file_->digest);
  journal->set_data_digest(data_digest_);
}

}  // namespace holdfast
