// SPDX-License-Identifier: Apache-2.0
#include "common/job/cluster_spec.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace holdfast {
namespace {

using ::google::protobuf::Struct;
using ::google::protobuf::Value;
using Jobs = std::map<std::string, ClusterSpec::Tasks>;

constexpr char kJobNames[] = "ps, worker, chief or evaluator";
// The limit for a --cluster_spec file, far above the size for the largest
// cluster.
constexpr size_t kMaxFileBytes = 4 << 20;

absl::Status Error(absl::string_view message) {
  return absl::InvalidArgumentError(message);
}

// `status` with `where` before its message.
absl::Status Within(absl::string_view where, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(where, ": ", status.message()));
}

// TensorFlow's former name for the chief is "master".
std::string CanonicalJob(absl::string_view job) {
  return job == "master" ? kChiefJob : std::string(job);
}

absl::Status CheckJobName(absl::string_view job) {
  if (job == kPsJob || job == kWorkerJob || job == kChiefJob ||
      job == kEvaluatorJob) {
    return absl::OkStatus();
  }
  return Error(absl::StrCat("unknown job \"", job, "\": must be ", kJobNames));
}

bool IsIpv6(const std::string& host) {
  // inet_pton does not accept a zone, as in fe80::1%eth0.
  in6_addr address;
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(),
                   &address) == 1;
}

bool IsHostName(absl::string_view host) {
  for (const char c : host) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '-' && c != '_') {
      return false;
    }
  }
  return true;
}

// Parses a decimal number below `limit`, without sign or white space.
std::optional<uint32_t> ParseDecimal(absl::string_view text, uint32_t limit) {
  uint32_t value;
  for (const char c : text) {
    if (!absl::ascii_isdigit(c)) return std::nullopt;
  }
  if (!absl::SimpleAtoi(text, &value) || value >= limit) return std::nullopt;
  return value;
}

std::string KindName(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNullValue:
      return "null";
    case Value::kNumberValue:
      return absl::StrCat("the number ", value.number_value());
    case Value::kStringValue:
      return absl::StrCat("the string \"", value.string_value(), "\"");
    case Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case Value::kStructValue:
      return "an object";
    case Value::kListValue:
      return "a list";
    case Value::KIND_NOT_SET:
      break;
  }
  return "nothing";
}

const Value* Find(const Struct& object, const std::string& key) {
  const auto it = object.fields().find(key);
  return it == object.fields().end() ? nullptr : &it->second;
}

// protobuf's error message about JSON, as one line. The original's second line
// is the text around the error, and its third has a caret below the place.
std::string WithPlace(absl::string_view message) {
  const std::vector<absl::string_view> lines = absl::StrSplit(message, '\n');
  absl::string_view what = absl::StripAsciiWhitespace(lines[0]);
  absl::ConsumeSuffix(&what, ".");
  if (lines.size() < 3) return std::string(what);
  const absl::string_view text = lines[1];
  const size_t place = std::min(lines[2].find('^'), text.size());
  const absl::string_view before =
      absl::StripTrailingAsciiWhitespace(text.substr(0, place));
  constexpr size_t kMostShown = 30;
  const absl::string_view shown =
      before.substr(before.size() - std::min(before.size(), kMostShown));
  return absl::StrCat(what, place == text.size() ? ", at the end" : "",
                      shown.empty() ? "" : ", after: ", shown);
}

absl::StatusOr<Struct> ParseJson(absl::string_view json) {
  Struct object;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &object);
  if (!status.ok()) {
    const auto message = status.message();
    return Error(absl::StrCat(
        "not a JSON object: ",
        WithPlace(absl::string_view(message.data(), message.size()))));
  }
  return object;
}

