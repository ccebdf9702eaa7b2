// SPDX-License-Identifier: Apache-2.0
#include "cli/job_view.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;
using ::testing::StartsWith;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

std::string Screen(const std::vector<ViewLine>& lines) {
  std::string screen = "\n";
  for (const ViewLine& line : lines) absl::StrAppend(&screen, line.text, "\n");
  return screen;
}

// 1715940000 is 2024-05-17 10:00:00 UTC.
std::vector<proto::Event> Events() {
  return {
      Parse<proto::Event>(
          "number: 1 time: 1715940000 kind: JOINED task { job: 'worker' } "
          "text: '/job:worker/task:0 has joined'"),
      Parse<proto::Event>("number: 2 time: 1715940001 kind: TRAINING "
                          "text: 'training begins'"),
      Parse<proto::Event>(
          "number: 3 time: 1715940061.9 kind: CHECKPOINT step: 1000 "
          "text: 'the checkpoint of step 1000 is on disk'"),
  };
}

// A synchronous job with a slow worker.
constexpr char kTraining[] = R"(
    generation: 1
    state { phase: TRAINING }
    global_step: 1230 total_steps: 3000
    examples: 615000
    pushes { accepted: 2460 stale: 3 }
    train_loss: 0.43211
    training_seconds: 12.04
    evaluation { step: 1000 examples: 10000 loss: 0.45 accuracy: 0.8312 }
    tasks { task { job: 'ps' } incarnation: 1 process: 'host-a (pid 7)'
            alive: true
            ps { memory { values: 1048576 slots: 1048576 versions: 1048576
                          pushes: 0 limit: 1073741824 }
                 updates: 1230 update_seconds: 0.615
                 received_bytes: 2579496960 sent_bytes: 2579496960
                 held_bytes: 1048576 save_seconds: 0.12 save_bytes: 2097152 } }
    tasks { task { job: 'ps' index: 1 } incarnation: 2
            process: 'host-b (pid 8)' alive: true silent_seconds: 0.4
            ps { memory { values: 1048576 slots: 1048576 versions: 1048576
                          pushes: 0 limit: 1073741824 }
                 updates: 1230 update_seconds: 0.738
                 received_bytes: 2579496960 sent_bytes: 2579496960
                 held_bytes: 1048576 save_seconds: 0.15 save_bytes: 2097152 } }
    tasks { task { job: 'worker' } incarnation: 3 process: 'host-c (pid 9)'
            alive: true silent_seconds: 0.3
            input_wait { recent: 0.03 overall: 0.05 }
            worker { phases { input: 0.3 version: 0.1 compute: 1.1 push: 0.1
                              verdict: 10.4 }
                     steps: 1230 waiting_for: 'verdict'
                     waiting_seconds: 0.091 }
            pace { seconds_per_push: 0.0101 last_share: 0.02 } }
    tasks { task { job: 'worker' index: 1 } incarnation: 4
            process: 'host-d (pid 10)' alive: true silent_seconds: 0.2
            input_wait { recent: 0 overall: 0 }
            worker { phases { compute: 11.1 verdict: 0.9 } steps: 1230 }
            pace { seconds_per_push: 0.0987 last_share: 0.98 slow: true } }
    replicas_to_aggregate: 2 total_num_replicas: 2
    workers { worker { job: 'worker' } pushes: 1230 examples: 307500 }
    workers { worker { job: 'worker' index: 1 } pushes: 1230
              examples: 307500 }
    durable_step: 1000
    step_times {
      collect { bounds: 0.1 counts: 1000 counts: 1230 sum_seconds: 121.77 }
      commit { bounds: 0.1 counts: 1230 counts: 1230 sum_seconds: 0.9 } }
    checkpoints { written: 4 failed: 0 last_seconds: 0.21 last_bytes: 4194304
                  age_seconds: 23.2 }
    steps_per_second: 10.02 examples_per_second: 5010
    seconds_since_progress: 0.05
    lease_seconds: 10)";

proto::GetStatusResponse Training(const std::string& more = "") {
  return Parse<proto::GetStatusResponse>(absl::StrCat(kTraining, " ", more));
}

