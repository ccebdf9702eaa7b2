// SPDX-License-Identifier: Apache-2.0

// The functions of holdfast.h: each looks up its handle, checks its arguments,
// and makes one call.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "client/c_api/connection.h"
#include "client/c_api/error.h"
#include "client/c_api/handles.h"
#include "client/c_api/holdfast.h"
#include "client/c_api/log.h"
#include "client/c_api/loop.h"
#include "client/c_api/metrics.h"
#include "client/c_api/options.h"
#include "client/c_api/values.h"
#include "client/row_request.h"
#include "common/base/checksum.h"
#include "common/base/clock.h"
#include "common/base/thread_pool.h"
#include "common/base/utf8.h"
#include "common/checkpoint/directory.h"
#include "common/job/agreed_facts.h"
#include "common/job/batch_ranges.h"
#include "common/job/example_order.h"
#include "common/process/version.h"
#include "google/protobuf/text_format.h"

namespace holdfast::c_api {
namespace {

using Kind = Handles::Kind;

// From this size on, starting a thread to read half of it is worth it.
constexpr size_t kManyBytes = size_t{4} << 20;

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

template <typename T>
struct KindOf;
template <>
struct KindOf<Connection> {
  static constexpr Kind kKind = Kind::kCluster;
  static constexpr char kName[] = "cluster";
};
template <>
struct KindOf<Loop> {
  static constexpr Kind kKind = Kind::kLoop;
  static constexpr char kName[] = "loop";
};
template <>
struct KindOf<Values> {
  static constexpr Kind kKind = Kind::kValues;
  static constexpr char kName[] = "values";
};

template <typename T>
std::shared_ptr<T> Find(const void* handle) {
  return std::static_pointer_cast<T>(Handles::Find(KindOf<T>::kKind, handle));
}

template <typename T>
std::shared_ptr<T> Remove(const void* handle) {
  return std::static_pointer_cast<T>(Handles::Remove(KindOf<T>::kKind, handle));
}

template <typename T>
Error BadHandle(const void* handle) {
  const std::string name = KindOf<T>::kName;
  if (Handles::IsForkedChild()) {
    return Error(HOLDFAST_BAD_HANDLE,
                 absl::StrCat("the ", name,
                              " belongs to the process that this one was "
                              "forked from; start processes with spawn"));
  }
  return Error(
      HOLDFAST_BAD_HANDLE,
      handle == nullptr
          ? absl::StrCat("the handle of the ", name, " is NULL")
          : absl::StrCat("there is no such ", name,
                         ": it was closed or freed, or is not a handle"));
}

absl::Time Until(int64_t timeout_ms) {
  return timeout_ms < 0 ? absl::InfiniteFuture()
                        : SteadyNow() + absl::Milliseconds(timeout_ms);
}

Error Null(absl::string_view argument) {
  return Invalid(absl::StrCat(argument, " is NULL"));
}

// Allocates with malloc, so that any language could free it.
char* CopyOf(const std::string& text) {
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

// Calls `function` with the object behind `handle`.
template <typename T, typename Function>
int32_t With(const void* handle, holdfast_error** error, Function function) {
  const std::shared_ptr<T> object = Find<T>(handle);
  if (object == nullptr) return Report(BadHandle<T>(handle), error);
  return Report(function(*object), error);
}

TrainingLoop::Gradient GradientOf(uint64_t examples, double loss,
                                  float clip_factor) {
  TrainingLoop::Gradient gradient;
  gradient.examples = examples;
  if (loss != HOLDFAST_LOSS_UNKNOWN) gradient.loss = loss;
  if (clip_factor != HOLDFAST_CLIP_AS_DECLARED) {
    gradient.clip_factor = clip_factor;
  }
  return gradient;
}

Error NoVariables() {
  return Invalid(
      "there are no variables yet: call holdfast_await_variables first");
}

Error ReadRowUses(const holdfast_rows* rows, size_t count,
                  std::vector<holdfast::RowUse>* uses) {
  if (rows == nullptr && count > 0) return Null("rows");
  for (size_t i = 0; i < count; ++i) {
    if (rows[i].ids == nullptr && rows[i].count > 0) {
      return Null(absl::StrCat("rows[", i, "].ids"));
    }
    uses->push_back({rows[i].table, {rows[i].ids, rows[i].count}});
  }
  return Error();
}

// `memory`: indexed by variable; may be empty.
int32_t StartLoop(holdfast_cluster* cluster,
                  std::vector<absl::Span<float>> memory,
                  const holdfast_option* options, size_t num_options,
                  holdfast_loop** loop, holdfast_error** error) {
  const std::shared_ptr<Connection> connection = Find<Connection>(cluster);
  if (connection == nullptr) {
    return Report(BadHandle<Connection>(cluster), error);
  }
  if (loop == nullptr) return Report(Null("loop"), error);
  if (options == nullptr && num_options > 0) {
    return Report(Null("options"), error);
  }
  const auto read = ReadOptions({options, num_options}, {"strict"});
  if (!read.ok()) {
    return Report(Invalid(std::string(read.status().message())), error);
  }
  const auto strict = BoolOf(*read, "strict");
  if (!strict.ok()) {
    return Report(Invalid(std::string(strict.status().message())), error);
  }
  std::shared_ptr<Loop> started;
  Error result =
      Connection::StartLoop(connection, *strict, std::move(memory), &started);
  if (result.ok()) {
    *loop = static_cast<holdfast_loop*>(
        Handles::Add(Kind::kLoop, std::move(started)));
  }
  return Report(std::move(result), error);
}

}  // namespace
}  // namespace holdfast::c_api

using namespace holdfast::c_api;  // NOLINT

extern "C" {

int32_t holdfast_api_version(void) { return HOLDFAST_API_VERSION; }

const char* holdfast_version(void) { return holdfast::kVersion; }

void holdfast_text_free(char* text) { std::free(text); }

// ---- The cluster ----

int32_t holdfast_connect(const holdfast_option* options, size_t num_options,
                         holdfast_cluster** cluster, holdfast_error** error) {
  if (cluster == nullptr) return Report(Null("cluster"), error);
  if (options == nullptr && num_options > 0) {
    return Report(Null("options"), error);
  }
  Handles::Begin();
  if (Handles::IsForkedChild()) {
    return Report(BadHandle<Connection>(nullptr), error);
  }
  BeginLog();
  // Debian builds Abseil with deadlock detection at each Lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const char* const tf_config = std::getenv("TF_CONFIG");
  auto place =
      ReadPlace({options, num_options}, tf_config == nullptr ? "" : tf_config);
  if (!place.ok()) {
    return Report(Error(absl::IsNotFound(place.status()) ? HOLDFAST_NOT_FOUND
                                                         : HOLDFAST_INVALID,
                        std::string(place.status().message())),
                  error);
  }
  auto connection = std::make_shared<Connection>(*std::move(place));
  if (absl::Status status = connection->StartTrace(); !status.ok()) {
    return Report(Error(HOLDFAST_INVALID,
                        absl::StrCat("option trace: ", status.message())),
                  error);
  }
  connection->Start();
  *cluster = static_cast<holdfast_cluster*>(
      Handles::Add(Kind::kCluster, std::move(connection)));
  return Report(Error(), error);
}

int32_t holdfast_await_connected(holdfast_cluster* cluster, int64_t timeout_ms,
                                 holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    return connection.AwaitConnected(Until(timeout_ms));
  });
}

