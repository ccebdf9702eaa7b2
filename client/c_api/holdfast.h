// SPDX-License-Identifier: Apache-2.0

/* Holdfast in C: training on variables that a cluster of parameter servers
 * holds.
 *
 * A program in outline (without error handling; see examples/c/ for a complete
 * one):
 *
 *   holdfast_cluster* cluster;
 *   holdfast_connect(NULL, 0, &cluster, &error);            // TF_CONFIG
 *   holdfast_await_connected(cluster, -1, &error);
 *   holdfast_declare(cluster, "variables { ... } ...", NULL, 0, -1, &error);
 *   holdfast_await_variables(cluster, -1, &error);
 *   holdfast_loop* loop;
 *   holdfast_loop_start(cluster, NULL, 0, &loop, &error);
 *   for (;;) {
 *     holdfast_turn turn;
 *     holdfast_loop_next(loop, -1, &turn, &error);
 *     if (turn.done) break;
 *     const float* values[N];
 *     holdfast_loop_values(loop, values, N, &error);
 *     ...  // gradients of batch turn.batch at these values
 *     holdfast_loop_push(loop, gradients, elements, N, examples, loss,
 *                        HOLDFAST_CLIP_AS_DECLARED, &error);
 *   }
 *   holdfast_leave(cluster, NULL, -1, &error);
 *   holdfast_loop_free(loop);
 *   holdfast_close(cluster);
 *
 * Errors. Functions that can fail return a holdfast_kind, HOLDFAST_OK on
 * success. Where `error` is not NULL, *error becomes NULL on success and a new
 * error otherwise, which the caller frees with holdfast_error_free. The
 * previous content of *error is ignored. On failure other outputs are left
 * unchanged, unless the function's description says otherwise.
 *
 * Waits. Functions with a `timeout_ms` wait at most that long; a negative value
 * means no limit, and 0 does not wait. HOLDFAST_TIMED_OUT ends nothing: the
 * operation continues, and the same call resumes the wait. Callers that must
 * handle signals (Python, R, Julia) should wait 100 ms at a time. The job's
 * start, step and recovery timeouts end waits for good; every wait has one, so
 * none lasts forever.
 *
 * Handles. A handle is a number of pointer type; it is never dereferenced. For
 * a handle that is NULL, was closed or freed, is of the wrong type, or was made
 * by the process that this one was forked from, functions return
 * HOLDFAST_BAD_HANDLE. Freeing such a handle does nothing.
 *
 * Threads. All functions may be called from any thread at any time, even with
 * the same handle. Closing a handle that another thread waits on ends that wait
 * with HOLDFAST_BAD_HANDLE. The library's own threads keep the worker's lease
 * alive, whatever the caller's threads do.
 *
 * fork(). Only the process that made a handle may use it. A child process may
 * make its own handles only after exec.
 *
 * Data. Tensors are whole variables of type float, row-major; sizes are numbers
 * of elements. Text is UTF-8 and ends with NUL.
 */
#ifndef HOLDFAST_C_API_HOLDFAST_H_
#define HOLDFAST_C_API_HOLDFAST_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HOLDFAST_EXPORT __attribute__((visibility("default")))
#else
#define HOLDFAST_EXPORT
#endif

/* Incremented when a program built against an older header would break; it is
 * also the number in the library's name, libholdfast.so.1. Added functions do
 * not increment it. */
#define HOLDFAST_API_VERSION 1

/* The HOLDFAST_API_VERSION that the library was built with. */
HOLDFAST_EXPORT int32_t holdfast_api_version(void);
/* The release, such as "0.8.0". A static string. */
HOLDFAST_EXPORT const char* holdfast_version(void);

typedef struct holdfast_error holdfast_error;
typedef struct holdfast_cluster holdfast_cluster;
typedef struct holdfast_loop holdfast_loop;
typedef struct holdfast_values holdfast_values;

/* ---- Errors ---- */

/* The kinds of error that callers may have to handle differently. Passed as
 * int32_t. */
typedef enum holdfast_kind {
  HOLDFAST_OK = 0,
  /* The caller's mistake: an argument, or the order of calls. */
  HOLDFAST_INVALID = 1,
  HOLDFAST_BAD_HANDLE = 2,
  /* The wait timed out; repeat the call to continue to wait. */
  HOLDFAST_TIMED_OUT = 3,
  /* The job rolled back to an earlier step. Returned only by strict loops, and
   * by pulls (also of rows) that were in progress. */
  HOLDFAST_ROLLED_BACK = 4,
  /* This worker's lease expired, or another process has taken its place. */
  HOLDFAST_FENCED = 5,
  /* The job has failed; the message is its reason. */
  HOLDFAST_JOB_FAILED = 6,
  /* A task cannot be reached, or a wait timed out for good. */
  HOLDFAST_UNAVAILABLE = 7,
  /* The cluster refuses this worker or this declaration: it contradicts the
   * existing declaration, or the worker's place is taken. */
  HOLDFAST_REFUSED = 8,
  /* A file does not exist. */
  HOLDFAST_NOT_FOUND = 9,
  /* A file is damaged. */
  HOLDFAST_DAMAGED = 10,
  HOLDFAST_INTERNAL = 11,
  /* An operator has stopped the job; the message says at which step, and from
   * where the job continues when it is started again. */
  HOLDFAST_STOPPED = 12
} holdfast_kind;

