// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tensor_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace holdfast {
namespace {

using google::protobuf::io::CodedOutputStream;

// The wire types of Protocol Buffers.
enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroupBegin = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

constexpr uint32_t Tag(int field, WireType type) {
  return static_cast<uint32_t>(field) << 3 | type;
}

constexpr uint32_t kDataTag = Tag(proto::TensorPart::kDataFieldNumber, kBytes);
constexpr uint32_t kRowsTag = Tag(proto::TensorPart::kRowsFieldNumber, kBytes);
static_assert(kDataTag < 128 && kRowsTag < 128, "written as one byte");

// Up to this size, elements are copied next to the bytes around them: a slice
// of their own would cost more.
constexpr size_t kCopiedBytes = 1024;

// How many levels of nested messages and groups the generated code parses.
constexpr int kMaxDepth = 100;

void AppendVarint(uint32_t value, std::string* out) {
  uint8_t bytes[5];
  const uint8_t* const end =
      CodedOutputStream::WriteVarint32ToArray(value, bytes);
  out->append(reinterpret_cast<const char*>(bytes), end - bytes);
}

// A slice that refers to the bytes of `span`, and keeps their owner alive.
grpc::Slice Refer(const Buffer::Span& span) {
  auto* const owner = new std::shared_ptr<const void>(span.owner);
  return grpc::Slice(
      const_cast<char*>(span.data), span.size,
      [](void* owner) {
        delete static_cast<std::shared_ptr<const void>*>(owner);
      },
      owner);
}

// Collects slices; small pieces are gathered into one.
class SliceWriter {
 public:
  std::string* gathered() { return &gathered_; }

  void Append(const Buffer& data) {
    if (data.size() <= kCopiedBytes) {
      for (const Buffer::Span& span : data.spans()) {
        gathered_.append(span.data, span.size);
      }
      return;
    }
    Flush();
    for (const Buffer::Span& span : data.spans()) {
      slices_.push_back(Refer(span));
    }
  }

  grpc::ByteBuffer Take() {
    Flush();
    return grpc::ByteBuffer(slices_.data(), slices_.size());
  }

 private:
  void Flush() {
    if (gathered_.empty()) return;
    slices_.emplace_back(gathered_);
    gathered_.clear();
  }

  std::string gathered_;
  std::vector<grpc::Slice> slices_;
};

// A TensorPart with all fields of `piece` but the data.
proto::TensorPart HeaderOf(const TensorPiece& piece) {
  proto::TensorPart header;
  header.set_variable(piece.variable);
  header.mutable_shape()->Add(piece.shape.begin(), piece.shape.end());
  header.set_dtype(piece.dtype);
  header.set_begin(piece.begin);
  header.set_encoding(piece.encoding);
  header.set_size(piece.size);
  if (piece.shared.has_value()) *header.mutable_shared() = *piece.shared;
  return header;
}

TensorPiece PieceOf(proto::TensorPart header, Buffer data) {
  TensorPiece piece;
  piece.variable = std::move(*header.mutable_variable());
  piece.shape.assign(header.shape().begin(), header.shape().end());
  piece.dtype = header.dtype();
  piece.begin = header.begin();
  piece.encoding = header.encoding();
  piece.size = header.size();
  piece.data = std::move(data);
  if (header.has_shared()) {
    piece.shared = std::move(*header.mutable_shared());
    piece.shared->DiscardUnknownFields();
  }
  if (header.has_rows()) {
    piece.rows = std::move(*header.mutable_rows());
    piece.rows->DiscardUnknownFields();
  }
  return piece;
}

// Reads slices from front to back. Each method returns whether it could read
// its value; after a false the reader is in an undefined state. Numbers are
// read as the generated code reads them: a tag or a length may not have more
// bytes than a number of its size can need.
class SliceReader {
 public:
  explicit SliceReader(std::shared_ptr<const std::vector<grpc::Slice>> slices)
      : slices_(std::move(slices)) {
    for (const grpc::Slice& slice : *slices_) left_ += slice.size();
  }