int32_t holdfast_get_place(holdfast_cluster* cluster, holdfast_place* place,
                           holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (place == nullptr) return Null("place");
    const Place& from = connection.place();
    *place = {};
    place->job = from.connect.task.job.c_str();
    place->index = from.connect.task.index;
    place->replica = from.replica;
    place->num_replicas = from.connect.cluster.num_replicas();
    place->num_ps = from.connect.cluster.num_ps();
    place->is_chief = connection.is_chief();
    return Error();
  });
}

int32_t holdfast_declare(holdfast_cluster* cluster, const char* text,
                         const float* const* first_values, size_t count,
                         int64_t timeout_ms, holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (text == nullptr) return Null("text");
    if (first_values == nullptr) count = 0;
    return connection.Declare(text, {first_values, count}, Until(timeout_ms));
  });
}

int32_t holdfast_await_variables(holdfast_cluster* cluster, int64_t timeout_ms,
                                 holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    return connection.AwaitVariables(Until(timeout_ms));
  });
}

int32_t holdfast_agree(holdfast_cluster* cluster, const holdfast_option* facts,
                       size_t num_facts, int64_t timeout_ms,
                       holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (facts == nullptr && num_facts > 0) return Null("facts");
    holdfast::AgreedFacts all;
    for (size_t i = 0; i < num_facts; ++i) {
      if (facts[i].name == nullptr || facts[i].value == nullptr) {
        return Null("facts");
      }
      if (!IsUtf8(facts[i].name) || !IsUtf8(facts[i].value)) {
        return Invalid(
            absl::StrCat("facts: neither names nor values may have bytes that "
                         "are not UTF-8, "
                         "as those of \"",
                         absl::CHexEscape(facts[i].name), "\""));
      }
      const auto [at, is_new] = all.insert({facts[i].name, facts[i].value});
      if (!is_new && at->second != facts[i].value) {
        return Invalid(absl::StrCat("facts: two values for \"",
                                    absl::Utf8SafeCHexEscape(at->first), "\""));
      }
    }
    return connection.Agree(all, Until(timeout_ms));
  });
}

