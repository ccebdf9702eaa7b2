// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_PRINTABLE_OUTPUT_H_
#define HOLDFAST_CLI_PRINTABLE_OUTPUT_H_

#include <ostream>
#include <streambuf>
#include <string>

#include "absl/strings/string_view.h"

namespace holdfast {

// The border between a command and the terminal: passes text on as
// PrintableLines, so that nothing in a name, a reason or a file that a command
// shows can move the cursor, set the terminal's title, or hide other text.
// Complete lines are passed on at once, the rest when the stream is flushed.
class PrintableBuffer : public std::streambuf {
 public:
  // `to` must outlive this object.
  explicit PrintableBuffer(std::streambuf* to) : to_(*to) {}

  // Passes `bytes` on as they are, after what was written before.
  void WriteVerbatim(absl::string_view bytes);

 protected:
  int_type overflow(int_type byte) override;
  std::streamsize xsputn(const char* bytes, std::streamsize size) override;
  int sync() override;

 private:
  // Passes on the first `size` bytes of text_.
  void Pass(size_t size);

  std::streambuf& to_;
  // What was written and not passed on.
  std::string text_;
};

// From here on, std::cout and std::cerr pass on only printable text.
void MakeOutputPrintable();

// Text that a command prints as it is: its own escape sequences, around text
// that is printable already, and the output of the user's program. A stream
// that is not one of MakeOutputPrintable is given all text as it is.
struct Verbatim {
  absl::string_view text;
};
std::ostream& operator<<(std::ostream& out, const Verbatim& verbatim);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_PRINTABLE_OUTPUT_H_