// Adds the tasks that `host` stands for: one, or with braces, the number in
// them. Make rejects too many tasks.
absl::Status AddHosts(absl::string_view host, ClusterSpec::Tasks* tasks) {
  if (tasks->size() > ClusterSpec::kMaxTasks) return absl::OkStatus();
  const size_t open = host.find('{');
  const size_t close = host.find('}');
  if (open == host.npos && close == host.npos) {
    tasks->emplace(tasks->size(), host);
    return absl::OkStatus();
  }
  uint32_t count = 0;
  if (open == host.npos || close == host.npos || close < open ||
      !absl::SimpleAtoi(host.substr(open + 1, close - open - 1), &count) ||
      count < 1 || count > ClusterSpec::kMaxTasks) {
    return Error(absl::StrCat(
        "\"", host, "\": the braces must contain the number of tasks, 1 to ",
        ClusterSpec::kMaxTasks));
  }
  for (uint32_t i = 0; i < count; ++i) {
    tasks->emplace(tasks->size(), absl::StrCat(host.substr(0, open), i,
                                               host.substr(close + 1)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterSpec::Tasks> ParseTasks(const std::string& job,
                                              const Value& value) {
  const auto address = [&job](absl::string_view index,
                              const Value& element) -> absl::Status {
    if (element.kind_case() == Value::kStringValue) return absl::OkStatus();
    return Error(absl::StrCat("job \"", job, "\", task ", index,
                              ": must be a string \"host:port\", is ",
                              KindName(element)));
  };
  ClusterSpec::Tasks tasks;
  if (value.kind_case() == Value::kListValue) {
    for (const Value& element : value.list_value().values()) {
      const uint32_t index = static_cast<uint32_t>(tasks.size());
      absl::Status status = address(absl::StrCat(index), element);
      if (!status.ok()) return status;
      status = AddHosts(element.string_value(), &tasks);
      if (!status.ok()) {
        return Within(absl::StrCat("job \"", job, "\""), status);
      }
    }
    return tasks;
  }
  if (value.kind_case() == Value::kStructValue) {
    for (const auto& [key, element] : value.struct_value().fields()) {
      const std::optional<uint32_t> index =
          ParseDecimal(key, ClusterSpec::kMaxTasks);
      if (!index.has_value()) {
        return Error(absl::StrCat("job \"", job, "\": \"", key,
                                  "\" is not a task index (0 to ",
                                  ClusterSpec::kMaxTasks - 1, ")"));
      }
      HOLDFAST_RETURN_IF_ERROR(address(key, element));
      if (!tasks.emplace(*index, element.string_value()).second) {
        return Error(absl::StrCat("job \"", job, "\": task ", *index,
                                  " is listed twice"));
      }
    }
    return tasks;
  }
  return Error(absl::StrCat("job \"", job,
                            "\": must be a list of addresses or a map from "
                            "task index to address, is ",
                            KindName(value)));
}

// The jobs of `object`, which is a cluster or holds one under "cluster".
absl::StatusOr<Jobs> ParseJobs(const Struct& object) {
  if (const Value* wrapped = Find(object, "cluster")) {
    if (wrapped->kind_case() != Value::kStructValue) {
      return Error(absl::StrCat("\"cluster\" must be an object, is ",
                                KindName(*wrapped)));
    }
    return ParseJobs(wrapped->struct_value());
  }
  Jobs jobs;
  // A protobuf map has no defined order; errors should have one.
  const std::map<std::string, Value> fields(object.fields().begin(),
                                            object.fields().end());
  for (const auto& [name, value] : fields) {
    const std::string job = CanonicalJob(name);
    absl::Status status = CheckJobName(job);
    if (!status.ok()) return status;
    HOLDFAST_ASSIGN_OR_RETURN(auto tasks, ParseTasks(name, value));
    if (!jobs.emplace(job, std::move(tasks)).second) {
      return Error(
          "two chiefs: \"master\" and \"chief\" are names of the same job");
    }
  }
  return jobs;
}

absl::StatusOr<ClusterSpec::Tasks> SplitHosts(absl::string_view hosts) {
  ClusterSpec::Tasks tasks;
  if (absl::StripAsciiWhitespace(hosts).empty()) return tasks;
  for (absl::string_view host : absl::StrSplit(hosts, ',')) {
    HOLDFAST_RETURN_IF_ERROR(
        AddHosts(absl::StripAsciiWhitespace(host), &tasks));
  }
  return tasks;
}

// The file's bytes.
// Errors: NOT_FOUND when it cannot be read, INVALID_ARGUMENT when it is too
// long.
absl::StatusOr<std::string> ReadSpecFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(&text[0], static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return Error(
        absl::StrCat("\"", path, "\" has more than ", kMaxFileBytes, " bytes"));
  }
  if (!file.eof()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read \"", path, "\": ", std::strerror(errno)));
  }
  return text;
}

absl::StatusOr<ClusterSpec> FromFlagOrFile(const std::string& flag) {
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(flag), "{")) {
    return ClusterSpec::FromJson(flag);
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto text, ReadSpecFile(flag));
  absl::StatusOr<ClusterSpec> cluster = ClusterSpec::FromJson(text);
  if (!cluster.ok()) {
    return Within(absl::StrCat("\"", flag, "\""), cluster.status());
  }
  return cluster;
}