  size_t left() const { return left_; }

  // The bytes read are also appended to `copy`, unless that is null.
  bool ReadTag(std::string* copy, uint32_t* tag) {
    uint64_t value;
    if (!ReadVarint(5, copy, &value)) return false;
    *tag = static_cast<uint32_t>(value);
    return *tag >> 3 != 0;
  }
  bool ReadLength(std::string* copy, uint32_t* length) {
    uint64_t value;
    if (!ReadVarint(5, copy, &value)) return false;
    *length = static_cast<uint32_t>(value);
    return value <= left_;
  }
  bool ReadVarint(size_t max_bytes, std::string* copy, uint64_t* value) {
    *value = 0;
    for (size_t i = 0; i < max_bytes; ++i) {
      if (left_ == 0) return false;
      const uint8_t byte = *Front();
      Advance(1);
      if (copy != nullptr) copy->push_back(static_cast<char>(byte));
      *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }

  // Appends the next `count` bytes.
  bool Copy(size_t count, std::string* copy) {
    if (count > left_) return false;
    while (count > 0) {
      const size_t taken = std::min(count, InSlice());
      copy->append(reinterpret_cast<const char*>(Front()), taken);
      Advance(taken);
      count -= taken;
    }
    return true;
  }

  // References the next `count` bytes, which must exist.
  Buffer Refer(size_t count) {
    Buffer data;
    while (count > 0) {
      const size_t taken = std::min(count, InSlice());
      data.Append({reinterpret_cast<const char*>(Front()), taken, slices_});
      Advance(taken);
      count -= taken;
    }
    return data;
  }

 private:
  // The address of the next byte, which must exist. Skips empty slices.
  const uint8_t* Front() {
    while (offset_ == (*slices_)[slice_].size()) {
      ++slice_;
      offset_ = 0;
    }
    return (*slices_)[slice_].begin() + offset_;
  }
  size_t InSlice() {
    Front();
    return (*slices_)[slice_].size() - offset_;
  }
  void Advance(size_t count) {
    offset_ += count;
    left_ -= count;
  }

  const std::shared_ptr<const std::vector<grpc::Slice>> slices_;
  size_t slice_ = 0;
  size_t offset_ = 0;  // in the slice
  size_t left_ = 0;
};

// Copies the rest of the field that begins with `tag`, of any wire type.
// `depth`: how many levels of groups may be nested.
bool CopyField(uint32_t tag, int depth, SliceReader* reader,
               std::string* copy) {
  uint64_t value;
  uint32_t length;
  switch (tag & 7) {
    case kVarint:
      return reader->ReadVarint(10, copy, &value);
    case kFixed64:
      return reader->Copy(8, copy);
    case kFixed32:
      return reader->Copy(4, copy);
    case kBytes:
      return reader->ReadLength(copy, &length) && reader->Copy(length, copy);
    case kGroupBegin:
      if (depth == 0) return false;
      for (;;) {
        uint32_t inner;
        if (!reader->ReadTag(copy, &inner)) return false;
        if ((inner & 7) == kGroupEnd) return inner >> 3 == tag >> 3;
        if (!CopyField(inner, depth - 1, reader, copy)) return false;
      }
    default:
      return false;
  }
}

// Reads a TensorPart of `length` bytes.
std::optional<TensorPiece> ReadPart(size_t length, SliceReader* reader) {
  const size_t end = reader->left() - length;
  std::string header_bytes;
  Buffer data;
  while (reader->left() > end) {
    const size_t mark = header_bytes.size();
    uint32_t tag;
    if (!reader->ReadTag(&header_bytes, &tag)) return std::nullopt;
    if (tag == kDataTag) {
      header_bytes.resize(mark);
      uint32_t size;
      if (!reader->ReadLength(nullptr, &size)) return std::nullopt;
      data = reader->Refer(size);
    } else if (!CopyField(tag, kMaxDepth - 1, reader, &header_bytes)) {
      return std::nullopt;
    }
  }
  proto::TensorPart header;
  if (reader->left() != end || !header.ParseFromString(header_bytes)) {
    return std::nullopt;
  }
  return PieceOf(std::move(header), std::move(data));
}

std::shared_ptr<const std::vector<grpc::Slice>> SlicesOf(
    const grpc::ByteBuffer& bytes) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (bytes.Valid() && !bytes.Dump(slices.get()).ok()) return nullptr;
  return slices;
}

}  // namespace

