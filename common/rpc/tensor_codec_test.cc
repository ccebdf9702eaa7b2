// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tensor_codec.h"

#include <google/protobuf/message.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/rpc/tensor_codec_check.h"
#include "gtest/gtest.h"
#include "proto/shard.pb.h"

namespace holdfast {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

using Random = std::mt19937_64;

uint64_t Below(uint64_t end, Random* random) { return (*random)() % end; }

std::string RandomBytes(size_t size, Random* random) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

// Random numbers of every length that a varint can have.
uint64_t RandomNumber(Random* random) {
  return (*random)() >> Below(64, random);
}

std::string RandomName(Random* random) {
  static constexpr size_t kSizes[] = {0, 1, 5, 20, 127, 128, 300};
  std::string name(kSizes[Below(std::size(kSizes), random)], 'x');
  for (char& letter : name) {
    letter = static_cast<char>('a' + Below(26, random));
  }
  return name;
}

void SetOrAdd(const FieldDescriptor* field, Message* message, Random* random);

// Sets some fields of `message`, but not its tensors.
void Fill(Message* message, Random* random) {
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    if (field->name() == "tensors") continue;
    const uint64_t times = Below(field->is_repeated() ? 4 : 2, random);
    for (uint64_t n = 0; n < times; ++n) SetOrAdd(field, message, random);
  }
}

void SetOrAdd(const FieldDescriptor* field, Message* message, Random* random) {
  const Reflection* const reflection = message->GetReflection();
  const bool adds = field->is_repeated();
  const auto set = [&](auto set, auto add, auto value) {
    (reflection->*(adds ? add : set))(message, field, value);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&Reflection::SetUInt64, &Reflection::AddUInt64,
                 RandomNumber(random));
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&Reflection::SetUInt32, &Reflection::AddUInt32,
                 static_cast<uint32_t>(RandomNumber(random)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(&Reflection::SetBool, &Reflection::AddBool,
                 Below(2, random) == 1);
    case FieldDescriptor::CPPTYPE_ENUM:
      // Including numbers without a name.
      return set(&Reflection::SetEnumValue, &Reflection::AddEnumValue,
                 static_cast<int>(Below(12, random)));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&Reflection::SetFloat, &Reflection::AddFloat,
                 static_cast<float>(RandomNumber(random)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(&Reflection::SetDouble, &Reflection::AddDouble,
                 static_cast<double>(RandomNumber(random)));
    case FieldDescriptor::CPPTYPE_STRING:
      return set(&Reflection::SetString, &Reflection::AddString,
                 RandomName(random));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Fill(adds ? reflection->AddMessage(message, field)
                       : reflection->MutableMessage(message, field),
                  random);
    default:
      FAIL() << "no values for " << field->full_name();
  }
}

// `bytes` in spans of random lengths.
Buffer InSpans(const std::string& bytes, Random* random) {
  Buffer whole = Buffer::FromString(bytes);
  Buffer cut;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t left = bytes.size() - begin;
    size_t size = Below(2, random) == 0 ? left : 1 + Below(left, random);
    cut.Append(whole.Sub(begin, size));
    begin += size;
  }
  return cut;
}

proto::SharedBytes RandomPlace(Random* random) {
  proto::SharedBytes place;
  place.set_file(static_cast<uint32_t>(RandomNumber(random)));
  place.set_offset(RandomNumber(random));
  place.set_size(RandomNumber(random));
  if (Below(2, random) == 0) return place;
  place.mutable_loan()->set_link(RandomNumber(random));
  place.mutable_loan()->set_slot(static_cast<uint32_t>(RandomNumber(random)));
  place.mutable_loan()->set_serial(RandomNumber(random));
  return place;
}