int32_t holdfast_get_num_variables(holdfast_cluster* cluster, size_t* count,
                                   holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (count == nullptr) return Null("count");
    const auto* const variables = connection.variables();
    if (variables == nullptr) return NoVariables();
    *count = variables->size();
    return Error();
  });
}

int32_t holdfast_get_variable(holdfast_cluster* cluster, size_t index,
                              holdfast_variable* variable,
                              holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (variable == nullptr) return Null("variable");
    const auto* const variables = connection.variables();
    if (variables == nullptr) return NoVariables();
    if (index >= variables->size()) {
      return Invalid(absl::StrCat("there is no variable ", index, ", only ",
                                  variables->size()));
    }
    (*variables)[index].CopyTo(nullptr, variable);
    return Error();
  });
}

int32_t holdfast_get_num_tables(holdfast_cluster* cluster, size_t* count,
                                holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (count == nullptr) return Null("count");
    const auto declared = connection.declared();
    if (declared == nullptr) return NoVariables();
    *count = declared->declaration.tables_size();
    return Error();
  });
}

int32_t holdfast_get_table(holdfast_cluster* cluster, size_t index,
                           holdfast_table* table, holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (table == nullptr) return Null("table");
    const auto declared = connection.declared();
    if (declared == nullptr) return NoVariables();
    const size_t num_tables = declared->declaration.tables_size();
    if (index >= num_tables) {
      return Invalid(
          absl::StrCat("there is no table ", index, ", only ", num_tables));
    }
    declared->CopyTable(index, table);
    return Error();
  });
}

int32_t holdfast_get_declaration(holdfast_cluster* cluster, char** text,
                                 holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (text == nullptr) return Null("text");
    const auto declared = connection.declared();
    if (declared == nullptr) return NoVariables();
    std::string printed;
    google::protobuf::TextFormat::PrintToString(declared->declaration,
                                                &printed);
    *text = CopyOf(printed);
    return Error();
  });
}

int32_t holdfast_get_status(holdfast_cluster* cluster, int64_t timeout_ms,
                            char** json, holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (json == nullptr) return Null("json");
    std::string text;
    Error result = connection.GetStatus(Until(timeout_ms), &text);
    if (result.ok()) *json = CopyOf(text);
    return result;
  });
}

int32_t holdfast_save_checkpoint(holdfast_cluster* cluster, int64_t timeout_ms,
                                 uint64_t* step, holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    uint64_t saved = 0;
    Error result = connection.SaveCheckpoint(Until(timeout_ms), &saved);
    if (result.ok() && step != nullptr) *step = saved;
    return result;
  });
}

int32_t holdfast_report_evaluation(holdfast_cluster* cluster, uint64_t step,
                                   uint64_t examples, double loss,
                                   double accuracy, double mean_absolute_error,
                                   int64_t timeout_ms, holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    holdfast::proto::EvaluationResult result;
    result.set_step(step);
    result.set_examples(examples);
    result.set_loss(loss);
    if (!std::isnan(accuracy)) result.set_accuracy(accuracy);
    if (!std::isnan(mean_absolute_error)) {
      result.set_mean_absolute_error(mean_absolute_error);
    }
    return connection.ReportEvaluation(result, std::nullopt, Until(timeout_ms));
  });
}

