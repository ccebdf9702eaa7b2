// SPDX-License-Identifier: Apache-2.0
#include "common/job/cluster_spec.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTwoByTwo[] =
    R"({"ps": ["a:1", "b:2"], "worker": ["c:3", "d:4"]})";

ClusterSpec Spec(const std::string& json) {
  absl::StatusOr<ClusterSpec> spec = ClusterSpec::FromJson(json);
  EXPECT_TRUE(spec.ok()) << json << ": " << spec.status();
  return *std::move(spec);
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

// Writes `text` to a new file and returns its path.
std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(ParseHostPortTest, Table) {
  const struct {
    std::string address;
    std::string host;
    int port;
    std::string text;
  } kCases[] = {
      {"localhost:80", "localhost", 80, "localhost:80"},
      {"10.0.0.1:65535", "10.0.0.1", 65535, "10.0.0.1:65535"},
      {"ps-0.my_net.example.com:1", "ps-0.my_net.example.com", 1,
       "ps-0.my_net.example.com:1"},
      {"[::1]:80", "::1", 80, "[::1]:80"},
      {"[fe80::1%eth0]:0080", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"},
  };
  for (const auto& test : kCases) {
    const auto parsed = ParseHostPort(test.address);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, test.host);
    EXPECT_EQ(parsed->port, test.port);
    EXPECT_EQ(parsed->ToString(), test.text);
  }
}

TEST(ParseHostPortTest, Refused) {
  const struct {
    std::string address;
    std::string error;
  } kCases[] = {
      {"", "an empty address"},
      {"host", "\"host\" has no port: write host:port"},
      {"[::1]", "\"[::1]\" has no port"},
      {":80", "\":80\" has no host: write host:port"},
      {":", "has no host"},
      {"host:", "needs a port from 1 to 65535"},
      {"host:x", "needs a port from 1 to 65535"},
      {"host:0", "needs a port from 1 to 65535"},
      {"host:-1", "needs a port from 1 to 65535"},
      {"host:+1", "needs a port from 1 to 65535"},
      {"host: 1", "needs a port from 1 to 65535"},
      {"host:65536", "needs a port from 1 to 65535"},
      {"host:99999999999999999999", "needs a port from 1 to 65535"},
      {"::1", "in brackets"},
      {"::1:80", "in brackets"},
      {"[::1:80", "in brackets"},
      {"[]:80", "has no IPv6 address in its brackets"},
      {"[localhost]:80", "has no IPv6 address in its brackets"},
      {"http://host:80", "characters that are not allowed in host names"},
      {"my host:80", "characters that are not allowed in host names"},
      {"host\n:80", "characters that are not allowed in host names"},
      {"ho\"st:80", "characters that are not allowed in host names"},
  };
  for (const auto& test : kCases) {
    const auto parsed = ParseHostPort(test.address);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(parsed.status()), HasSubstr(test.error));
  }
}

TEST(IsLoopbackTest, Table) {
  for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.1.2.3",
                           "::1", "[::1]", "0:0:0:0:0:0:0:1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host :
       {"", "0.0.0.0", "::", "[::]", "128.0.0.1", "10.0.0.1", "::2", "127",
        "127.0.0.1.example.com", "localhost.example.com", "*", "[]"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(TaskIdTest, PrintsAsTensorFlowDoes) {
  EXPECT_EQ((TaskId{"ps", 0}).ToString(), "/job:ps/task:0");
  EXPECT_EQ(::testing::PrintToString(TaskId{"worker", 12}),
            "/job:worker/task:12");
  EXPECT_LT((TaskId{"chief", 7}), (TaskId{"worker", 0}));
  EXPECT_NE((TaskId{"ps", 0}), (TaskId{"ps", 1}));
}

TEST(ClusterSpecTest, FormsOfTheSameCluster) {
  const std::string expected = R"({
  "ps": ["a:1", "b:2"],
  "worker": ["c:3", "d:4"]
}
)";
  for (const std::string& json : {
           std::string(kTwoByTwo),
           std::string(R"({"worker": {"1": "d:4", "0": "c:3"},
                           "ps": {"0": "a:1", "1": "b:2"}})"),
           absl::StrCat("{\"cluster\": ", kTwoByTwo, "}"),
           absl::StrCat("{\"cluster\": ", kTwoByTwo,
                        ", \"task\": {\"type\": \"ps\", \"index\": 9},"
                        " \"environment\": \"cloud\"}"),
           std::string(R"({"ps": ["a:1", "b:2"], "worker": ["c:3", "d:4"],
                           "chief": [], "evaluator": {}})"),
           expected,
       }) {
    EXPECT_EQ(Spec(json).ToJson(), expected) << json;
  }
  const auto hosts = ClusterSpec::FromHosts("a:1, b:2", " c:3,d:4", "");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(hosts->ToJson(), expected);
}

