// SPDX-License-Identifier: Apache-2.0
#include "common/data/tfrecord_schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/tensor/norm.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

using FeatureKind = proto::TfRecordFeature::KindCase;

std::string Quote(absl::string_view text) {
  constexpr size_t kTold = 60;
  return absl::StrCat("\"", EscapedText(text.substr(0, kTold)),
                      text.size() > kTold ? "..." : "", "\"");
}

absl::Status Error(absl::string_view feature, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("feature ", Quote(feature), ": ", what));
}

absl::string_view KindName(TfFeature::Kind kind) {
  switch (kind) {
    case TfFeature::kNone:
      break;
    case TfFeature::kBytes:
      return "bytes_list";
    case TfFeature::kFloats:
      return "float_list";
    case TfFeature::kIntegers:
      return "int64_list";
  }
  return "feature without a value";
}

absl::Status WrongKind(absl::string_view name, TfFeature::Kind kind,
                       absl::string_view right) {
  return Error(name,
               absl::StrCat("is a ", KindName(kind), ", but must be ", right));
}

absl::Status WrongSize(absl::string_view name, int64_t there,
                       absl::string_view right) {
  return Error(name,
               absl::StrCat("holds ", there, there == 1 ? " value" : " values",
                            ", but must hold ", right));
}

ElementType TypeOf(proto::TfRecordFeature::Raw::Type type) {
  switch (type) {
    case proto::TfRecordFeature::Raw::INT8:
      return ElementType::kInt8;
    case proto::TfRecordFeature::Raw::UINT16:
      return ElementType::kUint16;
    case proto::TfRecordFeature::Raw::INT16:
      return ElementType::kInt16;
    case proto::TfRecordFeature::Raw::UINT32:
      return ElementType::kUint32;
    case proto::TfRecordFeature::Raw::INT32:
      return ElementType::kInt32;
    case proto::TfRecordFeature::Raw::UINT64:
      return ElementType::kUint64;
    case proto::TfRecordFeature::Raw::INT64:
      return ElementType::kInt64;
    case proto::TfRecordFeature::Raw::FLOAT32:
      return ElementType::kFloat32;
    case proto::TfRecordFeature::Raw::FLOAT64:
      return ElementType::kFloat64;
    default:
      return ElementType::kUint8;
  }
}

// The only value of a bytes_list.
// Errors: INVALID_ARGUMENT if it is another kind of list, or does not have
// exactly one value.
absl::StatusOr<absl::string_view> OneOfBytes(absl::string_view name,
                                             const TfFeature& found) {
  if (found.kind != TfFeature::kBytes) {
    return WrongKind(name, found.kind, "a bytes_list");
  }
  absl::string_view value;
  int64_t values = 0;
  found.ForEachBytes([&](absl::string_view each) {
    value = each;
    ++values;
  });
  if (values != 1) return WrongSize(name, values, "one");
  return value;
}

// The integers of `found`, which must be `size` many.
absl::Status Integers(absl::string_view name, const TfFeature& found,
                      int64_t size, absl::FunctionRef<void(int64_t)> take) {
  int64_t values = 0;
  const bool are_integers = found.ForEachInteger([&](int64_t value) {
    if (values++ < size) take(value);
  });
  if (!are_integers) return Error(name, "its int64_list is damaged");
  if (values == size) return absl::OkStatus();
  return WrongSize(name, values, absl::StrCat(size, ", the feature's `size`"));
}

}  // namespace

