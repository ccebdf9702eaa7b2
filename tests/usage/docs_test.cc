// SPDX-License-Identifier: Apache-2.0

// Follows the docs word by word: the commands of README.md, the tutorial and
// docs/operating/ are run from the text, and --help must list every flag that
// the docs name, with the same default.
//
// Blocks that begin with "```sh" are run in order; those of one file share a
// shell. Blocks that cannot run in this test begin with "```sh (not run:
// REASON)".

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/process/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "re2/re2.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kTanhWorker[] = "examples/custom_model/tanh_worker";
// Replaces the number of steps of the jobs in examples/.
constexpr int kSteps = 40;

struct Block {
  std::string info;  // the text after "```"
  std::string text;
};

std::vector<Block> BlocksOf(const std::string& markdown) {
  std::vector<Block> blocks;
  bool inside = false;
  for (absl::string_view line : absl::StrSplit(markdown, '\n')) {
    if (absl::ConsumePrefix(&line, "```")) {
      inside = !inside;
      if (inside) blocks.push_back({std::string(line), ""});
    } else if (inside) {
      absl::StrAppend(&blocks.back().text, line, "\n");
    }
  }
  return blocks;
}

std::vector<std::string> AllDocs() {
  std::vector<std::string> docs = {"README.md"};
  for (const auto& entry : fs::recursive_directory_iterator("docs")) {
    if (entry.path().extension() == ".md") docs.push_back(entry.path());
  }
  return docs;
}

std::string HelpOf(std::vector<std::string> command) {
  command.push_back("--help");
  Program program(command);
  EXPECT_EQ(program.Wait(), 0) << program.output();
  return program.output();
}

std::vector<std::string> AllHelp() {
  std::vector<std::string> help = {HelpOf({kPsServer}), HelpOf({kPsWorker})};
  for (const char* words : {"local",
                            "status",
                            "top",
                            "events",
                            "history",
                            "trace",
                            "stop",
                            "set",
                            "completion",
                            "certs",
                            "data inspect",
                            "datagen criteo",
                            "checkpoint list",
                            "checkpoint inspect",
                            "checkpoint verify",
                            "checkpoint export",
                            "checkpoint delta",
                            "checkpoint save",
                            "bench wire",
                            "bench rows",
                            "bench step",
                            "bench scale"}) {
    std::vector<std::string> command = {kHoldfast};
    for (const absl::string_view word : absl::StrSplit(words, ' ')) {
      command.emplace_back(word);
    }
    help.push_back(HelpOf(command));
  }
  return help;
}

class CommandsTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Provides the files that a user has after a build, with small data and short
  // jobs.
  CommandsTest() : folder_(FreshFolder()) {
    for (const char* program : {kHoldfast, kPsServer, kPsWorker, kTanhWorker}) {
      const fs::path link = fs::path(folder_) / "bazel-bin" / program;
      fs::create_directories(link.parent_path());
      fs::create_symlink(fs::canonical(program), link);
    }
    WriteExamples(folder_);
    for (const auto& entry : fs::recursive_directory_iterator("examples")) {
      fs::create_directories(fs::path(folder_) / entry.path().parent_path());
      if (entry.path().extension() == ".csv") {
        fs::copy_file(entry.path(), fs::path(folder_) / entry.path());
      }
      if (entry.path().extension() != ".textproto") continue;
      std::string text = ReadText(entry.path());
      RE2::GlobalReplace(&text, R"("/usr/share/[^"]*images[^"]*")",
                         absl::StrCat("\"", folder_, "/images.idx\""));
      RE2::GlobalReplace(&text, R"("/usr/share/[^"]*labels[^"]*")",
                         absl::StrCat("\"", folder_, "/labels.idx\""));
      RE2::GlobalReplace(&text, R"(\nsteps: \d+)",
                         absl::StrCat("\nsteps: ", kSteps));
      WriteText(absl::StrCat(folder_, "/", entry.path().string()), text);
    }
    // Stand-ins for scripts that build first, without the build.
    WriteScript("deploy/local/train.sh", R"(
job=examples/fashion_mnist_mlp.textproto
if (($# > 0)) && [[ "$1" != -* ]]; then job="$1"; shift; fi
exec bazel-bin/cli/holdfast local --job="$job" "$@")");
    WriteScript("tests/run.sh", "");
    WriteScript("bin/bazel", "");
  }

  void WriteScript(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(folder_, "/", name);
    fs::create_directories(fs::path(path).parent_path());
    WriteText(path, "#!/bin/bash\nset -euo pipefail\n" + text + "\n");
    fs::permissions(path, fs::perms::owner_exec, fs::perm_options::add);
  }

  // Returns `script` with the ports of localhost replaced by free ones.
  std::string WithFreePorts(std::string script) {
    std::map<std::string, std::string> ports;
    re2::StringPiece rest(script);
    std::string port;
    while (RE2::FindAndConsume(&rest, R"((localhost:\d+))", &port)) {
      ports.emplace(port, "");
    }
    const std::vector<uint16_t> free = TakePorts(ports.size());
    auto next = free.begin();
    for (auto& [from, to] : ports) to = absl::StrCat("localhost:", *next++);
    return absl::StrReplaceAll(script, ports);
  }

  const std::string folder_;
};

TEST_P(CommandsTest, Work) {
  std::string script = absl::StrCat("set -euo pipefail\ncd ", folder_,
                                    "\nPATH=", folder_, "/bin:$PATH\nset -x\n");
  int run = 0;
  for (const Block& block : BlocksOf(ReadText(GetParam()))) {
    EXPECT_THAT(block.info,
                AnyOf("sh", "text", "yaml", "textproto", "dockerfile",
                      ::testing::MatchesRegex("sh \\(not run: .+\\)")));
    if (block.info != "sh") continue;
    absl::StrAppend(&script, block.text);
    ++run;
  }
  EXPECT_GT(run, 0);
  Program shell({"/bin/bash", "-c", WithFreePorts(script)});
  EXPECT_EQ(shell.Wait(absl::Seconds(200)), 0) << shell.output();
}

INSTANTIATE_TEST_SUITE_P(
    Docs, CommandsTest,
    ::testing::Values("README.md", "docs/tutorial.md",
                      "docs/operating/README.md",
                      "docs/operating/command_line.md"),
    [](const auto& info) {
      return absl::StrReplaceAll(info.param, {{"/", "_"}, {".", "_"}});
    });

TEST(VersionTest, OfEveryProgram) {
  for (const char* path : {kHoldfast, kPsServer, kPsWorker}) {
    Program program({path, "--version"});
    EXPECT_EQ(program.Wait(), 0);
    EXPECT_EQ(program.output(),
              VersionLine(fs::path(path).filename().string()) + "\n");
  }
}

TEST(HelpTest, OfTheDaemonsTellsOfTfConfigAndHasNoFlagsForTests) {
  for (const char* path : {kPsServer, kPsWorker}) {
    const std::string help = HelpOf({path});
    EXPECT_THAT(help, HasSubstr("TF_CONFIG='{\"cluster\""));
    EXPECT_THAT(help, HasSubstr("\nCluster and task:\n"));
    EXPECT_THAT(help, Not(HasSubstr("Other:")));
    EXPECT_THAT(help, Not(HasSubstr("test")));
  }
}

TEST(FlagsTest, ThatDocsNameAreThere) {
  // Flags of Bazel, curl, kubectl, docker, nvcc, ncu, pkg-config, and of our
  // benchmarks and scripts.
  std::set<std::string> known = {
      "--bdp_probe", "--measures",      "--benchmark",    "--benchmark_filter",
      "--build-arg", "--cert-manager",  "--config",       "--data",
      "--fmad",      "--for",           "--repo_env",     "--tail",
      "--help",      "--version",       "--cacert",       "--cert",
      "--key",       "--connect-to",    "--logdir",       "--cflags",
      "--libs",      "--at_once",       "--models",       "--operations",
      "--types",     "--clock-control", "--launch-count", "--launch-skip",
      "--metrics",   "--only",          "--ways"};
  std::string flag;
  for (const std::string& help : AllHelp()) {
    re2::StringPiece rest(help);
    while (RE2::FindAndConsume(&rest, R"((--[a-z][a-z0-9_-]+))", &flag)) {
      known.insert(flag);
    }
  }
  for (const std::string& path : AllDocs()) {
    std::set<std::string> unknown;
    const std::string text = ReadText(path);
    re2::StringPiece rest(text);
    while (RE2::FindAndConsume(&rest, R"((--[a-z][a-z0-9_-]+))", &flag)) {
      if (known.count(flag) == 0) unknown.insert(flag);
    }
    EXPECT_THAT(unknown, IsEmpty()) << path;
  }
}

// "`--flag` ... (default X" in docs and "--flag (default X)" in --help.
TEST(FlagsTest, HaveTheDefaultsThatDocsTell) {
  std::map<std::string, std::string> defaults;
  std::string flag;
  std::string value;
  for (const std::string& help : AllHelp()) {
    re2::StringPiece rest(help);
    while (RE2::FindAndConsume(&rest,
                               R"(\n  (--[a-z][a-z0-9_]+) \(default ([^)]*)\))",
                               &flag, &value)) {
      defaults[flag] = value;
    }
  }
  EXPECT_EQ(defaults["--input_threads"], "0");
  int compared = 0;
  for (const std::string& path : AllDocs()) {
    const std::string text = ReadText(path);
    re2::StringPiece rest(text);
    while (RE2::FindAndConsume(
        &rest, R"(`(--[a-z][a-z0-9_]+)`[^`|]{0,60}\([Dd]efault:? ([^),:; ]+))",
        &flag, &value)) {
      EXPECT_EQ(value, defaults[flag]) << flag << " in " << path;
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace holdfast