TEST(ClusterSpecTest, TasksAndReplicas) {
  const ClusterSpec spec = Spec(R"({"ps": ["a:1", "b:2"], "worker": ["c:3"],
                                    "chief": ["d:4"], "evaluator": ["e:5"]})");
  EXPECT_EQ(spec.num_ps(), 2);
  EXPECT_EQ(spec.num_replicas(), 2);
  EXPECT_EQ(*spec.Address({"ps", 1}), "b:2");
  EXPECT_EQ(*spec.Address({"evaluator", 0}), "e:5");
  EXPECT_EQ(*spec.ReplicaIndex({"chief", 0}), 0);
  EXPECT_EQ(*spec.ReplicaIndex({"worker", 0}), 1);
  EXPECT_EQ(*spec.ReplicaTask(0), (TaskId{"chief", 0}));
  EXPECT_EQ(*spec.ReplicaTask(1), (TaskId{"worker", 0}));
  EXPECT_THAT(spec.jobs().at("ps"),
              ElementsAre(std::pair<const uint32_t, std::string>(0, "a:1"),
                          std::pair<const uint32_t, std::string>(1, "b:2")));

  // No task calls an evaluator.
  EXPECT_EQ(spec.CheckTask({"evaluator", 3}), absl::OkStatus());
  EXPECT_EQ(Spec(kTwoByTwo).CheckTask({"evaluator", 0}), absl::OkStatus());
  EXPECT_THAT(Message(spec.Address({"evaluator", 1}).status()),
              HasSubstr("the cluster does not list /job:evaluator/task:1"));
  EXPECT_THAT(Message(Spec(kTwoByTwo).Address({"evaluator", 0}).status()),
              HasSubstr("does not list /job:evaluator/task:0"));

  EXPECT_THAT(Message(spec.ReplicaTask(2).status()),
              HasSubstr("no replica 2: the cluster has 2"));
  EXPECT_THAT(Message(spec.ReplicaIndex({"ps", 0}).status()),
              HasSubstr("/job:ps/task:0 does not train"));
  EXPECT_THAT(Message(spec.ReplicaIndex({"evaluator", 0}).status()),
              HasSubstr("does not train"));
  EXPECT_THAT(Message(spec.Address({"ps", 2}).status()),
              HasSubstr("the cluster has no /job:ps/task:2: job \"ps\" has "
                        "tasks 0 to 1"));
  EXPECT_THAT(Message(spec.Address({"worker", 1}).status()),
              HasSubstr("job \"worker\" has only task 0"));
  EXPECT_THAT(Message(spec.Address({"master", 0}).status()),
              HasSubstr("unknown job \"master\""));
  EXPECT_THAT(Message(Spec(kTwoByTwo).Address({"chief", 0}).status()),
              HasSubstr("the cluster has no job \"chief\": it has ps, worker"));
}

TEST(ClusterSpecTest, MasterIsChief) {
  const ClusterSpec spec =
      Spec(R"({"ps": ["a:1"], "master": ["m:1"], "worker": ["w:1"]})");
  EXPECT_EQ(*spec.Address({"chief", 0}), "m:1");
  EXPECT_EQ(*spec.ReplicaIndex({"worker", 0}), 1);
}

TEST(ClusterSpecTest, AChiefAloneTrains) {
  const ClusterSpec spec = Spec(R"({"ps": ["a:1"], "chief": ["m:1"]})");
  EXPECT_EQ(spec.num_replicas(), 1);
}

TEST(ClusterSpecTest, MapsAreLists) {
  const ClusterSpec spec =
      Spec(R"({"ps": {"0": "a:1"}, "worker": {"1": "w:1", "0": "v:1"}})");
  EXPECT_EQ(spec.ToJson(), R"({
  "ps": ["a:1"],
  "worker": ["v:1", "w:1"]
}
)");
  EXPECT_EQ(*spec.ReplicaIndex({"worker", 1}), 1);
}