TEST(StatusViewTest, OfAJobThatTrains) {
  EXPECT_EQ(Screen(StatusView(Training(), Events(), absl::UTCTimeZone())), R"(
training  [########............] 41%  step 1230 of 3000, 2:57 left
  rate        10 steps/s, 5010 examples/s
  loss        0.4321; test loss 0.4500, accuracy 0.8312 at step 1000
  examples    615000 in 12.0 s of training; pushes without effect: 3 stale
  step time   mean 99 ms until pushes are complete, 0.73 ms until they are committed
  checkpoint  step 1000 is on disk, written 23.2 s ago (4.0 MiB in 210 ms); 4 written

attention
  worker:1 is slow: 99 ms per push, where the median is 54 ms

worker    state  silent  per push  last  input  waits for       mostly       pushes  examples  process
worker:0  ok     300 ms     10 ms    2%     3%  verdict 91 ms   verdict 87%    1230    307500  host-c (pid 9)
worker:1  slow   200 ms     99 ms   98%     0%  -               compute 92%    1230    307500  host-d (pid 10)

ps    state  silent     memory    limit  used   values   update   received       sent    save  process
ps:0  ok          -    3.0 MiB  1.0 GiB    0%  1.0 MiB  0.50 ms    2.4 GiB    2.4 GiB  120 ms  host-a (pid 7)
ps:1  ok     400 ms    3.0 MiB  1.0 GiB    0%  1.0 MiB  0.60 ms    2.4 GiB    2.4 GiB  150 ms  host-b (pid 8)

events
  10:00:00  step 0        joined             /job:worker/task:0 has joined
  10:00:01  step 0        training           training begins
  10:01:01  step 1000     checkpoint         the checkpoint of step 1000 is on disk
)");
}

TEST(StatusViewTest, TellsWhatPassesThroughSharedMemory) {
  EXPECT_EQ(Screen(StatusView(Parse<proto::GetStatusResponse>(R"(
              generation: 1 state { phase: STARTING }
              tasks { task { job: 'ps' } incarnation: 1 alive: true
                      ps { received_bytes: 3145728 sent_bytes: 4194304
                           shared_memory { links: 2 lent_bytes: 1048576
                                           received_bytes: 2097152
                                           sent_bytes: 3145728 } } }
              tasks { task { job: 'ps' index: 1 } incarnation: 2 alive: true
                      ps { shared_memory {} } }
              waiting_for: '/job:worker/task:0')"),
                              {}, absl::UTCTimeZone())),
            R"(
starting
  waits for   /job:worker/task:0

ps    state     memory  values   received       sent  links       lent     shared
ps:0  ok           0 B     0 B    3.0 MiB    4.0 MiB      2    1.0 MiB    5.0 MiB
ps:1  ok           0 B     0 B        0 B        0 B      -          -          -
)");
}

// Two ps that have two tables, the second of which has not been read.
constexpr char kWithTables[] = R"(
    generation: 1 state { phase: STARTING }
    tasks { task { job: 'ps' } incarnation: 1 alive: true
            ps { table_rows: 120
                 tables { name: 'items' rows: 120 candidates: 30 reads: 1000
                          hits: 900 admissions: 150 expirations: 20
                          evictions: 10 }
                 tables { name: 'users' } } }
    tasks { task { job: 'ps' index: 1 } incarnation: 2 alive: true
            ps { table_rows: 81
                 tables { name: 'items' rows: 80 candidates: 3 reads: 600
                          hits: 500 admissions: 81 expirations: 1 }
                 tables { name: 'users' rows: 1 admissions: 1 } } })";

// 1400 of 1600 rows were there: 87.5 %.
TEST(StatusViewTest, SumsEmbeddingTablesOverThePs) {
  EXPECT_EQ(Screen(StatusView(Parse<proto::GetStatusResponse>(kWithTables), {},
                              absl::UTCTimeZone())),
            R"(
starting

ps    state     memory  values   received       sent
ps:0  ok           0 B     0 B        0 B        0 B
ps:1  ok           0 B     0 B        0 B        0 B

table  rows  candidates  reads  found  admitted  expired  evicted
items   200          33   1600    88%       231       21       10
users     1           0      0      -         1        0        0
)");
}

// The report of a ps of an older version.
TEST(StatusViewTest, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(Screen(StatusView(Parse<proto::GetStatusResponse>(R"(
              generation: 1 state { phase: STARTING }
              tasks { task { job: 'ps' } incarnation: 1 alive: true }
              tasks { task { job: 'worker' } incarnation: 2 alive: true }
              waiting_for: '/job:worker/task:1')"),
                              {}, absl::UTCTimeZone())),
            R"(
starting
  waits for   /job:worker/task:1

worker    state
worker:0  ok

ps    state
ps:0  ok
)");
}