// `most_bytes` is the approximate maximum size of the elements.
TensorPiece RandomPiece(size_t most_bytes, Random* random) {
  TensorPiece piece;
  piece.variable = RandomName(random);
  for (uint64_t i = Below(4, random); i > 0; --i) {
    piece.shape.push_back(static_cast<int64_t>(RandomNumber(random)));
  }
  // Including numbers without a name.
  piece.dtype = static_cast<proto::DataType>(Below(4, random));
  piece.begin = Below(2, random) * RandomNumber(random);
  piece.encoding = static_cast<proto::Encoding>(Below(7, random));
  piece.size = Below(2, random) * RandomNumber(random);
  // Lengths around those that need one more byte, and just below and above the
  // limit for copying.
  static constexpr size_t kSizes[] = {0,    1,    4,     120,   127,  128,
                                      1000, 1020, 1023,  1024,  1025, 1028,
                                      4096, 9999, 16383, 16384, 70000};
  const size_t count =
      std::upper_bound(std::begin(kSizes), std::end(kSizes), most_bytes) -
      std::begin(kSizes);
  if (Below(3, random) == 0) {
    proto::RowIds& rows = piece.rows.emplace();
    rows.set_num_rows(Below(2, random) * RandomNumber(random));
    rows.set_ids(RandomBytes(Below(300, random), random));
  }
  if (Below(5, random) == 0) {
    piece.shared = RandomPlace(random);
    return piece;
  }
  piece.data =
      InSpans(RandomBytes(kSizes[Below(count, random)], random), random);
  return piece;
}

std::vector<TensorPiece> RandomPieces(size_t most, size_t most_bytes,
                                      Random* random) {
  std::vector<TensorPiece> pieces;
  for (uint64_t i = Below(most + 1, random); i > 0; --i) {
    pieces.push_back(RandomPiece(most_bytes, random));
  }
  return pieces;
}

// Bytes as gRPC may deliver them: slices of all kinds, cut before each of
// `cuts` (ascending), where there may also be an empty slice.
grpc::ByteBuffer InSlices(absl::string_view bytes,
                          absl::Span<const size_t> cuts) {
  std::vector<grpc::Slice> slices;
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : bytes.size();
    const absl::string_view slice = bytes.substr(begin, end - begin);
    if (i % 2 == 0) {
      // Copied; a short one is held in the slice itself.
      slices.emplace_back(slice.data(), slice.size());
      slices.emplace_back();
    } else {
      slices.emplace_back(slice.data(), slice.size(),
                          grpc::Slice::STATIC_SLICE);
    }
    begin = end;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer InSlices(absl::string_view bytes, Random* random) {
  std::vector<size_t> cuts;
  for (uint64_t i = Below(6, random); i > 0; --i) {
    cuts.push_back(Below(bytes.size() + 1, random));
  }
  std::sort(cuts.begin(), cuts.end());
  return InSlices(bytes, cuts);
}

grpc::ByteBuffer InOneSlice(absl::string_view bytes) {
  return InSlices(bytes, absl::Span<const size_t>());
}

// Hand-made encodings of Protocol Buffers.
std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes.push_back(static_cast<char>(value | 0x80));
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string Tag(int field, int wire_type) {
  return Varint(field << 3 | wire_type);
}
std::string Bytes(int field, absl::string_view content) {
  return absl::StrCat(Tag(field, 2), Varint(content.size()), content);
}
std::string Groups(int field, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) absl::StrAppend(&bytes, Tag(field, 3));
  for (int i = 0; i < count; ++i) absl::StrAppend(&bytes, Tag(field, 4));
  return bytes;
}

// A PushRequest with every kind of field, in one or two bytes each.
proto::PushRequest SmallPush() {
  proto::PushRequest push;
  push.mutable_sender()->mutable_task()->set_job("worker");
  push.mutable_sender()->set_generation(300);
  push.set_sequence(70000);
  push.set_num_parts(1);
  return push;
}
TensorPiece SmallPiece() {
  TensorPiece piece;
  piece.variable = "w";
  piece.shape = {2, 150};
  piece.begin = 200;
  piece.data = Buffer::FromString("12345678");
  return piece;
}
std::string SmallPushBytes() {
  TensorPiece scalar;
  scalar.variable = "b";
  scalar.encoding = proto::BFLOAT16;
  scalar.data = Buffer::FromString("ab");
  return EncodeByGeneratedCode(SmallPush(), {SmallPiece(), scalar});
}

