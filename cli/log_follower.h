#ifndef HOLDFAST_CLI_LOG_FOLLOWER_H_
#define HOLDFAST_CLI_LOG_FOLLOWER_H_

#include <fstream>
#include <string>

namespace holdfast {

// Reads what is appended to a log while it grows: as `tail -f` does, but for
// LogHeaders, which it leaves out.
//
// Thread-compatible.
class LogFollower {
 public:
  // Follows the log at `path`, which need not exist yet, from its present end.
  explicit LogFollower(const std::string& path);

  // The lines that have become whole since the last call.
  std::string NewLines();
  // The same, and what stands behind them, as a line: nothing more is to come.
  std::string Rest();

 private:
  const std::string path_;
  // How much of it has been read.
  std::streamoff position_ = 0;
  // The part of the last line that has been read.
  std::string begun_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOG_FOLLOWER_H_
