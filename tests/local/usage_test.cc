// Wrong flags and job files: exit status 2, and what is wrong.

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::vector<std::string> args;
  std::string error;
};

class UsageTest : public ::testing::Test {
 protected:
  UsageTest() : folder_(FreshFolder()) {
    WriteExamples(folder_);
    WriteJob(folder_, {});
    WriteText(folder_ + "/bad.textproto", "name: \"x\"\nbatches: 3\n");
    SmallJob three;
    three.total_num_replicas = 3;
    WriteText(folder_ + "/three.textproto", ReadText(WriteJob(folder_, three)));
    WriteJob(folder_, {});
  }

  // Runs the program with each case's arguments, in which FOLDER stands for the
  // folder of this test.
  void ExpectRefused(const std::vector<std::string>& program,
                     const std::vector<Case>& cases) {
    for (const Case& test : cases) {
      std::vector<std::string> args = program;
      for (const std::string& arg : test.args) {
        args.push_back(absl::StrReplaceAll(arg, {{"FOLDER", folder_}}));
      }
      SCOPED_TRACE(::testing::PrintToString(args));
      Program run(args);
      EXPECT_EQ(run.Wait(), 2);
      EXPECT_THAT(run.output(), HasSubstr(absl::StrReplaceAll(
                                    test.error, {{"FOLDER", folder_}})));
    }
  }

  const std::string folder_;
};

TEST_F(UsageTest, HoldfastItself) {
  ExpectRefused({kHoldfast},
                {{{}, "usage: holdfast COMMAND"},
                 {{"lokal"}, "no command is named \"lokal\""},
                 {{"--job=x"}, "no command is named \"--job=x\""}});
}

TEST_F(UsageTest, Help) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{kHoldfast, "--help"},
        std::vector<std::string>{kHoldfast, "local", "--help"},
        std::vector<std::string>{kHoldfast, "bench", "--help"},
        std::vector<std::string>{kHoldfast, "bench", "wire", "--help"},
        std::vector<std::string>{kPsWorker, "--help"}}) {
    Program run(args);
    EXPECT_EQ(run.Wait(), 0) << run.output();
  }
  Program run({kHoldfast, "local", "--help"});
  run.Wait();
  EXPECT_THAT(run.output(), HasSubstr("--run_dir=FOLDER"));
}

TEST_F(UsageTest, HoldfastLocal) {
  const std::string job = "--job=FOLDER/job.textproto";
  ExpectRefused(
      {kHoldfast, "local"},
      {
          {{}, "--job is needed"},
          {{"--job=FOLDER/none.textproto"}, "FOLDER/none.textproto"},
          {{"--job=FOLDER/bad.textproto"}, "bad.textproto:2"},
          {{job, "--ps=0"}, "--ps=0: must be from 1 to 1000"},
          {{job, "--ps=x"}, "--ps=x: not a valid NUMBER"},
          {{job, "--workers=0"}, "--workers=0: must be from 1 to 1000"},
          {{job, "--workers=3"}, "total_num_replicas"},
          {{"--job=FOLDER/three.textproto", "--workers=2"},
           "total_num_replicas"},
          {{job, "--seed=-1"}, "--seed=-1: not a valid NUMBER"},
          {{job, "--lease=10"}, "--lease=10: not a valid DURATION"},
          {{job, "--no_such_flag=1"}, "unknown flag --no_such_flag"},
          {{job, "extra"}, "\"extra\" is not a flag"},
          {{job, "--ps_binary=FOLDER/none"}, "--ps_binary says where it is"},
          {{job, "--worker_binary=FOLDER/job.textproto"},
           "--worker_binary says where it is"},
          {{job, "--run_dir=FOLDER/job.textproto"}, "FOLDER/job.textproto"},
      });
}

