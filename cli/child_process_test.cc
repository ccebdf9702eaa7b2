// SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

class ChildProcessTest : public ::testing::Test {
 protected:
  // SIGCHLD is received with sigwait, as in the command.
  ChildProcessTest() {
    sigemptyset(&child_ended_);
    sigaddset(&child_ended_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ended_, nullptr);
  }

  absl::StatusOr<std::unique_ptr<ChildProcess>> StartShell(
      const std::string& script) {
    std::remove(log_path_.c_str());
    return ChildProcess::Start({"/bin/sh", {"-c", script}, log_path_});
  }

  ExitStatus WaitFor(ChildProcess& child) {
    for (;;) {
      if (auto ended = child.TryReap()) return *ended;
      int signal = 0;
      sigwait(&child_ended_, &signal);
    }
  }

  const std::string log_path_ =
      absl::StrCat(::testing::TempDir(), "/child.log");
  sigset_t child_ended_;
};

TEST_F(ChildProcessTest, WritesBothStreamsToTheLog) {
  auto child = StartShell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(child.ok()) << child.status();
  const ExitStatus ended = WaitFor(**child);
  EXPECT_FALSE(ended.ok());
  EXPECT_EQ(ended.ToString(), "exit status 3");
  EXPECT_EQ(ReadFile(log_path_), "out\nerr\n");
}

TEST_F(ChildProcessTest, AppendsToTheLogAfterAHeader) {
  std::ofstream(log_path_) << "earlier\n";
  auto child = ChildProcess::Start(
      {"/bin/sh", {"-c", "echo out"}, log_path_, "header\n"});
  ASSERT_TRUE(child.ok()) << child.status();
  WaitFor(**child);
  EXPECT_EQ(ReadFile(log_path_), "earlier\nheader\nout\n");
}

TEST_F(ChildProcessTest, HasTheVariablesThatItIsGiven) {
  setenv("HOLDFAST_TEST_KEPT", "kept", 1);
  setenv("HOLDFAST_TEST_REPLACED", "old", 1);
  std::remove(log_path_.c_str());
  auto child = ChildProcess::Start(
      {"/bin/sh",
       {"-c",
        "echo $HOLDFAST_TEST_KEPT $HOLDFAST_TEST_REPLACED "
        "$HOLDFAST_TEST_ADDED; "
        "env | grep -c HOLDFAST_TEST"},
       log_path_,
       "",
       {{"HOLDFAST_TEST_ADDED", "added"}, {"HOLDFAST_TEST_REPLACED", "new"}}});
  ASSERT_TRUE(child.ok()) << child.status();
  WaitFor(**child);
  EXPECT_EQ(ReadFile(log_path_), "kept new added\n3\n");
}

TEST_F(ChildProcessTest, WhatItHasStartedEndsWithIt) {
  // The sleeper becomes our child once its parent has ended.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  auto child = StartShell("sleep 1000 & echo $!; kill -9 $$");
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(WaitFor(**child).ToString(), "signal 9 (Killed)");
  const pid_t sleeper = std::atoi(ReadFile(log_path_).c_str());
  int status = 0;
  ASSERT_EQ(waitpid(sleeper, &status, 0), sleeper);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(ChildProcessTest, TellsTheSignalThatEndedIt) {
  auto child = StartShell("kill -9 $$");
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(WaitFor(**child).ToString(), "signal 9 (Killed)");
}

TEST_F(ChildProcessTest, HasSignalsAsNew) {
  // The test blocks SIGCHLD. If TERM were blocked as well, a child that
  // inherited the mask would never end by it.
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  auto child = StartShell("exec sleep 60");
  ASSERT_TRUE(child.ok()) << child.status();
  (*child)->Signal(SIGTERM);
  EXPECT_EQ(WaitFor(**child).signal, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &term, nullptr);
}

TEST_F(ChildProcessTest, EndsWithItsOwner) {
  auto child = StartShell("exec sleep 60");
  ASSERT_TRUE(child.ok()) << child.status();
  const pid_t pid = (*child)->pid();
  child->reset();
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(ChildProcessTest, EndsWhenThisProcessIsKilled) {
  // The child holds the pipe's write end open, so the pipe ends when the child
  // does.
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t middle = fork();
  if (middle == 0) {
    auto child = StartShell("exec sleep 60");
    if (!child.ok()) _exit(1);
    raise(SIGKILL);
  }
  close(pipe_ends[1]);
  waitpid(middle, nullptr, 0);
  char byte;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 0);
  close(pipe_ends[0]);
}

TEST_F(ChildProcessTest, SaysWhatItCannotRun) {
  auto child = ChildProcess::Start({"/no/such/program", {}, log_path_});
  EXPECT_THAT(child.status().message(),
              HasSubstr("cannot run /no/such/program: No such file"));
  child = ChildProcess::Start({"/bin/sh", {}, "/no/such/folder/log"});
  EXPECT_THAT(child.status().message(), HasSubstr("/no/such/folder/log"));
}

}  // namespace
}  // namespace holdfast