TEST(StatusViewTest, OfAnAsynchronousJob) {
  EXPECT_EQ(Screen(StatusView(Parse<proto::GetStatusResponse>(R"(
                generation: 2 state { phase: TRAINING }
                global_step: 50 total_steps: 100 examples: 10000
                recovered: 'ps 1 was lost; from step 40'
                tasks { task { job: 'ps' } incarnation: 1 alive: true }
                tasks { task { job: 'worker' } incarnation: 2
                        silent_seconds: 12
                        pace { seconds_per_push: 0.5 } }
                tasks { task { job: 'worker' index: 1 } incarnation: 3
                        alive: true silent_seconds: 0.1
                        worker { phases { ticket: 1 compute: 3 }
                                 waiting_for: 'ticket' waiting_seconds: 7 }
                        pace { seconds_per_push: 0.25 } }
                steps_per_second: 2.5 examples_per_second: 500
                lease_seconds: 10)"),
                              {}, absl::UTCTimeZone())),
            R"(
training  [##########..........] 50%  step 50 of 100, 0:20 left  generation 2
  rate        2.5 steps/s, 500 examples/s
  examples    10000
  recovered   ps 1 was lost; from step 40

attention
  worker:0 is lost

worker    state  silent  per push  waits for       mostly
worker:0  lost   12.0 s    500 ms  -               -
worker:1  ok     100 ms    250 ms  ticket 7.0 s    compute 75%

ps    state
ps:0  ok
)");
}

TEST(StatusViewTest, OfAJobThatIsDone) {
  EXPECT_EQ(Screen(StatusView(Parse<proto::GetStatusResponse>(R"(
                generation: 1 state { phase: DONE }
                global_step: 100 total_steps: 100 examples: 10000
                training_seconds: 2.5 train_loss: 0.1
                tasks { task { job: 'ps' } incarnation: 1 alive: true }
                tasks { task { job: 'worker' } incarnation: 2 }
                durable_step: 100
                steps_per_second: 40)"),
                              {}, absl::UTCTimeZone())),
            R"(
done  [####################] 100%  step 100 of 100
  loss        0.1000
  examples    10000 in 2.5 s of training
  checkpoint  step 100 is on disk

worker    state
worker:0  gone

ps    state
ps:0  ok
)");
}

TEST(StatusViewTest, TellsWhatWasLeftOutOfTheTrainingSet) {
  EXPECT_THAT(
      Screen(StatusView(
          Training("tasks { task { job: 'worker' index: 2 } alive: true "
                   "        worker { skipped_rows: 12 } }"),
          {}, absl::UTCTimeZone())),
      HasSubstr("3 stale; 12 rows of the training set skipped\n"));
}

TEST(StatusViewTest, ShowsNothingThatATerminalObeys) {
  proto::GetStatusResponse status = Training("waiting_for: '\\033[2J'");
  status.mutable_tasks(0)->set_process("\033]0;title\a");
  status.set_checkpoint_error("a\nb");
  status.mutable_tasks(0)->mutable_ps()->add_tables()->set_name("\033[1m");
  std::vector<proto::Event> events = Events();
  events[0].set_text("\033[31mred");
  for (const ViewLine& line : StatusView(status, events, absl::UTCTimeZone())) {
    EXPECT_THAT(line.text, Each(::testing::Ge(' '))) << line.text;
  }
}

// Each rule and its limit.
TEST(AttentionTest, OfEachRule) {
  EXPECT_THAT(
      AttentionOf(Parse<proto::GetStatusResponse>("state { phase: TRAINING }")),
      IsEmpty());
  const struct {
    std::string status;
    std::string text;
  } kCases[] = {
      {"state { phase: FAILED reason: 'ps 1 is lost' }",
       "the job has failed: ps 1 is lost"},
      {"checkpoint_error: 'Input/output error'",
       "checkpoints cannot be written: Input/output error"},
      {"checkpoint_error: '/job:ps/task:0: /c: No space left on device'",
       "a disk is full: checkpoints cannot be written: /job:ps/task:0: /c: No "
       "space left on device"},
      {"tasks { task { job: 'ps' index: 1 } }", "ps:1 is lost"},
      {"lease_seconds: 9 tasks { task { job: 'ps' index: 1 } alive: true "
       "silent_seconds: 6.1 }",
       "ps:1 has been silent for 6.1 s"},
      {"tasks { task { job: 'worker' } alive: true pace { "
       "seconds_per_push: 0.2 slow: true } } "
       "tasks { task { job: 'worker' index: 1 } alive: true pace { "
       "seconds_per_push: 0.02 } } "
       "tasks { task { job: 'worker' index: 2 } alive: true pace { "
       "seconds_per_push: 0.02 } }",
       "worker:0 is slow: 200 ms per push, where the median is 20 ms"},
      // Without a pace, because the worker is silent or has not pushed.
      {"tasks { task { job: 'worker' } alive: true pace { slow: true } }",
       "worker:0 is slow"},
      {"state { phase: TRAINING } tasks { task { job: 'worker' } alive: true "
       "input_wait { recent: 0.5 } }",
       "worker:0 waits for its input for 50% of its time"},
      {"state { phase: TRAINING } tasks { task { job: 'worker' } alive: true "
       "worker { waiting_for: 'input' waiting_seconds: 5 } }",
       "worker:0 has waited for its input for 5.0 s"},
      {"tasks { task { job: 'ps' } alive: true ps { save_seconds: 2 "
       "save_bytes: 2097152 } } tasks { task { job: 'ps' index: 1 } "
       "alive: true ps { save_seconds: 0.5 save_bytes: 2097152 } }",
       "ps:0 has a slow disk: it wrote its last share in 2.0 s, at 1.0 MiB/s, "
       "while the others write at 4.0 MiB/s"},
      // A ps that is alone, or as fast as the others.
      {"tasks { task { job: 'ps' } alive: true ps { save_seconds: 1 "
       "save_bytes: 10000000 } }",
       "ps:0 has a slow disk: it wrote its last share in 1.0 s, at 9.5 MiB/s"},
      {"tasks { task { job: 'ps' } alive: true ps { memory { values: 50 "
       "slots: 40 limit: 100 } } }",
       "ps:0 uses 90% of its memory limit of 100 B"},
      {"state { phase: TRAINING } global_step: 10 training_seconds: 10 "
       "waiting_for: 'worker 1' seconds_since_progress: 10.1",
       "no progress for 10.1 s: the job waits for worker 1"},
      {"train_loss: nan", "the loss is not a finite number"},
      {"evaluation { loss: inf }", "the loss is not a finite number"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(AttentionOf(Parse<proto::GetStatusResponse>(test.status)),
                ElementsAre(test.text));
  }
}

TEST(AttentionTest, NotBelowTheBounds) {
  for (const char* status : {
           "state { phase: DONE } tasks { task { job: 'worker' } }",
           "lease_seconds: 9 tasks { task { job: 'ps' index: 1 } alive: true "
           "silent_seconds: 5.9 }",
           "state { phase: TRAINING } tasks { task { job: 'worker' } "
           "alive: true input_wait { recent: 0.49 } "
           "worker { waiting_for: 'input' waiting_seconds: 4.9 } }",
           "tasks { task { job: 'ps' } alive: true ps { save_seconds: 0.9 "
           "save_bytes: 2097152 } } tasks { task { job: 'ps' index: 1 } "
           "alive: true ps { save_seconds: 0.1 save_bytes: 2097152 } }",
           "tasks { task { job: 'ps' } alive: true ps { save_seconds: 1 "
           "save_bytes: 10485760 } }",
           "tasks { task { job: 'ps' } alive: true ps { save_seconds: 0.9 "
           "save_bytes: 1000 } }",
           "tasks { task { job: 'ps' } alive: true ps { memory { values: 89 "
           "limit: 100 } } }",
           "state { phase: TRAINING } global_step: 10 training_seconds: 10 "
           "waiting_for: 'worker 1' seconds_since_progress: 9.9",
       }) {
    EXPECT_THAT(AttentionOf(Parse<proto::GetStatusResponse>(status)), IsEmpty())
        << status;
  }
}

TEST(TopViewTest, HasTheSlowestWorkerFirst) {
  EXPECT_EQ(Screen(TopView(Training(), Events(), absl::UTCTimeZone(),
                           "holdfast top  localhost:4000", 80, 24)),
            R"(
holdfast top  localhost:4000
training  [########............] 41%  step 1230 of 3000, 2:57 left
  rate        10 steps/s, 5010 examples/s
  loss        0.4321; test loss 0.4500, accuracy 0.8312 at step 1000
  examples    615000 in 12.0 s of training; pushes without effect: 3 stale
  step time   mean 99 ms until pushes are complete, 0.73 ms until they are comm>
  checkpoint  step 1000 is on disk, written 23.2 s ago (4.0 MiB in 210 ms); 4 w>
attention
  worker:1 is slow: 99 ms per push, where the median is 54 ms
worker    state  silent  per push  last  input  waits for       mostly       pu>
worker:1  slow   200 ms     99 ms   98%     0%  -               compute 92%    >
worker:0  ok     300 ms     10 ms    2%     3%  verdict 91 ms   verdict 87%    >
ps    state  silent     memory    limit  used   values   update   received     >
ps:0  ok          -    3.0 MiB  1.0 GiB    0%  1.0 MiB  0.50 ms    2.4 GiB    2>
ps:1  ok     400 ms    3.0 MiB  1.0 GiB    0%  1.0 MiB  0.60 ms    2.4 GiB    2>
events
  10:00:00  step 0        joined             /job:worker/task:0 has joined
  10:00:01  step 0        training           training begins
  10:01:01  step 1000     checkpoint         the checkpoint of step 1000 is on >
)");
}

// 64 workers; number 17 is slow, and number 40 is lost.
proto::GetStatusResponse LargeJob() {
  proto::GetStatusResponse status = Parse<proto::GetStatusResponse>(
      "state { phase: TRAINING } global_step: 10 total_steps: 100 "
      "lease_seconds: 10 total_num_replicas: 64");
  for (int i = 0; i < 8; ++i) {
    proto::TaskStatus& task = *status.add_tasks();
    task.mutable_task()->set_job("ps");
    task.mutable_task()->set_index(i);
    task.set_alive(true);
  }
  for (int i = 0; i < 64; ++i) {
    proto::TaskStatus& task = *status.add_tasks();
    task.mutable_task()->set_job("worker");
    task.mutable_task()->set_index(i);
    task.set_alive(i != 40);
    task.mutable_pace()->set_seconds_per_push(i == 17 ? 1 : 0.1 + 0.0001 * i);
    task.mutable_pace()->set_slow(i == 17);
  }
  return status;
}

TEST(TopViewTest, ShowsWhatFits) {
  EXPECT_EQ(Screen(TopView(LargeJob(), Events(), absl::UTCTimeZone(), "title",
                           60, 16)),
            R"(
title
training  [##..................] 10%  step 10 of 100
attention
  worker:40 is lost
  worker:17 is slow: 1.0 s per push, where the median is 10>
worker     state  per push  last
worker:40  lost     104 ms    0%
worker:17  slow      1.0 s    0%
worker:0   ok       100 ms    0%
worker:1   ok       100 ms    0%
worker:2   ok       100 ms    0%
worker:3   ok       100 ms    0%
  and 58 more
ps    state
ps:0  ok
  and 7 more
)");
}

TEST(TopViewTest, ShowsEmbeddingTablesWhereTheyFit) {
  proto::GetStatusResponse status =
      Parse<proto::GetStatusResponse>(kWithTables);
  EXPECT_EQ(Screen(TopView(status, {}, absl::UTCTimeZone(), "title", 80, 24)),
            R"(
title
starting
ps    state     memory  values   received       sent
ps:0  ok           0 B     0 B        0 B        0 B
ps:1  ok           0 B     0 B        0 B        0 B
table  rows  candidates  reads  found  admitted  expired  evicted
items   200          33   1600    88%       231       21       10
users     1           0      0      -         1        0        0
)");
  for (int i = 0; i < 40; ++i) {
    status.mutable_tasks(0)->mutable_ps()->add_tables()->set_name(
        absl::StrCat("t", i));
  }
  status.MergeFrom(LargeJob());
  const std::string screen =
      Screen(TopView(status, Events(), absl::UTCTimeZone(), "title", 80, 24));
  EXPECT_THAT(screen, AllOf(HasSubstr("\nworker "), HasSubstr("\nps "),
                            HasSubstr("\ntable "), HasSubstr("\nitems "),
                            EndsWith("  and 40 more\n")));
}

TEST(TopViewTest, FitsIntoAnyTerminal) {
  for (int height = 1; height < 110; ++height) {
    for (const int width : {1, 20, 80, 200}) {
      const auto lines = TopView(LargeJob(), Events(), absl::UTCTimeZone(),
                                 "title", width, height);
      EXPECT_THAT(lines, SizeIs(Le(height)));
      for (const ViewLine& line : lines) {
        EXPECT_THAT(line.text, SizeIs(Le(width)));
      }
    }
  }
}

TEST(EventTextTest, HasTheDateWhereItIsAskedFor) {
  const proto::Event event = Events()[2];
  EXPECT_EQ(EventText(event, absl::UTCTimeZone(), /*with_date=*/false),
            "10:01:01  step 1000     checkpoint         the checkpoint of step "
            "1000 is on disk");
  EXPECT_THAT(EventText(event, absl::UTCTimeZone(), /*with_date=*/true),
              StartsWith("2024-05-17 10:01:01  step 1000     checkpoint "));
}

}  // namespace
}  // namespace holdfast