int32_t holdfast_next_evaluation(holdfast_cluster* cluster, int64_t timeout_ms,
                                 holdfast_evaluation* evaluation,
                                 holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (evaluation == nullptr) return Null("evaluation");
    std::optional<holdfast::proto::CheckpointName> checkpoint;
    Error result = connection.NextEvaluation(Until(timeout_ms), &checkpoint);
    if (!result.ok()) return result;
    *evaluation = {};
    evaluation->done = !checkpoint.has_value();
    if (!checkpoint.has_value()) return result;
    evaluation->generation = checkpoint->generation();
    evaluation->step = checkpoint->step();
    const std::string name = holdfast::FolderName(*checkpoint);
    name.copy(evaluation->name, sizeof(evaluation->name) - 1);
    return result;
  });
}

int32_t holdfast_report_metrics(holdfast_cluster* cluster,
                                const holdfast_evaluation* evaluation,
                                uint64_t step, uint64_t examples,
                                const holdfast_metric* metrics, size_t count,
                                int64_t timeout_ms, holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    if (metrics == nullptr) return Null("metrics");
    auto figures = ReadMetrics({metrics, count});
    if (!figures.ok()) {
      return Invalid(std::string(figures.status().message()));
    }
    figures->set_step(evaluation == nullptr ? step : evaluation->step);
    figures->set_examples(examples);
    if (evaluation == nullptr) {
      return connection.ReportEvaluation(*figures, std::nullopt,
                                         Until(timeout_ms));
    }
    holdfast::proto::CheckpointName checkpoint;
    checkpoint.set_generation(evaluation->generation);
    checkpoint.set_step(evaluation->step);
    return connection.ReportEvaluation(*figures, checkpoint, Until(timeout_ms));
  });
}

int32_t holdfast_leave(holdfast_cluster* cluster, const char* reason,
                       int64_t timeout_ms, holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    return connection.Leave(reason == nullptr ? "" : reason, Until(timeout_ms));
  });
}

int32_t holdfast_step_down(holdfast_cluster* cluster, int32_t program_ended,
                           int64_t timeout_ms, holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    return connection.StepDown(program_ended != 0, Until(timeout_ms));
  });
}

int32_t holdfast_finish(holdfast_cluster* cluster, int64_t timeout_ms,
                        holdfast_error** error) {
  return With<Connection>(cluster, error, [&](Connection& connection) {
    return connection.Finish(Until(timeout_ms));
  });
}

void holdfast_close(holdfast_cluster* cluster) {
  if (const auto connection = Remove<Connection>(cluster)) connection->Close();
}

// ---- The training loop ----

int32_t holdfast_loop_start(holdfast_cluster* cluster,
                            const holdfast_option* options, size_t num_options,
                            holdfast_loop** loop, holdfast_error** error) {
  return StartLoop(cluster, {}, options, num_options, loop, error);
}

int32_t holdfast_loop_start_in(holdfast_cluster* cluster, float* const* memory,
                               const size_t* elements, size_t count,
                               const holdfast_option* options,
                               size_t num_options, holdfast_loop** loop,
                               holdfast_error** error) {
  if (memory == nullptr) return Report(Null("memory"), error);
  if (elements == nullptr) return Report(Null("elements"), error);
  std::vector<absl::Span<float>> spans;
  for (size_t i = 0; i < count; ++i) {
    spans.emplace_back(memory[i], memory[i] == nullptr ? 0 : elements[i]);
  }
  return StartLoop(cluster, std::move(spans), options, num_options, loop,
                   error);
}

int32_t holdfast_loop_next(holdfast_loop* loop, int64_t timeout_ms,
                           holdfast_turn* turn, holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (turn == nullptr) return Null("turn");
    return found.Next(Until(timeout_ms), turn);
  });
}

int32_t holdfast_loop_current(holdfast_loop* loop, holdfast_turn* turn,
                              int32_t* state, holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (turn == nullptr) return Null("turn");
    if (state == nullptr) return Null("state");
    return found.Current(turn, state);
  });
}