// ---- All messages with tensors ----------------------------------------------

template <typename T>
class TensorMessageTest : public ::testing::Test {};

using TensorMessages =
    ::testing::Types<proto::PushRequest, proto::PullResponse,
                     proto::PushPullRequest, proto::PushPullResponse>;
TYPED_TEST_SUITE(TensorMessageTest, TensorMessages);

TYPED_TEST(TensorMessageTest, TensorsAreTheLastField) {
  const auto* const descriptor = TypeParam::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    EXPECT_LE(descriptor->field(i)->number(), TypeParam::kTensorsFieldNumber);
  }
}

TYPED_TEST(TensorMessageTest, AnEmptyMessageIsNoBytes) {
  const grpc::ByteBuffer bytes = EncodeWithTensors(TypeParam(), {});
  EXPECT_TRUE(bytes.Valid());
  EXPECT_EQ(bytes.Length(), 0);
  EXPECT_EQ(DecodedOtherwise<TypeParam>(bytes), std::nullopt);
}

TYPED_TEST(TensorMessageTest, BytesAreThoseOfTheGeneratedCode) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    TypeParam message;
    Fill(&message, &random);
    const std::vector<TensorPiece> pieces = RandomPieces(5, 70000, &random);
    const grpc::ByteBuffer bytes = EncodeWithTensors(message, pieces);
    const std::string flat = Flat(bytes);
    // Not EXPECT_EQ, which would print both.
    ASSERT_TRUE(flat == EncodeByGeneratedCode(message, pieces));
    ASSERT_EQ(DecodedOtherwise<TypeParam>(bytes), std::nullopt);
    ASSERT_EQ(DecodedOtherwise<TypeParam>(InSlices(flat, &random)),
              std::nullopt);
  }
}

// For bytes that begin as a message but are malformed later.
TYPED_TEST(TensorMessageTest, MutatedBytesAreReadAsTheGeneratedParserDoes) {
  constexpr uint64_t kSeeds = 1000;
  constexpr int kMutations = 50;
  int taken = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    TypeParam message;
    Fill(&message, &random);
    const std::string origin =
        EncodeByGeneratedCode(message, RandomPieces(2, 128, &random));
    for (int i = 0; i < kMutations; ++i) {
      std::string bytes = origin;
      for (uint64_t times = 1 + Below(3, &random); times > 0; --times) {
        const size_t at = Below(bytes.size() + 1, &random);
        const size_t size =
            Below(std::min<size_t>(bytes.size() - at, 20) + 1, &random);
        switch (Below(5, &random)) {
          case 0:
            bytes.erase(at, size);
            break;
          case 1:
            bytes.insert(at,
                         bytes.substr(Below(bytes.size() + 1, &random), 20));
            break;
          case 2:
            bytes.insert(at, 1, static_cast<char>(random()));
            break;
          case 3:
            if (size > 0) bytes[at] = static_cast<char>(random());
            break;
          case 4:
            if (size > 0)
              bytes[at] ^= static_cast<char>(1 << Below(8, &random));
            break;
        }
      }
      ASSERT_EQ(DecodedOtherwise<TypeParam>(InSlices(bytes, &random)),
                std::nullopt)
          << "mutation " << i;
      TypeParam parsed;
      if (parsed.ParseFromString(bytes)) ++taken;
    }
  }
  // Enough of both.
  EXPECT_GT(taken, kSeeds * kMutations / 20);
  EXPECT_LT(taken, kSeeds * kMutations * 19 / 20);
}

