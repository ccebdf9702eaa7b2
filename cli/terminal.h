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

// The line's text with what makes a terminal show its emphasis.
std::string StyledText(const ViewLine& line);

// The bytes that put `lines`, which fit, on a terminal's screen in place of
// what stands there. Nothing is cleared that is written over, so nothing
// flickers.
std::string DrawScreen(absl::Span<const ViewLine> lines, TerminalSize size);

// A terminal used as a screen: the alternate one, so that what stood there
// comes back, without a cursor and without echo of what is typed. Ctrl-C still
// sends SIGINT.
//
// Thread-compatible.
class Terminal {
 public:
  // Standard input and output. Errors: FAILED_PRECONDITION, naming the one
  // that is not a terminal; as the system says.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open();
  // As Leave.
  ~Terminal();

  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Takes the screen; gives back what was there. Either may be repeated.
  void Enter();
  void Leave();

  // As it is at this moment: SIGWINCH tells when to ask again.
  TerminalSize size() const;
  // DrawScreen, in one write.
  void Draw(absl::Span<const ViewLine> lines, TerminalSize size) const;
  // The keys that have been typed since the last call. Nothing: there will be
  // no more.
  std::optional<std::string> ReadKeys() const;

 private:
  explicit Terminal(const termios& before) : before_(before) {}

  const termios before_;
  bool entered_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TERMINAL_H_
