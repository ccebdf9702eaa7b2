/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/c_api/calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT_BAD_HANDLE(call, name)                                   \
  do {                                                                  \
    holdfast_error* error = NULL;                                       \
    const int32_t kind = (call);                                        \
    const int ok = kind == HOLDFAST_BAD_HANDLE &&                       \
                   holdfast_error_kind(error) == HOLDFAST_BAD_HANDLE && \
                   strlen(holdfast_error_message(error)) > 0 &&         \
                   holdfast_error_exit_code(error) == 1;                \
    holdfast_error_free(error);                                         \
    if (!ok) return name;                                               \
  } while (0)

const char* CallAllWith(holdfast_cluster* cluster, holdfast_loop* loop,
                        holdfast_values* values) {
  holdfast_place place;
  holdfast_variable variable;
  holdfast_turn turn;
  holdfast_outcome outcome;
  holdfast_evaluation evaluation;
  const holdfast_metric metric = {"loss", 0};
  holdfast_table table;
  const uint64_t id = 1;
  const holdfast_rows rows = {0, &id, 1};
  holdfast_loop* new_loop = NULL;
  holdfast_values* new_values = NULL;
  char* text = NULL;
  size_t count = 0;
  int32_t state = 0;
  uint64_t step = 0;
  float number = 0;
  float* into = &number;
  const float* from = &number;
  const size_t one = 1;

  EXPECT_BAD_HANDLE(holdfast_await_connected(cluster, -1, &error), "connected");
  EXPECT_BAD_HANDLE(holdfast_get_place(cluster, &place, &error), "place");
  EXPECT_BAD_HANDLE(holdfast_declare(cluster, "", NULL, 0, -1, &error),
                    "declare");
  EXPECT_BAD_HANDLE(holdfast_await_variables(cluster, -1, &error),
                    "await_variables");
  EXPECT_BAD_HANDLE(holdfast_agree(cluster, NULL, 0, -1, &error), "agree");
  EXPECT_BAD_HANDLE(holdfast_get_num_variables(cluster, &count, &error),
                    "num_variables");
  EXPECT_BAD_HANDLE(holdfast_get_variable(cluster, 0, &variable, &error),
                    "variable");
  EXPECT_BAD_HANDLE(holdfast_get_num_tables(cluster, &count, &error),
                    "num_tables");
  EXPECT_BAD_HANDLE(holdfast_get_table(cluster, 0, &table, &error), "table");
  EXPECT_BAD_HANDLE(holdfast_get_declaration(cluster, &text, &error),
                    "declaration");
  EXPECT_BAD_HANDLE(holdfast_get_status(cluster, -1, &text, &error), "status");
  EXPECT_BAD_HANDLE(holdfast_save_checkpoint(cluster, -1, &step, &error),
                    "save");
  EXPECT_BAD_HANDLE(
      holdfast_report_evaluation(cluster, 1, 1, 0, NAN, NAN, -1, &error),
      "evaluation");
  EXPECT_BAD_HANDLE(holdfast_next_evaluation(cluster, -1, &evaluation, &error),
                    "next_evaluation");
  EXPECT_BAD_HANDLE(
      holdfast_report_metrics(cluster, NULL, 1, 1, &metric, 1, -1, &error),
      "metrics");
  EXPECT_BAD_HANDLE(holdfast_leave(cluster, NULL, -1, &error), "leave");
  EXPECT_BAD_HANDLE(holdfast_loop_start(cluster, NULL, 0, &new_loop, &error),
                    "loop_start");
  EXPECT_BAD_HANDLE(holdfast_loop_start_in(cluster, &into, &one, 1, NULL, 0,
                                           &new_loop, &error),
                    "loop_start_in");
  EXPECT_BAD_HANDLE(holdfast_pull(cluster, 0, &new_values, &error), "pull");
  EXPECT_BAD_HANDLE(
      holdfast_pull_rows(cluster, 0, &rows, 1, &new_values, &error),
      "pull_rows");
  holdfast_close(cluster);

  EXPECT_BAD_HANDLE(holdfast_loop_next(loop, -1, &turn, &error), "next");
  EXPECT_BAD_HANDLE(holdfast_loop_current(loop, &turn, &state, &error),
                    "current");
  EXPECT_BAD_HANDLE(holdfast_loop_restart(loop, &error), "restart");
  EXPECT_BAD_HANDLE(holdfast_loop_values(loop, &from, 1, &error), "values");
  EXPECT_BAD_HANDLE(
      holdfast_loop_take_values(loop, &from, 1, &new_values, &error),
      "take_values");
  EXPECT_BAD_HANDLE(holdfast_loop_read(loop, &into, &one, 1, &error), "read");
  EXPECT_BAD_HANDLE(holdfast_loop_memory(loop, 0, &into, &error), "memory");
  EXPECT_BAD_HANDLE(holdfast_loop_input(loop, 1, &error), "input");
  EXPECT_BAD_HANDLE(holdfast_loop_add(loop, 0, from, 1, &error), "add");
  EXPECT_BAD_HANDLE(holdfast_loop_contribute(loop, 1, 0, 1, &error),
                    "contribute");
  EXPECT_BAD_HANDLE(holdfast_loop_push(loop, &from, &one, 1, 1, 0, 1, &error),
                    "push");
  EXPECT_BAD_HANDLE(
      holdfast_loop_read_rows(loop, &rows, 1, &into, &one, -1, &error),
      "read_rows");
  EXPECT_BAD_HANDLE(holdfast_loop_want_rows(loop, &rows, 1, &error),
                    "want_rows");
  EXPECT_BAD_HANDLE(holdfast_loop_add_rows(loop, &rows, from, 1, &error),
                    "add_rows");
  EXPECT_BAD_HANDLE(holdfast_loop_outcome(loop, &outcome, &error), "outcome");
  holdfast_loop_free(loop);

  EXPECT_BAD_HANDLE(holdfast_values_wait(values, -1, &error), "wait");
  EXPECT_BAD_HANDLE(holdfast_values_get_step(values, &step, &error), "step");
  EXPECT_BAD_HANDLE(holdfast_values_get_count(values, &count, &error), "count");
  EXPECT_BAD_HANDLE(holdfast_values_get_variable(values, 0, &variable, &error),
                    "values_variable");
  EXPECT_BAD_HANDLE(holdfast_values_get_rows(values, 0, into, 1, &error),
                    "values_rows");
  EXPECT_BAD_HANDLE(holdfast_values_get_digest(values, &text, &error),
                    "digest");
  holdfast_values_free(values);
  return NULL;
}

