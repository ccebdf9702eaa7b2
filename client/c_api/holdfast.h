/* Holdfast in C: train on variables that a cluster of parameter servers holds.
 *
 * A program does, in short (error handling left out; examples/c/ has it whole):
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
 * error otherwise, which the caller frees with holdfast_error_free. The old
 * content of *error is not looked at. On failure other outputs are untouched,
 * unless their function says otherwise.
 *
 * Waits. Functions with a `timeout_ms` wait at most that long; below 0, without
 * limit; 0, not at all. HOLDFAST_TIMED_OUT is not the end of anything: what was
 * begun goes on, and the same call continues to wait for it. A caller who must
 * look at signals (Python, R, Julia) waits in portions of 100 ms. The limits
 * that end a wait for good are those of the job: start, step and recovery
 * timeouts, which every wait has, so none lasts for ever.
 *
 * Handles. A handle is a number in the shape of a pointer; it is never
 * dereferenced. One that is NULL, was closed or freed, is of another kind, or
 * was made by the process that this one was forked from, is recognised:
 * functions return HOLDFAST_BAD_HANDLE. Freeing such a handle does nothing.
 *
 * Threads. All functions may be called from any thread at any time, also with
 * the same handle. What is closed while another thread waits for it ends that
 * wait with HOLDFAST_BAD_HANDLE. Threads of the library's own keep the worker's
 * lease alive, whatever the caller's threads do.
 *
 * fork(). Only the process that made a handle may use it. A child may make
 * handles of its own only after exec.
 *
 * Numbers. Tensors are float, row-major, whole variables; sizes are counted in
 * elements. Text is UTF-8 and ends with NUL.
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

/* Rises when a program built against an older header would break; it is also
 * the number in the library's name, libholdfast.so.1. Functions are added
 * without a rise. */
#define HOLDFAST_API_VERSION 1

/* HOLDFAST_API_VERSION of the library. */
HOLDFAST_EXPORT int32_t holdfast_api_version(void);
/* The release, as "0.8.0". Static. */
HOLDFAST_EXPORT const char* holdfast_version(void);

typedef struct holdfast_error holdfast_error;
typedef struct holdfast_cluster holdfast_cluster;
typedef struct holdfast_loop holdfast_loop;
typedef struct holdfast_values holdfast_values;

/* ---- Errors ---- */

/* What a caller does differently. int32_t wherever it is passed. */
typedef enum holdfast_kind {
  HOLDFAST_OK = 0,
  /* The caller's mistake: an argument, or the order of calls. */
  HOLDFAST_INVALID = 1,
  HOLDFAST_BAD_HANDLE = 2,
  /* The call may be repeated to go on waiting. */
  HOLDFAST_TIMED_OUT = 3,
  /* The job went back to an earlier step. Only in strict loops, and from pulls,
   * of rows as well, that were under way. */
  HOLDFAST_ROLLED_BACK = 4,
  /* This worker's lease ran out, or another process has taken its place. */
  HOLDFAST_FENCED = 5,
  /* The job has failed; the message is its reason. */
  HOLDFAST_JOB_FAILED = 6,
  /* A task cannot be reached, or what was waited for did not come. */
  HOLDFAST_UNAVAILABLE = 7,
  /* The cluster does not take this worker or this declaration: they contradict
   * what stands, or the place is taken. */
  HOLDFAST_REFUSED = 8,
  /* A file is not there. */
  HOLDFAST_NOT_FOUND = 9,
  /* A file is damaged. */
  HOLDFAST_DAMAGED = 10,
  HOLDFAST_INTERNAL = 11,
  /* An operator has stopped the job; the message says at which step, and from
   * where it goes on when it is started again. */
  HOLDFAST_STOPPED = 12
} holdfast_kind;

HOLDFAST_EXPORT int32_t holdfast_error_kind(const holdfast_error* error);
/* One line or several. Valid until the error is freed. NULL: "". */
HOLDFAST_EXPORT const char* holdfast_error_message(const holdfast_error* error);
/* The first task that the message names, as "/job:ps/task:1"; "" for none.
 * Valid until the error is freed. */
HOLDFAST_EXPORT const char* holdfast_error_task(const holdfast_error* error);
/* What a program that ends because of the error exits with, so that supervisors
 * treat it as a ps_worker (docs/operating/exit_codes.md): 1 failed, 2 wrong
 * use, 138 start it again; 0 for HOLDFAST_STOPPED, and for NULL. */