TEST(ClusterSpecTest, Refused) {
  const struct {
    std::string json;
    std::string error;
  } kCases[] = {
      // Not JSON, or not an object; the reason is protobuf's own.
      {"", "not a JSON object: Unexpected end of string"},
      {"{", "not a JSON object: Unexpected end of string"},
      {"[1]", "not a JSON object"},
      {"null", "not a JSON object"},
      {R"({"ps": ["a:1"], "ps": ["b:1"]})", "'ps' is already set"},
      {R"({"ps": {"0": "a:1", "0": "b:1"}})", "'0' is already set"},
      {R"({"ps": ["a:1" "b:1"]})", "Expected , or ] after array value"},
      {R"({"ps": ["a:1"], "worker": ["b:1"]} x)", "before end of input"},
      {std::string(100000, '['), "not a JSON object"},
      // Jobs.
      {"{}", "no ps"},
      {R"({"worker": ["a:1"]})", "no ps"},
      {R"({"ps": [], "worker": ["a:1"]})", "no ps"},
      {R"({"ps": ["a:1"]})", "no worker and no chief"},
      {R"({"ps": ["a:1"], "worker": []})", "no worker and no chief"},
      {R"({"ps": ["a:1"], "evaluator": ["b:1"]})", "no worker and no chief"},
      {R"({"ps": ["a:1"], "workers": ["b:1"]})",
       "unknown job \"workers\": must be ps, worker, chief or evaluator"},
      {R"({"ps": ["a:1"], "": ["b:1"]})", "unknown job \"\""},
      {R"({"ps": ["a:1"], "chief": ["b:1", "c:1"]})",
       "job \"chief\" has 2 tasks: at most one is allowed"},
      {R"({"ps": ["a:1"], "chief": ["b:1"], "master": ["c:1"]})", "two chiefs"},
      {R"({"ps": ["a:1"], "chief": {"1": "b:1"}})",
       "job \"chief\" has a task 1 but no task 0"},
      {R"({"cluster": 7})", "\"cluster\" must be an object, is the number 7"},
      {R"({"cluster": {}})", "no ps"},
      // Tasks.
      {R"({"ps": "a:1", "worker": ["b:1"]})",
       "job \"ps\": must be a list of addresses or a map from task index to "
       "address, is the string \"a:1\""},
      {R"({"ps": null})", "job \"ps\": must be a list"},
      {R"({"ps": ["a:1", 7]})",
       "job \"ps\", task 1: must be a string \"host:port\", is the number 7"},
      {R"({"ps": [["a:1"]]})", "must be a string \"host:port\", is a list"},
      {R"({"ps": {"0": {}}})", "must be a string \"host:port\", is an object"},
      {R"({"ps": {"0": true}})", "must be a string \"host:port\", is true"},
      {R"({"ps": {"x": "a:1"}})", "\"x\" is not a task index (0 to 65535)"},
      {R"({"ps": {"-1": "a:1"}})", "\"-1\" is not a task index"},
      {R"({"ps": {"": "a:1"}})", "\"\" is not a task index"},
      {R"({"ps": {"1.0": "a:1"}})", "\"1.0\" is not a task index"},
      {R"({"ps": {"65536": "a:1"}})", "\"65536\" is not a task index"},
      {R"({"ps": {"4294967296": "a:1"}})", "is not a task index"},
      {R"({"ps": {"0": "a:1", "00": "b:1"}})", "task 0 is listed twice"},
      {R"({"ps": {"0": "a:1", "2": "b:1"}, "worker": ["c:1"]})",
       "job \"ps\" has a task 2 but no task 1"},
      {R"({"ps": {"1": "a:1"}, "worker": ["c:1"]})",
       "job \"ps\" has a task 1 but no task 0"},
      // Addresses.
      {R"({"ps": ["a"], "worker": ["c:1"]})",
       "job \"ps\", task 0: \"a\" has no port: write host:port"},
      {R"({"ps": ["a:1"], "worker": ["c:1", ""]})",
       "job \"worker\", task 1: an empty address"},
      {R"({"ps": ["a:70000"], "worker": ["c:1"]})",
       "\"a:70000\" needs a port from 1 to 65535"},
      {R"({"ps": [":1"], "worker": ["c:1"]})", "\":1\" has no host"},
      {R"({"ps": ["a-{x}:1"], "worker": ["c:1"]})",
       "job \"ps\": \"a-{x}:1\": the braces must contain the number of tasks"},
      {R"({"ps": ["a:1"], "worker": ["A:01"]})",
       "/job:ps/task:0 and /job:worker/task:0 have the same address: a:1 and "
       "A:1"},
      {R"({"ps": ["a:1", "a:1"], "worker": ["b:1"]})",
       "/job:ps/task:0 and /job:ps/task:1 have the same address a:1"},
      {R"({"ps": ["localhost:1", "127.0.0.1:1"], "worker": ["b:1"]})",
       "/job:ps/task:0 and /job:ps/task:1 have the same address: localhost:1 "
       "and 127.0.0.1:1"},
      {R"({"ps": ["a.net:1", "A.net.:1"], "worker": ["b:1"]})",
       "the same address: a.net:1 and A.net.:1"},
      {R"({"ps": ["[::1]:1", "[0:0::1]:1"], "worker": ["b:1"]})",
       "the same address: [::1]:1 and [0:0::1]:1"},
      {R"({"ps": ["10.0.0.1:1", "[::ffff:10.0.0.1]:1"], "worker": ["b:1"]})",
       "the same address: 10.0.0.1:1 and [::ffff:10.0.0.1]:1"},
  };
  for (const auto& test : kCases) {
    const auto spec = ClusterSpec::FromJson(test.json);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument)
        << test.json.substr(0, 100);
    EXPECT_THAT(Message(spec.status()), HasSubstr(test.error));
  }
}

