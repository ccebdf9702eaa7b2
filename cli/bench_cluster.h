// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_CLUSTER_H_
#define HOLDFAST_CLI_BENCH_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/flag_set.h"
#include "cli/free_ports.h"
#include "cli/local_cluster.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"
#include "common/job/cluster_spec.h"
#include "common/rpc/credentials.h"
#include "proto/benchmark.pb.h"

namespace holdfast {

// A folder that is removed with its contents on destruction.
class ScratchFolder {
 public:
  // Creates the folder in $TMPDIR, or in /tmp if that is not set. Errors: those
  // of the system.
  static absl::StatusOr<std::unique_ptr<ScratchFolder>> Make();
  ~ScratchFolder();

  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// The processes of one measurement: daemons and clients on this machine. The
// destructor kills all of them and waits until they have ended.
//
// Thread-compatible. Must be used from one thread, which must outlive it.
class BenchProcesses {
 public:
  // Starts the programs. `directory` and `signals` must outlive this.
  // Errors: those of LocalCluster::Start.
  static absl::StatusOr<std::unique_ptr<BenchProcesses>> Start(
      const std::vector<LocalCluster::Program>& programs,
      const RunDirectory& directory, SignalWatch* signals);

  // Waits until `fd` (-1: none) is readable or `deadline` has passed; may
  // return earlier. Errors: CANCELLED when the user ends the program; INTERNAL,
  // with the last lines of its log, when a process has failed.
  absl::Status Wait(int fd, absl::Time deadline);
  // Waits until the process called `name` has ended successfully. Errors: those
  // of Wait.
  absl::Status AwaitEnd(const std::string& name);

  // User and system time used by all processes that have not ended. Errors:
  // those of CpuTimeOf.
  absl::StatusOr<absl::Duration> CpuTime() const;

 private:
  BenchProcesses(std::unique_ptr<LocalCluster> cluster,
                 const RunDirectory& directory, SignalWatch* signals)
      : directory_(directory),
        signals_(*signals),
        cluster_(std::move(cluster)) {}

  const RunDirectory& directory_;
  SignalWatch& signals_;
  const std::unique_ptr<LocalCluster> cluster_;
};

// The benchmarks' flags about ps daemons and connections to them.
struct BenchPs {
  std::string binary;
  std::string flags;
  bool tls = false;

  // Adds --ps_binary and --ps_flags.
  void AddTo(FlagSet* set);
};

// A cluster of ps daemons and clients (`holdfast bench client`).
class BenchCluster {
 public:
  // The flags of one client. They include --task_index if the client is a task
  // of the cluster.
  using Client = std::vector<std::string>;

  // The clients are called client-0, client-1, ... in the given order; they get
  // --cluster_spec, --result_file and --tls_dir (the folder with the
  // certificates of all tasks). The ClusterSpec has `num_workers` workers.
  // Errors: INVALID_ARGUMENT when the ps daemon does not exist; those of
  // RunDirectory::Open, HeldPorts::Take, LocalCluster::Start.
  static absl::StatusOr<std::unique_ptr<BenchCluster>> Start(
      const BenchPs& ps, int num_ps, int num_workers,
      const std::vector<Client>& clients, const std::string& folder,
      SignalWatch* signals);

  const ClusterSpec& spec() const { return spec_; }
  // Credentials of an operator.
  const Credentials& credentials() const { return credentials_; }
  BenchProcesses& processes() { return *processes_; }

  // Waits until client `index` has ended successfully, and reads its results.
  // Errors: as for BenchProcesses::Wait; INTERNAL when there is no result.
  absl::StatusOr<std::vector<proto::BenchmarkResult>> AwaitResults(int index);

 private:
  BenchCluster(ClusterSpec spec, Credentials credentials,
               std::unique_ptr<RunDirectory> directory,
               std::unique_ptr<HeldPorts> ports)
      : spec_(std::move(spec)),
        credentials_(std::move(credentials)),
        directory_(std::move(directory)),
        ports_(std::move(ports)) {}

  const ClusterSpec spec_;
  const Credentials credentials_;
  const std::unique_ptr<RunDirectory> directory_;
  const std::unique_ptr<HeldPorts> ports_;
  std::unique_ptr<BenchProcesses> processes_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_CLUSTER_H_