int32_t holdfast_loop_restart(holdfast_loop* loop, holdfast_error** error) {
  return With<Loop>(loop, error, [](Loop& found) { return found.Restart(); });
}

int32_t holdfast_loop_values(holdfast_loop* loop, const float** values,
                             size_t count, holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (values == nullptr) return Null("values");
    return found.Values({values, count});
  });
}

int32_t holdfast_loop_take_values(holdfast_loop* loop, const float** data,
                                  size_t count, holdfast_values** values,
                                  holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (values == nullptr) return Null("values");
    std::shared_ptr<Values> taken;
    Error result =
        found.TakeValues({data, data == nullptr ? 0 : count}, &taken);
    if (result.ok()) {
      *values = static_cast<holdfast_values*>(
          Handles::Add(Kind::kValues, std::move(taken)));
    }
    return result;
  });
}

int32_t holdfast_loop_read(holdfast_loop* loop, float* const* into,
                           const size_t* elements, size_t count,
                           holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (into == nullptr) return Null("into");
    if (elements == nullptr) return Null("elements");
    return found.Read({into, count}, {elements, count});
  });
}

int32_t holdfast_loop_input(holdfast_loop* loop, int32_t waiting,
                            holdfast_error** error) {
  return With<Loop>(loop, error,
                    [&](Loop& found) { return found.Input(waiting != 0); });
}

int32_t holdfast_loop_memory(holdfast_loop* loop, size_t variable,
                             float** memory, holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (memory == nullptr) return Null("memory");
    return found.Memory(variable, memory);
  });
}

int32_t holdfast_loop_add(holdfast_loop* loop, size_t variable,
                          const float* gradient, size_t elements,
                          holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (gradient == nullptr && elements > 0) return Null("gradient");
    return found.Add(variable, {gradient, elements});
  });
}

int32_t holdfast_loop_contribute(holdfast_loop* loop, uint64_t examples,
                                 double loss, float clip_factor,
                                 holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    return found.Contribute(GradientOf(examples, loss, clip_factor));
  });
}

int32_t holdfast_loop_push(holdfast_loop* loop, const float* const* gradients,
                           const size_t* elements, size_t count,
                           uint64_t examples, double loss, float clip_factor,
                           holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (gradients == nullptr && count > 0) return Null("gradients");
    if (elements == nullptr && count > 0) return Null("elements");
    return found.Push({gradients, count}, {elements, count},
                      GradientOf(examples, loss, clip_factor));
  });
}

int32_t holdfast_loop_read_rows(holdfast_loop* loop, const holdfast_rows* rows,
                                size_t count, float* const* into,
                                const size_t* elements, int64_t timeout_ms,
                                holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (into == nullptr && count > 0) return Null("into");
    if (elements == nullptr && count > 0) return Null("elements");
    std::vector<holdfast::RowUse> uses;
    Error result = ReadRowUses(rows, count, &uses);
    if (!result.ok()) return result;
    std::vector<absl::Span<float>> spans;
    for (size_t i = 0; i < count; ++i) {
      if (into[i] == nullptr && elements[i] > 0) {
        return Null(absl::StrCat("into[", i, "]"));
      }
      spans.emplace_back(into[i], elements[i]);
    }
    return found.ReadRows(uses, spans, Until(timeout_ms));
  });
}

int32_t holdfast_loop_want_rows(holdfast_loop* loop, const holdfast_rows* rows,
                                size_t count, holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    std::vector<holdfast::RowUse> uses;
    Error result = ReadRowUses(rows, count, &uses);
    return result.ok() ? found.WantRows(uses) : result;
  });
}

int32_t holdfast_loop_add_rows(holdfast_loop* loop, const holdfast_rows* rows,
                               const float* gradients, size_t elements,
                               holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (gradients == nullptr && elements > 0) return Null("gradients");
    std::vector<holdfast::RowUse> uses;
    Error result = ReadRowUses(rows, 1, &uses);
    if (!result.ok()) return result;
    return found.AddRows(uses.front(), {gradients, elements});
  });
}

int32_t holdfast_loop_outcome(holdfast_loop* loop, holdfast_outcome* outcome,
                              holdfast_error** error) {
  return With<Loop>(loop, error, [&](Loop& found) {
    if (outcome == nullptr) return Null("outcome");
    return found.Outcome(outcome);
  });
}

