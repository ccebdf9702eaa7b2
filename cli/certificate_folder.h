#ifndef HOLDFAST_CLI_CERTIFICATE_FOLDER_H_
#define HOLDFAST_CLI_CERTIFICATE_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"

namespace holdfast {

// A folder of certificates for one cluster, for development:
//
//   ca.crt, ca.key   the authority; whoever has the key may be anybody
//   ps-0/            for --tls_dir of that task: ca.crt, tls.crt, tls.key
//   worker-0/ ...
//   operator-0/      for people and tools
//
// Keys can be read by their owner alone.
struct CertificateFolderOptions {
  std::string path;
  // In each identity (common/rpc/identity.h).
  std::string training;
  std::vector<TaskId> tasks;
  // How long certificates are valid. The authority is so for ten years.
  absl::Duration lifetime = absl::Hours(24 * 365);
  // Tasks that have a certificate get another one. Otherwise they keep it.
  bool renew = false;
};

// The tasks of a cluster, and an operator.
std::vector<TaskId> TasksWithOperator(const ClusterSpec& cluster);

// Where the certificate of `task` is.
std::string CertificateFolderOf(const std::string& path, const TaskId& task);

// Makes the folder, or what it lacks. An authority that is there is used; it is
// never written over. A renewed file takes the place of the old one at once.
// Returns the tasks that have got a certificate.
// Errors: INVALID_ARGUMENT for a name that is none; FAILED_PRECONDITION when
// the authority has no key, or is none; as the system says.
absl::StatusOr<std::vector<TaskId>> MakeCertificateFolder(
    const CertificateFolderOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CERTIFICATE_FOLDER_H_
