/* SPDX-License-Identifier: Apache-2.0 */

/* waits LIBRARY: checks that the waits of a library end on time while the date
 * is set back and forward. Run with tests/faults/libshifted_date.so preloaded.
 * It loads the library, as Python does, and is not linked with it. */

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/c_api/holdfast.h"

#define WAITS 10
#define WAIT_MS 100
/* Limit for all waits together, ample on a busy machine: a wait that follows
 * the date lasts an hour. */
#define PATIENCE_SECONDS 30

static const char kCluster[] =
    "{\"ps\": [\"127.0.0.1:1\"], \"worker\": [\"127.0.0.1:2\"]}";

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void* Load(void* library, const char* name) {
  void* const function = dlsym(library, name);
  if (function == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  return function;
}

struct Date {
  int file;
  int64_t hours;
  atomic_int stop;
};

/* Shifts the date by `hours` again and again. */
static void* SetDate(void* argument) {
  struct Date* const date = argument;
  const struct timespec pause = {0, WAIT_MS * 1000000L / 4};
  int64_t shift = 0;
  while (!atomic_load(&date->stop)) {
    nanosleep(&pause, NULL);
    shift += date->hours * 3600;
    if (pwrite(date->file, &shift, sizeof(shift), 0) != sizeof(shift)) exit(2);
  }
  return NULL;
}

int main(int argc, char** argv) {
  const char* const shift = getenv("SHIFTED_DATE");
  if (argc != 2 || shift == NULL) return 2;
  alarm(2 * PATIENCE_SECONDS);
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  int32_t (*connect)(const holdfast_option*, size_t, holdfast_cluster**,
                     holdfast_error**);
  int32_t (*await_connected)(holdfast_cluster*, int64_t, holdfast_error**);
  void (*close_cluster)(holdfast_cluster*);
  *(void**)&connect = Load(library, "holdfast_connect");
  *(void**)&await_connected = Load(library, "holdfast_await_connected");
  *(void**)&close_cluster = Load(library, "holdfast_close");

  const holdfast_option options[] = {{"cluster_spec", kCluster},
                                     {"job_name", "worker"},
                                     {"task_index", "0"},
                                     {"insecure", "true"}};
  holdfast_cluster* cluster = NULL;
  if (connect(options, 4, &cluster, NULL) != HOLDFAST_OK) return 2;
  int wrong = 0;
  for (int hours = -1; hours <= 1; hours += 2) {
    struct Date date = {open(shift, O_WRONLY), hours, 0};
    if (date.file < 0) return 2;
    pthread_t thread;
    if (pthread_create(&thread, NULL, SetDate, &date) != 0) return 2;
    const double begun = Now();
    for (int i = 0; i < WAITS; ++i) {
      /* There are no servers. */
      if (await_connected(cluster, WAIT_MS, NULL) != HOLDFAST_TIMED_OUT) {
        return 2;
      }
    }
    const double seconds = Now() - begun;
    atomic_store(&date.stop, 1);
    pthread_join(thread, NULL);
    close(date.file);
    const int too_long = seconds > PATIENCE_SECONDS;
    /* The last millisecond may be cut off. */
    const int too_short = seconds < WAITS * (WAIT_MS - 1) / 1e3;
    printf("%d waits of %d ms, the date set by %d h: %.3f s%s\n", WAITS,
           WAIT_MS, hours, seconds,
           too_long    ? ", too long"
           : too_short ? ", too short"
                       : "");
    wrong |= too_long | too_short;
  }
  close_cluster(cluster);
  return wrong;
}