void holdfast_loop_free(holdfast_loop* loop) {
  if (const auto found = Remove<Loop>(loop)) found->Drop();
}

// ---- Values ----

int32_t holdfast_pull(holdfast_cluster* cluster, uint64_t min_step,
                      holdfast_values** values, holdfast_error** error) {
  return holdfast_pull_rows(cluster, min_step, nullptr, 0, values, error);
}

int32_t holdfast_pull_rows(holdfast_cluster* cluster, uint64_t min_step,
                           const holdfast_rows* rows, size_t count,
                           holdfast_values** values, holdfast_error** error) {
  const std::shared_ptr<Connection> connection = Find<Connection>(cluster);
  if (connection == nullptr) {
    return Report(BadHandle<Connection>(cluster), error);
  }
  if (values == nullptr) return Report(Null("values"), error);
  std::vector<holdfast::RowUse> uses;
  if (Error result = ReadRowUses(rows, count, &uses); !result.ok()) {
    return Report(std::move(result), error);
  }
  auto into = std::make_shared<holdfast::Parameters>();
  holdfast::client::RowRequest request;
  std::shared_ptr<holdfast::BackgroundCalls::Call> call;
  Error result = connection->StartPull(min_step, uses, &request, into, &call);
  if (result.ok()) {
    *values = static_cast<holdfast_values*>(Handles::Add(
        Kind::kValues,
        std::make_shared<Values>(connection, std::move(into),
                                 std::move(request), std::move(call))));
  }
  return Report(std::move(result), error);
}

int32_t holdfast_values_wait(holdfast_values* values, int64_t timeout_ms,
                             holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    return found.Await(Until(timeout_ms));
  });
}

int32_t holdfast_load_checkpoint(const char* path, holdfast_values** values,
                                 holdfast_error** error) {
  if (path == nullptr) return Report(Null("path"), error);
  if (values == nullptr) return Report(Null("values"), error);
  if (Handles::IsForkedChild()) {
    return Report(BadHandle<Values>(nullptr), error);
  }
  auto loaded = LoadCheckpoint(path);
  if (!loaded.ok()) return Report(OfFiles(loaded.status()), error);
  Handles::Begin();
  *values = static_cast<holdfast_values*>(
      Handles::Add(Kind::kValues, *std::move(loaded)));
  return Report(Error(), error);
}

int32_t holdfast_values_get_step(holdfast_values* values, uint64_t* step,
                                 holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (step == nullptr) return Null("step");
    Error result = found.Check();
    if (result.ok()) *step = found.step();
    return result;
  });
}

int32_t holdfast_values_get_count(holdfast_values* values, size_t* count,
                                  holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (count == nullptr) return Null("count");
    *count = found.count();
    return Error();
  });
}

int32_t holdfast_values_get_variable(holdfast_values* values, size_t index,
                                     holdfast_variable* variable,
                                     holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (variable == nullptr) return Null("variable");
    if (index >= found.count()) {
      return Invalid(absl::StrCat("there is no variable ", index, ", only ",
                                  found.count()));
    }
    Error result = found.Check();
    if (result.ok()) found.GetVariable(index, variable);
    return result;
  });
}

int32_t holdfast_values_get_rows(holdfast_values* values, size_t index,
                                 float* into, size_t elements,
                                 holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (into == nullptr && elements > 0) return Null("into");
    Error result = found.Check();
    return result.ok() ? found.GetRows(index, {into, elements}) : result;
  });
}

int32_t holdfast_values_get_digest(holdfast_values* values, char** text,
                                   holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (text == nullptr) return Null("text");
    Error result = found.Check();
    if (result.ok()) *text = CopyOf(found.Digest());
    return result;
  });
}

int32_t holdfast_values_get_num_tables(holdfast_values* values, size_t* count,
                                       holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (count == nullptr) return Null("count");
    *count = found.num_tables();
    return Error();
  });
}

int32_t holdfast_values_get_table(holdfast_values* values, size_t index,
                                  holdfast_table* table,
                                  holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (table == nullptr) return Null("table");
    return found.GetTable(index, table);
  });
}

