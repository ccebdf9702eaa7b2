// SPDX-License-Identifier: Apache-2.0
#include "common/data/tf_example.h"

#include <google/protobuf/io/coded_stream.h>

#include <climits>
#include <cstring>

#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

using ::google::protobuf::io::CodedInputStream;

// The tag of a bytes field: its number, and that a length follows.
constexpr char Tag(int field) { return static_cast<char>(field << 3 | 2); }

// Takes a field with this tag from the front of `text`. False, with `text`
// unchanged, if another field is there.
bool Take(char tag, absl::string_view* text, absl::string_view* value) {
  if (text->empty() || text->front() != tag) return false;
  size_t length = 0;
  size_t at = 1;
  // Five bytes encode lengths below 2^35; longer encodings are not accepted.
  for (int shift = 0; shift < 35; shift += 7) {
    if (at == text->size()) return false;
    const uint8_t byte = (*text)[at++];
    length |= size_t{byte & 0x7fu} << shift;
    if (byte < 0x80) {
      if (length > text->size() - at) return false;
      *value = text->substr(at, length);
      text->remove_prefix(at + length);
      return true;
    }
  }
  return false;
}

// Takes a field that must be all of `text`.
bool TakeAll(char tag, absl::string_view text, absl::string_view* value) {
  return Take(tag, &text, value) && text.empty();
}

bool ParseValues(absl::string_view text, TfFeature* feature) {
  absl::string_view list;
  if (text.empty()) return true;
  if (TakeAll(Tag(1), text, &list)) {
    feature->kind = TfFeature::kBytes;
    feature->values = list;
    absl::string_view value;
    while (!list.empty()) {
      if (!Take(Tag(1), &list, &value)) return false;
    }
    return true;
  }
  if (TakeAll(Tag(2), text, &list)) {
    feature->kind = TfFeature::kFloats;
  } else if (TakeAll(Tag(3), text, &list)) {
    feature->kind = TfFeature::kIntegers;
  } else {
    return false;
  }
  if (list.empty()) return true;
  return TakeAll(Tag(1), list, &feature->values) &&
         (feature->kind == TfFeature::kIntegers ||
          feature->values.size() % sizeof(float) == 0);
}

}  // namespace

void TfFeature::ReadFloats(float* to) const {
  if (empty()) return;
  std::memcpy(to, values.data(), num_floats() * sizeof(float));
}

bool TfFeature::ForEachInteger(absl::FunctionRef<void(int64_t)> take) const {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(values.data()),
                      static_cast<int>(values.size()));
  while (in.CurrentPosition() < static_cast<int>(values.size())) {
    uint64_t value = 0;
    if (!in.ReadVarint64(&value)) return false;
    take(static_cast<int64_t>(value));
  }
  return true;
}

void TfFeature::ForEachBytes(
    absl::FunctionRef<void(absl::string_view)> take) const {
  absl::string_view left = values;
  absl::string_view value;
  while (Take(Tag(1), &left, &value)) take(value);
}

bool TfExample::Parse(absl::string_view record) {
  if (record.size() > INT_MAX) return false;
  if (ParsePlain(record)) return true;
  proto::tensorflow::Example example;
  if (!example.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
    return false;
  }
  example.DiscardUnknownFields();
  plain_.clear();
  return example.SerializeToString(&plain_) && ParsePlain(plain_);
}

bool TfExample::ParsePlain(absl::string_view record) {
  features_.clear();
  absl::string_view features;
  if (record.empty()) return true;
  if (!TakeAll(Tag(1), record, &features)) return false;
  absl::string_view entry, values;
  while (!features.empty()) {
    if (!Take(Tag(1), &features, &entry)) return false;
    TfFeature& feature = features_.emplace_back();
    Take(Tag(1), &entry, &feature.name);
    values = {};
    Take(Tag(2), &entry, &values);
    if (!entry.empty() || !ParseValues(values, &feature)) return false;
  }
  return true;
}

}  // namespace holdfast