HOLDFAST_EXPORT int32_t holdfast_error_exit_code(const holdfast_error* error);
/* NULL is fine. */
HOLDFAST_EXPORT void holdfast_error_free(holdfast_error* error);

/* Frees text that a function has returned by a char**. NULL is fine. */
HOLDFAST_EXPORT void holdfast_text_free(char* text);

/* ---- Log ---- */

typedef enum holdfast_severity {
  HOLDFAST_LOG_INFO = 0,
  HOLDFAST_LOG_WARNING = 1,
  HOLDFAST_LOG_ERROR = 2,
  HOLDFAST_LOG_NONE = 3
} holdfast_severity;

/* A line of the log, without its end. Called by any thread of the library's or
 * the caller's, one at a time; must not call the library. `line` is valid
 * during the call. */
typedef void (*holdfast_log_sink)(void* context, int32_t severity,
                                  const char* line);

/* Of the whole process, at any time: messages from `least` (holdfast_severity)
 * on go to `sink`, or, where that is NULL, to standard error. Default: warnings
 * to standard error. When this has returned, the former sink is not running. */
HOLDFAST_EXPORT void holdfast_set_log(int32_t least, holdfast_log_sink sink,
                                      void* context);

/* ---- The cluster ---- */

/* A setting by name. Names and values are those of the daemons' flags where
 * these have one. */
typedef struct holdfast_option {
  const char* name;
  const char* value;
} holdfast_option;

/* Begins to connect, and to join the cluster as one of its tasks, and returns
 * at once; holdfast_await_connected waits. Options, all of them optional:
 *
 *   cluster_spec   JSON as TensorFlow's, or the path of a file with it
 *   ps_hosts, worker_hosts, chief_hosts   host:port,host:port
 *   job_name, task_index                  "worker", "3"; job "client" only
 *                  reads: it takes no part, and needs no index; "evaluator"
 *                  evaluates checkpoints
 *   tf_config      instead of the environment variable TF_CONFIG, which says
 *                  what the above do not
 *   tls_dir        folder with ca.crt, tls.crt, tls.key: mutual TLS
 *   insecure       "true": without tls_dir, tasks may be on other machines
 *   connect_timeout, recovery_timeout     seconds; default 300. How long the
 *                  cluster may take to start; how long a lost one to come back
 *   same_host      "off": tensors pass over the network also to a ps of this
 *                  host; "auto" (the default): through shared memory, where
 *                  that can be had
 *   same_host_dir  only with a ps whose socket is in this directory, as a
 *                  volume that containers share
 *   trace          file that gets, when the cluster is closed, what this
 *                  process did when (docs/operating/tracing.md); %t in it
 * stands for the task job_digest, data_digest               workers that join
 * with others are refused fail_fast      "true": a client gives up as soon as
 * it is certain why a ps cannot be reached
 *
 * *cluster is to be closed by the caller.
 * Errors: INVALID, with the name of the option; NOT_FOUND for its file. */
HOLDFAST_EXPORT int32_t holdfast_connect(const holdfast_option* options,
                                         size_t num_options,
                                         holdfast_cluster** cluster,
                                         holdfast_error** error);

/* Waits until the task has joined and every ps answers. Functions below that
 * talk to the cluster need it before.
 * Errors: REFUSED, UNAVAILABLE, JOB_FAILED; the cluster can only be closed
 * then. */
HOLDFAST_EXPORT int32_t holdfast_await_connected(holdfast_cluster* cluster,
                                                 int64_t timeout_ms,
                                                 holdfast_error** error);