// What only the daemons find out: the code is theirs.
TEST_F(UsageTest, HoldfastLocalWhatDaemonsRefuse) {
  const std::string job = ReadText(folder_ + "/job.textproto");
  const auto write = [&](const std::string& name, const std::string& from,
                         const std::string& to) {
    WriteText(folder_ + "/" + name, absl::StrReplaceAll(job, {{from, to}}));
  };
  write("no_flatten.textproto", "layers { flatten {} }", "");
  write("window.textproto", "layers { flatten {} }",
        "layers { max_pool2d { size: 50 } } layers { flatten {} }");
  write("no_data.textproto", "images.idx", "none.idx");
  write("bad_data.textproto", "images.idx", "job.textproto");
  const std::string good = "--job=FOLDER/job.textproto";
  std::vector<Case> cases = {
      {{"--job=FOLDER/no_flatten.textproto"}, "no_flatten.textproto: "},
      {{"--job=FOLDER/window.textproto"}, "window.textproto: "},
      {{"--job=FOLDER/no_data.textproto"}, "FOLDER/none.idx"},
      {{"--job=FOLDER/bad_data.textproto"}, "FOLDER/job.textproto"},
      {{good, "--worker_flags=--no_such_flag=1"}, "unknown flag"},
      {{good, "--lease=0s"}, "flag --lease: 0"},
      {{good, "--worker_flags=--device=tpu"}, "tpu"},
      {{good, "--checkpoint_dir=FOLDER/images.idx"},
       "FOLDER/images.idx: is a file, and not a folder"},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].args.push_back(absl::StrCat("--run_dir=FOLDER/run-", i));
  }
  ExpectRefused({kHoldfast, "local"}, cases);
}

TEST_F(UsageTest, PsServer) {
  const std::vector<std::string> task = {
      "--task_index=0",
      "--ps_hosts=localhost:" + absl::StrCat(RandomFirstPort()),
      "--worker_hosts=localhost:2230"};
  std::vector<Case> cases = {
      {{"--checkpoint_dir=FOLDER/images.idx"}, "is a file, and not a folder"},
      {{"--checkpoint_dir=FOLDER/images.idx/below"}, "FOLDER/images.idx"},
      {{"--warm_start=FOLDER/none"}, "needs a checkpoint_dir"},
  };
  for (Case& test : cases) {
    test.args.insert(test.args.end(), task.begin(), task.end());
  }
  ExpectRefused({kPsServer}, cases);
}

TEST_F(UsageTest, HoldfastBench) {
  ExpectRefused(
      {kHoldfast, "bench"},
      {
          {{}, "a verb is needed"},
          {{"wires"}, "no verb is named \"wires\""},
          {{"wire", "--workers=1"}, "unknown flag --workers"},
          {{"wire", "--sizes=15"}, "--sizes=15: \"15\" is no multiple of 4"},
          {{"wire", "--shards=1,0"}, "--shards=1,0: \"0\" is no whole number"},
          {{"wire", "--codecs=fp16"},
           "--codecs=fp16: \"fp16\" is none of exact"},
          {{"wire", "--ops=push,push"}, "\"push\" is there twice"},
          {{"wire", "--load=x"}, "--load=x"},
          {{"wire", "--seconds=0"}, "--seconds=0: must be above 0"},
          {{"wire", "--ps_binary=FOLDER/none"}, "--ps_binary says where it is"},
          {{"wire", "--json=FOLDER/none/x"}, "FOLDER/none/x"},
          {{"step", "--jobs=FOLDER/none.textproto"}, "FOLDER/none.textproto"},
          {{"step", "--jobs=FOLDER/bad.textproto"}, "bad.textproto:2"},
          {{"step", "--modes=sync"}, "--modes=sync: \"sync\" is none of"},
          {{"step", "--steps=0"}, "--steps=0: must be at least 1"},
          {{"step", "--rounds=0"}, "--rounds=0: must be at least 1"},
          {{"scale", "--workers=0"}, "--workers=0: \"0\" is no whole number"},
          {{"scale", "--ps=x"}, "--ps=x: \"x\" is no whole number"},
          {{"scale", "--size=3"}, "--size=3"},
          {{"scale", "--seconds=-1"}, "--seconds=-1: must be above 0"},
      });
}