// A task, and the flags or variable that named it.
struct Named {
  TaskId task;
  std::string origin;
  // Named by the chief's former name, "master".
  bool is_master = false;
};

Named NamedAs(absl::string_view job, uint32_t index) {
  Named named;
  named.task = TaskId{CanonicalJob(job), index};
  named.is_master = job != named.task.job;
  return named;
}

// The task of a parsed TF_CONFIG; its index may be a number or a string.
absl::StatusOr<Named> ParseTask(const Struct& config) {
  const Value* task = Find(config, "task");
  if (task == nullptr) {
    return Error("no \"task\": add one, or give --job_name and --task_index");
  }
  if (task->kind_case() != Value::kStructValue) {
    return Error(
        absl::StrCat("\"task\" must be an object, is ", KindName(*task)));
  }
  const Value* type = Find(task->struct_value(), "type");
  if (type == nullptr || type->kind_case() != Value::kStringValue) {
    return Error(absl::StrCat("\"task\" needs a \"type\": ", kJobNames));
  }
  const Value* index = Find(task->struct_value(), "index");
  if (index == nullptr) return Error("\"task\" needs an \"index\"");
  std::optional<uint32_t> number;
  if (index->kind_case() == Value::kStringValue) {
    number = ParseDecimal(index->string_value(), ClusterSpec::kMaxTasks);
  } else if (index->kind_case() == Value::kNumberValue) {
    const double value = index->number_value();
    if (value >= 0 && value < ClusterSpec::kMaxTasks &&
        value == std::floor(value)) {
      number = static_cast<uint32_t>(value);
    }
  }
  if (!number.has_value()) {
    return Error(absl::StrCat("the \"index\" of \"task\" must be 0 to ",
                              ClusterSpec::kMaxTasks - 1, ", is ",
                              KindName(*index)));
  }
  return NamedAs(type->string_value(), *number);
}

// The task that the flags name, or otherwise `tf_config`.
absl::StatusOr<Named> NamedTask(const ClusterFlags& flags,
                                absl::string_view tf_config) {
  if (flags.job_name.empty() && !flags.task_index.has_value()) {
    if (tf_config.empty()) {
      return Error(
          "the task is not known: give --job_name and --task_index, or set "
          "TF_CONFIG with a \"task\"");
    }
    const absl::StatusOr<Struct> config = ParseJson(tf_config);
    if (!config.ok()) return Within("TF_CONFIG", config.status());
    absl::StatusOr<Named> task = ParseTask(*config);
    if (!task.ok()) return Within("TF_CONFIG", task.status());
    task->origin = "TF_CONFIG";
    return task;
  }
  if (flags.job_name.empty()) {
    return Error(
        absl::StrCat("--task_index=", *flags.task_index, " needs --job_name"));
  }
  if (!flags.task_index.has_value()) {
    return Error(
        absl::StrCat("--job_name=", flags.job_name, " needs --task_index"));
  }
  if (*flags.task_index < 0 || *flags.task_index >= ClusterSpec::kMaxTasks) {
    return Error(absl::StrCat("--task_index must be 0 to ",
                              ClusterSpec::kMaxTasks - 1, ", is ",
                              *flags.task_index));
  }
  Named named =
      NamedAs(flags.job_name, static_cast<uint32_t>(*flags.task_index));
  named.origin = absl::StrCat("--job_name=", flags.job_name,
                              " --task_index=", *flags.task_index);
  return named;
}

}  // namespace