/* Who this process is. Known as soon as holdfast_connect has returned. */
typedef struct holdfast_place {
  /* "worker", "chief", "evaluator" or "client". Valid until the cluster is
   * closed. */
  const char* job;
  uint32_t index;
  /* Among the tasks that train, from 0. 0 for one that does not. */
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
 * arguments: the chief's counts, the others' are compared with it in
 * holdfast_await_variables.
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
 * `first_values`: NULL, or `count` pointers by variable, NULL for those with
 * another initializer than `given {}`. Those with it begin with these values
 * where the job has no checkpoint to go on from. They are copied before this
 * returns for the first time; other workers than the chief may give none.
 *
 * Called again in each new generation by the library itself.
 * Errors: INVALID for a text that does not parse or breaks a rule, naming the
 * field; REFUSED when something else was declared before. */
HOLDFAST_EXPORT int32_t holdfast_declare(holdfast_cluster* cluster,
                                         const char* text,
                                         const float* const* first_values,
                                         size_t count, int64_t timeout_ms,
                                         holdfast_error** error);

/* Waits until the variables exist on every ps. A client need not declare.
 * Errors: REFUSED when they are not what this worker has declared, naming the
 * first difference. */
HOLDFAST_EXPORT int32_t holdfast_await_variables(holdfast_cluster* cluster,
                                                 int64_t timeout_ms,
                                                 holdfast_error** error);

/* A variable. Pointers are valid until the handle that it is of is closed or
 * freed. */
typedef struct holdfast_variable {
  const char* name;
  /* Outermost first. NULL for a scalar. */
  const int64_t* shape;
  size_t rank;
  size_t elements;
  /* 1: pushes carry its gradient (or, with a moving average, its value). */
  int32_t trainable;
  /* 1: it is a mean over steps, like the statistics of batch norm. */
  int32_t moving_average;
  /* Of holdfast_values; NULL elsewhere. Valid until they are freed. */
  const float* data;
} holdfast_variable;

/* What was declared, in the order declared. After holdfast_await_variables. */
HOLDFAST_EXPORT int32_t holdfast_get_num_variables(holdfast_cluster* cluster,
                                                   size_t* count,
                                                   holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_get_variable(holdfast_cluster* cluster,
                                              size_t index,
                                              holdfast_variable* variable,
                                              holdfast_error** error);

/* An embedding table (docs/protocol/tables.md): rows of float by id, which is
 * any unsigned number of 64 bits. Declared in the text as
 *
 *   tables { name: "users" row_length: 16 max_rows_per_push: 4096
 *            initializer { uniform { low: -0.05 high: 0.05 } } }
 */
typedef struct holdfast_table {
  /* Valid until the cluster is closed. */
  const char* name;
  /* Values of a row. */
  size_t row_length;
  /* Different ids that a push has at most. */
  size_t max_rows_per_push;
  uint64_t reserved[4];
} holdfast_table;

/* The tables that were declared, in the order declared. After
 * holdfast_await_variables. */
HOLDFAST_EXPORT int32_t holdfast_get_num_tables(holdfast_cluster* cluster,
                                                size_t* count,
                                                holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_get_table(holdfast_cluster* cluster,
                                           size_t index, holdfast_table* table,
                                           holdfast_error** error);

/* Rows of one table: any ids, in any order, also several times. */
typedef struct holdfast_rows {
  /* Its index as declared. */
  size_t table;
  const uint64_t* ids;
  size_t count;
} holdfast_rows;

/* The declaration in text format, with defaults filled in. After
 * holdfast_await_variables. *text is to be freed by holdfast_text_free. */
HOLDFAST_EXPORT int32_t holdfast_get_declaration(holdfast_cluster* cluster,
                                                 char** text,
                                                 holdfast_error** error);

/* The state of job and cluster as JSON: GetStatusResponse of
 * proto/coordinator.proto. *json is to be freed by holdfast_text_free. */
HOLDFAST_EXPORT int32_t holdfast_get_status(holdfast_cluster* cluster,
                                            int64_t timeout_ms, char** json,
                                            holdfast_error** error);

/* Has a checkpoint taken, and waits until it is on disk. `step` may be NULL. */
HOLDFAST_EXPORT int32_t holdfast_save_checkpoint(holdfast_cluster* cluster,
                                                 int64_t timeout_ms,
                                                 uint64_t* step,
                                                 holdfast_error** error);

/* Tells the cluster how good the model is, for its status page and metrics.
 * `accuracy` and `mean_absolute_error`: NAN for none. Other figures:
 * holdfast_report_metrics. */
HOLDFAST_EXPORT int32_t holdfast_report_evaluation(
    holdfast_cluster* cluster, uint64_t step, uint64_t examples, double loss,
    double accuracy, double mean_absolute_error, int64_t timeout_ms,
    holdfast_error** error);

/* ---- Evaluation ---- */

/* A checkpoint that an evaluator is to evaluate. */
typedef struct holdfast_evaluation {
  /* 1: the job is done, and there is none left. Nothing else is set. */
  int32_t done;
  uint32_t reserved_word;
  /* Of the job, in which it was taken. */
  uint64_t generation;
  /* That it holds; asynchronous: pushes. */
  uint64_t step;
  /* Of its folder in the checkpoint directory of the ps, where
   * holdfast_load_checkpoint reads it: "g0001-step00001000". */
  char name[64];
  uint64_t reserved[4];
} holdfast_evaluation;

/* For a task of the job "evaluator", after holdfast_await_connected: waits for
 * the next checkpoint to evaluate. Which are due when is the declaration's
 * `evaluation` to say. The checkpoint stays on disk until it is reported, or
 * another is asked for.
 * Errors: INVALID for another task, or when the ps have no checkpoint
 * directory; STOPPED, JOB_FAILED. */
HOLDFAST_EXPORT int32_t holdfast_next_evaluation(
    holdfast_cluster* cluster, int64_t timeout_ms,
    holdfast_evaluation* evaluation, holdfast_error** error);

typedef struct holdfast_metric {
  const char* name;
  double value;
} holdfast_metric;

/* Tells the cluster how good the model is: the figures of one evaluation, on so
 * many examples. They are called "loss", which must be there (NAN where there
 * is none), "accuracy", "mean_absolute_error", "mean_squared_error",
 * "top_k_accuracy", "auc", "calibration", or as the caller likes, up to 32 of
 * at most 64 bytes.
 *
 * `evaluation`: what holdfast_next_evaluation gave, of which `generation` and
 * `step` are looked at. When this has returned, what follows from the figures,
 * as to which checkpoints are kept as the best, is on disk. NULL: a worker
 * has evaluated the values of `step`, which is not looked at otherwise.
 * Errors: INVALID for figures that cannot be kept. */
HOLDFAST_EXPORT int32_t holdfast_report_metrics(
    holdfast_cluster* cluster, const holdfast_evaluation* evaluation,
    uint64_t step, uint64_t examples, const holdfast_metric* metrics,
    size_t count, int64_t timeout_ms, holdfast_error** error);

/* ---- The end ---- */

/* Ends this task's part in order: `reason` says why the job cannot go on, and
 * ends it for everybody; NULL or "": the job is done, or this worker steps
 * down, and another may take its place. Loops and pulls under way fail. */
HOLDFAST_EXPORT int32_t holdfast_leave(holdfast_cluster* cluster,
                                       const char* reason, int64_t timeout_ms,
                                       holdfast_error** error);

/* Ends all threads and connections. Without a holdfast_leave before, the
 * cluster is told that this task ended without leaving, which ends the job,
 * unless it is an evaluator; a child of fork() closes nothing but its own.
 * Takes at most some seconds. */
HOLDFAST_EXPORT void holdfast_close(holdfast_cluster* cluster);

/* ---- The training loop ---- */

/* The right, and the duty, to contribute one gradient. */
typedef struct holdfast_turn {
  /* 1: there is nothing more to do; what follows but `step` and `values` is 0.
   */
  int32_t done;
  /* 1: since the turn before, the job has gone back to an earlier step: values
   * and batches go on from there. */
  int32_t rolled_back;
  /* Which batch of the training stream the gradient is to be of, whoever
   * computes it and whenever: that of a ticket, or step x seats + seat. */
  uint64_t batch;
  /* Synchronous: the step. Asynchronous: of the newest of the values. */
  uint64_t step;
  /* Synchronous by step: the seat in the step. */
  uint32_t seat;
  /* Which of the loop's sets of memory the values are in: 0 or 1 unless
   * holdfast_loop_take_values keeps one. */
  uint32_t values;
  /* With which the gradient is to be computed, and divided by before it is
   * pushed. 1 where the job has none. */
  float loss_scale;
  float reserved_float;
  uint64_t reserved[4];
} holdfast_turn;

/* Begins to train; one loop at a time. After holdfast_declare, and
 * holdfast_await_variables. Options:
 *
 *   strict   "true": a roll-back ends the loop with ROLLED_BACK; the next loop
 *            goes on from the restored values. Otherwise the next turn says
 *            rolled_back.
 *
 * The loop takes this worker's seats or tickets in turn, as was declared;
 * begins each pull together with the push before it; drops what is under way
 * when the job is rolled back, and goes on from the restored values; and at the
 * end waits until the job is done. *loop is to be freed by the caller. */
HOLDFAST_EXPORT int32_t holdfast_loop_start(holdfast_cluster* cluster,
                                            const holdfast_option* options,
                                            size_t num_options,
                                            holdfast_loop** loop,
                                            holdfast_error** error);

/* The same for a loop that writes the values of variable i to memory[i], where
 * that is not NULL, in place of either set: holdfast_loop_values tells that
 * address, and no copy is made. elements[i] must be right then; `count` is that
 * of the variables. The library writes to the memory from
 * holdfast_loop_contribute or holdfast_loop_push until holdfast_loop_next
 * returns a turn; the caller may change it while a turn is its own. It must
 * stay until the loop is freed or the cluster is closed, and holds anything
 * after an error of holdfast_loop_next. */
HOLDFAST_EXPORT int32_t holdfast_loop_start_in(
    holdfast_cluster* cluster, float* const* memory, const size_t* elements,
    size_t count, const holdfast_option* options, size_t num_options,
    holdfast_loop** loop, holdfast_error** error);

/* Waits for the next turn, whose values are here then. The turn before it must
 * have been contributed. An error other than TIMED_OUT and BAD_HANDLE ends the
 * loop. */
HOLDFAST_EXPORT int32_t holdfast_loop_next(holdfast_loop* loop,
                                           int64_t timeout_ms,
                                           holdfast_turn* turn,
                                           holdfast_error** error);

/* Fills values[i] with where the values of variable i are; `count` is that of
 * the variables. They stay there until the next holdfast_loop_next is called,
 * and are not to be written to. The loop has two sets of memory, used in turn
 * (holdfast_turn.values), whose addresses never change, and more while
 * holdfast_loop_take_values keeps one; the memory lives until
 * holdfast_loop_free, also when the cluster is closed before. Values that lie
 * in shared memory are copied there. When the loop is done: the final values.
 * Errors: UNAVAILABLE when it is done and the values could not be had. */
HOLDFAST_EXPORT int32_t holdfast_loop_values(holdfast_loop* loop,
                                             const float** values, size_t count,
                                             holdfast_error** error);

/* The same values without a copy, wherever they lie: in memory of the loop, in
 * shared memory of a ps of this host, or in that of holdfast_loop_start_in.
 * Fills data[i], unless `data` is NULL, with where those of variable i are.
 * They are not to be written to, and stay as they are until the caller frees
 * *values, or, in memory of holdfast_loop_start_in, until the next turn; also
 * when the loop is freed and the cluster closed before. holdfast_values_wait
 * need not be called. A ps lends no more than it has planned memory for: while
 * the values of an earlier turn are kept beside those of this one and the next,
 * later ones are copied. A child of fork() must not read them. Errors: as of
 * holdfast_loop_values. */
HOLDFAST_EXPORT int32_t holdfast_loop_take_values(holdfast_loop* loop,
                                                  const float** data,
                                                  size_t count,
                                                  holdfast_values** values,
                                                  holdfast_error** error);

/* Copies the values of variable i to into[i], where that is not NULL;
 * elements[i] must be right. */
HOLDFAST_EXPORT int32_t holdfast_loop_read(holdfast_loop* loop,
                                           float* const* into,
                                           const size_t* elements, size_t count,
                                           holdfast_error** error);

/* For the cluster's status, metrics and traces: with `waiting` 1 the program
 * begins to wait for the examples of a batch, with 0 the wait is over. Without
 * it all time until holdfast_loop_contribute counts as computation. The wait
 * ends with holdfast_loop_contribute and holdfast_loop_next, too. Does nothing
 * before the first turn and after the last. To be called by the thread that
 * takes the turns. */
HOLDFAST_EXPORT int32_t holdfast_loop_input(holdfast_loop* loop,
                                            int32_t waiting,
                                            holdfast_error** error);

/* Sets *memory to where the gradient of a variable, whole and row-major, may be
 * written for the turn, so that a ps of this host reads it there; NULL where
 * there is no such memory. Handed in from elsewhere, it is copied. What it
 * holds at first is not specified. It may be touched until it is handed in, and
 * read until holdfast_loop_next has returned a turn. */
HOLDFAST_EXPORT int32_t holdfast_loop_memory(holdfast_loop* loop,
                                             size_t variable, float** memory,
                                             holdfast_error** error);

/* Hands in the gradient of one variable for the turn; parts leave at once where
 * that is worth it. Each trainable variable once, in any order, from any
 * thread. The memory must stay as it is until holdfast_loop_next has returned
 * something else than TIMED_OUT. After a roll-back it does nothing.
 * Errors: INVALID for a wrong variable or size. */
HOLDFAST_EXPORT int32_t holdfast_loop_add(holdfast_loop* loop, size_t variable,
                                          const float* gradient,
                                          size_t elements,
                                          holdfast_error** error);

/* Copies the values of rows[i], [count, row_length] in the order of its ids, to
 * into[i]; elements[i] must be right, and each table is there once. A row that
 * no step has changed has its first values. All rows are of one pull. In a
 * synchronous job they are of turn.step; or newer, if the step has closed
 * meanwhile: then the turn's push is STALE. In an asynchronous one they are the
 * newest. When the loop is done: the final ones.
 *
 * Rows that holdfast_loop_want_rows has asked for are here, and all others take
 * a call to the ps, one for all `rows`. After TIMED_OUT the same rows are to be
 * asked for to go on waiting.
 *
 * Errors: INVALID, naming the table, which changes nothing; UNAVAILABLE when
 * the loop is done and the values could not be had. Any other than TIMED_OUT,
 * such as ROLLED_BACK, ends the turn, not the loop: what is pushed for it
 * counts nowhere, and holdfast_loop_next says how the loop goes on. */
HOLDFAST_EXPORT int32_t holdfast_loop_read_rows(
    holdfast_loop* loop, const holdfast_rows* rows, size_t count,
    float* const* into, const size_t* elements, int64_t timeout_ms,
    holdfast_error** error);

/* Has the next pull of values read these rows as well, in place of those asked
 * for before: of a worker with one turn in a step it begins when a turn is
 * contributed. For programs that know the next batch by then: they save a call
 * to the ps. The ids are copied. Each table is there once. */
HOLDFAST_EXPORT int32_t holdfast_loop_want_rows(holdfast_loop* loop,
                                                const holdfast_rows* rows,
                                                size_t count,
                                                holdfast_error** error);

/* Hands in the gradients of all rows of one table for the turn, [count,
 * row_length] in the order of the ids; those of an id that is there several
 * times are added up. Before holdfast_loop_contribute, once for each table; of
 * a table that is not handed in the push has no rows. Gradients leave when each
 * table was handed in, or with holdfast_loop_contribute. All is copied before
 * this returns. After a roll-back it does nothing.
 * Errors: INVALID, naming the table, for a wrong size or more than
 * max_rows_per_push different ids, and with row and element for a sum that is
 * not finite. The rows may be handed in again then; a turn with a sum that is
 * not finite is otherwise passed and counted. */
HOLDFAST_EXPORT int32_t holdfast_loop_add_rows(holdfast_loop* loop,
                                               const holdfast_rows* rows,
                                               const float* gradients,
                                               size_t elements,
                                               holdfast_error** error);

/* The factor that the declaration's clipping.global_norm asks for, or 1. */
#define HOLDFAST_CLIP_AS_DECLARED (-1.0f)
/* A loss that is not known: the push is left out of the job's train_loss. The
 * least finite double. */
#define HOLDFAST_LOSS_UNKNOWN (-1.7976931348623157e308)

/* Ends the turn: the gradient counts as the mean over `examples` examples,
 * multiplied by `clip_factor` (0 to 1). `loss` is their mean loss, or
 * HOLDFAST_LOSS_UNKNOWN. 0 examples: the turn is passed without a gradient,
 * whatever was handed in. The same, but counted, when the loss or a gradient is
 * not finite. Does not wait. */
HOLDFAST_EXPORT int32_t holdfast_loop_contribute(holdfast_loop* loop,
                                                 uint64_t examples, double loss,
                                                 float clip_factor,
                                                 holdfast_error** error);

/* holdfast_loop_add for each gradients[i] that is not NULL, then
 * holdfast_loop_contribute. */
HOLDFAST_EXPORT int32_t holdfast_loop_push(holdfast_loop* loop,
                                           const float* const* gradients,
                                           const size_t* elements, size_t count,
                                           uint64_t examples, double loss,
                                           float clip_factor,
                                           holdfast_error** error);

typedef enum holdfast_verdict {
  HOLDFAST_NO_VERDICT = 0,
  HOLDFAST_ACCEPTED = 1,
  /* Its step had closed without it. */
  HOLDFAST_STALE = 2,
  /* Another push fills its seat. */
  HOLDFAST_DUPLICATE = 3
} holdfast_verdict;

/* What became of this worker's pushes, as far as known. */
typedef struct holdfast_outcome {
  /* Of the last whose verdict is known (holdfast_verdict). */
  int32_t verdict;
  uint32_t reserved_word;
  /* Of that one; asynchronous: pushes applied between the values that it was
   * computed on and itself. */
  uint64_t staleness;
  uint64_t accepted;
  uint64_t stale;
  uint64_t duplicate;
  /* Contributed nothing: loss or gradient was not finite. */
  uint64_t not_finite;
  uint64_t roll_backs;
  uint64_t reserved[4];
} holdfast_outcome;

HOLDFAST_EXPORT int32_t holdfast_loop_outcome(holdfast_loop* loop,
                                              holdfast_outcome* outcome,
                                              holdfast_error** error);

/* Gives up what is under way, and frees values' memory. NULL is fine. */
HOLDFAST_EXPORT void holdfast_loop_free(holdfast_loop* loop);

/* ---- Values of all variables, of a cluster or of a checkpoint ---- */

/* Begins to read the newest values, of at least step `min_step`. After
 * holdfast_await_variables. *values is to be freed by the caller, and waited
 * for by holdfast_values_wait. All are of one version, in asynchronous jobs of
 * one moment on each ps. */
HOLDFAST_EXPORT int32_t holdfast_pull(holdfast_cluster* cluster,
                                      uint64_t min_step,
                                      holdfast_values** values,
                                      holdfast_error** error);
/* The same with rows of tables, of the same version; each table is there once,
 * and the ids are copied. */
HOLDFAST_EXPORT int32_t holdfast_pull_rows(
    holdfast_cluster* cluster, uint64_t min_step, const holdfast_rows* rows,
    size_t count, holdfast_values** values, holdfast_error** error);
HOLDFAST_EXPORT int32_t holdfast_values_wait(holdfast_values* values,
                                             int64_t timeout_ms,
                                             holdfast_error** error);

/* Reads a checkpoint, without a cluster. `path`: the folder of one, or a job's
 * checkpoint directory, whose newest complete one is read. *values is to be
 * freed by the caller; its memory is the caller's to write to.
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
/* Of values from holdfast_pull_rows: copies the values of rows[index], [count,
 * row_length] in the order of its ids; `elements` must be right. */
HOLDFAST_EXPORT int32_t holdfast_values_get_rows(holdfast_values* values,
                                                 size_t index, float* into,
                                                 size_t elements,
                                                 holdfast_error** error);
/* SHA-256 in hexadecimal over names, shapes and values: what ps_worker calls
 * "digest of the variables". *text is to be freed by holdfast_text_free. */
HOLDFAST_EXPORT int32_t holdfast_values_get_digest(holdfast_values* values,
                                                   char** text,
                                                   holdfast_error** error);
/* NULL is fine. */
HOLDFAST_EXPORT void holdfast_values_free(holdfast_values* values);

/* ---- Examples ---- */

/* Fills examples[0] to examples[batch_size - 1] with the examples of a batch of
 * the training stream, each from 0 to num_examples - 1: the stream is the data
 * set over and over, each time in another order that follows from the seed;
 * ps_worker visits its examples in the same one. */
HOLDFAST_EXPORT int32_t holdfast_batch_examples(
    uint64_t seed, int64_t num_examples, int64_t batch_size, uint64_t batch,
    int64_t* examples, holdfast_error** error);

/* How far the order of an epoch is from that of the data; `shuffle` of a job
 * file. */
typedef enum holdfast_shuffle {
  /* Random; the order of holdfast_batch_examples. */
  HOLDFAST_SHUFFLE_FULL = 0,
  /* Ranges of shuffle_block examples in random order, and in random order
   * within each: reads stay within a range. */
  HOLDFAST_SHUFFLE_BLOCKS = 1,
  /* As the data are. */
  HOLDFAST_SHUFFLE_NONE = 2
} holdfast_shuffle;

/* As holdfast_batch_examples, in an order that is not random throughout.
 * shuffle_block: of HOLDFAST_SHUFFLE_BLOCKS alone, at least 1; 0 for 4096, the
 * default of job files. */
HOLDFAST_EXPORT int32_t holdfast_batch_examples_shuffled(
    uint64_t seed, int32_t shuffle, int64_t shuffle_block, int64_t num_examples,
    int64_t batch_size, uint64_t batch, int64_t* examples,
    holdfast_error** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HOLDFAST_C_API_HOLDFAST_H_ */