grpc::ByteBuffer EncodeTensors(const google::protobuf::MessageLite& message,
                               int field,
                               absl::Span<const TensorPiece> pieces) {
  SliceWriter writer;
  message.AppendToString(writer.gathered());
  for (const TensorPiece& piece : pieces) {
    const proto::TensorPart header = HeaderOf(piece);
    const auto size =
        static_cast<uint32_t>(piece.shared.has_value() ? 0 : piece.data.size());
    size_t length = header.ByteSizeLong();
    if (size > 0) length += 1 + CodedOutputStream::VarintSize32(size) + size;
    uint32_t rows_size = 0;
    if (piece.rows.has_value()) {
      rows_size = static_cast<uint32_t>(piece.rows->ByteSizeLong());
      length += 1 + CodedOutputStream::VarintSize32(rows_size) + rows_size;
    }
    AppendVarint(Tag(field, kBytes), writer.gathered());
    AppendVarint(static_cast<uint32_t>(length), writer.gathered());
    header.AppendToString(writer.gathered());
    if (size > 0) {
      AppendVarint(kDataTag, writer.gathered());
      AppendVarint(size, writer.gathered());
      writer.Append(piece.data);
    }
    if (piece.rows.has_value()) {
      AppendVarint(kRowsTag, writer.gathered());
      AppendVarint(rows_size, writer.gathered());
      piece.rows->AppendToString(writer.gathered());
    }
  }
  return writer.Take();
}

bool DecodeTensors(const grpc::ByteBuffer& bytes, int field,
                   google::protobuf::MessageLite* message,
                   std::vector<TensorPiece>* pieces) {
  pieces->clear();
  const auto slices = SlicesOf(bytes);
  if (slices == nullptr) return false;
  SliceReader reader(slices);
  std::string rest;
  while (reader.left() > 0) {
    const size_t mark = rest.size();
    uint32_t tag;
    if (!reader.ReadTag(&rest, &tag)) return false;
    if (tag != Tag(field, kBytes)) {
      if (!CopyField(tag, kMaxDepth, &reader, &rest)) return false;
      continue;
    }
    rest.resize(mark);
    uint32_t length;
    if (!reader.ReadLength(nullptr, &length)) return false;
    std::optional<TensorPiece> piece = ReadPart(length, &reader);
    if (!piece.has_value()) return false;
    pieces->push_back(*std::move(piece));
  }
  return message->ParseFromString(rest);
}

int64_t EncodedBytes(absl::Span<const TensorPiece> pieces) {
  // A varint has at most 10 bytes. There are eight besides the contents of
  // variable, shape and data: the lengths of these three and of the part,
  // dtype, begin, encoding and size; and each has a tag of one byte.
  constexpr int64_t kVarintBytes = 10;
  constexpr int64_t kFixed = 8 * (kVarintBytes + 1);
  // SharedBytes: two messages with their lengths, five varints and one fixed64.
  constexpr int64_t kShared = 7 * (kVarintBytes + 1) + 9;
  // RowIds: the length of the message, a varint, and the length of the ids.
  constexpr int64_t kRows = 3 * (kVarintBytes + 1);
  int64_t bytes = 0;
  for (const TensorPiece& piece : pieces) {
    bytes +=
        kFixed + static_cast<int64_t>(piece.variable.size()) +
        kVarintBytes * static_cast<int64_t>(piece.shape.size()) +
        (piece.shared.has_value() ? kShared
                                  : static_cast<int64_t>(piece.data.size()));
    if (piece.rows.has_value()) {
      bytes += kRows + static_cast<int64_t>(piece.rows->ids().size());
    }
  }
  return bytes;
}

}  // namespace holdfast