// The bytes before the bars of docs/formats/wire.md, at the beginnings of
// lines.
std::string DocumentedBytes() {
  std::ifstream file("docs/formats/wire.md");
  std::string bytes;
  for (std::string line; std::getline(file, line);) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(" | ", 1));
    const std::string hex = absl::StrReplaceAll(parts.first, {{" ", ""}});
    if (hex.empty() || parts.second.empty() ||
        hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
      continue;
    }
    bytes += absl::HexStringToBytes(hex);
  }
  return bytes;
}

TEST(WireFormatTest, TheMessageOfTheDocumentIsAsItSays) {
  proto::PushRequest push;
  push.mutable_sender()->mutable_task()->set_job("worker");
  push.mutable_sender()->mutable_task()->set_index(1);
  push.mutable_sender()->set_incarnation(5);
  push.mutable_sender()->set_generation(2);
  push.set_sequence(7);
  push.set_step(3);
  push.set_num_parts(1);
  push.set_acked_through(6);
  const float elements[] = {1, -2};
  TensorPiece piece;
  piece.variable = "b";
  piece.shape = {2};
  piece.data = Buffer::FromString(
      std::string(reinterpret_cast<const char*>(elements), sizeof(elements)));
  EXPECT_EQ(absl::BytesToHexString(Flat(EncodeWithTensors(push, {piece}))),
            absl::BytesToHexString(DocumentedBytes()));
}

// ---- Decoding ---------------------------------------------------------------

TEST(DecodeTensorsTest, WhateverTheSlices) {
  const std::string bytes = SmallPushBytes();
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      ASSERT_EQ(DecodedOtherwise<proto::PushRequest>(
                    InSlices(bytes, {first, second})),
                std::nullopt)
          << "cut at " << first << " and " << second;
    }
  }
  std::vector<size_t> everywhere(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) everywhere[i] = i;
  proto::PushRequest push;
  std::vector<TensorPiece> pieces;
  ASSERT_TRUE(DecodeWithTensors(InSlices(bytes, everywhere), &push, &pieces));
  EXPECT_EQ(push.SerializeAsString(), SmallPush().SerializeAsString());
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].shape, SmallPiece().shape);
  EXPECT_EQ(Flat(pieces[0].data), "12345678");
  EXPECT_EQ(pieces[1].encoding, proto::BFLOAT16);
}

TEST(DecodeTensorsTest, TruncatedAtEachByte) {
  const std::string bytes = SmallPushBytes();
  int refused = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::string_view left = absl::string_view(bytes).substr(0, size);
    ASSERT_EQ(DecodedOtherwise<proto::PushRequest>(InOneSlice(left)),
              std::nullopt)
        << size << " bytes";
    proto::PushRequest push;
    std::vector<TensorPiece> pieces;
    if (!DecodeWithTensors(InOneSlice(left), &push, &pieces)) ++refused;
  }
  // All prefixes but those that end between two fields, that is before each of
  // the six.
  EXPECT_EQ(refused, bytes.size() - 5);
}

TEST(DecodeTensorsTest, FieldsInAnyOrder) {
  std::vector<std::string> part = {
      Bytes(1, "w"),
      Tag(2, 0) + Varint(2),  // a shape that is not packed
      Bytes(2, Varint(3) + Varint(150)),
      Tag(3, 0) + Varint(1),
      Tag(4, 0) + Varint(200),
      Bytes(7, "1234"),
      Bytes(7, std::string(2000, 'x')),  // twice: the last counts
      Bytes(1, "v"),
      Bytes(19, "unknown"),
      Tag(20, 5) + "1234",
      Tag(21, 1) + "12345678",
      Tag(7, 0) + Varint(5),  // the number of the data, another type
      Groups(7, 2),
  };
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    std::vector<std::string> fields = {
        Bytes(1, Bytes(1, Bytes(1, "worker"))),
        Bytes(1, Tag(2, 0) + Varint(5)),  // both parts of the sender count
        Tag(2, 0) + Varint(9),
        Tag(2, 0) + Varint(70000),
        Tag(7, 0) + Varint(3),  // the number of the tensors, another type
        Bytes(1000, "unknown"),
        Tag(1001, 3) + Bytes(7, "1") + Tag(1001, 4),
        Bytes(7, ""),
    };
    for (int i = 0; i < 3; ++i) {
      std::shuffle(part.begin(), part.end(), random);
      std::string content;
      for (uint64_t n = Below(part.size() + 1, &random); n > 0; --n) {
        content += part[n - 1];
      }
      fields.push_back(Bytes(7, content));
    }
    std::shuffle(fields.begin(), fields.end(), random);
    std::string bytes;
    for (const std::string& field : fields) bytes += field;
    ASSERT_EQ(DecodedOtherwise<proto::PushRequest>(InSlices(bytes, &random)),
              std::nullopt)
        << "seed " << seed;
    proto::PushRequest push;
    std::vector<TensorPiece> pieces;
    ASSERT_TRUE(DecodeWithTensors(InSlices(bytes, &random), &push, &pieces));
    EXPECT_EQ(pieces.size(), 4u);
  }
}

