// SPDX-License-Identifier: Apache-2.0
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
//   ca.crt, ca.key   the authority; its key allows impersonating any task
//   ps-0/            for --tls_dir of that task: ca.crt, tls.crt, tls.key
//   worker-0/, ...   the same for the other tasks
//   operator-0/      the same for people and tools
//
// Only their owner can read keys.
struct CertificateFolderOptions {
  std::string path;
  // Name of the training in each identity (common/rpc/identity.h).
  std::string training;
  std::vector<TaskId> tasks;
  // How long certificates are valid. The authority's is valid for ten years.
  absl::Duration lifetime = absl::Hours(24 * 365);
  // Whether tasks that have a certificate get a new one.
  bool renew = false;
};

// The tasks of a cluster, and an operator.
std::vector<TaskId> TasksWithOperator(const ClusterSpec& cluster);

// The folder of the certificate of `task`.
std::string CertificateFolderOf(const std::string& path, const TaskId& task);

// Creates the folder, or what is missing in it. An existing authority is used
// and never overwritten. Renewed files are replaced atomically. Returns the
// tasks that got a new certificate. Errors: INVALID_ARGUMENT for an invalid
// name; FAILED_PRECONDITION when the authority has no key, or is not an
// authority; those of the system.
absl::StatusOr<std::vector<TaskId>> MakeCertificateFolder(
    const CertificateFolderOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CERTIFICATE_FOLDER_H_