std::string HostPort::ToString() const {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const auto error = [address](absl::string_view what) {
    return Error(absl::StrCat("\"", address, "\" ", what));
  };
  if (address.empty()) return Error("an empty address");
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || address.back() == ']') {
    return error("has no port: write host:port");
  }
  HostPort result;
  result.host = std::string(address.substr(0, colon));
  if (result.host.empty()) return error("has no host: write host:port");
  if (result.host.front() == '[' && result.host.back() == ']') {
    result.host = result.host.substr(1, result.host.size() - 2);
    if (!IsIpv6(result.host))
      return error("has no IPv6 address in its brackets");
  } else if (!IsHostName(result.host)) {
    return error(
        "has a host with characters that are not allowed in host names (write "
        "an IPv6 address in brackets: [::1]:80)");
  }
  const std::optional<uint32_t> port =
      ParseDecimal(address.substr(colon + 1), 65536);
  if (!port.has_value() || *port == 0) {
    return error("needs a port from 1 to 65535");
  }
  result.port = static_cast<uint16_t>(*port);
  return result;
}

bool IsLoopback(absl::string_view host) {
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const std::string text(host);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6;
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 &&
         std::memcmp(&v6, &in6addr_loopback, sizeof(v6)) == 0;
}

namespace {

// One spelling for all spellings of an address, as far as that is possible
// without resolving names.
std::string CanonicalAddress(HostPort address) {
  std::string& host = address.host;
  absl::AsciiStrToLower(&host);
  if (host.back() == '.') host.pop_back();
  // A ps that listens on "localhost" uses the IPv4 address.
  if (host == "localhost") host = "127.0.0.1";
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
    char text[INET6_ADDRSTRLEN];
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof(text));
    } else {
      inet_ntop(AF_INET6, &v6, text, sizeof(text));
    }
    host = text;
  }
  return address.ToString();
}

}  // namespace

absl::StatusOr<ClusterSpec> ClusterSpec::FromJson(absl::string_view json) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto object, ParseJson(json));
  HOLDFAST_ASSIGN_OR_RETURN(auto jobs, ParseJobs(object));
  return Make(std::move(jobs));
}

absl::StatusOr<ClusterSpec> ClusterSpec::FromHosts(
    absl::string_view ps_hosts, absl::string_view worker_hosts,
    absl::string_view chief_hosts) {
  Jobs jobs;
  for (const auto& [job, hosts] :
       {std::pair(kPsJob, ps_hosts), std::pair(kWorkerJob, worker_hosts),
        std::pair(kChiefJob, chief_hosts)}) {
    absl::StatusOr<Tasks> tasks = SplitHosts(hosts);
    if (!tasks.ok()) {
      return Within(absl::StrCat("job \"", job, "\""), tasks.status());
    }
    jobs[job] = *std::move(tasks);
  }
  return Make(std::move(jobs));
}

