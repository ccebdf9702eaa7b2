// SPDX-License-Identifier: Apache-2.0

// Reasons why a task cannot reach a ps, each with a real listener: what the
// library finds, what commands report and how soon, and which causes end a
// daemon (docs/operating/diagnosis.md).

#include "common/rpc/diagnosis.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/cluster_spec.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/process.h"
#include "tests/integration/test_cluster.h"
#include "tests/local/small_job.h"
#include "tests/security/certificates.h"

namespace holdfast {
namespace {

using testing::HasSubstr;
using Kind = Diagnosis::Kind;

// The time within which an operator learns what is wrong.
constexpr absl::Duration kSoon = absl::Seconds(5);

constexpr char kHttp[] =
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
constexpr char kSsh[] = "SSH-2.0-OpenSSH_9.2p1\r\n";

const Identity kPs0 = {kTraining, {kPsJob, 0}};
const Identity kWorker0 = {kTraining, {kWorkerJob, 0}};

// Accepts connections, and sends a fixed answer to every peer that has sent
// something.
class Listener {
 public:
  enum class Then { kClose, kHold };

  Listener(std::string answer, Then then)
      : address_(UnusedAddress()), answer_(std::move(answer)), then_(then) {
    const auto where = ParseHostPort(address_);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(where->port);
    inet_pton(AF_INET, where->host.c_str(), &to.sin_addr);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PCHECK(bind(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
    PCHECK(listen(fd_, 64) == 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Listener() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
    for (const int held : held_) close(held);
  }

  const std::string& address() const { return address_; }

 private:
  void Serve() {
    for (;;) {
      const int taken = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (taken < 0) return;
      held_.push_back(taken);
      if (then_ == Then::kHold) continue;
      char heard[4096];
      // A connection on which nothing is sent is closed by the peer.
      if (recv(taken, heard, sizeof(heard), 0) > 0) {
        send(taken, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      }
      // Not closed: unread data would make the kernel discard the answer.
      shutdown(taken, SHUT_WR);
    }
  }

  const std::string address_;
  const std::string answer_;
  const Then then_;
  int fd_;
  // Used only by the thread.
  std::vector<int> held_;
  std::thread thread_;
};

Credentials Read(const std::string& folder) {
  const auto credentials = Credentials::FromFolder(folder);
  CHECK(credentials.ok()) << credentials.status();
  return *credentials;
}

// Writes certificates of an authority that no other task trusts.
std::string StrangersFolder(const Identity& identity) {
  static const auto* const stranger = new CertificateAuthority(MakeAuthority());
  return WriteFolder(*stranger->Issue(SoundRequest(identity)), *stranger);
}

// Writes certificates of that authority that also trust the usual one.
std::string HalfAStrangersFolder(const Identity& identity) {
  const std::string folder = StrangersFolder(identity);
  std::ofstream file(folder + "/ca.crt", std::ios::app);
  file << TheAuthority().key_pair().certificate;
  return folder;
}

// Everything that can be found at an address.
struct Places {
  const std::string nobody = UnusedAddress();
  const std::string no_such_host = "nobody.invalid:2222";
  const Listener http{kHttp, Listener::Then::kClose};
  const Listener ssh{kSsh, Listener::Then::kClose};
  const Listener closing{"", Listener::Then::kClose};
  const Listener silent{"", Listener::Then::kHold};
  TestCluster plain{MakeLoopbackCluster(2, 1), kLongLease};
  TestCluster tls{MakeLoopbackCluster(2, 1), kLongLease,
                  [](const TaskId& task) { return CredentialsOf(task); }};
  TestCluster strangers{MakeLoopbackCluster(1, 1), kLongLease,
                        [](const TaskId& task) {
                          return Read(StrangersFolder({kTraining, task}));
                        }};
  TestCluster other{MakeLoopbackCluster(1, 1), kLongLease,
                    [](const TaskId& task) {
                      return CredentialsOf(Identity{"other", task});
                    }};
};

constexpr char kRefused[] = "connection refused: nothing listens there";
constexpr char kUnresolved[] =
    "the host name \"nobody.invalid\" does not resolve: ";
constexpr char kHttpThere[] =
    "an HTTP server answers there, not a ps (\"HTTP/1.1 400 Bad Request\")";
constexpr char kSshThere[] =
    "the server there speaks another protocol than a ps: "
    "\"SSH-2.0-OpenSSH_9.2p1\"";
constexpr char kSpeaksTls[] = "it uses TLS, but this task has no --tls_dir";
constexpr char kSpeaksPlainly[] =
    "it does not use TLS, but this task has --tls_dir";
constexpr char kStranger[] =
    "its certificate is not accepted by the ca.crt of --tls_dir here: ";
constexpr char kOtherTraining[] =
    "it belongs to another training: its certificate names "
    "holdfast://other/ps/0, expected holdfast://mnist/ps/0";
constexpr char kOtherPs[] = "another task answers there, /job:ps/task:1: ";
constexpr char kOtherPsByCertificate[] =
    "another task answers there: its certificate names "
    "holdfast://mnist/ps/1, expected holdfast://mnist/ps/0";

TEST(DiagnosisTest, EachCauseIsTold) {
  const Places places;
  const Credentials none;
  const Credentials worker = CredentialsOf(kWorker0);
  struct Case {
    std::string address;
    Credentials credentials;
    Kind kind;
    std::string cause;
    std::optional<TaskId> found = std::nullopt;
  };
  const std::vector<Case> cases = {
      {places.nobody, none, Kind::kPassing, kRefused},
      {places.nobody, worker, Kind::kPassing, kRefused},
      {places.no_such_host, none, Kind::kPassing, kUnresolved},
      {places.http.address(), none, Kind::kMistake, kHttpThere},
      {places.http.address(), worker, Kind::kMistake, kHttpThere},
      {places.ssh.address(), none, Kind::kMistake, kSshThere},
      {places.ssh.address(), worker, Kind::kMistake, kSshThere},
      {places.closing.address(), none, Kind::kUnclear,
       "connections are closed without an answer"},
      {places.silent.address(), none, Kind::kUnclear,
       "connections are accepted, but the peer sends nothing"},
      {places.silent.address(), worker, Kind::kUnclear,
       "connections are accepted, but the peer sends nothing"},
      {places.tls.address(0), none, Kind::kPassing, kSpeaksTls},
      {places.plain.address(0), worker, Kind::kPassing, kSpeaksPlainly},
      {places.strangers.address(0), worker, Kind::kPassing, kStranger},
      {places.tls.address(0), Read(HalfAStrangersFolder(kWorker0)),
       Kind::kPassing, "it does not accept the certificate of --tls_dir here"},
      {places.other.address(0), worker, Kind::kMistake, kOtherTraining},
      {places.plain.address(1), none, Kind::kMistake, kOtherPs,
       TaskId{kPsJob, 1}},
      {places.tls.address(1), worker, Kind::kMistake, kOtherPsByCertificate,
       TaskId{kPsJob, 1}},
      // Nothing is wrong.
      {places.plain.address(0), none, Kind::kUnclear, ""},
      {places.tls.address(0), worker, Kind::kUnclear, ""},
  };
  for (const Case& test : cases) {
    const absl::Time begun = SteadyNow();
    const Diagnosis diagnosis =
        Diagnose(test.address, /*ps=*/0, test.credentials, kLookPatience,
                 /*cancelled=*/nullptr);
    EXPECT_EQ(diagnosis.kind, test.kind) << diagnosis.cause;
    EXPECT_THAT(diagnosis.cause, testing::StartsWith(test.cause));
    EXPECT_EQ(diagnosis.cause.empty(), test.cause.empty()) << diagnosis.cause;
    EXPECT_EQ(diagnosis.found, test.found) << diagnosis.cause;
    EXPECT_LT(SteadyNow() - begun, kSoon) << diagnosis.cause;
  }
}

TEST(DiagnosisTest, WhoAnswersIsAnotherOnlyWhereItSaysSo) {
  const TaskId ps_1 = {kPsJob, 1};
  EXPECT_EQ(JudgeHealthCheck(absl::OkStatus(), 1).cause, "");
  const Diagnosis other =
      JudgeHealthCheck(NoSuchService(ps_1.ToString(), {kPsJob, 12}), 1);
  EXPECT_EQ(other.kind, Kind::kMistake);
  EXPECT_EQ(other.found, (TaskId{kPsJob, 12}));
  // The answer of a ps of a version without this service.
  const Diagnosis older = JudgeHealthCheck(
      absl::NotFoundError("no such service: /job:ps/task:1"), 1);
  EXPECT_EQ(older.kind, Kind::kUnclear);
  EXPECT_EQ(older.cause, "");
  EXPECT_EQ(JudgeHealthCheck(absl::UnimplementedError("no method"), 1).kind,
            Kind::kMistake);
}

TEST(DiagnosisTest, ALookThatIsNotNeededAnyMoreEnds) {
  const Listener silent("", Listener::Then::kHold);
  const absl::Time begun = SteadyNow();
  {
    Diagnoser diagnoser(silent.address(), 0, Credentials());
    EXPECT_EQ(diagnoser.Look().cause, "");
  }
  EXPECT_LT(SteadyNow() - begun, absl::Seconds(1));
}

// A command or a daemon, and its expected outcome.
struct Run {
  std::vector<std::string> args;
  // Part of an output line.
  std::string cause;
  // -1: the process keeps running.
  int exit_code;
};

std::vector<std::string> LinesWith(const std::string& output,
                                   const std::string& part) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    if (absl::StrContains(line, part)) lines.emplace_back(line);
  }
  return lines;
}

int CountOf(const std::string& part, const std::string& text) {
  return static_cast<int>(
             std::vector<std::string>(absl::StrSplit(text, part)).size()) -
         1;
}

// Runs all of them at once.
void Try(const char* program, const std::vector<Run>& runs) {
  const absl::Time begun = SteadyNow();
  std::vector<std::unique_ptr<Process>> processes;
  for (const Run& run : runs) {
    processes.push_back(std::make_unique<Process>(program, run.args));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    Process& process = *processes[i];
    const std::string what = absl::StrJoin(runs[i].args, " ");
    const absl::Duration left = begun + kSoon - SteadyNow();
    EXPECT_TRUE(process.AwaitOutput(runs[i].cause, left)) << what << "\n"
                                                          << process.Output();
    EXPECT_EQ(process.Wait(runs[i].exit_code < 0 ? absl::ZeroDuration()
                                                 : begun + kSoon - SteadyNow()),
              runs[i].exit_code)
        << what << "\n"
        << process.Output();
    const std::string output = process.Output();
    const auto lines = LinesWith(output, runs[i].cause);
    ASSERT_EQ(lines.size(), 1) << output;
    // The line names ps 0 once, unless it states where ps 0 should be.
    if (!absl::StrContains(lines[0], "the ClusterSpec here")) {
      EXPECT_EQ(CountOf("/job:ps/task:0", lines[0]), 1) << lines[0];
    }
    EXPECT_LE(LinesWith(output, "waiting for").size(), 1) << output;
    EXPECT_LE(LinesWith(output, "Handshake failed").size(), 1) << output;
  }
}

TEST(CommandTest, TellsAtOnceWhatKeepsItFromThePs) {
  const Places places;
  const std::string tls =
      absl::StrCat("--tls_dir=", FolderOf(TaskId{kOperatorJob, 0}));
  const std::string strangers_tls = absl::StrCat(
      "--tls_dir=", StrangersFolder({kTraining, {kOperatorJob, 0}}));
  const auto save = [](const std::string& ps,
                       const std::vector<std::string>& flags = {}) {
    std::vector<std::string> args = {"checkpoint", "save", "--ps=" + ps};
    args.insert(args.end(), flags.begin(), flags.end());
    return args;
  };
  Try(kHoldfast,
      {
          {save(places.nobody), kRefused, 1},
          {save(places.nobody, {tls}), kRefused, 1},
          {save(places.no_such_host), kUnresolved, 1},
          {save(places.http.address()), kHttpThere, 2},
          {save(places.http.address(), {tls}), kHttpThere, 2},
          {save(places.ssh.address()), kSshThere, 2},
          {save(places.tls.address(0)), kSpeaksTls, 1},
          {save(places.plain.address(0), {tls}), kSpeaksPlainly, 1},
          {save(places.tls.address(0), {strangers_tls}), kStranger, 1},
          {save(places.other.address(0), {tls}), kOtherTraining, 2},
          {save(places.plain.address(1)), kOtherPs, 2},
          {save(places.tls.address(1), {tls}), kOtherPsByCertificate, 2},
          {save("localhost:7001,127.0.0.1:7001"),
           "/job:ps/task:0 and /job:ps/task:1 have the same address: "
           "localhost:7001 and 127.0.0.1:7001",
           2},
          // Not certain, so the command tries until its timeout.
          {save(places.silent.address(), {"--timeout=3s"}),
           "connections are accepted, but the peer sends nothing", 1},
      });
}

class DaemonDiagnosisTest : public testing::Test {
 protected:
  static std::vector<std::string> Worker(const std::string& ps,
                                         const std::string& tls_dir = "") {
    static const std::string job = [] {
      const std::string folder = FreshFolder();
      WriteExamples(folder);
      SmallJob small;
      small.replicas_to_aggregate = small.total_num_replicas = 1;
      return WriteJob(folder, small);
    }();
    return {"--job_name=worker", "--task_index=0", "--job=" + job,
            "--ps_hosts=" + ps, "--worker_hosts=" + UnusedAddress(),
            // Needed for a ps that is not on this machine.
            tls_dir.empty() ? "--insecure" : "--tls_dir=" + tls_dir};
  }
  // The command line of ps 1.
  static std::vector<std::string> Ps(const std::string& ps_0,
                                     const std::string& tls_dir = "") {
    return {"--task_index=1",
            absl::StrCat("--ps_hosts=", ps_0, ",", UnusedAddress()),
            "--worker_hosts=" + UnusedAddress(), "--tls_dir=" + tls_dir};
  }
};

TEST_F(DaemonDiagnosisTest, AWorkerWaitsOrExits2) {
  const Places places;
  const std::string tls = FolderOf(kWorker0.task);
  const TestCluster three(MakeLoopbackCluster(3, 1), kLongLease);
  const std::string swapped = absl::StrCat(
      three.address(0), ",", three.address(2), ",", three.address(1));
  Try(kPsWorker,
      {
          {Worker(places.nobody), kRefused, -1},
          {Worker(places.no_such_host), kUnresolved, -1},
          {Worker(places.tls.address(0)), kSpeaksTls, -1},
          {Worker(places.plain.address(0), tls), kSpeaksPlainly, -1},
          {Worker(places.strangers.address(0), tls), kStranger, -1},
          {Worker(places.other.address(0), tls), kOtherTraining, 2},
          {Worker(places.http.address()), kHttpThere, 2},
          {Worker(places.ssh.address()), kSshThere, 2},
          {Worker(places.plain.address(1)), kOtherPs, 2},
          {Worker(swapped),
           absl::StrCat("/job:ps/task:1 (", three.address(2),
                        "): another task answers there, /job:ps/task:2: the "
                        "ClusterSpecs list the ps in different orders, or an "
                        "address is wrong; the ClusterSpec here has "
                        "/job:ps/task:2 at ",
                        three.address(1)),
           2},
          {Worker("localhost:7001,127.0.0.1:7001"),
           "have the same address: localhost:7001 and 127.0.0.1:7001", 2},
      });
}

TEST_F(DaemonDiagnosisTest, APsWaitsOrExits2) {
  const Places places;
  const std::string tls = FolderOf({kPsJob, 1});
  Try(kPsServer, {
                     {Ps(places.nobody), kRefused, -1},
                     {Ps(places.no_such_host), kUnresolved, -1},
                     {Ps(places.tls.address(0)), kSpeaksTls, -1},
                     {Ps(places.plain.address(0), tls), kSpeaksPlainly, -1},
                     {Ps(places.strangers.address(0), tls), kStranger, -1},
                     {Ps(places.other.address(0), tls), kOtherTraining, 2},
                     {Ps(places.http.address(), tls), kHttpThere, 2},
                     {Ps(places.ssh.address()), kSshThere, 2},
                     {Ps(places.plain.address(1)), kOtherPs, 2},
                 });
}

}  // namespace
}  // namespace holdfast
