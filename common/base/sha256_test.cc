// SPDX-License-Identifier: Apache-2.0
#include "common/base/sha256.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

struct KnownAnswer {
  std::string message;
  std::string digest;
};

// The examples of FIPS 180-4 and of NIST's "Cryptographic Standards and
// Guidelines: Example Values", SHA-256.
const KnownAnswer kKnownAnswers[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {std::string(1000000, 'a'),
     "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
};

TEST(Sha256Test, KnownAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    EXPECT_EQ(Sha256::Hex(known.message), known.digest);
  }
}

TEST(Sha256Test, PiecesMakeNoDifference) {
  const std::string& message = kKnownAnswers[2].message;
  for (size_t cut = 0; cut <= message.size(); ++cut) {
    Sha256 sha;
    sha.Update(message.data(), cut);
    sha.Update(message.data() + cut, message.size() - cut);
    EXPECT_EQ(sha.HexDigest(), kKnownAnswers[2].digest) << "cut at " << cut;
  }
}

TEST(Sha256Test, NothingMayBeNull) {
  Sha256 sha;
  sha.Update(nullptr, 0);
  EXPECT_EQ(sha.HexDigest(), kKnownAnswers[0].digest);
}

TEST(Sha256Test, MoreMayFollowADigest) {
  Sha256 sha;
  EXPECT_EQ(sha.HexDigest(), kKnownAnswers[0].digest);
  sha.Update("abc");
  EXPECT_EQ(sha.HexDigest(), kKnownAnswers[1].digest);
  EXPECT_EQ(sha.HexDigest(), kKnownAnswers[1].digest);
}

}  // namespace
}  // namespace holdfast