// Each at the limit of what the generated parser accepts.
TEST(DecodeTensorsTest, UnusualBytesAreReadAsTheGeneratedParserDoes) {
  const std::string part = Bytes(1, "w");
  const std::string long_zero(9, '\x80');
  const std::vector<std::string> cases = {
      // Nested groups.
      Groups(9, 100),
      Groups(9, 101),
      Bytes(7, Groups(9, 99)),
      Bytes(7, Groups(9, 100)),
      Bytes(1, Groups(9, 99)),
      Bytes(1, Groups(9, 100)),
      // Groups without a begin, without an end, with another group's end, and
      // beyond an end.
      Tag(9, 4),
      Tag(9, 3),
      Tag(9, 3) + Tag(10, 4),
      Tag(9, 3) + Tag(10, 3) + Tag(9, 4) + Tag(10, 4),
      Bytes(7, Tag(9, 4)),
      Bytes(7, Tag(9, 3)) + Tag(9, 4),
      Tag(9, 3) + std::string(1, '\0') + Tag(9, 4),
      Tag(9, 3) + Tag(0, 4) + Tag(9, 4),
      // Field 0, and undefined wire types.
      std::string(1, '\0'),
      Tag(0, 2) + Varint(0),
      Tag(0, 3) + Tag(0, 4),
      Tag(9, 6),
      Tag(9, 7),
      Bytes(7, std::string(1, '\0')),
      Bytes(7, Tag(9, 6)),
      // Tags in more bytes than they need, and with excess bits that are
      // dropped.
      std::string("\xba\x00", 2) + Varint(part.size()) + part,
      std::string("\xba\x80\x80\x80\x00", 5) + Varint(part.size()) + part,
      std::string("\xba\x80\x80\x80\x70", 5) + Varint(part.size()) + part,
      std::string("\xba\x80\x80\x80\x80\x00", 6) + Varint(part.size()) + part,
      std::string("\xff\xff\xff\xff\x0f", 5) + Varint(0),
      Bytes(7, std::string("\xba\x80\x80\x80\x70\x01", 6) + "x"),
      // Lengths: long, beyond the end, beyond 31 and 32 bits.
      Tag(7, 2) + std::string("\x83\x80\x80\x80\x00", 5) + part,
      Tag(7, 2) + std::string("\x83\x80\x80\x80\x10", 5) + part,
      Tag(7, 2) + std::string("\x83\x80\x80\x80\x80\x00", 6) + part,
      Tag(7, 2) + Varint(4) + part,
      Tag(7, 2) + Varint(INT32_MAX) + part,
      Tag(7, 2) + Varint(UINT32_MAX) + part,
      Tag(7, 2) + Varint(uint64_t{UINT32_MAX} + 1 + part.size()) + part,
      Tag(9, 2) + Varint(INT32_MAX) + part,
      Tag(9, 2) + Varint(uint64_t{UINT32_MAX} + 1 + part.size()) + part,
      Tag(1, 2) + Varint(uint64_t{UINT32_MAX} + 1) + part,
      // A field that extends beyond the end of its tensor.
      Bytes(7, Tag(7, 2) + Varint(3) + "12") + "3456789",
      Bytes(7, Tag(1, 2) + Varint(3) + "12") + "3456789",
      Bytes(7, Tag(9, 2) + Varint(3) + "12") + "3456789",
      Bytes(7, Tag(9, 1) + "1234") + "5678",
      Bytes(7, Tag(9, 5) + "12") + "34",
      Bytes(7, Tag(4, 0) + "\x80") + "\x01",
      Bytes(7, Tag(7, 2)) + std::string(1, '\0'),
      Bytes(7, "\x80") + "\x01",
      // Varints of ten and eleven bytes.
      Tag(9, 0) + long_zero + std::string(1, '\x7f'),
      Tag(9, 0) + long_zero + std::string("\x80\x00", 2),
      Tag(2, 0) + long_zero + std::string(1, '\x7f'),
      Tag(2, 0) + long_zero + std::string("\x80\x00", 2),
      Bytes(7, Tag(4, 0) + long_zero + std::string(1, '\x7f')),
      Bytes(7, Tag(4, 0) + long_zero + std::string("\x80\x00", 2)),
      // Numbers without a name, also negative ones.
      Bytes(7, Tag(3, 0) + Varint(77)),
      Bytes(7, Tag(5, 0) + Varint(UINT64_MAX)),
      // Not UTF-8: names must be, data not.
      Bytes(7, Bytes(1, "\xff")),
      Bytes(7, Bytes(7, "\xff")),
      Bytes(1, Bytes(1, Bytes(1, "\xff"))),
      // A packed shape whose last number is truncated.
      Bytes(7, Bytes(2, "\x80")),
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(DecodedOtherwise<proto::PushRequest>(InOneSlice(cases[i])),
              std::nullopt)
        << "case " << i;
    for (size_t cut = 0; cut <= cases[i].size(); ++cut) {
      ASSERT_EQ(DecodedOtherwise<proto::PushRequest>(InSlices(cases[i], {cut})),
                std::nullopt)
          << "case " << i << ", cut at " << cut;
    }
  }
}