absl::StatusOr<ClusterSpec> ClusterSpec::Make(Jobs jobs) {
  // Addresses already seen, by their canonical form: the address as given and
  // the task that has it.
  std::map<std::string, std::pair<std::string, TaskId>> seen;
  for (auto it = jobs.begin(); it != jobs.end();) {
    auto& [job, tasks] = *it;
    if (tasks.empty()) {
      it = jobs.erase(it);
      continue;
    }
    if (tasks.size() > kMaxTasks) {
      return Error(absl::StrCat("job \"", job, "\" has ", tasks.size(),
                                " tasks: at most ", kMaxTasks, " can be"));
    }
    for (auto& [index, address] : tasks) {
      const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
      if (!parsed.ok()) {
        return Within(absl::StrCat("job \"", job, "\", task ", index),
                      parsed.status());
      }
      address = parsed->ToString();
      const TaskId task{job, index};
      const auto [same, fresh] =
          seen.emplace(CanonicalAddress(*parsed), std::pair(address, task));
      if (!fresh) {
        const auto& [first, whose] = same->second;
        return Error(absl::StrCat(
            whose.ToString(), " and ", task.ToString(),
            " have the same address",
            first == address ? absl::StrCat(" ", address)
                             : absl::StrCat(": ", first, " and ", address)));
      }
    }
    ++it;
  }

  const auto ps = jobs.find(kPsJob);
  if (ps == jobs.end()) {
    return Error("no ps: the cluster needs at least one");
  }
  for (const auto& [job, tasks] : jobs) {
    uint32_t expected = 0;
    for (const auto& [index, address] : tasks) {
      if (index != expected) {
        return Error(absl::StrCat(
            "job \"", job, "\" has a task ", index, " but no task ", expected,
            ": list every task, because the job counts them"));
      }
      ++expected;
    }
  }
  const auto chief = jobs.find(kChiefJob);
  if (chief != jobs.end()) {
    if (chief->second.size() > 1) {
      return Error(absl::StrCat("job \"chief\" has ", chief->second.size(),
                                " tasks: at most one is allowed"));
    }
  } else if (jobs.count(kWorkerJob) == 0) {
    return Error("no worker and no chief: the cluster needs at least one");
  }
  return ClusterSpec(std::move(jobs));
}

ClusterSpec::ClusterSpec(Jobs jobs) : jobs_(std::move(jobs)) {
  for (const char* job : {kChiefJob, kWorkerJob}) {
    const auto it = jobs_.find(job);
    if (it == jobs_.end()) continue;
    for (const auto& [index, address] : it->second) {
      replicas_.push_back(TaskId{job, index});
    }
  }
}

uint32_t ClusterSpec::num_ps() const {
  return static_cast<uint32_t>(jobs_.at(kPsJob).size());
}

absl::Status ClusterSpec::CheckTask(const TaskId& task) const {
  HOLDFAST_RETURN_IF_ERROR(CheckJobName(task.job));
  if (task.job == kEvaluatorJob) return absl::OkStatus();
  const auto job = jobs_.find(task.job);
  if (job == jobs_.end()) {
    const auto name = [](std::string* out, const auto& entry) {
      out->append(entry.first);
    };
    return Error(absl::StrCat("the cluster has no job \"", task.job,
                              "\": it has ", absl::StrJoin(jobs_, ", ", name)));
  }
  const Tasks& tasks = job->second;
  if (tasks.count(task.index) > 0) return absl::OkStatus();
  const std::string what = tasks.size() == 1
                               ? "only task 0"
                               : absl::StrCat("tasks 0 to ", tasks.size() - 1);
  return Error(absl::StrCat("the cluster has no ", task.ToString(), ": job \"",
                            task.job, "\" has ", what));
}

absl::StatusOr<std::string> ClusterSpec::Address(const TaskId& task) const {
  HOLDFAST_RETURN_IF_ERROR(CheckTask(task));
  const auto job = jobs_.find(task.job);
  if (job == jobs_.end() || job->second.count(task.index) == 0) {
    return Error(absl::StrCat("the cluster does not list ", task.ToString()));
  }
  return job->second.at(task.index);
}