TEST(ClusterSpecTest, HostsInANumber) {
  const auto hosts =
      ClusterSpec::FromHosts("ps-{2}.net:1", "a:1, w-{3}:5,b:1", "");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  const auto spelled_out = ClusterSpec::FromHosts(
      "ps-0.net:1,ps-1.net:1", "a:1,w-0:5,w-1:5,w-2:5,b:1", "");
  EXPECT_EQ(hosts->ToJson(), spelled_out->ToJson());
  const auto json = ClusterSpec::FromJson(
      R"({"ps": ["ps-{2}.net:1"], "worker": ["a:1", "w-{3}:5", "b:1"]})");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->ToJson(), spelled_out->ToJson());
}

TEST(ClusterSpecTest, RefusedHosts) {
  const struct {
    std::string ps;
    std::string workers;
    std::string chief;
    std::string error;
  } kCases[] = {
      {"", "a:1", "", "no ps"},
      {"  ", "a:1", "", "no ps"},
      {"a:1", "", "", "no worker and no chief"},
      {"a:1,", "b:1", "", "job \"ps\", task 1: an empty address"},
      {"a:1", "b:1,,c:1", "", "job \"worker\", task 1: an empty address"},
      {"a:1", "b:1", "c:1,d:1", "job \"chief\" has 2 tasks"},
      {"a:1;b:1", "c:1", "", "\"a:1;b:1\" has a host with characters"},
      {"a-{}:1", "c:1", "", "job \"ps\": \"a-{}:1\": the braces must contain"},
      {"a-{0}:1", "c:1", "", "the braces must contain"},
      {"a-{65537}:1", "c:1", "", "the braces must contain"},
      {"a-{-1}:1", "c:1", "", "the braces must contain"},
      {"a-{2:1", "c:1", "", "the braces must contain"},
      {"a-}2{:1", "c:1", "", "the braces must contain"},
      {"a-{2}-{2}:1", "c:1", "", "has a host with characters"},
      {"a-{40000}:1,b-{40000}:1", "c:1", "", "has 80000 tasks"},
  };
  for (const auto& test : kCases) {
    const auto spec = ClusterSpec::FromHosts(test.ps, test.workers, test.chief);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(spec.status()), HasSubstr(test.error));
  }
}

ClusterFlags Flags(const std::string& spec, const std::string& job,
                   std::optional<int64_t> index) {
  ClusterFlags flags;
  flags.cluster_spec = spec;
  flags.job_name = job;
  flags.task_index = index;
  return flags;
}

