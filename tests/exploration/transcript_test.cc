// SPDX-License-Identifier: Apache-2.0

// The messages of runs that every developer should know, as text. A change of
// the protocol shows up as a change of transcripts/*.txt, which
//
//   bazel run //tests/exploration:transcript_test -- --rewrite
//
// rewrites.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/exploration/jobs.h"
#include "tests/exploration/schedule.h"

namespace holdfast::exploration {
namespace {

constexpr char kFolder[] = "tests/exploration/transcripts/";

// Where to write the transcripts; if null, they are compared.
const char* rewrite_root = nullptr;

struct Course {
  std::string name;
  // Printed at the beginning of the file.
  std::string title;
  Scenario scenario;
  // Each deviation happens after the next line that contains its text.
  std::vector<std::pair<std::string, Choice>> deviations;
};

// Begins with the line in which the variables are ready.
std::string TranscriptOf(const Course& course) {
  std::string text = absl::StrCat("# ", course.title, "\n\n");
  Schedule schedule(course.scenario, Schedule::Tracing::kTranscript);
  auto next = course.deviations.begin();
  size_t seen = 0;
  bool begun = false;
  while (!schedule.over()) {
    schedule.Take(Choice());
    for (; seen < schedule.trace().size(); ++seen) {
      const std::string& line = schedule.trace()[seen];
      begun = begun || absl::StrContains(line, "answer to GetPlacement");
      // Leases are renewed all the time, which is left out.
      if (begun && !absl::StrContains(line, "RenewLease")) {
        absl::StrAppend(&text, line, "\n");
      }
      if (next != course.deviations.end() &&
          absl::StrContains(line, next->first)) {
        schedule.Take((next++)->second);
      }
    }
  }
  EXPECT_EQ(schedule.violation(), "");
  EXPECT_TRUE(next == course.deviations.end())
      << next->first << " is not in the transcript";
  return text;
}

Choice Crash(sim::Process process, int rounds) {
  return {Choice::kCrash, 0, {}, process, rounds};
}

std::vector<Course> Courses() {
  constexpr sim::Process kWorker1 = sim::kFirstWorkerProcess + 1;
  return {
      {"step",
       "A synchronous step of two workers on two ps (life_of_a_step.md)",
       WithoutArchive(Synchronous(1)),
       {}},
      {"checkpoint",
       "An asynchronous job of two tickets, and its last checkpoint "
       "(asynchronous.md; recovery.md, C1 to C5)",
       Asynchronous(2, 1),
       {}},
      {"lost_worker",
       "By ticket with the policy CONTINUE: worker 1 dies with a push on both "
       "ps, is fenced, and worker 0 goes on (recovery.md, L3 to L5)",
       WithoutArchive(Continue(2)),
       {{"shard 1 -> worker 1: answer to Push", Crash(kWorker1, kLate)}}},
      {"returned_ticket",
       "An asynchronous worker dies with a ticket, which another gets "
       "(asynchronous.md, A5)",
       WithoutArchive(Asynchronous(2, 1)),
       {{"coordinator -> worker 1: answer to TakeTicket {generation: 1 state "
         "{ phase: TRAINING } ticket",
         Crash(kWorker1, kLate)}}},
      {"roll_back",
       "Ps 1 dies after the first of two steps, and the job goes on from the "
       "checkpoint of that step (recovery.md, G1 to G6)",
       Synchronous(2),
       {{"worker 0 -> shard 1: Push {sequence: 2", Crash(1, 0)}}},
  };
}

TEST(TranscriptTest, AreAsTheyAreWritten) {
  for (const Course& course : Courses()) {
    const std::string path = absl::StrCat(kFolder, course.name, ".txt");
    const std::string transcript = TranscriptOf(course);
    if (rewrite_root != nullptr) {
      std::ofstream(absl::StrCat(rewrite_root, "/", path)) << transcript;
      continue;
    }
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    std::stringstream written;
    written << file.rdbuf();
    EXPECT_EQ(transcript, written.str())
        << "bazel run //tests/exploration:transcript_test -- --rewrite";
  }
}

}  // namespace
}  // namespace holdfast::exploration

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::string(argv[1]) == "--rewrite") {
    const char* const root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
    holdfast::exploration::rewrite_root = root == nullptr ? "." : root;
  }
  return RUN_ALL_TESTS();
}
