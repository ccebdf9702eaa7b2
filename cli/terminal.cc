// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "cli/units.h"
#include "common/base/printable_text.h"

namespace holdfast {
namespace {

// Escape sequences of ECMA-48, and xterm's for the alternate screen.
constexpr char kEnter[] = "\033[?1049h\033[?25l";
constexpr char kLeave[] = "\033[?25h\033[?1049l";
constexpr char kHome[] = "\033[H";
constexpr char kClearLine[] = "\033[K";
constexpr char kClearBelow[] = "\033[J";
constexpr char kPlain[] = "\033[m";

const char* StyleOf(Emphasis emphasis) {
  switch (emphasis) {
    case Emphasis::kHeading:
      return "\033[1m";  // bold
    case Emphasis::kAlert:
      return "\033[31m";  // red
    case Emphasis::kNone:
      return "";
  }
  return "";
}

void WriteAll(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    // If the terminal has been closed, there will be a SIGHUP.
    if (written <= 0) return;
    bytes.remove_prefix(written);
  }
}

}  // namespace

std::string StyledText(const ViewLine& line) {
  const std::string text = PrintableText(line.text);
  const std::string style = StyleOf(line.emphasis);
  if (style.empty() || text.empty()) return text;
  return absl::StrCat(style, text, kPlain);
}

std::string DrawScreen(absl::Span<const ViewLine> lines, TerminalSize size) {
  std::string bytes = kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    // Not after the last line, which might make the screen scroll.
    absl::StrAppend(&bytes, i == 0 ? "" : "\r\n", StyledText(lines[i]));
    // A line that fills the screen leaves the cursor on its last character,
    // which would be cleared.
    if (TextWidth(lines[i].text) < static_cast<size_t>(size.width)) {
      absl::StrAppend(&bytes, kClearLine);
    }
  }
  if (lines.size() < static_cast<size_t>(size.height)) {
    absl::StrAppend(&bytes, lines.empty() ? "" : "\r\n", kClearBelow);
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Open() {
  for (const auto& [fd, name] : {std::pair(STDIN_FILENO, "standard input"),
                                 std::pair(STDOUT_FILENO, "standard output")}) {
    if (!isatty(fd)) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " is not a terminal"));
    }
  }
  termios before;
  if (tcgetattr(STDIN_FILENO, &before) != 0) {
    return absl::ErrnoToStatus(errno, "cannot read the terminal's settings");
  }
  return absl::WrapUnique(new Terminal(before));
}

Terminal::~Terminal() { Leave(); }

void Terminal::Enter() {
  if (entered_) return;
  termios settings = before_;
  settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  // Reads return what is available, even if it is nothing.
  settings.c_cc[VMIN] = 0;
  settings.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &settings);
  WriteAll(kEnter);
  entered_ = true;
}

void Terminal::Leave() {
  if (!entered_) return;
  entered_ = false;
  WriteAll(kLeave);
  // Unread input is not meant for the shell.
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

TerminalSize Terminal::size() const {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 ||
      size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

void Terminal::Draw(absl::Span<const ViewLine> lines, TerminalSize size) const {
  WriteAll(DrawScreen(lines, size));
}

std::optional<std::string> Terminal::ReadKeys() const {
  char keys[64];
  const ssize_t size = read(STDIN_FILENO, keys, sizeof(keys));
  if (size < 0) {
    if (errno == EINTR || errno == EAGAIN) return "";
    return std::nullopt;
  }
  return std::string(keys, size);
}

}  // namespace holdfast
