// SPDX-License-Identifier: Apache-2.0
#include "cli/local_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const std::vector<Program>& programs, const RunDirectory& directory) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(&directory));
  for (const Program& program : programs) {
    Daemon daemon;
    daemon.program = program;
    HOLDFAST_RETURN_IF_ERROR(cluster->StartProcess(&daemon));
    cluster->daemons_.push_back(std::move(daemon));
  }
  return cluster;
}

absl::Status LocalCluster::StartProcess(Daemon* daemon) {
  const Program& program = daemon->program;
  ChildProcess::Options options;
  options.binary = program.binary;
  options.args = program.args;
  options.environment = program.environment;
  options.log_path = directory_.LogPath(program.name);
  options.log_header = LogHeader(DateNow(), program.binary, program.args);
  HOLDFAST_ASSIGN_OR_RETURN(auto process, ChildProcess::Start(options));
  daemon->process = std::move(process);
  daemon->started = SteadyNow();
  daemon->ended.reset();
  return directory_.WritePid(program.name, daemon->process->pid());
}

absl::Status LocalCluster::Restart(const std::string& name) {
  for (Daemon& daemon : daemons_) {
    if (daemon.name() == name && daemon.ended.has_value()) {
      return StartProcess(&daemon);
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(name, " is not a daemon that has ended"));
}

std::vector<const LocalCluster::Daemon*> LocalCluster::Reap() {
  std::vector<const Daemon*> ended;
  for (Daemon& daemon : daemons_) {
    if (daemon.ended.has_value()) continue;
    daemon.ended = daemon.process->TryReap();
    if (daemon.ended.has_value()) ended.push_back(&daemon);
  }
  return ended;
}

std::vector<std::string> LocalCluster::Running() const {
  std::vector<std::string> names;
  for (const Daemon& daemon : daemons_) {
    if (!daemon.ended.has_value()) names.push_back(daemon.name());
  }
  return names;
}

void LocalCluster::Signal(int signal, const std::vector<std::string>& names) {
  for (Daemon& daemon : daemons_) {
    if (std::count(names.begin(), names.end(), daemon.name()) > 0) {
      daemon.process->Signal(signal);
    }
  }
}

}  // namespace holdfast
