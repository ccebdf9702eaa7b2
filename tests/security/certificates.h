#ifndef HOLDFAST_TESTS_SECURITY_CERTIFICATES_H_
#define HOLDFAST_TESTS_SECURITY_CERTIFICATES_H_

#include <string>

#include "cli/certificate_authority.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"

namespace holdfast {

// Of all certificates here, where nothing else is said.
inline constexpr char kTraining[] = "mnist";

// A request for a certificate that is valid for an hour.
CertificateRequest SoundRequest(const Identity& identity);

// An authority that is valid for an hour. Another one at each call.
CertificateAuthority MakeAuthority();
// The one of this process.
const CertificateAuthority& TheAuthority();

// Writes a folder for --tls_dir, whose peers are to be of `trusted`. Another
// one at each call.
std::string WriteFolder(const KeyPair& pair,
                        const CertificateAuthority& trusted = TheAuthority());
// Puts other files there, one after the other.
void RewriteFolder(const std::string& folder, const KeyPair& pair,
                   const CertificateAuthority& trusted = TheAuthority());

// A folder for this task of the training.
std::string FolderOf(const TaskId& task);

// With a sound certificate of TheAuthority(). Made once for each.
Credentials CredentialsOf(const Identity& identity);
Credentials CredentialsOf(const TaskId& task);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SECURITY_CERTIFICATES_H_