absl::StatusOr<TfRecordSchema> TfRecordSchema::Create(
    const proto::TfRecord& config, const Dataset::Options& options) {
  TfRecordSchema schema;
  ExampleSpec& spec = schema.spec_;
  spec.shape.assign(config.shape().begin(), config.shape().end());
  int64_t inputs = 0;
  for (const proto::TfRecordFeature& feature : config.features()) {
    Use use;
    use.name = feature.name();
    use.kind = feature.kind_case();
    switch (use.kind) {
      case FeatureKind::kNumbers: {
        const proto::TfRecordFeature::Numbers& numbers = feature.numbers();
        if (numbers.has_size()) use.size = numbers.size();
        use.mean = numbers.mean();
        if (numbers.has_stddev()) use.stddev = numbers.stddev();
        if (numbers.has_missing()) use.missing = numbers.missing();
        use.first = inputs;
        inputs += use.size;
        break;
      }
      case FeatureKind::kRaw:
        use.type = TypeOf(feature.raw().type());
        use.scaling = options.ScalingOf(use.type);
        use.size = spec.input_size();
        inputs += use.size;
        break;
      case FeatureKind::kImage:
        use.image.emplace(feature.image(),
                          options.ScalingOf(ElementType::kUint8));
        spec.shape = use.image->shape();
        use.size = spec.input_size();
        inputs += use.size;
        break;
      case FeatureKind::kLabel: {
        const auto& values = feature.label().values();
        for (const std::string& value : values) {
          use.values.emplace(value, static_cast<int32_t>(use.values.size()));
        }
        if (!values.empty()) spec.num_classes = values.size();
        break;
      }
      case FeatureKind::kTarget:
        if (feature.target().has_size()) use.size = feature.target().size();
        use.first = spec.num_targets;
        spec.num_targets += use.size;
        break;
      case FeatureKind::kWeight:
        spec.weighted = true;
        break;
      case FeatureKind::KIND_NOT_SET:
        break;
    }
    schema.places_.emplace(use.name, schema.uses_.size());
    schema.uses_.push_back(std::move(use));
  }
  if (spec.shape.empty()) spec.shape = {inputs};
  if (spec.input_size() != inputs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data: the shape ", ShapeString(spec.shape), " takes ",
        spec.input_size(), " numbers; the features make ", inputs));
  }
  return schema;
}

absl::Status TfRecordSchema::Read(absl::string_view record, ImageDepth depth,
                                  const ExampleMemory& to) const {
  TfExample example;
  if (!example.Parse(record)) {
    return absl::InvalidArgumentError(
        "its bytes do not parse as a tf.train.Example "
        "(proto/tf_example.proto)");
  }
  static const TfFeature* const kMissing = new TfFeature;
  absl::InlinedVector<const TfFeature*, 16> found(uses_.size(), kMissing);
  for (const TfFeature& feature : example.features()) {
    const auto place = places_.find(feature.name);
    if (place != places_.end()) found[place->second] = &feature;
  }
  for (size_t i = 0; i < uses_.size(); ++i) {
    HOLDFAST_RETURN_IF_ERROR(Take(uses_[i], *found[i], depth, to));
  }
  return absl::OkStatus();
}

