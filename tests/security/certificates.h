// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_SECURITY_CERTIFICATES_H_
#define HOLDFAST_TESTS_SECURITY_CERTIFICATES_H_

#include <string>

#include "cli/certificate_authority.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"

namespace holdfast {

// The training that certificates are for, unless a test says otherwise.
inline constexpr char kTraining[] = "mnist";

// A request for a certificate that is valid for an hour.
CertificateRequest SoundRequest(const Identity& identity);

// A new authority that is valid for an hour; different at each call.
CertificateAuthority MakeAuthority();
// The authority that this process uses by default.
const CertificateAuthority& TheAuthority();

// Writes a new folder for --tls_dir that trusts certificates of `trusted`;
// different at each call.
std::string WriteFolder(const KeyPair& pair,
                        const CertificateAuthority& trusted = TheAuthority());
// Replaces the files in the folder, one after the other.
void RewriteFolder(const std::string& folder, const KeyPair& pair,
                   const CertificateAuthority& trusted = TheAuthority());

// A folder with credentials of this task.
std::string FolderOf(const TaskId& task);

// Credentials with a valid certificate of TheAuthority(). Made once for each
// identity.
Credentials CredentialsOf(const Identity& identity);
Credentials CredentialsOf(const TaskId& task);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SECURITY_CERTIFICATES_H_
