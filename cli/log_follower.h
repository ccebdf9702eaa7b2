// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_LOG_FOLLOWER_H_
#define HOLDFAST_CLI_LOG_FOLLOWER_H_

#include <fstream>
#include <string>

namespace holdfast {

// Reads what is appended to a log while it grows, like `tail -f`, but without
// LogHeaders.
//
// Thread-compatible.
class LogFollower {
 public:
  // Follows the log at `path`, which need not exist yet, from its current end.
  explicit LogFollower(const std::string& path);

  // The lines that have been completed since the last call.
  std::string NewLines();
  // Returns what NewLines returns, plus an incomplete last line, completed by a
  // line break. For use at the end of the log.
  std::string Rest();

 private:
  const std::string path_;
  // Number of bytes that have been read.
  std::streamoff position_ = 0;
  // The part of the last, incomplete line that has been read.
  std::string begun_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOG_FOLLOWER_H_
