// SPDX-License-Identifier: Apache-2.0
#include "cli/printable_output.h"

#include <algorithm>
#include <cstdint>
#include <iostream>

#include "common/base/printable_text.h"
#include "common/base/utf8.h"

namespace holdfast {
namespace {

// Longer lines are passed on in pieces.
constexpr size_t kMostHeld = 1 << 16;

// The size of `text` without a character at its end that may be incomplete.
size_t CompleteBytes(absl::string_view text) {
  for (size_t tail = 1; tail <= std::min<size_t>(3, text.size()); ++tail) {
    const auto byte = static_cast<uint8_t>(text[text.size() - tail]);
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;  // not the first byte of a character
    const bool complete =
        Utf8CharacterBytes(text.substr(text.size() - tail)) > 0;
    return complete ? text.size() : text.size() - tail;
  }
  return text.size();
}

}  // namespace

void PrintableBuffer::Pass(size_t size) {
  const std::string printable =
      PrintableLines(absl::string_view(text_).substr(0, size));
  to_.sputn(printable.data(), printable.size());
  text_.erase(0, size);
}

std::streamsize PrintableBuffer::xsputn(const char* bytes,
                                        std::streamsize size) {
  text_.append(bytes, size);
  if (const size_t end = text_.rfind('\n'); end != text_.npos) Pass(end + 1);
  if (text_.size() > kMostHeld) Pass(CompleteBytes(text_));
  return size;
}

PrintableBuffer::int_type PrintableBuffer::overflow(int_type byte) {
  if (traits_type::eq_int_type(byte, traits_type::eof())) return 0;
  const char one = traits_type::to_char_type(byte);
  xsputn(&one, 1);
  return byte;
}

int PrintableBuffer::sync() {
  Pass(CompleteBytes(text_));
  return to_.pubsync();
}

void PrintableBuffer::WriteVerbatim(absl::string_view bytes) {
  Pass(text_.size());
  to_.sputn(bytes.data(), bytes.size());
}

void MakeOutputPrintable() {
  // Never destroyed: the streams are flushed when the process exits.
  std::cout.rdbuf(new PrintableBuffer(std::cout.rdbuf()));
  std::cerr.rdbuf(new PrintableBuffer(std::cerr.rdbuf()));
}

std::ostream& operator<<(std::ostream& out, const Verbatim& verbatim) {
  auto* const printable = dynamic_cast<PrintableBuffer*>(out.rdbuf());
  if (printable == nullptr) return out << verbatim.text;
  printable->WriteVerbatim(verbatim.text);
  return out;
}

}  // namespace holdfast
