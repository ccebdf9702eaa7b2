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

// A folder that is removed with all that is in it at the end.
class ScratchFolder {
 public:
  // Under TMPDIR, or else /tmp. Errors: as the system says.
  static absl::StatusOr<std::unique_ptr<ScratchFolder>> Make();
  ~ScratchFolder();

  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// The processes of one measurement: daemons and clients on this machine, all
// killed and waited for when this is destroyed.
//
// Thread-compatible; to be used from one thread, which outlives it.
class BenchProcesses {
 public:
  // Starts the programs. `directory` and `signals` must outlive this.
  // Errors: those of LocalCluster::Start.
  static absl::StatusOr<std::unique_ptr<BenchProcesses>> Start(
      const std::vector<LocalCluster::Program>& programs,
      const RunDirectory& directory, SignalWatch* signals);

  // Waits until `fd` (-1: none) is readable or `deadline` is there; it may
  // return before. Errors: CANCELLED when the user ends the program; INTERNAL,
  // with its last words, when a process has ended wrongly.
  absl::Status Wait(int fd, absl::Time deadline);
  // Waits until the process called `name` has ended well. Errors: as Wait.
  absl::Status AwaitEnd(const std::string& name);

  // User and system time that all processes have used, those that have ended
  // left out. Errors: those of CpuTimeOf.
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

// What the benchmarks' flags say of ps daemons, and the connections with them.
struct BenchPs {
  std::string binary;
  std::string flags;
  bool tls = false;

  // Adds --ps_binary and --ps_flags.
  void AddTo(FlagSet* set);
};

// A cluster of ps daemons, with clients (`holdfast bench client`) beside them.
class BenchCluster {
 public:
  // The flags of each client; one with a place in the cluster has --task_index.
  using Client = std::vector<std::string>;

  // The clients are called client-0, client-1, ... in the order given; they get
  // --cluster_spec, --result_file and --tls_dir, the folder of all tasks.
  // `num_workers` of the ClusterSpec. Errors: INVALID_ARGUMENT when there is no
  // such ps daemon; those of RunDirectory::Open, HeldPorts::Take,
  // LocalCluster::Start.
  static absl::StatusOr<std::unique_ptr<BenchCluster>> Start(
      const BenchPs& ps, int num_ps, int num_workers,
      const std::vector<Client>& clients, const std::string& folder,
      SignalWatch* signals);

  const ClusterSpec& spec() const { return spec_; }
  // An operator's.
  const Credentials& credentials() const { return credentials_; }
  BenchProcesses& processes() { return *processes_; }

  // Waits until client `index` has ended well, and reads what it has written.
  // Errors: as BenchProcesses::Wait; INTERNAL when there is no result.
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
