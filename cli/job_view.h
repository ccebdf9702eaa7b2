// SPDX-License-Identifier: Apache-2.0

// The display of a running job on a terminal: text made only from the
// coordinator's messages. `holdfast status` prints all of it, `holdfast top`
// what fits on the screen.
//
//   training  [########............] 41%  step 1230 of 3000, 0:17 left
//     rate         102 steps/s, 51234 examples/s
//     loss         0.4321; test loss 0.4500, accuracy 0.8312 at step 1000
//     examples     615000 in 12.0 s of training
//     checkpoint   step 1000 is on disk, written 3.2 s ago; 4 written
//   attention
//     worker:1 is slow: 101 ms per push, where the median is 10 ms
//   worker    state  silent  per push  last  input  waits for      pushes
//   worker:0  ok      0.3 s     10 ms   12%     3%  verdict 0.1 s     615
//   worker:1  slow    0.2 s    101 ms   88%     0%  -                 615
//   ps    state  silent  memory    limit    used  ...
//   ps:0  ok     -       12.3 MiB  1.0 GiB    1%
//   table  rows  candidates  reads  found  admitted  ...
//   items  1200         310  64000    98%      1250
//   events
//     12:00:01  step 1100  checkpoint  the checkpoint of step 1000 is on disk
//
// Unknown values are left out.
#ifndef HOLDFAST_CLI_JOB_VIEW_H_
#define HOLDFAST_CLI_JOB_VIEW_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// How a line is emphasized, if the terminal supports it.
enum class Emphasis { kNone, kHeading, kAlert };

struct ViewLine {
  std::string text;
  Emphasis emphasis = Emphasis::kNone;

  friend bool operator==(const ViewLine& a, const ViewLine& b) {
    return a.text == b.text && a.emphasis == b.emphasis;
  }
};

// Problems that need attention, one sentence each; empty if there are none. The
// status page uses the same rules: the job has failed; checkpoints cannot be
// written; a task is lost, or silent for two thirds of its lease; a worker is
// slow, or waits for its input for half of its time or for 5 s; a ps takes a
// second or more to write its share of a checkpoint, at less than half of the
// others' speed or at less than 10 MiB/s; a ps uses 90 % of its memory; the job
// makes no progress; the loss is not a finite number.
std::vector<std::string> AttentionOf(const proto::GetStatusResponse& status);

// Everything in `status`, and `events`, oldest first.
std::vector<ViewLine> StatusView(const proto::GetStatusResponse& status,
                                 absl::Span<const proto::Event> events,
                                 const absl::TimeZone& zone);

// The part of StatusView that fits on `height` lines of `width` columns, below
// the line `title`: slowest workers first, and at least some rows of each table
// before the last events.
std::vector<ViewLine> TopView(const proto::GetStatusResponse& status,
                              absl::Span<const proto::Event> events,
                              const absl::TimeZone& zone,
                              const std::string& title, int width, int height);

// One event, such as "12:00:01  step 1230  lost  /job:worker/task:1 is lost",
// with the date before the time if `with_date`.
std::string EventText(const proto::Event& event, const absl::TimeZone& zone,
                      bool with_date);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_JOB_VIEW_H_
