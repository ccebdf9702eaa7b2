// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_TERMINAL_H_
#define HOLDFAST_CLI_TERMINAL_H_

#include <termios.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/job_view.h"

namespace holdfast {

struct TerminalSize {
  int width = 80;
  int height = 24;
};

// The line's text with the escape sequences for its emphasis.
std::string StyledText(const ViewLine& line);

// The bytes that replace the contents of a terminal's screen with `lines`,
// which must fit. Characters that are overwritten are not cleared first, to
// avoid flicker.
std::string DrawScreen(absl::Span<const ViewLine> lines, TerminalSize size);

// A terminal used as a screen: its alternate screen, so that the previous
// contents come back, without a cursor and without echoing input. Ctrl-C still
// sends SIGINT.
//
// Thread-compatible.
class Terminal {
 public:
  // Opens standard input and output. Errors: FAILED_PRECONDITION, naming the
  // one that is not a terminal; those of the system.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open();
  // Calls Leave.
  ~Terminal();

  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Enter switches to the alternate screen; Leave restores the previous
  // contents. Either may be repeated.
  void Enter();
  void Leave();

  // The current size. Changes on SIGWINCH.
  TerminalSize size() const;
  // DrawScreen, in one write.
  void Draw(absl::Span<const ViewLine> lines, TerminalSize size) const;
  // The keys typed since the last call; nothing if there will be no more.
  std::optional<std::string> ReadKeys() const;

 private:
  explicit Terminal(const termios& before) : before_(before) {}

  const termios before_;
  bool entered_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TERMINAL_H_