TEST(DecodeTensorsTest, BytesStayWhereTheyCameInAsLongAsAPieceNeedsThem) {
  static int freed;
  freed = 0;
  std::string bytes =
      Bytes(7, Bytes(1, "w") + Bytes(7, std::string(3000, 'x')));
  const size_t data = bytes.size() - 3000;
  std::vector<TensorPiece> pieces;
  {
    const auto slice = [&](size_t begin, size_t end) {
      return grpc::Slice(
          &bytes[begin], end - begin, [](void*) { ++freed; }, nullptr);
    };
    const grpc::Slice slices[] = {slice(0, data + 1000),
                                  slice(data + 1000, bytes.size())};
    const grpc::ByteBuffer buffer(slices, 2);
    proto::PushRequest push;
    ASSERT_TRUE(DecodeWithTensors(buffer, &push, &pieces));
  }
  EXPECT_EQ(freed, 0);
  ASSERT_EQ(pieces.size(), 1u);
  const auto spans = pieces[0].data.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].data, &bytes[data]);
  EXPECT_EQ(spans[0].size, 1000);
  EXPECT_EQ(spans[1].data, &bytes[data + 1000]);
  EXPECT_EQ(spans[1].size, 2000);
  // One span keeps all slices alive.
  Buffer tail = pieces[0].data.Sub(2999, 1);
  pieces.clear();
  EXPECT_EQ(freed, 0);
  tail = Buffer();
  EXPECT_EQ(freed, 2);
}

TEST(DecodeTensorsTest, NoBufferIsAnEmptyMessage) {
  proto::PushRequest push = SmallPush();
  std::vector<TensorPiece> pieces = {SmallPiece()};
  EXPECT_TRUE(DecodeWithTensors(grpc::ByteBuffer(), &push, &pieces));
  EXPECT_EQ(push.ByteSizeLong(), 0);
  EXPECT_TRUE(pieces.empty());
}

