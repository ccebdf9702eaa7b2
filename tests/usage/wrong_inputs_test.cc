// SPDX-License-Identifier: Apache-2.0

// A table of wrong inputs and the errors that a user sees, in cases/*.txt. A
// case is
//
//   == NAME
//   $ COMMAND         one or more; bash runs them in a separate folder
//   exit CODE         the exit code of the last command
//   > TEXT            one or more parts of the output
//
// The folder has the files of files/, images.idx and labels.idx (also with .gz)
// for job.textproto, certs/ (made by `holdfast certs` for cluster.json),
// checkpoints/ (of another job) and k8s/ (deploy/k8s). The ports in
// cluster.json are replaced by free ones.
//
// Each file is one test, which prints its cases with exit codes and times.

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kLanes = 4;
// The ports in files/cluster.json.
constexpr uint16_t kPortsOfTheFile[] = {4101, 4102, 4103, 4104};
// The timeout of a case. On an idle machine, every case takes a fraction of it.
constexpr absl::Duration kLimit = absl::Seconds(40);

struct Case {
  std::string name;
  std::vector<std::string> commands;
  int exit_code = -1;
  std::vector<std::string> parts;
};

struct Answer {
  int exit_code = -1;
  std::string output;
  absl::Duration time;
};

std::vector<Case> ReadCases(const std::string& path) {
  std::vector<Case> cases;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(ReadText(path), '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    if (absl::ConsumePrefix(&line, "== ")) {
      cases.emplace_back().name = std::string(line);
      continue;
    }
    const bool in_case = !cases.empty();
    if (in_case && absl::ConsumePrefix(&line, "$ ")) {
      cases.back().commands.emplace_back(line);
    } else if (in_case && absl::ConsumePrefix(&line, "exit ") &&
               absl::SimpleAtoi(line, &cases.back().exit_code)) {
    } else if (in_case && absl::ConsumePrefix(&line, "> ")) {
      cases.back().parts.emplace_back(line);
    } else {
      ADD_FAILURE() << path << ":" << number << ": " << line;
    }
  }
  return cases;
}

// Makes a writable copy, also of files that Bazel has linked.
void Copy(const fs::path& from, const fs::path& to) {
  fs::copy(from, to, fs::copy_options::recursive);
  if (!fs::is_directory(to)) {
    fs::permissions(to, fs::perms::owner_write, fs::perm_options::add);
    return;
  }
  fs::permissions(to, fs::perms::owner_all, fs::perm_options::add);
  for (const auto& entry : fs::recursive_directory_iterator(to)) {
    fs::permissions(entry.path(), fs::perms::owner_write,
                    fs::perm_options::add);
  }
}

class WrongInputsTest : public ::testing::TestWithParam<std::string> {
 protected:
  WrongInputsTest() : folder_(FreshFolder()) {
    // The programs also find each other by these names.
    const fs::path bin = folder_ + "/bin";
    fs::create_directory(bin);
    for (const char* program : {kHoldfast, kPsServer, kPsWorker}) {
      fs::create_symlink(fs::canonical(program),
                         bin / fs::path(program).filename());
    }
    const std::string files = folder_ + "/files";
    Copy("tests/usage/files", files);
    WriteExamples(files);
    Copy("tests/local/testdata/protocol_6", files + "/checkpoints");
    Copy("deploy/k8s", files + "/k8s");
    Program certs({kHoldfast, "certs", "--training=usage",
                   absl::StrCat("--out=", files, "/certs"),
                   absl::StrCat("--cluster_spec=", files, "/cluster.json")});
    EXPECT_EQ(certs.Wait(), 0) << certs.output();
  }

  // Makes the folders of all cases while no process of this test starts: a
  // process inherits the descriptor that a script is written through, and until
  // it has closed it, the script cannot be executed (ETXTBSY).
  std::vector<std::string> MakeFolders(size_t cases) const {
    std::vector<std::string> folders;
    for (size_t i = 0; i < cases; ++i) {
      folders.push_back(absl::StrCat(folder_, "/", i));
      fs::copy(folder_ + "/files", folders.back(), fs::copy_options::recursive);
    }
    return folders;
  }

  Answer Run(const Case& test, const std::string& folder,
             const std::vector<uint16_t>& ports) const {
    std::string cluster = ReadText(folder + "/cluster.json");
    // Replaces all ports at once: one chosen port may contain another's
    // placeholder.
    std::vector<std::pair<std::string, std::string>> replacements;
    for (size_t i = 0; i < ports.size(); ++i) {
      replacements.emplace_back(absl::StrCat(kPortsOfTheFile[i]),
                                absl::StrCat(ports[i]));
    }
    cluster = absl::StrReplaceAll(cluster, replacements);
    WriteText(folder + "/cluster.json", cluster);
    const std::string script = absl::StrCat(
        "unset TF_CONFIG; PATH=", folder_, "/bin:/usr/bin:/bin; cd ", folder,
        "\n", absl::StrJoin(test.commands, "\n"));
    Answer answer;
    const absl::Time begin = SteadyNow();
    // Also ends processes that the commands have started.
    Program program({"/usr/bin/timeout", "--kill-after=1",
                     absl::StrCat(absl::ToInt64Seconds(kLimit)), "/bin/bash",
                     "-c", script});
    answer.exit_code = program.Wait(2 * kLimit);
    answer.time = SteadyNow() - begin;
    answer.output = program.output();
    return answer;
  }

  const std::string folder_;
};

TEST_P(WrongInputsTest, IsAnswered) {
  const std::vector<Case> cases =
      ReadCases(absl::StrCat("tests/usage/cases/", GetParam(), ".txt"));
  ASSERT_FALSE(cases.empty());
  const std::vector<uint16_t> ports =
      TakePorts(kLanes * std::size(kPortsOfTheFile));
  const std::vector<std::string> folders = MakeFolders(cases.size());

  std::vector<Answer> answers(cases.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto begin = ports.begin() + lane * std::size(kPortsOfTheFile);
    lanes.emplace_back([&, own = std::vector<uint16_t>(
                               begin, begin + std::size(kPortsOfTheFile))] {
      for (size_t i = next++; i < cases.size(); i = next++) {
        answers[i] = Run(cases[i], folders[i], own);
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();

  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& test = cases[i];
    const Answer& answer = answers[i];
    std::cout << absl::StreamFormat("%4.1f s  exit %3d  %s\n",
                                    absl::ToDoubleSeconds(answer.time),
                                    answer.exit_code, test.name);
    SCOPED_TRACE(test.name);
    EXPECT_EQ(answer.exit_code, test.exit_code) << answer.output;
    EXPECT_FALSE(test.parts.empty()) << "nothing is expected of the output";
    for (const std::string& part : test.parts) {
      EXPECT_THAT(answer.output, HasSubstr(part));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, WrongInputsTest,
                         ::testing::Values("checkpoint", "clicks", "cluster",
                                           "daemons", "holdfast", "job_file",
                                           "kubernetes", "tls"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace holdfast
