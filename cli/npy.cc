// SPDX-License-Identifier: Apache-2.0
#include "cli/npy.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace holdfast {

std::string NpyHeader(absl::string_view type, absl::Span<const int64_t> shape) {
  std::string text = absl::StrCat(
      "{'descr': '", type, "', 'fortran_order': False, 'shape': (",
      absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  constexpr size_t kBefore = 10;  // magic, version, length
  while ((kBefore + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

absl::Status ReplaceFile(
    const std::string& output,
    absl::FunctionRef<absl::Status(WritableFile* file)> write) {
  FileSystem* const files = PosixFileSystem();
  const std::string aside = output + ".tmp";
  HOLDFAST_ASSIGN_OR_RETURN(const auto file, files->Create(aside));
  absl::Status status = write(file.get());
  if (status.ok()) status = file->Close();
  if (status.ok()) status = files->Rename(aside, output);
  if (!status.ok()) files->Remove(aside).IgnoreError();
  return status;
}

}  // namespace holdfast