TEST_F(UsageTest, Certs) {
  const std::string out = "--out=FOLDER/certs";
  const std::string training = "--training=mnist";
  const std::string cluster =
      R"(--cluster_spec={"ps": ["localhost:1"], "worker": ["localhost:2"]})";
  ExpectRefused(
      {kHoldfast, "certs"},
      {
          {{}, "--out is needed"},
          {{out}, "--training is needed"},
          {{out, training}, "--cluster_spec is needed"},
          {{out, training, "--cluster_spec=FOLDER/none.json"}, "none.json"},
          {{out, "--training=My Job", cluster}, "\"My Job\" is no name"},
          {{out, training, cluster, "--days=0"}, "--days=0: must be from 1"},
          {{out, training, cluster, "extra"}, "extra"},
      });
  ExpectRefused({kHoldfast, "checkpoint", "save"},
                {{{"--ps=localhost:1", "--tls_dir=FOLDER/none"},
                  "--tls_dir: FOLDER/none/ca.crt: cannot be read"}});
}

TEST_F(UsageTest, PsWorker) {
  const std::string job = "--job=FOLDER/job.textproto";
  const std::string ps = "--ps_hosts=localhost:2222";
  const std::string workers = "--worker_hosts=localhost:2230,localhost:2231";
  const std::string first = "--task_index=0";
  ExpectRefused(
      {kPsWorker},
      {
          {{"--no_such_flag"}, "unknown flag --no_such_flag"},
          {{job, first}, "cluster"},
          {{job, ps, workers}, "task"},
          {{ps, workers, first}, "--job is needed"},
          {{ps, workers, first, "--job=FOLDER/none.textproto"},
           "FOLDER/none.textproto"},
          {{ps, workers, first, "--job=FOLDER/bad.textproto"},
           "bad.textproto:2"},
          {{ps, workers, first, "--job=FOLDER/three.textproto"},
           "total_num_replicas"},
          {{job, ps, workers, "--task_index=2"}, "2"},
          {{job, ps, workers, "--task_index=x"}, "--task_index"},
          {{job, ps, workers, first, "--job_name=ps"}, "run by ps_server"},
          {{job, ps, workers, first, "--job_name=boss"}, "boss"},
          {{job, first, "--job_name=evaluator",
            R"(--cluster_spec={"ps": ["localhost:1"],
                               "worker": ["localhost:2", "localhost:4"],
                               "evaluator": ["localhost:3"]})"},
           "/job:evaluator/task:0"},
          {{job, "--ps_hosts=localhost", workers, first}, "localhost"},
          {{job, "--ps_hosts=ps.example.com:2222", workers, first},
           "--insecure"},
          {{job, ps, workers, first, "--tls_dir=FOLDER/none"},
           "flag --tls_dir: FOLDER/none/ca.crt: cannot be read"},
          {{job, workers, first}, "ps"},
          {{job, ps, workers, first, "--chief_hosts=localhost:1,localhost:2"},
           "chief"},
          {{job, ps, workers, first, "--intra_op_threads=0"},
           "--intra_op_threads=0: must be from 1 to 1024"},
          {{job, ps, workers, first, "--input_threads=-3"},
           "--input_threads=-3: must be from 1 to 1024"},
          {{job, ps, workers, first, "--slow_step_ms_max=-1"},
           "--slow_step_ms_max=-1: must be from 0 to 1e6"},
          {{job, ps, workers, first, "--seed=-1"}, "--seed"},
          {{job, ps, workers, first, "extra"}, "extra"},
      });
}

TEST_F(UsageTest, ModelThatDoesNotFitTheData) {
  SmallJob job;
  const std::string path = WriteJob(folder_, job);
  // The last layer has fewer units than there are classes.
  WriteText(path,
            absl::StrReplaceAll(ReadText(path), {{"units: 4", "units: 2"}}));
  ExpectRefused(
      {kPsWorker},
      {{{"--job=FOLDER/job.textproto", "--ps_hosts=localhost:2222",
         "--worker_hosts=localhost:2230,localhost:2231", "--task_index=0"},
        "FOLDER/job.textproto: "}});
}

}  // namespace
}  // namespace holdfast