absl::Status TfRecordSchema::Take(const Use& use, const TfFeature& found,
                                  ImageDepth depth,
                                  const ExampleMemory& to) const {
  if (found.empty()) {
    if (use.missing.has_value()) {
      std::fill_n(to.input.data() + use.first, use.size,
                  static_cast<float>((*use.missing - use.mean) / use.stddev));
      return absl::OkStatus();
    }
    return Error(
        use.name,
        use.kind == FeatureKind::kNumbers
            ? "is missing; set a substitute with `numbers { missing: "
              "... }`, or leave such records out with `skip_bad_rows: true`"
            : "is missing; leave such records out with `skip_bad_rows: true`");
  }
  switch (use.kind) {
    case FeatureKind::kNumbers:
      return Numbers(use, found, to.input.subspan(use.first, use.size));
    case FeatureKind::kRaw:
      return Raw(use, found, to.input);
    case FeatureKind::kImage:
      return Image(use, found, depth, to.input);
    case FeatureKind::kLabel:
      return Label(use, found, to.label);
    case FeatureKind::kTarget:
      return Floats(use, found, to.targets.subspan(use.first, use.size));
    case FeatureKind::kWeight: {
      absl::Status status =
          Floats(use, found, absl::MakeSpan(to.weight, /*size=*/1));
      if (!status.ok() || *to.weight >= 0) return status;
      return Error(use.name,
                   absl::StrCat("the weight ", *to.weight, " is below 0"));
    }
    case FeatureKind::KIND_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

absl::Status TfRecordSchema::Floats(const Use& use, const TfFeature& found,
                                    absl::Span<float> to) const {
  if (found.kind == TfFeature::kIntegers) {
    float* next = to.data();
    return Integers(use.name, found, use.size, [&next](int64_t value) {
      *next++ = static_cast<float>(value);
    });
  }
  if (found.kind != TfFeature::kFloats) {
    return WrongKind(use.name, found.kind,
                     use.kind == FeatureKind::kNumbers
                         ? "a float_list or an int64_list; an array's bytes "
                           "are read with `raw`, an image with `image`"
                         : "a float_list or an int64_list");
  }
  if (found.num_floats() != use.size) {
    return WrongSize(use.name, found.num_floats(),
                     absl::StrCat(use.size, ", the feature's `size`"));
  }
  found.ReadFloats(to.data());
  if (AllFinite(to)) return absl::OkStatus();
  for (int64_t i = 0; i < use.size; ++i) {
    if (std::isfinite(to[i])) continue;
    return Error(use.name,
                 absl::StrCat("value ", i, " (from 0) is ", to[i],
                              ": a model takes finite numbers; fill in missing "
                              "values, or leave such records out with "
                              "`skip_bad_rows: true`"));
  }
  return absl::OkStatus();
}

absl::Status TfRecordSchema::Numbers(const Use& use, const TfFeature& found,
                                     absl::Span<float> to) const {
  if (found.kind == TfFeature::kIntegers) {
    // The integers are not converted by way of float32, which cannot represent
    // all of them.
    float* next = to.data();
    return Integers(use.name, found, use.size, [&](int64_t value) {
      *next++ = static_cast<float>((static_cast<double>(value) - use.mean) /
                                   use.stddev);
    });
  }
  absl::Status status = Floats(use, found, to);
  if (!status.ok() || (use.mean == 0 && use.stddev == 1)) return status;
  for (float& value : to) {
    const float number =
        static_cast<float>((double{value} - use.mean) / use.stddev);
    if (!std::isfinite(number)) {
      return Error(use.name,
                   absl::StrCat(value, " is beyond the range of float32"));
    }
    value = number;
  }
  return absl::OkStatus();
}

absl::Status TfRecordSchema::Raw(const Use& use, const TfFeature& found,
                                 absl::Span<float> to) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto bytes, OneOfBytes(use.name, found));
  const int64_t size = bytes.size();
  if (size != use.size * TypeSize(use.type)) {
    return Error(use.name, absl::StrCat("holds ", size, " bytes, but ",
                                        ShapeString(spec_.shape), " of ",
                                        TypeName(use.type), " are ",
                                        use.size * TypeSize(use.type)));
  }
  ReadNumbers(use.type, /*big_endian=*/false,
              reinterpret_cast<const uint8_t*>(bytes.data()), use.scaling, to);
  if (IsInteger(use.type) || AllFinite(to)) return absl::OkStatus();
  return Error(use.name,
               "not all of its numbers are finite: a model takes finite "
               "numbers; fill in missing values, or leave such records out "
               "with `skip_bad_rows: true`");
}

absl::Status TfRecordSchema::Image(const Use& use, const TfFeature& found,
                                   ImageDepth depth,
                                   absl::Span<float> to) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto file, OneOfBytes(use.name, found));
  const absl::Span<const uint8_t> bytes(
      reinterpret_cast<const uint8_t*>(file.data()), file.size());
  const absl::Status status = depth == ImageDepth::kHeader
                                  ? use.image->CheckHeader(bytes)
                                  : use.image->Read(bytes, to);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      Error(use.name, status.message()).message());
}

absl::Status TfRecordSchema::Label(const Use& use, const TfFeature& found,
                                   int32_t* to) const {
  if (!use.values.empty()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto name, OneOfBytes(use.name, found));
    const auto value = use.values.find(name);
    if (value == use.values.end()) {
      return Error(use.name, absl::StrCat("the label ", Quote(name),
                                          " is none of the ", use.values.size(),
                                          " classes of `label { values: ... "
                                          "}`"));
    }
    *to = value->second;
    return absl::OkStatus();
  }
  if (found.kind != TfFeature::kIntegers) {
    return WrongKind(use.name, found.kind,
                     "an int64_list; names of classes are read with `label { "
                     "values: ... }`, and a number to be predicted is a "
                     "`target`");
  }
  int64_t label = -1;
  absl::Status status = Integers(use.name, found, /*size=*/1,
                                 [&label](int64_t value) { label = value; });
  if (!status.ok()) return status;
  if (label < 0 || label >= std::numeric_limits<int32_t>::max()) {
    return Error(use.name, absl::StrCat("label ", label,
                                        ": classes are whole numbers from 0 to "
                                        "2147483646"));
  }
  *to = static_cast<int32_t>(label);
  return absl::OkStatus();
}

}  // namespace holdfast
