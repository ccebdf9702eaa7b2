#include "cli/local_cluster.h"

#include <utility>

namespace holdfast {

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const std::vector<Program>& programs, const RunDirectory& directory) {
  auto cluster = std::make_unique<LocalCluster>();
  for (const Program& program : programs) {
    auto process = ChildProcess::Start(
        {program.binary, program.args, directory.LogPath(program.name)});
    if (!process.ok()) return process.status();
    cluster->daemons_.push_back({program.name, *std::move(process), {}});
    absl::Status status = directory.WritePid(
        program.name, cluster->daemons_.back().process->pid());
    if (!status.ok()) return status;
  }
  return cluster;
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

const LocalCluster::Daemon* LocalCluster::Find(const std::string& name) const {
  for (const Daemon& daemon : daemons_) {
    if (daemon.name == name) return &daemon;
  }
  return nullptr;
}

std::vector<std::string> LocalCluster::Running() const {
  std::vector<std::string> names;
  for (const Daemon& daemon : daemons_) {
    if (!daemon.ended.has_value()) names.push_back(daemon.name);
  }
  return names;
}

void LocalCluster::Signal(int signal) {
  for (Daemon& daemon : daemons_) daemon.process->Signal(signal);
}

}  // namespace holdfast
