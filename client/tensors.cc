#include "client/tensors.h"

#include "absl/strings/str_cat.h"
#include "common/buffer.h"
#include "common/rpc/tensor_codec.h"
#include "common/shape.h"
#include "common/tensor_piece.h"

namespace holdfast::client {
namespace {

absl::Status CheckPiece(const Layout::Variable& variable,
                        const Stretch& stretch, const TensorPiece& piece) {
  const auto error = [&](const auto&... what) {
    return absl::InternalError(
        absl::StrCat("elements ", stretch.begin, " to ",
                     stretch.begin + stretch.size, " of variable \"",
                     variable.name, "\" were asked for, and came ", what...));
  };
  if (piece.variable != variable.name) {
    return error("as of \"", piece.variable, "\"");
  }
  if (piece.shape != variable.shape) {
    return error("with shape ", ShapeString(piece.shape), ", declared ",
                 ShapeString(variable.shape));
  }
  if (piece.dtype != proto::FLOAT32) return error("as dtype ", piece.dtype);
  if (piece.begin != stretch.begin) {
    return error("beginning at ", piece.begin);
  }
  if (piece.data.size() != stretch.size * sizeof(float)) {
    return error("in ", piece.data.size(), " bytes");
  }
  return absl::OkStatus();
}

}  // namespace

void AddGradients(const Layout& layout, const Plan::Part& part,
                  absl::Span<const absl::Span<const float>> gradients,
                  proto::PushRequest* request) {
  std::vector<TensorPiece> pieces;
  pieces.reserve(part.size());
  for (const Stretch& stretch : part) {
    const Layout::Variable& variable = layout.variables()[stretch.variable];
    TensorPiece& piece = pieces.emplace_back();
    piece.variable = variable.name;
    piece.shape = variable.shape;
    piece.dtype = proto::FLOAT32;
    piece.begin = stretch.begin;
    // Without an owner: the piece does not outlive this function.
    piece.data =
        Buffer::FromMemory(gradients[stretch.variable].data() + stretch.begin,
                           stretch.size * sizeof(float), nullptr);
  }
  AddTensors(pieces, request->mutable_tensors());
}

void AddRanges(const Layout& layout, const Plan::Part& part,
               proto::PullRequest* request) {
  for (const Stretch& stretch : part) {
    proto::ReadRange* range = request->add_ranges();
    range->set_variable(layout.variables()[stretch.variable].name);
    range->set_begin(stretch.begin);
    range->set_size(stretch.size);
  }
}

absl::Status TakeValues(const Layout& layout, const Plan::Part& part,
                        proto::PullResponse* response,
                        absl::Span<std::vector<float>> values) {
  const std::vector<TensorPiece> pieces =
      TakeTensors(response->mutable_tensors());
  if (pieces.size() != part.size()) {
    return absl::InternalError(absl::StrCat(part.size(),
                                            " ranges were asked for, and ",
                                            pieces.size(), " tensors came"));
  }
  for (size_t i = 0; i < part.size(); ++i) {
    const Layout::Variable& variable = layout.variables()[part[i].variable];
    if (absl::Status status = CheckPiece(variable, part[i], pieces[i]);
        !status.ok()) {
      return status;
    }
  }
  for (size_t i = 0; i < part.size(); ++i) {
    pieces[i].data.CopyTo(values[part[i].variable].data() + part[i].begin);
  }
  return absl::OkStatus();
}

}  // namespace holdfast::client
