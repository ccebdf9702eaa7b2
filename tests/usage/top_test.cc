// SPDX-License-Identifier: Apache-2.0

// `holdfast top` on a terminal that the test emulates.

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/process/exit_code.h"
#include "common/rpc/testing/fake_ps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Emulates a terminal's screen: the part of ECMA-48 that `holdfast top` uses.
// Anything else is a failure.
class Screen {
 public:
  Screen(int width, int height) { Resize(width, height); }

  void Resize(int width, int height) {
    width_ = width;
    rows_.assign(height, std::string(width, ' '));
    row_ = column_ = 0;
  }

  void Take(char c) {
    if (!sequence_.empty()) {
      sequence_ += c;
      const bool ended =
          sequence_.size() > 2 && c >= '@' && c <= '~' && c != '[';
      if (ended) Obey();
      return;
    }
    if (c == '\033') {
      sequence_ = c;
    } else if (c == '\r') {
      column_ = 0;
    } else if (c == '\n') {
      ++row_;
      if (row_ == rows_.size()) {
        rows_.erase(rows_.begin());
        rows_.emplace_back(width_, ' ');
        --row_;
        ++scrolled_;
      }
    } else {
      EXPECT_GE(c, ' ');
      if (column_ == width_) {
        ++wrapped_;
        return;
      }
      rows_[row_][column_++] = c;
    }
  }

  std::string text() const { return absl::StrJoin(rows_, "\n"); }
  bool alternate() const { return alternate_; }
  bool cursor() const { return cursor_; }
  // The numbers of lines that were scrolled off the screen, and of characters
  // that did not fit.
  int scrolled() const { return scrolled_; }
  int wrapped() const { return wrapped_; }

 private:
  void Obey() {
    const std::string sequence = std::move(sequence_);
    sequence_.clear();
    if (sequence == "\033[H") {
      row_ = column_ = 0;
    } else if (sequence == "\033[K") {
      std::fill(rows_[row_].begin() + std::min(column_, width_ - 1),
                rows_[row_].end(), ' ');
    } else if (sequence == "\033[J") {
      std::fill(rows_[row_].begin() + std::min(column_, width_ - 1),
                rows_[row_].end(), ' ');
      for (size_t i = row_ + 1; i < rows_.size(); ++i) {
        rows_[i].assign(width_, ' ');
      }
    } else if (sequence == "\033[?1049h") {
      alternate_ = true;
    } else if (sequence == "\033[?1049l") {
      alternate_ = false;
    } else if (sequence == "\033[?25h") {
      cursor_ = true;
    } else if (sequence == "\033[?25l") {
      cursor_ = false;
    } else {
      EXPECT_EQ(sequence.back(), 'm') << sequence.substr(1);
    }
  }

  size_t width_ = 0;
  std::vector<std::string> rows_;
  size_t row_ = 0;
  size_t column_ = 0;
  std::string sequence_;
  bool alternate_ = false;
  bool cursor_ = true;
  int scrolled_ = 0;
  int wrapped_ = 0;
};

class TopTest : public ::testing::Test {
 protected:
  TopTest() {
    ps_.get_status.Do([this](int, const auto&, auto* response) {
      response->mutable_state()->set_phase(proto::TRAINING);
      response->set_global_step(step_);
      response->set_total_steps(1000);
      for (int i = 0; i < 30; ++i) {
        auto* const task = response->add_tasks();
        task->mutable_task()->set_job("worker");
        task->mutable_task()->set_index(i);
        task->set_alive(true);
        task->mutable_pace()->set_seconds_per_push(0.01 * (i + 1));
        task->mutable_pace()->set_slow(i == 29);
      }
      return absl::OkStatus();
    });
  }