HOLDFAST_EXPORT int32_t holdfast_error_kind(const holdfast_error* error);
/* The message, of one or more lines. Valid until the error is freed. "" for
 * NULL. */
HOLDFAST_EXPORT const char* holdfast_error_message(const holdfast_error* error);
/* The first task that the message names, such as "/job:ps/task:1"; "" if none.
 * Valid until the error is freed. */
HOLDFAST_EXPORT const char* holdfast_error_task(const holdfast_error* error);
/* The exit code for a program that ends because of the error, so that
 * supervisors treat it like a ps_worker (docs/operating/exit_codes.md): 1
 * failed, 2 wrong usage, 138 start it again; 0 for HOLDFAST_STOPPED, and for
 * NULL. */
HOLDFAST_EXPORT int32_t holdfast_error_exit_code(const holdfast_error* error);
/* NULL is allowed. */
HOLDFAST_EXPORT void holdfast_error_free(holdfast_error* error);

/* Frees text that a function has returned through a char**. NULL is allowed. */
HOLDFAST_EXPORT void holdfast_text_free(char* text);

/* ---- Log ---- */

typedef enum holdfast_severity {
  HOLDFAST_LOG_INFO = 0,
  HOLDFAST_LOG_WARNING = 1,
  HOLDFAST_LOG_ERROR = 2,
  HOLDFAST_LOG_NONE = 3
} holdfast_severity;

/* Receives a line of the log, without its newline. Called by any thread of the
 * library or of the caller, one at a time; must not call the library. `line` is
 * valid during the call. */
typedef void (*holdfast_log_sink)(void* context, int32_t severity,
                                  const char* line);

/* Sends messages of severity `least` (holdfast_severity) and above to `sink`,
 * or, if that is NULL, to standard error. Applies to the whole process; may be
 * called at any time. Default: warnings and errors, to standard error. Once
 * this has returned, the previous sink is no longer called. */
HOLDFAST_EXPORT void holdfast_set_log(int32_t least, holdfast_log_sink sink,
                                      void* context);

/* ---- The cluster ---- */

/* A named setting. Names and values are those of the daemons' flags if these
 * have such a flag. */
typedef struct holdfast_option {
  const char* name;
  const char* value;
} holdfast_option;

/* Begins to connect and to join the cluster as one of its tasks, and returns at
 * once; holdfast_await_connected waits. All options are optional:
 *
 *   cluster_spec   JSON as in TensorFlow, or the path of a file with it
 *   ps_hosts, worker_hosts, chief_hosts   host:port,host:port
 *   job_name, task_index                  "worker", "3"; job "client" only
 *                  reads: it takes no part, and needs no index; "evaluator"
 *                  evaluates checkpoints
 *   tf_config      replaces the environment variable TF_CONFIG, which supplies
 *                  what the options above leave out
 *   tls_dir        folder with ca.crt, tls.crt, tls.key: mutual TLS
 *   insecure       "true": allows tasks on other machines without tls_dir
 *   connect_timeout, recovery_timeout     how long the cluster may take to
 *                  start, and to come back once lost; seconds, default 300
 *   same_host      "off": tensors pass over the network even to a ps of this
 *                  host; "auto" (the default): through shared memory if
 *                  possible
 *   same_host_dir  share memory only with a ps whose socket is in this
 *                  directory, such as a volume shared by containers
 *   trace          file to which a trace of this process is written when the
 *                  cluster is closed (docs/operating/tracing.md); %t in the
 *                  name stands for the task
 *   job_digest, data_digest               workers that join with different
 *                  digests are refused
 *   fail_fast      "true": a client gives up as soon as it is certain why a
 *                  ps cannot be reached
 *
 * The caller must close *cluster.
 * Errors: INVALID, with the name of the option; NOT_FOUND if its file does not
 * exist. */
HOLDFAST_EXPORT int32_t holdfast_connect(const holdfast_option* options,
                                         size_t num_options,
                                         holdfast_cluster** cluster,
                                         holdfast_error** error);

/* Waits until the task has joined and every ps answers. Functions below that
 * communicate with the cluster require it first.
 * Errors: REFUSED, UNAVAILABLE, JOB_FAILED; after these the cluster can only be
 * closed. */
HOLDFAST_EXPORT int32_t holdfast_await_connected(holdfast_cluster* cluster,
                                                 int64_t timeout_ms,
                                                 holdfast_error** error);

/* This process's place in the cluster. Known as soon as holdfast_connect has
 * returned. */
typedef struct holdfast_place {
  /* "worker", "chief", "evaluator" or "client". Valid until the cluster is
   * closed. */
  const char* job;
  uint32_t index;
  /* Index among the tasks that train, from 0. 0 for a task that does not
   * train. */
  uint32_t replica;
  uint32_t num_replicas;
  uint32_t num_ps;
  /* 1 for replica 0. */
  int32_t is_chief;
} holdfast_place;