// ---- Encoding ---------------------------------------------------------------

TEST(EncodeTensorsTest, ElementsAreSentFromWhereTheyLie) {
  const auto memory = std::make_shared<std::string>(1 << 20, 'x');
  TensorPiece piece = SmallPiece();
  piece.data = Buffer::FromMemory(memory->data(), 1000000, memory);
  piece.data.Append(Buffer::FromMemory(memory->data() + 7, 1, memory));
  std::optional<grpc::ByteBuffer> bytes =
      EncodeWithTensors(SmallPush(), {piece});
  piece.data = Buffer();
  {
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(bytes->Dump(&slices).ok());
    ASSERT_EQ(slices.size(), 3u);
    EXPECT_LT(slices[0].size(), 100);
    const auto* const data = reinterpret_cast<const uint8_t*>(memory->data());
    EXPECT_EQ(slices[1].begin(), data);
    EXPECT_EQ(slices[1].size(), 1000000);
    EXPECT_EQ(slices[2].begin(), data + 7);
    EXPECT_EQ(slices[2].size(), 1);
  }
  EXPECT_GT(memory.use_count(), 1);
  // As gRPC keeps them alive while it sends.
  std::optional<grpc::ByteBuffer> sending = *bytes;
  bytes.reset();
  EXPECT_GT(memory.use_count(), 1);
  sending.reset();
  EXPECT_EQ(memory.use_count(), 1);
}

TEST(EncodeTensorsTest, FewElementsAreCopied) {
  const auto memory = std::make_shared<std::string>(1 << 20, 'x');
  TensorPiece piece = SmallPiece();
  piece.data = Buffer::FromMemory(memory->data(), 1000, memory);
  const grpc::ByteBuffer bytes =
      EncodeWithTensors(SmallPush(), {piece, piece, piece});
  piece.data = Buffer();
  EXPECT_EQ(memory.use_count(), 1);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(bytes.Dump(&slices).ok());
  EXPECT_EQ(slices.size(), 1u);
}

TEST(EncodeTensorsTest, OfWhatIsSharedThePlaceIsSent) {
  const auto memory = std::make_shared<std::string>(1 << 20, 'x');
  TensorPiece piece = SmallPiece();
  piece.data = Buffer::FromMemory(memory->data(), memory->size(), memory);
  piece.shared.emplace().set_offset(5);
  const grpc::ByteBuffer bytes = EncodeWithTensors(SmallPush(), {piece});
  EXPECT_LT(bytes.Length(), 100);
  EXPECT_LE(bytes.Length(), SmallPush().ByteSizeLong() + EncodedBytes({piece}));
  proto::PushRequest push;
  std::vector<TensorPiece> pieces;
  ASSERT_TRUE(DecodeWithTensors(bytes, &push, &pieces));
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].data.size(), 0);
  ASSERT_TRUE(pieces[0].shared.has_value());
  EXPECT_EQ(pieces[0].shared->offset(), 5);
}

TEST(EncodeTensorsTest, EncodedBytesIsAnUpperBound) {
  TensorPiece widest;
  widest.variable = std::string(300, 'v');
  widest.shape = {INT64_MAX, -1, 1};
  widest.dtype = static_cast<proto::DataType>(-1);
  widest.begin = UINT64_MAX;
  widest.encoding = static_cast<proto::Encoding>(-1);
  widest.size = UINT64_MAX;
  widest.data = Buffer::FromString("1234");
  for (const auto& pieces : {std::vector<TensorPiece>{},
                             {widest},
                             {widest, TensorPiece(), widest}}) {
    EXPECT_GE(EncodedBytes(pieces),
              EncodeByGeneratedCode(proto::PullResponse(), pieces).size());
  }
}

}  // namespace
}  // namespace holdfast
