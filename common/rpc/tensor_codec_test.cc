#include "common/rpc/tensor_codec.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/shard.pb.h"

namespace holdfast {
namespace {

std::string Bytes(const Buffer& buffer) {
  std::string bytes(buffer.size(), '\0');
  buffer.CopyTo(bytes.data());
  return bytes;
}

TensorPiece Piece(std::string variable, std::vector<int64_t> shape,
                  uint64_t begin, std::string data) {
  TensorPiece piece;
  piece.variable = std::move(variable);
  piece.shape = std::move(shape);
  piece.begin = begin;
  piece.data = Buffer::FromString(std::move(data));
  return piece;
}

TEST(TensorCodecTest, PiecesSurviveTheWayThereAndBack) {
  const std::vector<TensorPiece> pieces = {
      Piece("kernel", {2, 3}, 4, "12345678"),
      Piece("scalar", {}, 0, "abcd"),
      Piece("empty", {0, 7}, 0, ""),
  };
  proto::PullResponse message;
  AddTensors(pieces, message.mutable_tensors());
  const std::vector<TensorPiece> back = TakeTensors(message.mutable_tensors());
  ASSERT_EQ(back.size(), pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(back[i].variable, pieces[i].variable);
    EXPECT_EQ(back[i].shape, pieces[i].shape);
    EXPECT_EQ(back[i].dtype, proto::FLOAT32);
    EXPECT_EQ(back[i].begin, pieces[i].begin);
    EXPECT_EQ(Bytes(back[i].data), Bytes(pieces[i].data));
  }
  EXPECT_EQ(message.tensors_size(), 0);
}

TEST(TensorCodecTest, AChainOfSpansBecomesOneString) {
  TensorPiece piece = Piece("v", {2}, 0, "12345");
  piece.data.Append(Buffer::FromString("678"));
  proto::PullResponse message;
  AddTensors({piece}, message.mutable_tensors());
  EXPECT_EQ(message.tensors(0).data(), "12345678");
}

TEST(TensorCodecTest, TakingDoesNotCopyTheBytes) {
  proto::PushRequest message;
  message.add_tensors()->set_data(std::string(1 << 20, 'x'));
  const char* where = message.tensors(0).data().data();
  const std::vector<TensorPiece> pieces =
      TakeTensors(message.mutable_tensors());
  ASSERT_EQ(pieces[0].data.spans().size(), 1u);
  EXPECT_EQ(pieces[0].data.spans()[0].data, where);
}

TEST(TensorCodecTest, AnUnknownDtypeIsKept) {
  proto::PushRequest message;
  message.add_tensors()->set_dtype(static_cast<proto::DataType>(77));
  EXPECT_EQ(static_cast<int>(TakeTensors(message.mutable_tensors())[0].dtype),
            77);
}

TEST(TensorCodecTest, EncodedBytesIsAnUpperBound) {
  const std::vector<TensorPiece> pieces = {
      Piece(std::string(300, 'v'), {INT64_MAX, -1, 1}, UINT64_MAX, "1234"),
      Piece("", {}, 0, ""),
  };
  proto::PullResponse message;
  AddTensors(pieces, message.mutable_tensors());
  EXPECT_GE(EncodedBytes(pieces), static_cast<int64_t>(message.ByteSizeLong()));
}

}  // namespace
}  // namespace holdfast