HOLDFAST_EXPORT int32_t holdfast_get_place(holdfast_cluster* cluster,
                                           holdfast_place* place,
                                           holdfast_error** error);

/* Declares what is trained and how. Every worker calls it, with the same
 * arguments: the chief's declaration counts, and the others' are compared with
 * it in holdfast_await_variables.
 *
 * `text`: a Declaration of proto/cluster.proto in protobuf's text format, with
 * the job file's vocabulary (docs/job_file.md):
 *
 *   variables { name: "w" shape: 784 shape: 10 dtype: FLOAT32
 *               initializer { zeros {} } }
 *   optimizers { learning_rate: 0.1 sgd {} }
 *   consistency { synchronous {} }
 *   total_steps: 1000
 *
 * `first_values`: NULL, or `count` pointers, indexed by variable, NULL for
 * variables whose initializer is not `given {}`. Variables with that
 * initializer begin with these values unless the job resumes from a checkpoint.
 * The values are copied before this returns for the first time. Workers other
 * than the chief may pass none.
 *
 * `agreed { key: "dataset length" value: "60000" }`, once for each of at most
 * 10,000 facts, of at most 256 bytes each, is compared among all workers, and
 * with each restart: see holdfast_agree.
 *
 * The library repeats the declaration by itself in each new generation.
 * Errors: INVALID, naming the field, for a text that does not parse or breaks a
 * rule; REFUSED if something else was declared before. A declaration that was
 * refused, here or by holdfast_await_variables, may be corrected by another
 * call. */
HOLDFAST_EXPORT int32_t holdfast_declare(holdfast_cluster* cluster,
                                         const char* text,
                                         const float* const* first_values,
                                         size_t count, int64_t timeout_ms,
                                         holdfast_error** error);

/* Waits until the variables exist on every ps. A client need not declare them.
 * Errors: REFUSED, naming the first difference, if they are not what this
 * worker has declared. */
HOLDFAST_EXPORT int32_t holdfast_await_variables(holdfast_cluster* cluster,
                                                 int64_t timeout_ms,
                                                 holdfast_error** error);

/* Compares facts with all other workers, and with earlier lives of this one:
 * numbers, or digests of what each worker keeps to itself, such as the length
 * of its data set. The job keeps the first value that any worker brings for a
 * name, also when it resumes from a checkpoint. Names are part of the error, so
 * they should say to users what differs.
 *
 * After holdfast_await_variables, as often as there are new facts; meant for
 * once per loop, not for every step. Facts of the text given to
 * holdfast_declare are compared in holdfast_await_variables.
 * Errors: REFUSED if the job has another value for a name, with both values;
 * INVALID, for facts that are too many, too long, or not UTF-8. */
HOLDFAST_EXPORT int32_t holdfast_agree(holdfast_cluster* cluster,
                                       const holdfast_option* facts,
                                       size_t num_facts, int64_t timeout_ms,
                                       holdfast_error** error);

/* A variable. Its pointers are valid until the handle that it came from is
 * closed or freed. */
typedef struct holdfast_variable {
  const char* name;
  /* Outermost first. NULL for a scalar. */
  const int64_t* shape;
  size_t rank;
  size_t elements;
  /* 1: pushes carry its gradient (or, for a moving average, its value). */
  int32_t trainable;
  /* 1: the variable is a moving average over steps, like the statistics of
   * batch norm. */
  int32_t moving_average;
  /* The values, if the variable was returned by holdfast_values_get_variable;
   * NULL otherwise. Valid until the holdfast_values is freed. */
  const float* data;
} holdfast_variable;

/* The declared variables, in order of declaration. After
 * holdfast_await_variables. */