TEST(ResolveTaskTest, FromInlineJson) {
  const auto resolved =
      ResolveTask(Flags(absl::StrCat(" \n", kTwoByTwo), "worker", 1), "");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->task, (TaskId{"worker", 1}));
  EXPECT_EQ(resolved->cluster.num_ps(), 2);
}

TEST(ResolveTaskTest, FromAFile) {
  const std::string path = WriteFile("cluster.json", kTwoByTwo);
  const auto resolved = ResolveTask(Flags(path, "ps", 1), "");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(*resolved->cluster.Address(resolved->task), "b:2");
}

TEST(ResolveTaskTest, FromHosts) {
  ClusterFlags flags = Flags("", "chief", 0);
  flags.ps_hosts = "a:1";
  flags.worker_hosts = "b:1";
  flags.chief_hosts = "c:1";
  const auto resolved = ResolveTask(flags, "");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(*resolved->cluster.Address(resolved->task), "c:1");
}

std::string TfConfig(const std::string& task) {
  return absl::StrCat("{\"cluster\": ", kTwoByTwo, ", \"task\": ", task, "}");
}

TEST(ResolveTaskTest, FromTfConfig) {
  for (const char* task : {R"({"type": "worker", "index": 1})",
                           R"({"type": "worker", "index": "1"})",
                           R"({"type": "worker", "index": 1.0})"}) {
    const auto resolved = ResolveTask(ClusterFlags(), TfConfig(task));
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->task, (TaskId{"worker", 1}));
  }
}

TEST(ResolveTaskTest, MasterIsChief) {
  const std::string config =
      R"({"cluster": {"ps": ["a:1"], "master": ["b:1"]},
          "task": {"type": "master", "index": 0}})";
  EXPECT_EQ(ResolveTask(ClusterFlags(), config)->task, (TaskId{"chief", 0}));
  EXPECT_EQ(ResolveTask(Flags("", "master", 0), config)->task,
            (TaskId{"chief", 0}));
}

TEST(ResolveTaskTest, FlagsWinOverTfConfig) {
  const std::string config = TfConfig(R"({"type": "ps", "index": 0})");
  // TF_CONFIG has only the task.
  auto resolved = ResolveTask(Flags("", "worker", 1), config);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->task, (TaskId{"worker", 1}));
  EXPECT_EQ(*resolved->cluster.Address(resolved->task), "d:4");
  // TF_CONFIG has only the cluster.
  const std::string other = R"({"ps": ["x:1"], "worker": ["y:1"]})";
  resolved = ResolveTask(Flags(other, "", std::nullopt), config);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(*resolved->cluster.Address(resolved->task), "x:1");
  // The flags have both: TF_CONFIG may be anything.
  resolved = ResolveTask(Flags(other, "worker", 0), "no JSON");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(*resolved->cluster.Address(resolved->task), "y:1");
}