absl::Status ClusterSpec::CheckPsAreLocal() const {
  for (const auto& [index, address] : jobs_.at(kPsJob)) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto parts, ParseHostPort(address));
    if (IsLoopback(parts.host)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(TaskId{kPsJob, index}.ToString(), " is at ", address,
                     ", which is not this machine"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ClusterSpec::ReplicaIndex(const TaskId& task) const {
  HOLDFAST_RETURN_IF_ERROR(CheckTask(task));
  // The replicas are sorted by TaskId, too: "chief" < "worker".
  const auto it = std::lower_bound(replicas_.begin(), replicas_.end(), task);
  if (it == replicas_.end() || *it != task) {
    return Error(absl::StrCat(
        task.ToString(), " does not train: only the chief and workers do"));
  }
  return static_cast<uint32_t>(it - replicas_.begin());
}

absl::StatusOr<TaskId> ClusterSpec::ReplicaTask(uint32_t replica) const {
  if (replica >= replicas_.size()) {
    return Error(absl::StrCat("no replica ", replica, ": the cluster has ",
                              replicas_.size()));
  }
  return replicas_[replica];
}

std::string ClusterSpec::ToJson() const {
  // Names and addresses contain no characters that JSON would escape.
  std::vector<std::string> lines;
  for (const auto& [job, tasks] : jobs_) {
    const auto entry = [](std::string* out, const auto& task) {
      absl::StrAppend(out, "\"", task.second, "\"");
    };
    lines.push_back(absl::StrCat("  \"", job, "\": [",
                                 absl::StrJoin(tasks, ", ", entry), "]"));
  }
  return absl::StrCat("{\n", absl::StrJoin(lines, ",\n"), "\n}\n");
}

absl::StatusOr<ClusterSpec> ResolveCluster(const ClusterFlags& flags,
                                           absl::string_view tf_config) {
  const bool hosts = !flags.ps_hosts.empty() || !flags.worker_hosts.empty() ||
                     !flags.chief_hosts.empty();
  if (!flags.cluster_spec.empty()) {
    if (hosts) {
      return Error(
          "--cluster_spec and --ps_hosts, --worker_hosts or --chief_hosts "
          "exclude each other: give one or the other");
    }
    absl::StatusOr<ClusterSpec> cluster = FromFlagOrFile(flags.cluster_spec);
    if (!cluster.ok()) return Within("--cluster_spec", cluster.status());
    return cluster;
  }
  if (hosts) {
    absl::StatusOr<ClusterSpec> cluster = ClusterSpec::FromHosts(
        flags.ps_hosts, flags.worker_hosts, flags.chief_hosts);
    if (!cluster.ok()) {
      return Within("--ps_hosts, --worker_hosts, --chief_hosts",
                    cluster.status());
    }
    return cluster;
  }
  if (tf_config.empty()) {
    return Error(
        "the cluster is not known: give --cluster_spec, or --ps_hosts and "
        "--worker_hosts, or set TF_CONFIG");
  }
  const absl::StatusOr<Struct> config = ParseJson(tf_config);
  if (!config.ok()) return Within("TF_CONFIG", config.status());
  if (Find(*config, "cluster") == nullptr) {
    return Error(
        "TF_CONFIG: no \"cluster\": add one, or give --cluster_spec, or "
        "--ps_hosts and --worker_hosts");
  }
  absl::StatusOr<ClusterSpec> cluster = ClusterSpec::FromJson(tf_config);
  if (!cluster.ok()) return Within("TF_CONFIG", cluster.status());
  return cluster;
}

absl::StatusOr<ResolvedTask> ResolveTask(const ClusterFlags& flags,
                                         absl::string_view tf_config) {
  HOLDFAST_ASSIGN_OR_RETURN(auto cluster, ResolveCluster(flags, tf_config));
  HOLDFAST_ASSIGN_OR_RETURN(auto task, NamedTask(flags, tf_config));
  const absl::Status status = cluster.CheckTask(task.task);
  if (!status.ok()) {
    return Error(absl::StrCat(
        task.origin, ": ", status.message(),
        task.is_master ? " (\"master\" is another name of \"chief\")" : ""));
  }
  return ResolvedTask{std::move(cluster), std::move(task.task)};
}

}  // namespace holdfast