HOLDFAST_EXPORT int32_t holdfast_get_num_variables(holdfast_cluster* cluster,
                                                   size_t* count,
                                                   holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_get_variable(holdfast_cluster* cluster,
                                              size_t index,
                                              holdfast_variable* variable,
                                              holdfast_error** error);

/* An embedding table (docs/protocol/tables.md): rows of floats, identified by
 * any unsigned 64-bit id. Declared in the text as
 *
 *   tables { name: "users" row_length: 16 max_rows_per_push: 4096
 *            initializer { uniform { low: -0.05 high: 0.05 } } }
 */
typedef struct holdfast_table {
  /* Valid until the cluster is closed. */
  const char* name;
  /* The number of values in a row. */
  size_t row_length;
  /* The maximum number of different ids in a push. */
  size_t max_rows_per_push;
  uint64_t reserved[4];
} holdfast_table;

/* The declared tables, in order of declaration. After
 * holdfast_await_variables. */
HOLDFAST_EXPORT int32_t holdfast_get_num_tables(holdfast_cluster* cluster,
                                                size_t* count,
                                                holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_get_table(holdfast_cluster* cluster,
                                           size_t index, holdfast_table* table,
                                           holdfast_error** error);

/* Rows of one table: any ids, in any order, possibly repeated. */
typedef struct holdfast_rows {
  /* The table's index as declared. */
  size_t table;
  const uint64_t* ids;
  size_t count;
} holdfast_rows;

/* The declaration in text format, with defaults filled in. After
 * holdfast_await_variables. Free *text with holdfast_text_free. */
HOLDFAST_EXPORT int32_t holdfast_get_declaration(holdfast_cluster* cluster,
                                                 char** text,
                                                 holdfast_error** error);

/* The state of the job and the cluster as JSON: GetStatusResponse of
 * proto/coordinator.proto. Free *json with holdfast_text_free. */
HOLDFAST_EXPORT int32_t holdfast_get_status(holdfast_cluster* cluster,
                                            int64_t timeout_ms, char** json,
                                            holdfast_error** error);

/* Takes a checkpoint, and waits until it is on disk. `step` may be NULL. */
HOLDFAST_EXPORT int32_t holdfast_save_checkpoint(holdfast_cluster* cluster,
                                                 int64_t timeout_ms,
                                                 uint64_t* step,
                                                 holdfast_error** error);

/* Reports the result of an evaluation to the cluster, for its status page and
 * metrics. `accuracy` and `mean_absolute_error`: NAN if there is none. For
 * other figures see holdfast_report_metrics. */
HOLDFAST_EXPORT int32_t holdfast_report_evaluation(
    holdfast_cluster* cluster, uint64_t step, uint64_t examples, double loss,
    double accuracy, double mean_absolute_error, int64_t timeout_ms,
    holdfast_error** error);

/* ---- Evaluation ---- */

/* A checkpoint for an evaluator to evaluate. */
typedef struct holdfast_evaluation {
  /* 1: the job is done, and no checkpoint is left. Nothing else is set. */
  int32_t done;
  uint32_t reserved_word;
  /* The generation of the job in which the checkpoint was taken. */
  uint64_t generation;
  /* The step of the values in the checkpoint; in asynchronous jobs, the number
   * of pushes applied. */
  uint64_t step;
  /* The name of the checkpoint's folder in the checkpoint directory of the ps,
   * such as "g0001-step00001000". holdfast_load_checkpoint reads that
   * folder. */
  char name[64];
  uint64_t reserved[4];
} holdfast_evaluation;

/* For a task of the job "evaluator", after holdfast_await_connected: waits for
 * the next checkpoint to evaluate. The declaration's `evaluation` determines
 * which checkpoints are due and when. The checkpoint stays on disk until its
 * evaluation is reported or another checkpoint is requested.
 * Errors: INVALID for any other task, or if the ps have no checkpoint
 * directory; STOPPED, JOB_FAILED. */
HOLDFAST_EXPORT int32_t holdfast_next_evaluation(
    holdfast_cluster* cluster, int64_t timeout_ms,
    holdfast_evaluation* evaluation, holdfast_error** error);

typedef struct holdfast_metric {
  const char* name;
  double value;
} holdfast_metric;

/* Reports the figures of one evaluation, on `examples` examples, to the
 * cluster. Their names are "loss", which is required (NAN if there is none),
 * "accuracy", "mean_absolute_error", "mean_squared_error", "top_k_accuracy",
 * "auc", "calibration", or up to 32 names of the caller's choice, of at most 64
 * bytes each.
 *
 * `evaluation`: the result of holdfast_next_evaluation, of which only
 * `generation` and `step` are used; the argument `step` is then ignored. Once
 * this has returned, the consequences of the figures, such as which checkpoints
 * are kept as the best, are on disk. NULL: a worker has evaluated the values of
 * `step`.
 * Errors: INVALID for figures that cannot be stored. */
HOLDFAST_EXPORT int32_t holdfast_report_metrics(
    holdfast_cluster* cluster, const holdfast_evaluation* evaluation,
    uint64_t step, uint64_t examples, const holdfast_metric* metrics,
    size_t count, int64_t timeout_ms, holdfast_error** error);

/* ---- The end ---- */

/* Ends the job for all tasks before its last step, and waits until it is done.
 * It ends like a job that has made all its steps, at the first step at which it
 * can, with a last checkpoint if the ps have a checkpoint directory. For
 * workers; several may call it, more than once, and it does nothing when the
 * job is done.
 *
 * A turn that has not been contributed is passed without a gradient, as are
 * those that this worker would still get: if there is a loop,
 * holdfast_loop_next returns the turn that is done, and memory that was handed
 * in belongs to the caller again. If this times out before the job has been
 * asked to end, nothing has changed yet; repeat it until it does not time out.
 * Errors: INVALID for a task that is not a worker; those of
 * holdfast_loop_next. */
HOLDFAST_EXPORT int32_t holdfast_finish(holdfast_cluster* cluster,
                                        int64_t timeout_ms,
                                        holdfast_error** error);

/* Ends this task's part in an orderly way. A non-empty `reason` says why the
 * job cannot continue, and ends the job for all tasks. NULL or "": the job is
 * done, or this worker was told to stop and another process may take its place.
 * A program that leaves of its own accord before the job is done uses
 * holdfast_step_down, or holdfast_finish before. Loops and pulls in progress
 * fail. */
HOLDFAST_EXPORT int32_t holdfast_leave(holdfast_cluster* cluster,
                                       const char* reason, int64_t timeout_ms,
                                       holdfast_error** error);

/* Does the same as holdfast_leave without a reason, for a worker that leaves of
 * its own accord. If the job is not done, an event says that it has, and so
 * does the text of whoever waits for this worker. `program_ended`: not 0 if the
 * program is about to end, without an error; 0 if it goes on without the
 * cluster. */
HOLDFAST_EXPORT int32_t holdfast_step_down(holdfast_cluster* cluster,
                                           int32_t program_ended,
                                           int64_t timeout_ms,
                                           holdfast_error** error);

/* Ends all threads and connections. If holdfast_leave was not called, the
 * cluster learns that this task ended without leaving, which ends the job
 * unless the task is an evaluator. In a child of fork() it affects only the
 * child's own resources. Takes at most a few seconds. */
HOLDFAST_EXPORT void holdfast_close(holdfast_cluster* cluster);

/* ---- The training loop ---- */

/* The right, and the obligation, to contribute one gradient. */
typedef struct holdfast_turn {
  /* 1: there is nothing more to do; the fields below, except `step` and
   * `values`, are 0.
   */
  int32_t done;
  /* 1: since the previous turn, the job has rolled back to an earlier step;
   * values and batches continue from there. */
  int32_t rolled_back;
  /* The batch of the training stream to compute the gradient of, regardless of
   * who computes it and when: the ticket's batch, or step x seats + seat. */
  uint64_t batch;
  /* In synchronous jobs, the step. In asynchronous jobs, the step of the newest
   * values. */
  uint64_t step;
  /* The seat in the step; only in synchronous jobs whose examples are assigned
   * by step. */
  uint32_t seat;
  /* Which of the loop's memory sets holds the values: 0 or 1 unless
   * holdfast_loop_take_values keeps one. */
  uint32_t values;
  /* Multiply the loss by this when computing the gradient, and divide the
   * gradient by it before pushing. 1 if the job has no loss scale. */
  float loss_scale;
  float reserved_float;
  /* The number of turns that the loop has handed out, with this one: differs
   * for a batch that is handed out again. */
  uint64_t number;
  uint64_t reserved[3];
} holdfast_turn;

/* Begins to train; one loop at a time. After holdfast_declare and
 * holdfast_await_variables. Options:
 *
 *   strict   "true": a roll-back ends the loop with ROLLED_BACK; the next loop
 *            continues from the restored values. Otherwise the next turn has
 *            rolled_back set.
 *
 * The loop takes this worker's seats or tickets one after the other, as
 * declared; begins each pull together with the preceding push; after a
 * roll-back, drops operations in progress and continues from the restored
 * values; and at the end waits until the job is done. The caller must free
 * *loop. */
HOLDFAST_EXPORT int32_t holdfast_loop_start(holdfast_cluster* cluster,
                                            const holdfast_option* options,
                                            size_t num_options,
                                            holdfast_loop** loop,
                                            holdfast_error** error);

/* Like holdfast_loop_start, but the loop writes the values of variable i to
 * memory[i], if that is not NULL, instead of to its own memory sets.
 * holdfast_loop_values then returns memory[i], and no copy is made. elements[i]
 * must be the variable's size; `count` must be the number of variables. The
 * library writes to the memory from holdfast_loop_contribute or
 * holdfast_loop_push until holdfast_loop_next returns a turn; during a turn the
 * caller may change it. The memory must stay valid until the loop is freed or
 * the cluster is closed; after an error of holdfast_loop_next its content is
 * unspecified. */
HOLDFAST_EXPORT int32_t holdfast_loop_start_in(
    holdfast_cluster* cluster, float* const* memory, const size_t* elements,
    size_t count, const holdfast_option* options, size_t num_options,
    holdfast_loop** loop, holdfast_error** error);

/* Waits for the next turn and its values. The previous turn must have been
 * contributed. An error other than TIMED_OUT and BAD_HANDLE ends the loop. */
HOLDFAST_EXPORT int32_t holdfast_loop_next(holdfast_loop* loop,
                                           int64_t timeout_ms,
                                           holdfast_turn* turn,
                                           holdfast_error** error);

/* What holdfast_loop_next would do. */
typedef enum holdfast_turn_state {
  /* No turn is handed out: holdfast_loop_next gives the next one. */
  HOLDFAST_TURN_NEXT = 0,
  /* The turn was handed out, and is not contributed. */
  HOLDFAST_TURN_HANDED_OUT = 1,
  /* The loop is done. */
  HOLDFAST_TURN_DONE = 2
} holdfast_turn_state;

/* Sets *state (holdfast_turn_state) and, unless it is HOLDFAST_TURN_NEXT, *turn
 * to what holdfast_loop_next has returned last, without waiting for anything.
 * For programs that may lose the result of a call, such as a Python script that
 * is interrupted between the call and the next instruction: the loop knows what
 * was contributed. */
HOLDFAST_EXPORT int32_t holdfast_loop_current(holdfast_loop* loop,
                                              holdfast_turn* turn,
                                              int32_t* state,
                                              holdfast_error** error);

/* Forgets everything that was handed in for the turn, by holdfast_loop_add,
 * holdfast_loop_add_rows or a holdfast_loop_push that has failed, even what was
 * sent already. When this returns, that memory belongs to the caller again, and
 * all of it may be handed in again for the same turn, changed or not; the push
 * counts once. Usually does not wait, except that parts which are being written
 * to a connection are written to the end. Does nothing after a roll-back.
 * Errors: INVALID if no turn is handed out. */
HOLDFAST_EXPORT int32_t holdfast_loop_restart(holdfast_loop* loop,
                                              holdfast_error** error);

/* Sets values[i] to the address of the values of variable i; `count` must be
 * the number of variables. The values stay there until the next call of
 * holdfast_loop_next, and must not be written to. The loop has two memory sets,
 * used alternately (holdfast_turn.values), whose addresses never change, and
 * more while holdfast_loop_take_values keeps one; the memory stays valid until
 * holdfast_loop_free, even if the cluster is closed earlier. Values in shared
 * memory are copied to these sets. When the loop is done, these are the final
 * values.
 * Errors: UNAVAILABLE if the loop is done and the values could not be read. */
HOLDFAST_EXPORT int32_t holdfast_loop_values(holdfast_loop* loop,
                                             const float** values, size_t count,
                                             holdfast_error** error);

/* Returns the same values without a copy, wherever they are: in the loop's
 * memory, in shared memory of a ps of this host, or in the memory passed to
 * holdfast_loop_start_in. Unless `data` is NULL, sets data[i] to the address of
 * the values of variable i. They must not be written to, and stay unchanged
 * until the caller frees *values, even if the loop is freed and the cluster is
 * closed earlier; in memory passed to holdfast_loop_start_in, only until the
 * next turn. holdfast_values_wait need not be called. A ps lends only as much
 * memory as it has planned for: while the values of an earlier turn are kept in
 * addition to those of this turn and the next, later values are copied. A child
 * of fork() must not read them. Errors: see holdfast_loop_values. */
HOLDFAST_EXPORT int32_t holdfast_loop_take_values(holdfast_loop* loop,
                                                  const float** data,
                                                  size_t count,
                                                  holdfast_values** values,
                                                  holdfast_error** error);

/* Copies the values of variable i to into[i], if that is not NULL; elements[i]
 * must be the variable's size. */
HOLDFAST_EXPORT int32_t holdfast_loop_read(holdfast_loop* loop,
                                           float* const* into,
                                           const size_t* elements, size_t count,
                                           holdfast_error** error);

/* Tells the library, for the cluster's status, metrics and traces, that the
 * program begins to wait for the examples of a batch (`waiting` is 1) or has
 * stopped waiting (0). Without such calls all time until
 * holdfast_loop_contribute counts as computation. holdfast_loop_contribute and
 * holdfast_loop_next end the wait, too. Does nothing before the first turn and
 * after the last. Must be called by the thread that takes the turns. */
HOLDFAST_EXPORT int32_t holdfast_loop_input(holdfast_loop* loop,
                                            int32_t waiting,
                                            holdfast_error** error);

/* Sets *memory to memory where the gradient of a variable, whole and row-major,
 * may be written for this turn, so that a ps of this host reads it in place;
 * NULL if there is no such memory. A gradient that is handed in from elsewhere
 * is copied. The memory's initial content is unspecified. The caller may write
 * to it until the gradient is handed in, and read it until holdfast_loop_next
 * has returned a turn. */
HOLDFAST_EXPORT int32_t holdfast_loop_memory(holdfast_loop* loop,
                                             size_t variable, float** memory,
                                             holdfast_error** error);

/* Hands in the gradient of one variable for the turn; parts are sent at once if
 * that saves time. Must be called once for each trainable variable that has
 * elements, in any order, from any thread. The memory must stay unchanged until
 * holdfast_loop_next has returned something other than TIMED_OUT, or until
 * holdfast_loop_restart: a change in between may or may not be pushed, in parts
 * or whole, and is not noticed. A program that cannot rule out such changes
 * compares holdfast_checksums before holdfast_loop_contribute, and calls
 * holdfast_loop_restart if they differ. Does nothing after a roll-back.
 * Errors: INVALID for a wrong variable or size. */
HOLDFAST_EXPORT int32_t holdfast_loop_add(holdfast_loop* loop, size_t variable,
                                          const float* gradient,
                                          size_t elements,
                                          holdfast_error** error);

/* Copies the values of rows[i], [count, row_length] in the order of its ids, to
 * into[i]; elements[i] must be the number of these values, and a table may
 * appear only once. A row that no step has changed has its first values. All
 * rows come from one pull. In a synchronous job they have version turn.step, or
 * a newer one if the step has closed meanwhile: then the turn's push is STALE.
 * In an asynchronous job they are the newest rows. When the loop is done, they
 * are the final rows.
 *
 * Rows that were requested by holdfast_loop_want_rows are already available;
 * all others take a call to the ps, one for all `rows`. After TIMED_OUT,
 * another call with the same rows resumes the wait.
 *
 * Errors: INVALID, naming the table, which changes nothing; UNAVAILABLE if the
 * loop is done and the values could not be read. Any other error than
 * TIMED_OUT, such as ROLLED_BACK, ends the turn but not the loop: anything
 * pushed for the turn is discarded, and holdfast_loop_next tells how the loop
 * continues. */
HOLDFAST_EXPORT int32_t holdfast_loop_read_rows(
    holdfast_loop* loop, const holdfast_rows* rows, size_t count,
    float* const* into, const size_t* elements, int64_t timeout_ms,
    holdfast_error** error);

/* Makes the next pull of values read these rows as well, instead of those
 * requested before. For a worker with one turn per step, that pull begins when
 * a turn is contributed. A program that knows the next batch by then saves a
 * call to the ps. The ids are copied. A table may appear only once. */
HOLDFAST_EXPORT int32_t holdfast_loop_want_rows(holdfast_loop* loop,
                                                const holdfast_rows* rows,
                                                size_t count,
                                                holdfast_error** error);

/* Hands in the gradients of all rows of one table for the turn, [count,
 * row_length] in the order of the ids; gradients of a repeated id are summed.
 * Call it once for each table, before holdfast_loop_contribute; the push has no
 * rows of a table that is not handed in. Gradients are sent when every table
 * has been handed in, or with holdfast_loop_contribute. Everything is copied
 * before this returns. Does nothing after a roll-back.
 * Errors: INVALID, naming the table, for a wrong size or more than
 * max_rows_per_push different ids, or, with the row and element, for a sum that
 * is not finite. The rows may then be handed in again; otherwise a turn with a
 * sum that is not finite is passed without a gradient and counted. */
HOLDFAST_EXPORT int32_t holdfast_loop_add_rows(holdfast_loop* loop,
                                               const holdfast_rows* rows,
                                               const float* gradients,
                                               size_t elements,
                                               holdfast_error** error);

/* Stands for the factor that the declaration's clipping.global_norm requires,
 * or 1 if the declaration has none. */
#define HOLDFAST_CLIP_AS_DECLARED (-1.0f)
/* Stands for an unknown loss: the push is then left out of the job's
 * train_loss. This is the lowest finite double. */
#define HOLDFAST_LOSS_UNKNOWN (-1.7976931348623157e308)

/* Ends the turn: the gradient counts as the mean over `examples` examples,
 * multiplied by `clip_factor` (0 to 1). `loss` is their mean loss, or
 * HOLDFAST_LOSS_UNKNOWN. With 0 examples the turn is passed without a gradient,
 * whatever was handed in. The same happens, and is counted, if the loss or a
 * gradient is not finite. Does not wait. */
HOLDFAST_EXPORT int32_t holdfast_loop_contribute(holdfast_loop* loop,
                                                 uint64_t examples, double loss,
                                                 float clip_factor,
                                                 holdfast_error** error);

/* Calls holdfast_loop_add for each gradients[i] that is not NULL, and then
 * holdfast_loop_contribute. After an error, nothing that this call was given
 * counts as handed in, if nothing had been handed in for the turn before;
 * otherwise call holdfast_loop_restart before handing in anything again. */
HOLDFAST_EXPORT int32_t holdfast_loop_push(holdfast_loop* loop,
                                           const float* const* gradients,
                                           const size_t* elements, size_t count,
                                           uint64_t examples, double loss,
                                           float clip_factor,
                                           holdfast_error** error);

typedef enum holdfast_verdict {
  HOLDFAST_NO_VERDICT = 0,
  HOLDFAST_ACCEPTED = 1,
  /* The push's step closed without the push. */
  HOLDFAST_STALE = 2,
  /* Another push fills the push's seat. */
  HOLDFAST_DUPLICATE = 3
} holdfast_verdict;

/* What became of this worker's pushes, as far as is known. */
typedef struct holdfast_outcome {
  /* The last known verdict (holdfast_verdict). */
  int32_t verdict;
  uint32_t reserved_word;
  /* The staleness of the push with that verdict: in asynchronous jobs, the
   * number of pushes that were applied between the values on which its gradient
   * was computed and the push itself. */
  uint64_t staleness;
  uint64_t accepted;
  uint64_t stale;
  uint64_t duplicate;
  /* Turns without a gradient because the loss or a gradient was not finite. */
  uint64_t not_finite;
  uint64_t roll_backs;
  uint64_t reserved[4];
} holdfast_outcome;

HOLDFAST_EXPORT int32_t holdfast_loop_outcome(holdfast_loop* loop,
                                              holdfast_outcome* outcome,
                                              holdfast_error** error);

/* Abandons operations in progress, and frees the memory of the values. NULL is
 * allowed. */
HOLDFAST_EXPORT void holdfast_loop_free(holdfast_loop* loop);

/* ---- Values of all variables, from a cluster or a checkpoint ---- */

/* Begins to read the newest values, of at least step `min_step`. After
 * holdfast_await_variables. Wait for *values with holdfast_values_wait; the
 * caller must free it. All values have one version; in asynchronous jobs, those
 * of each ps have one version. */
HOLDFAST_EXPORT int32_t holdfast_pull(holdfast_cluster* cluster,
                                      uint64_t min_step,
                                      holdfast_values** values,
                                      holdfast_error** error);
/* Like holdfast_pull, but also reads rows of tables, of the same version. A
 * table may appear only once; the ids are copied. */
HOLDFAST_EXPORT int32_t holdfast_pull_rows(
    holdfast_cluster* cluster, uint64_t min_step, const holdfast_rows* rows,
    size_t count, holdfast_values** values, holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_values_wait(holdfast_values* values,
                                             int64_t timeout_ms,
                                             holdfast_error** error);

/* Reads the variables of a checkpoint, without a cluster. `path`: a
 * checkpoint's folder, or a job's checkpoint directory, whose newest durable
 * checkpoint is read. Rows of tables stay on disk until
 * holdfast_values_read_table. The caller must free *values, and may write to
 * its memory.
 * Errors: NOT_FOUND, DAMAGED. */
HOLDFAST_EXPORT int32_t holdfast_load_checkpoint(const char* path,
                                                 holdfast_values** values,
                                                 holdfast_error** error);

HOLDFAST_EXPORT int32_t holdfast_values_get_step(holdfast_values* values,
                                                 uint64_t* step,
                                                 holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_values_get_count(holdfast_values* values,
                                                  size_t* count,
                                                  holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_values_get_variable(
    holdfast_values* values, size_t index, holdfast_variable* variable,
    holdfast_error** error);
/* For values from holdfast_pull_rows: copies the values of rows[index], [count,
 * row_length] in the order of its ids, to `into`; `elements` must be the number
 * of these values. */
HOLDFAST_EXPORT int32_t holdfast_values_get_rows(holdfast_values* values,
                                                 size_t index, float* into,
                                                 size_t elements,
                                                 holdfast_error** error);
/* The SHA-256 of names, shapes and values, in hexadecimal: what ps_worker calls
 * "digest of the variables". Free *text with holdfast_text_free. */
HOLDFAST_EXPORT int32_t holdfast_values_get_digest(holdfast_values* values,
                                                   char** text,
                                                   holdfast_error** error);

/* The embedding tables of a checkpoint that holdfast_load_checkpoint has read,
 * in order of declaration. Other values have none. The table's name is valid
 * until the values are freed. */
HOLDFAST_EXPORT int32_t holdfast_values_get_num_tables(holdfast_values* values,
                                                       size_t* count,
                                                       holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_values_get_table(holdfast_values* values,
                                                  size_t index,
                                                  holdfast_table* table,
                                                  holdfast_error** error);
/* The number of rows that a table has in the checkpoint. */
HOLDFAST_EXPORT int32_t holdfast_values_get_num_rows(holdfast_values* values,
                                                     size_t table,
                                                     size_t* count,
                                                     holdfast_error** error);
/* Reads a table's rows from the checkpoint's files: ids[count], increasing, and
 * rows [count, row_length] in the order of ids. `count` must be the table's
 * number of rows.
 * Errors: NOT_FOUND, if the checkpoint has been removed; DAMAGED. After these,
 * `rows` may have been written to. */
HOLDFAST_EXPORT int32_t holdfast_values_read_table(holdfast_values* values,
                                                   size_t table, uint64_t* ids,
                                                   float* rows, size_t count,
                                                   holdfast_error** error);

/* NULL is allowed. */
HOLDFAST_EXPORT void holdfast_values_free(holdfast_values* values);

/* ---- Checksums ---- */

/* Sets sums[i] to the XXH3-64 of bytes[i] bytes at memory[i], for i from 0 to
 * count - 1: a fast way to see whether memory has changed, or whether two
 * processes have the same. From 4 MiB on, a second thread helps. */
HOLDFAST_EXPORT int32_t holdfast_checksums(const void* const* memory,
                                           const size_t* bytes, size_t count,
                                           uint64_t* sums,
                                           holdfast_error** error);

/* ---- Examples ---- */

/* Fills examples[0] to examples[batch_size - 1] with the examples of a batch of
 * the training stream, each from 0 to num_examples - 1. The stream repeats the
 * data set, each time in a different order determined by the seed; ps_worker
 * visits its examples in the same order. */
HOLDFAST_EXPORT int32_t holdfast_batch_examples(
    uint64_t seed, int64_t num_examples, int64_t batch_size, uint64_t batch,
    int64_t* examples, holdfast_error** error);

/* How the examples of an epoch are shuffled: the values of `shuffle` in a job
 * file. */
typedef enum holdfast_shuffle {
  /* Random; the order of holdfast_batch_examples. */
  HOLDFAST_SHUFFLE_FULL = 0,
  /* Ranges of shuffle_block examples in random order, and random order within
   * each range, so that reads stay within a range for a while. */
  HOLDFAST_SHUFFLE_BLOCKS = 1,
  /* No shuffling: the examples keep the order of the data. */
  HOLDFAST_SHUFFLE_NONE = 2
} holdfast_shuffle;

/* Like holdfast_batch_examples, but in the order that `shuffle`
 * (holdfast_shuffle) selects. shuffle_block: for HOLDFAST_SHUFFLE_BLOCKS only;
 * at least 1, or 0 for 4096, the default of job files. */
HOLDFAST_EXPORT int32_t holdfast_batch_examples_shuffled(
    uint64_t seed, int32_t shuffle, int64_t shuffle_block, int64_t num_examples,
    int64_t batch_size, uint64_t batch, int64_t* examples,
    holdfast_error** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HOLDFAST_C_API_HOLDFAST_H_ */
