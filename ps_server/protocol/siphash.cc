// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/siphash.h"

#include "glog/logging.h"

namespace holdfast {
namespace {

uint64_t RotateLeft(uint64_t value, int bits) {
  return value << bits | value >> (64 - bits);
}

// The paper's v0 to v3.
struct State {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v1 = RotateLeft(v1, 13) ^ v0;
    v0 = RotateLeft(v0, 32);
    v2 += v3;
    v3 = RotateLeft(v3, 16) ^ v2;
    v0 += v3;
    v3 = RotateLeft(v3, 21) ^ v0;
    v2 += v1;
    v1 = RotateLeft(v1, 17) ^ v2;
    v2 = RotateLeft(v2, 32);
  }
  void Compress(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }
};

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t word = 0;
  for (size_t i = 8; i-- > 0;) {
    word = word << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return word;
}

}  // namespace

SipHash::SipHash(absl::string_view key) {
  CHECK_EQ(key.size(), kKeyBytes);
  key_[0] = LittleEndian(key.substr(0, 8));
  key_[1] = LittleEndian(key.substr(8));
}

uint64_t SipHash::Of(absl::Span<const uint64_t> words) const {
  // "somepseudorandomlygeneratedbytes"
  State state = {key_[0] ^ 0x736f6d6570736575, key_[1] ^ 0x646f72616e646f6d,
                 key_[0] ^ 0x6c7967656e657261, key_[1] ^ 0x7465646279746573};
  for (const uint64_t word : words) state.Compress(word);
  // The last word holds the remaining bytes, of which there are none here, and
  // the message's length in bytes modulo 256.
  state.Compress(uint64_t{words.size() * sizeof(uint64_t)} << 56);
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) state.Round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace holdfast
