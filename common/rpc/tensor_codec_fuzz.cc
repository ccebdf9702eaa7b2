// SPDX-License-Identifier: Apache-2.0

// A libFuzzer target: for any bytes, the codec must agree with the generated
// code (tensor_codec_check.h). Run by tensor_codec_fuzz_test.sh.
//
// An input consists of the kind of message (byte 0), the size of the slices in
// which it comes (byte 1; 0 means one slice), and the message's bytes.

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/rpc/tensor_codec.h"
#include "common/rpc/tensor_codec_check.h"
#include "proto/shard.pb.h"

namespace holdfast {
namespace {

void Expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// Each slice is allocated separately with its exact size, so that any access
// outside it is detected.
grpc::ByteBuffer InSlices(const uint8_t* data, size_t size, size_t slice_size) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < size;) {
    const size_t count = std::min(size - begin, slice_size);
    char* const copy = new char[count];
    std::memcpy(copy, data + begin, count);
    slices.emplace_back(copy, count,
                        [](void* copy) { delete[] static_cast<char*>(copy); });
    begin += count;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

template <typename Message>
void Check(const uint8_t* data, size_t size, size_t slice_size) {
  Message message;
  std::vector<TensorPiece> pieces;
  {
    const grpc::ByteBuffer bytes = InSlices(data, size, slice_size);
    const std::optional<std::string> otherwise =
        DecodedOtherwise<Message>(bytes);
    Expect(!otherwise.has_value(), otherwise.value_or(""));
    if (!DecodeWithTensors(bytes, &message, &pieces)) return;
  }
  // The generated code writes unknown fields after the tensors, EncodeTensors
  // before them; our senders have none.
  message.DiscardUnknownFields();
  const std::string encoded = Flat(EncodeWithTensors(message, pieces));
  Expect(encoded == EncodeByGeneratedCode(message, pieces),
         "encoding differs from that of the generated code");
  Expect(EncodedBytes(pieces) + message.ByteSizeLong() >= encoded.size(),
         "longer than the bound of EncodedBytes");
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t slice_size = data[1] == 0 ? size : data[1];
  switch (data[0] % 4) {
    case 0:
      holdfast::Check<holdfast::proto::PushRequest>(data + 2, size - 2,
                                                    slice_size);
      break;
    case 1:
      holdfast::Check<holdfast::proto::PullResponse>(data + 2, size - 2,
                                                     slice_size);
      break;
    case 2:
      holdfast::Check<holdfast::proto::PushPullRequest>(data + 2, size - 2,
                                                        slice_size);
      break;
    case 3:
      holdfast::Check<holdfast::proto::PushPullResponse>(data + 2, size - 2,
                                                         slice_size);
      break;
  }
  return 0;
}