  ~TopTest() override {
    if (!reaped_ && pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (terminal_ >= 0) close(terminal_);
    if (other_side_ >= 0) close(other_side_);
  }

  void Start() {
    winsize size = {};
    size.ws_col = kWidth;
    size.ws_row = kHeight;
    ASSERT_EQ(openpty(&terminal_, &other_side_, nullptr, nullptr, &size), 0);
    ASSERT_EQ(tcgetattr(other_side_, &before_), 0);
    const std::string address = "--ps=" + ps_.address();
    pid_ = fork();
    if (pid_ == 0) {
      login_tty(other_side_);
      close(terminal_);
      execl(kHoldfast, kHoldfast, "top", "--interval=100ms", address.c_str(),
            nullptr);
      _exit(127);
    }
  }

  // Waits until the screen shows `text`. Returns whether it does.
  bool Shows(const std::string& text) {
    const absl::Time deadline = SteadyNow() + kPatience;
    while (!absl::StrContains(screen_.text(), text)) {
      if (!ReadMore(deadline)) return false;
    }
    return true;
  }

  void Type(char key) { ASSERT_EQ(write(terminal_, &key, 1), 1); }

  void Resize(int width, int height) {
    screen_.Resize(width, height);
    winsize size = {};
    size.ws_col = width;
    size.ws_row = height;
    // The kernel sends SIGWINCH.
    ASSERT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }

  // Waits for the end of the program, and returns the exit code.
  int Wait() {
    const absl::Time deadline = SteadyNow() + kPatience;
    // This process has the terminal open itself, so the output has no end.
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (SteadyNow() >= deadline) return -1;
      ReadMore(SteadyNow() + absl::Milliseconds(20));
    }
    reaped_ = true;
    while (ReadMore(SteadyNow())) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  void ExpectRestored() {
    EXPECT_FALSE(screen_.alternate());
    EXPECT_TRUE(screen_.cursor());
    termios after;
    ASSERT_EQ(tcgetattr(other_side_, &after), 0);
    EXPECT_EQ(after.c_lflag, before_.c_lflag);
    EXPECT_EQ(after.c_iflag, before_.c_iflag);
    EXPECT_EQ(after.c_oflag, before_.c_oflag);
    EXPECT_EQ(after.c_cc[VMIN], before_.c_cc[VMIN]);
  }

  static constexpr int kWidth = 80;
  static constexpr int kHeight = 24;

  FakePs ps_;
  std::atomic<uint64_t> step_{100};
  Screen screen_{kWidth, kHeight};

 private:
  bool ReadMore(absl::Time deadline) {
    const absl::Duration left =
        std::max(deadline - SteadyNow(), absl::ZeroDuration());
    pollfd fds = {terminal_, POLLIN, 0};
    if (poll(&fds, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) <= 0) {
      return false;
    }
    char bytes[4096];
    const ssize_t size = read(terminal_, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < size; ++i) screen_.Take(bytes[i]);
    return size > 0;
  }

  int terminal_ = -1;
  int other_side_ = -1;
  termios before_ = {};
  pid_t pid_ = 0;
  bool reaped_ = false;
};

TEST_F(TopTest, RedrawsInPlaceUntilQ) {
  Start();
  ASSERT_TRUE(Shows("step 100 of 1000")) << screen_.text();
  EXPECT_TRUE(screen_.alternate());
  EXPECT_FALSE(screen_.cursor());
  // The slowest tasks come first, followed by the number of tasks that do not
  // fit.
  ASSERT_TRUE(Shows("more")) << screen_.text();
  const std::string text = screen_.text();
  EXPECT_LT(text.find("worker:29"), text.find("worker:28"));
  EXPECT_THAT(text, AllOf(HasSubstr("slow"), HasSubstr("more"),
                          Not(HasSubstr("worker:0 "))));
  step_ = 99;
  ASSERT_TRUE(Shows("step 99 of 1000")) << screen_.text();
  EXPECT_THAT(screen_.text(), Not(HasSubstr("step 100")));
  EXPECT_EQ(screen_.scrolled(), 0);
  EXPECT_EQ(screen_.wrapped(), 0);
  Type('q');
  EXPECT_EQ(Wait(), kExitDone);
  ExpectRestored();
}

TEST_F(TopTest, FollowsTheSizeOfTheTerminal) {
  Start();
  ASSERT_TRUE(Shows("step 100 of 1000"));
  Resize(60, 10);
  // Output for the old size may still arrive.
  step_ = 200;
  ASSERT_TRUE(Shows("step 200")) << screen_.text();
  Resize(60, 10);
  step_ = 300;
  ASSERT_TRUE(Shows("step 300")) << screen_.text();
  EXPECT_THAT(screen_.text(), HasSubstr("worker:29"));
  Resize(120, 40);
  ASSERT_TRUE(Shows("worker:0 ")) << screen_.text();
  Type('q');
  EXPECT_EQ(Wait(), kExitDone);
}

TEST_F(TopTest, CtrlCRestoresTheTerminalToo) {
  Start();
  ASSERT_TRUE(Shows("step 100 of 1000"));
  Type('\x03');
  EXPECT_EQ(Wait(), kExitInterrupted);
  ExpectRestored();
}

TEST_F(TopTest, SaysSinceWhenThereIsNoAnswer) {
  Start();
  ASSERT_TRUE(Shows("step 100 of 1000"));
  ps_.Stop();
  ASSERT_TRUE(Shows("no answer for 1s")) << screen_.text();
  EXPECT_THAT(screen_.text(), HasSubstr("step 100 of 1000"));
  Type('q');
  EXPECT_EQ(Wait(), kExitDone);
  ExpectRestored();
}

TEST_F(TopTest, NeedsATerminal) {
  Program top({kHoldfast, "top", "--ps=" + ps_.address()});
  EXPECT_EQ(top.Wait(), kExitFailed);
  EXPECT_THAT(top.output(), AllOf(HasSubstr("is not a terminal"),
                                  HasSubstr("holdfast status")));
}

}  // namespace
}  // namespace holdfast