int32_t holdfast_values_get_num_rows(holdfast_values* values, size_t table,
                                     size_t* count, holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (count == nullptr) return Null("count");
    return found.GetNumRows(table, count);
  });
}

int32_t holdfast_values_read_table(holdfast_values* values, size_t table,
                                   uint64_t* ids, float* rows, size_t count,
                                   holdfast_error** error) {
  return With<Values>(values, error, [&](Values& found) {
    if (ids == nullptr && count > 0) return Null("ids");
    if (rows == nullptr && count > 0) return Null("rows");
    return found.ReadTable(table, {ids, count}, rows);
  });
}

void holdfast_values_free(holdfast_values* values) {
  if (const auto found = Remove<Values>(values)) found->GiveUp();
}

int32_t holdfast_checksums(const void* const* memory, const size_t* bytes,
                           size_t count, uint64_t* sums,
                           holdfast_error** error) {
  if (count > 0 && memory == nullptr) return Report(Null("memory"), error);
  if (count > 0 && bytes == nullptr) return Report(Null("bytes"), error);
  if (count > 0 && sums == nullptr) return Report(Null("sums"), error);
  for (size_t i = 0; i < count; ++i) {
    if (memory[i] == nullptr && bytes[i] > 0) {
      return Report(Null(absl::StrCat("memory[", i, "]")), error);
    }
  }
  size_t all = 0;
  for (size_t i = 0; i < count; ++i) all += bytes[i];
  // One core does not use all of the memory's bandwidth. A pool that stays
  // would be useless after fork().
  const bool helps = count > 1 && all >= kManyBytes;
  holdfast::ThreadPool pool(helps ? 2 : 1, "checksums");
  pool.ParallelFor(count, [&](size_t i) {
    sums[i] = holdfast::Checksum(memory[i], bytes[i]);
  });
  return Report(Error(), error);
}

// ---- Examples ----

int32_t holdfast_batch_examples(uint64_t seed, int64_t num_examples,
                                int64_t batch_size, uint64_t batch,
                                int64_t* examples, holdfast_error** error) {
  return holdfast_batch_examples_shuffled(seed, HOLDFAST_SHUFFLE_FULL,
                                          /*shuffle_block=*/0, num_examples,
                                          batch_size, batch, examples, error);
}

int32_t holdfast_batch_examples_shuffled(uint64_t seed, int32_t shuffle,
                                         int64_t shuffle_block,
                                         int64_t num_examples,
                                         int64_t batch_size, uint64_t batch,
                                         int64_t* examples,
                                         holdfast_error** error) {
  if (examples == nullptr) return Report(Null("examples"), error);
  if (num_examples < 1 || batch_size < 1) {
    return Report(
        Invalid(absl::StrCat("num_examples is ", num_examples, ", batch_size ",
                             batch_size, "; both must be at least 1")),
        error);
  }
  if (shuffle_block < 0) {
    return Report(Invalid(absl::StrCat("shuffle_block is ", shuffle_block,
                                       "; it must be at least 1, or 0 for "
                                       "the default")),
                  error);
  }
  holdfast::Shuffle order_options;
  if (shuffle_block > 0) order_options.block = shuffle_block;
  switch (shuffle) {
    case HOLDFAST_SHUFFLE_FULL:
      break;
    case HOLDFAST_SHUFFLE_BLOCKS:
      order_options.kind = holdfast::Shuffle::Kind::kBlocks;
      break;
    case HOLDFAST_SHUFFLE_NONE:
      order_options.kind = holdfast::Shuffle::Kind::kNone;
      break;
    default:
      return Report(Invalid(absl::StrCat("shuffle is ", shuffle,
                                         "; it must be one of "
                                         "holdfast_shuffle, from 0 to 2")),
                    error);
  }
  holdfast::BatchRanges::Options options;
  options.num_examples = num_examples;
  options.batch_size = batch_size;
  const auto range = holdfast::BatchRanges(options).OfTicket(batch);
  if (!range.ok()) {
    return Report(Invalid(std::string(range.status().message())), error);
  }
  const holdfast::ExampleOrder order(seed, num_examples, order_options);
  for (int64_t i = 0; i < range->count; ++i) {
    examples[i] = order.At(range->begin + i);
  }
  return Report(Error(), error);
}

}  // extern "C"
