/* SPDX-License-Identifier: Apache-2.0 */

/* Softmax regression in C, on a Holdfast cluster: the data are generated, the
 * model is y = softmax(x w + b), and its gradient is computed below.
 *
 *   holdfast local --ps=2 --workers=2 -- ./softmax
 *
 * TF_CONFIG, which the launcher sets, describes the cluster and the task. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/c_api/holdfast.h"

enum { kInputs = 8, kClasses = 4, kExamples = 4096, kBatch = 64 };

static const char kDeclaration[] =
    "variables { name: 'w' shape: 8 shape: 4 dtype: FLOAT32"
    "            initializer { zeros {} } }"
    "variables { name: 'b' shape: 4 dtype: FLOAT32 initializer { zeros {} } }"
    "optimizers { learning_rate: 0.5 momentum { momentum: 0.9 } }"
    "consistency { synchronous {} }"
    "total_steps: 300";

/* ---- The data ---- */

static float inputs[kExamples][kInputs];
static int labels[kExamples];

/* A xorshift generator (Marsaglia 2003), the same on every machine. */
static float Uniform(void) {
  static unsigned state = 2463534242u;
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return (float)(state >> 8) / (1 << 24) - 0.5f;
}

/* The class is the index of the greatest of four sums. */
static void MakeData(void) {
  float truth[kInputs][kClasses];
  int i, j, c;
  for (j = 0; j < kInputs; ++j) {
    for (c = 0; c < kClasses; ++c) truth[j][c] = Uniform();
  }
  for (i = 0; i < kExamples; ++i) {
    float best = -1e9f;
    for (j = 0; j < kInputs; ++j) inputs[i][j] = Uniform();
    for (c = 0; c < kClasses; ++c) {
      float sum = 0;
      for (j = 0; j < kInputs; ++j) sum += inputs[i][j] * truth[j][c];
      if (sum > best) {
        best = sum;
        labels[i] = c;
      }
    }
  }
}

/* ---- The model ---- */

static void Predict(const float* w, const float* b, const float* x, float* p) {
  float sum = 0;
  int j, c;
  for (c = 0; c < kClasses; ++c) {
    p[c] = b[c];
    for (j = 0; j < kInputs; ++j) p[c] += x[j] * w[j * kClasses + c];
  }
  for (c = 0; c < kClasses; ++c) sum += p[c] = expf(p[c]);
  for (c = 0; c < kClasses; ++c) p[c] /= sum;
}

/* Computes the gradients of the mean loss over the batch; returns the loss. */
static double Gradient(const float* w, const float* b, const int64_t* examples,
                       float* dw, float* db) {
  double loss = 0;
  int i, j, c;
  memset(dw, 0, sizeof(float) * kInputs * kClasses);
  memset(db, 0, sizeof(float) * kClasses);
  for (i = 0; i < kBatch; ++i) {
    const float* const x = inputs[examples[i]];
    const int label = labels[examples[i]];
    float p[kClasses];
    Predict(w, b, x, p);
    loss -= log(p[label]) / kBatch;
    for (c = 0; c < kClasses; ++c) {
      const float error = (p[c] - (c == label)) / kBatch;
      db[c] += error;
      for (j = 0; j < kInputs; ++j) dw[j * kClasses + c] += x[j] * error;
    }
  }
  return loss;
}

static double Accuracy(const float* w, const float* b) {
  int i, c, right = 0;
  for (i = 0; i < kExamples; ++i) {
    float p[kClasses];
    int best = 0;
    Predict(w, b, inputs[i], p);
    for (c = 1; c < kClasses; ++c) {
      if (p[c] > p[best]) best = c;
    }
    right += best == labels[i];
  }
  return (double)right / kExamples;
}

/* ---- The training ---- */

static holdfast_cluster* cluster;
static holdfast_error* error;

/* Ends the process as a ps_worker ends: the exit code tells a supervisor
 * whether to start it again. */
static void Fail(void) {
  const char* const message = holdfast_error_message(error);
  const int exit_code = holdfast_error_exit_code(error);
  fprintf(stderr, "softmax: %s\n", message);
  /* 138: another process may take this one's place. Other errors end the
   * job. */
  holdfast_leave(cluster, exit_code == 138 ? NULL : message, 5000, NULL);
  holdfast_close(cluster);
  exit(exit_code);
}

/* Checks the result of a call whose last argument is &error. */
static void Check(int32_t kind) {
  if (kind != HOLDFAST_OK) Fail();
}

int main(void) {
  float dw[kInputs * kClasses], db[kClasses];
  const float* const gradients[2] = {dw, db};
  const size_t elements[2] = {kInputs * kClasses, kClasses};
  const float* values[2];
  holdfast_loop* loop;
  holdfast_place place;

  MakeData();
  Check(holdfast_connect(NULL, 0, &cluster, &error));
  Check(holdfast_await_connected(cluster, -1, &error));
  Check(holdfast_get_place(cluster, &place, &error));
  Check(holdfast_declare(cluster, kDeclaration, NULL, 0, -1, &error));
  Check(holdfast_await_variables(cluster, -1, &error));
  Check(holdfast_loop_start(cluster, NULL, 0, &loop, &error));
  for (;;) {
    int64_t examples[kBatch];
    holdfast_turn turn;
    double loss;
    Check(holdfast_loop_next(loop, -1, &turn, &error));
    Check(holdfast_loop_values(loop, values, 2, &error));
    if (turn.done) break;
    Check(holdfast_batch_examples(1, kExamples, kBatch, turn.batch, examples,
                                  &error));
    loss = Gradient(values[0], values[1], examples, dw, db);
    if (turn.step % 100 == 0 && place.is_chief) {
      printf("step %d: loss %.4f\n", (int)turn.step, loss);
    }
    /* dw and db are in use until the next turn has arrived. */
    Check(holdfast_loop_push(loop, gradients, elements, 2, kBatch, loss,
                             HOLDFAST_CLIP_AS_DECLARED, &error));
  }
  if (place.is_chief) printf("accuracy %.4f\n", Accuracy(values[0], values[1]));
  Check(holdfast_leave(cluster, NULL, -1, &error));
  holdfast_loop_free(loop);
  holdfast_close(cluster);
  return 0;
}