TEST(ResolveTaskTest, Refused) {
  const std::string ps = R"({"type": "ps", "index": 0})";
  ClusterFlags two_sources = Flags(kTwoByTwo, "ps", 0);
  two_sources.ps_hosts = "a:1";
  ClusterFlags chief_too = Flags(kTwoByTwo, "ps", 0);
  chief_too.chief_hosts = "a:1";
  ClusterFlags bad_hosts = Flags("", "ps", 0);
  bad_hosts.ps_hosts = "a";
  bad_hosts.worker_hosts = "b:1";
  const std::string bad_file = WriteFile("bad.json", "{\"ps\": 7}");
  const std::string long_file =
      WriteFile("long.json", std::string((4 << 20) + 1, ' '));
  const struct {
    ClusterFlags flags;
    std::string tf_config;
    std::string error;
  } kCases[] = {
      // The cluster.
      {ClusterFlags(), "", "the cluster is not known: give --cluster_spec"},
      {Flags("", "ps", 0), "", "the cluster is not known"},
      {two_sources, "", "--cluster_spec and --ps_hosts"},
      {chief_too, "", "exclude each other"},
      {bad_hosts, "",
       "--ps_hosts, --worker_hosts, --chief_hosts: job \"ps\", task 0: \"a\" "
       "has no port"},
      {Flags("{\"ps\": 7}", "ps", 0), "",
       "--cluster_spec: job \"ps\": must be a list"},
      {Flags(bad_file, "ps", 0), "", "bad.json\": job \"ps\": must be a list"},
      {Flags(long_file, "ps", 0), "", "has more than 4194304 bytes"},
      {Flags("", "ps", 0), "{", "TF_CONFIG: not a JSON object"},
      {Flags("", "ps", 0), "{\"task\": " + ps + "}",
       "TF_CONFIG: no \"cluster\""},
      {Flags("", "ps", 0), kTwoByTwo, "TF_CONFIG: no \"cluster\""},
      {ClusterFlags(), "{\"cluster\": {\"ps\": [\"a:1\"]}}",
       "TF_CONFIG: no worker"},
      // The task.
      {Flags(kTwoByTwo, "", std::nullopt), "",
       "the task is not known: give --job_name and --task_index"},
      {Flags(kTwoByTwo, "", std::nullopt), "{}", "TF_CONFIG: no \"task\""},
      {Flags(kTwoByTwo, "", std::nullopt), "x", "TF_CONFIG: not a JSON"},
      {Flags(kTwoByTwo, "ps", std::nullopt), "",
       "--job_name=ps needs --task_index"},
      {Flags(kTwoByTwo, "ps", std::nullopt), TfConfig(ps),
       "--job_name=ps needs --task_index"},
      {Flags(kTwoByTwo, "", 1), TfConfig(ps),
       "--task_index=1 needs --job_name"},
      {Flags(kTwoByTwo, "ps", -1), "",
       "--task_index must be 0 to 65535, is -1"},
      {Flags(kTwoByTwo, "ps", int64_t{1} << 32), "", "is 4294967296"},
      {Flags(kTwoByTwo, "ps", 2), "",
       "the cluster has no /job:ps/task:2: job \"ps\" has tasks 0 to 1"},
      {Flags(kTwoByTwo, "server", 0), "", "unknown job \"server\""},
      {Flags(kTwoByTwo, "PS", 0), "", "unknown job \"PS\""},
      {Flags(kTwoByTwo, "chief", 0), "", "the cluster has no job \"chief\""},
      {ClusterFlags(), TfConfig("7"), "\"task\" must be an object"},
      {ClusterFlags(), TfConfig("{}"), "\"task\" needs a \"type\""},
      {ClusterFlags(), TfConfig(R"({"type": 1, "index": 0})"),
       "\"task\" needs a \"type\""},
      {ClusterFlags(), TfConfig(R"({"type": "ps"})"),
       "\"task\" needs an \"index\""},
      {ClusterFlags(), TfConfig(R"({"type": "ps", "index": 0.5})"),
       "must be 0 to 65535, is the number 0.5"},
      {ClusterFlags(), TfConfig(R"({"type": "ps", "index": -1})"),
       "is the number -1"},
      {ClusterFlags(), TfConfig(R"({"type": "ps", "index": 1e300})"),
       "must be 0 to 65535"},
      {ClusterFlags(), TfConfig(R"({"type": "ps", "index": "one"})"),
       "is the string \"one\""},
      {ClusterFlags(), TfConfig(R"({"type": "ps", "index": ""})"),
       "is the string \"\""},
      {ClusterFlags(), TfConfig(R"({"type": "ps", "index": [0]})"),
       "is a list"},
      {ClusterFlags(), TfConfig(R"({"type": "ps", "index": 7})"),
       "the cluster has no /job:ps/task:7"},
      {ClusterFlags(), TfConfig(R"({"type": "tpu", "index": 7})"),
       "unknown job \"tpu\""},
  };
  for (const auto& test : kCases) {
    const auto resolved = ResolveTask(test.flags, test.tf_config);
    EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument)
        << test.error;
    EXPECT_THAT(Message(resolved.status()), HasSubstr(test.error));
  }
}

TEST(ResolveTaskTest, UnreadableFile) {
  for (const std::string& path :
       {absl::StrCat(::testing::TempDir(), "/none.json"),
        std::string(::testing::TempDir())}) {
    const auto resolved = ResolveTask(Flags(path, "ps", 0), "");
    EXPECT_EQ(resolved.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(
        Message(resolved.status()),
        HasSubstr(absl::StrCat("--cluster_spec: cannot read \"", path)));
  }
}

}  // namespace
}  // namespace holdfast