static char* MessageOf(holdfast_error* error) {
  const char* const message = holdfast_error_message(error);
  char* const copy = malloc(strlen(message) + 1);
  strcpy(copy, message);
  holdfast_error_free(error);
  return copy;
}

enum { kMostVariables = 8, kMostElements = 16 };

static int32_t TakeTurns(holdfast_cluster* cluster, holdfast_loop* loop,
                         float gradient, double* sum, holdfast_error** error) {
  float memory[kMostElements];
  const float* gradients[kMostVariables] = {0};
  const float* values[kMostVariables];
  size_t elements[kMostVariables];
  size_t count;
  size_t i;
  size_t j;
  int32_t kind = holdfast_get_num_variables(cluster, &count, error);
  if (kind != HOLDFAST_OK) return kind;
  for (i = 0; i < kMostElements; ++i) memory[i] = gradient;
  for (i = 0; i < count; ++i) {
    holdfast_variable variable;
    kind = holdfast_get_variable(cluster, i, &variable, error);
    if (kind != HOLDFAST_OK) return kind;
    elements[i] = variable.elements;
    if (variable.trainable) gradients[i] = memory;
  }
  for (;;) {
    holdfast_turn turn;
    do {
      kind = holdfast_loop_next(loop, 100, &turn, error);
      if (kind == HOLDFAST_TIMED_OUT) holdfast_error_free(*error);
    } while (kind == HOLDFAST_TIMED_OUT);
    if (kind != HOLDFAST_OK) return kind;
    kind = holdfast_loop_values(loop, values, count, error);
    if (kind != HOLDFAST_OK) return kind;
    if (turn.done) break;
    kind = holdfast_loop_push(loop, gradients, elements, count, 1, 0.5,
                              HOLDFAST_CLIP_AS_DECLARED, error);
    if (kind != HOLDFAST_OK) return kind;
  }
  *sum = 0;
  for (i = 0; i < count; ++i) {
    for (j = 0; j < elements[i]; ++j) *sum += values[i][j];
  }
  return HOLDFAST_OK;
}

char* TrainInC(const holdfast_option* options, size_t num_options,
               const char* declaration, float gradient, double* sum) {
  holdfast_cluster* cluster;
  holdfast_loop* loop = NULL;
  holdfast_error* error = NULL;
  int32_t kind = holdfast_connect(options, num_options, &cluster, &error);
  if (kind != HOLDFAST_OK) return MessageOf(error);
  kind = holdfast_await_connected(cluster, -1, &error);
  if (kind == HOLDFAST_OK) {
    kind = holdfast_declare(cluster, declaration, NULL, 0, -1, &error);
  }
  if (kind == HOLDFAST_OK) {
    kind = holdfast_await_variables(cluster, -1, &error);
  }
  if (kind == HOLDFAST_OK) {
    kind = holdfast_loop_start(cluster, NULL, 0, &loop, &error);
  }
  if (kind == HOLDFAST_OK) {
    kind = TakeTurns(cluster, loop, gradient, sum, &error);
  }
  if (kind == HOLDFAST_OK) kind = holdfast_leave(cluster, NULL, -1, &error);
  holdfast_loop_free(loop);
  holdfast_close(cluster);
  return kind == HOLDFAST_OK ? NULL : MessageOf(error);
}
