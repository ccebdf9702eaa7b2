// SPDX-License-Identifier: Apache-2.0
#include "client/tensors.h"

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/encoding.h"
#include "common/tensor/shape.h"

namespace holdfast::client {
namespace {

proto::Encoding EncodingOf(const Layout& layout, size_t variable,
                           Reading reading) {
  if (reading == Reading::kExact) return proto::EXACT;
  return layout.declaration().variables(variable).compression().pull();
}

absl::StatusOr<EncodedElements> Parse(const Layout::Variable& variable,
                                      const ElementRange& range,
                                      proto::Encoding encoding,
                                      const TensorPiece& piece) {
  const auto error = [&](const auto&... what) {
    return absl::InternalError(
        absl::StrCat("elements ", range.begin, " to ", range.begin + range.size,
                     " of variable \"", variable.name,
                     "\" were requested, but arrived ", what...));
  };
  if (piece.variable != variable.name) {
    return error("as elements of \"", piece.variable, "\"");
  }
  if (piece.shape != variable.shape) {
    return error("with shape ", ShapeString(piece.shape), ", declared ",
                 ShapeString(variable.shape));
  }
  if (piece.dtype != proto::FLOAT32) return error("as dtype ", piece.dtype);
  if (piece.begin != range.begin) {
    return error("beginning at ", piece.begin);
  }
  if (piece.encoding != encoding) {
    return error("in encoding ", static_cast<int>(piece.encoding));
  }
  if (piece.data.size() != EncodedBytes(encoding, range.size, 0)) {
    return error("in ", piece.data.size(), " bytes");
  }
  return ParseElements(encoding, range.size, piece.data);
}

// Whether one ps lends the whole variable at once.
bool IsLentWhole(const Layout& layout, const Plan& plan, size_t variable) {
  const std::vector<ElementRange>& lent = plan.lent[variable];
  return lent.size() == 1 &&
         lent.front().size == layout.variables()[variable].size;
}

// Makes `into` read float32 values in place. Returns false if the values are
// not contiguous, or not aligned like floats.
bool Keep(const Buffer& data, const std::shared_ptr<const void>& leave,
          size_t variable, Parameters* into) {
  if (data.spans().size() != 1) return false;
  const Buffer::Span& span = data.spans().front();
  if (reinterpret_cast<uintptr_t>(span.data) % alignof(float) != 0) {
    return false;
  }
  // In this order, so that the values are destroyed first.
  struct Owner {
    std::shared_ptr<const void> leave;
    std::shared_ptr<const void> values;
  };
  into->Keep(variable,
             absl::MakeConstSpan(reinterpret_cast<const float*>(span.data),
                                 span.size / sizeof(float)),
             std::make_shared<Owner>(Owner{leave, span.owner}));
  return true;
}

}  // namespace

std::vector<TensorPiece> PiecesOf(
    const Layout& layout, const Plan::Part& part,
    absl::Span<const GradientEncoder::Encoded> encoded,
    absl::FunctionRef<Buffer(const ElementRange&)> exact) {
  std::vector<TensorPiece> pieces;
  pieces.reserve(part.size());
  for (const ElementRange& range : part) {
    const Layout::Variable& variable = layout.variables()[range.variable];
    TensorPiece& piece = pieces.emplace_back();
    piece.variable = variable.name;
    piece.shape = variable.shape;
    piece.begin = range.begin;
    if (const auto& ranges = encoded[range.variable]; !ranges.empty()) {
      const EncodedElements& elements = ranges.at(range.begin);
      piece.encoding = elements.encoding;
      // For other encodings the size follows from the bytes.
      if (elements.encoding == proto::TOP_K) piece.size = elements.size;
      piece.data = elements.data;
      continue;
    }
    piece.data = exact(range);
  }
  return pieces;
}

void AddRanges(const Layout& layout, const Plan::Part& part, Reading reading,
               google::protobuf::RepeatedPtrField<proto::ReadRange>* ranges) {
  for (const ElementRange& elements : part) {
    proto::ReadRange* range = ranges->Add();
    range->set_variable(layout.variables()[elements.variable].name);
    range->set_begin(elements.begin);
    range->set_size(elements.size);
    range->set_encoding(EncodingOf(layout, elements.variable, reading));
  }
}

void Prepare(const Layout& layout, const Plan& plan, Parameters* into) {
  const std::vector<Layout::Variable>& variables = layout.variables();
  into->Release();
  into->Resize(variables.size());
  for (size_t v = 0; v < variables.size(); ++v) {
    if (!IsLentWhole(layout, plan, v)) into->Write(v, variables[v].size);
  }
}

absl::Status TakeValues(const Layout& layout, const Plan& plan,
                        const Plan::Part& part, Reading reading,
                        absl::Span<const TensorPiece> pieces,
                        const std::shared_ptr<const void>& leave,
                        Parameters* into) {
  if (pieces.size() != part.size()) {
    return absl::InternalError(absl::StrCat(part.size(),
                                            " ranges were requested, but ",
                                            pieces.size(), " tensors arrived"));
  }
  std::vector<EncodedElements> elements;
  elements.reserve(part.size());
  for (size_t i = 0; i < part.size(); ++i) {
    const size_t variable = part[i].variable;
    HOLDFAST_ASSIGN_OR_RETURN(
        auto parsed, Parse(layout.variables()[variable], part[i],
                           EncodingOf(layout, variable, reading), pieces[i]));
    elements.push_back(std::move(parsed));
  }
  for (size_t i = 0; i < part.size(); ++i) {
    const size_t variable = part[i].variable;
    if (leave != nullptr && IsLentWhole(layout, plan, variable) &&
        !into->HasMemory(variable) &&
        Keep(pieces[i].data, leave, variable, into)) {
      continue;
    }
    Decode(elements[i], 0,
           into->Write(variable, layout.variables()[variable].size)
               .subspan(part[i].begin, part[i].size));
  }
  return absl::OkStatus();
}

}  // namespace holdfast::client
