// SPDX-License-Identifier: Apache-2.0
#include "worker/model/click_model.h"

#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/shape.h"
#include "worker/model/layers/chain.h"
#include "worker/model/losses.h"
#include "worker/model/network.h"

namespace holdfast {
namespace {

using Layers = google::protobuf::RepeatedPtrField<proto::Layer>;

constexpr char kLinear[] = "linear";
constexpr char kEmbedding[] = "embedding";
// The initial range of the rows of a table "embedding", as in Keras's
// Embedding.
constexpr float kEmbeddingRange = 0.05f;
// The places of the networks' first layers, from which their randomness
// follows.
constexpr uint32_t kFirstBottomLayer = 1000;

// The parts of a click model. A part that is absent is not in the model.
struct ClickModelParts {
  // Adds to the logit the sum of the weights of the ids, and x w + b, where x
  // are the numbers.
  const proto::TableOptions* linear = nullptr;
  const proto::Embedding* embedding = nullptr;
  // Adds to the logit the dot products of all pairs of an example's rows.
  bool pairwise = false;
  // Adds to the logit the output of a network. Its inputs are the numbers and
  // the bags or, if there is a `bottom`, what the comment there says.
  const Layers* layers = nullptr;
  // A network whose inputs are the numbers. The inputs of `layers` are then the
  // output of `bottom`, and the dot products of all pairs of vectors among this
  // output and the bags.
  const Layers* bottom = nullptr;
};

absl::StatusOr<ClickModelParts> PartsOf(const proto::Model& config) {
  ClickModelParts parts;
  switch (config.kind_case()) {
    case proto::Model::kLogisticRegression:
      parts.linear = &config.logistic_regression().linear();
      return parts;
    case proto::Model::kFactorizationMachine:
      parts.linear = &config.factorization_machine().linear();
      parts.embedding = &config.factorization_machine().embedding();
      parts.pairwise = true;
      return parts;
    case proto::Model::kWideAndDeep:
      parts.linear = &config.wide_and_deep().linear();
      parts.embedding = &config.wide_and_deep().embedding();
      parts.layers = &config.wide_and_deep().layers();
      return parts;
    case proto::Model::kDeepFm:
      parts.linear = &config.deep_fm().linear();
      parts.embedding = &config.deep_fm().embedding();
      parts.layers = &config.deep_fm().layers();
      parts.pairwise = true;
      return parts;
    case proto::Model::kDlrm:
      parts.embedding = &config.dlrm().embedding();
      parts.layers = &config.dlrm().top();
      parts.bottom = &config.dlrm().bottom();
      return parts;
    default:
      return absl::InvalidArgumentError("the model is not a click model");
  }
}

proto::Initializer Zeros() {
  proto::Initializer initializer;
  initializer.mutable_zeros();
  return initializer;
}

// Makes a table for all of `num_fields` fields. It has no max_rows_per_push
// unless the job file sets it.
ModelTable MakeTable(const char* name, uint32_t row_length,
                     const proto::TableOptions& options,
                     proto::Initializer by_default, int64_t num_fields) {
  ModelTable table;
  proto::EmbeddingTable& declared = table.declared;
  declared.set_name(name);
  declared.set_row_length(row_length);
  *declared.mutable_initializer() =
      options.has_initializer() ? options.initializer() : std::move(by_default);
  declared.set_row_wise(options.row_wise());
  if (options.has_min_count()) declared.set_min_count(options.min_count());
  if (options.has_expire_after_steps()) {
    declared.set_expire_after_steps(options.expire_after_steps());
  }
  if (options.has_max_rows()) declared.set_max_rows(options.max_rows());
  declared.set_max_rows_per_push(options.max_rows_per_push());
  declared.set_push(options.push());
  declared.set_pull(options.pull());
  if (options.has_optimizer()) table.optimizer = options.optimizer();
  table.fields.resize(num_fields);
  std::iota(table.fields.begin(), table.fields.end(), 0);
  return table;
}

// Returns `layers`, followed by a dense layer of one unit.
Layers WithOutput(const Layers& layers) {
  Layers all = layers;
  proto::Layer* const output = all.Add();
  output->set_name("logit");
  output->mutable_dense()->set_units(1);
  return all;
}

// Computes the factor of each use's row, so that the sum of a bag is the result
// of `combiner`.
void WeighUses(const IdBags& bags, proto::Embedding::Combiner combiner,
               std::vector<float>* weights) {
  const absl::Span<const float> values = bags.values();
  const absl::Span<const uint32_t> offsets = bags.offsets();
  weights->resize(bags.rows().size());
  for (size_t bag = 0; bag + 1 < offsets.size(); ++bag) {
    float sum = 0;
    for (uint32_t k = offsets[bag]; k < offsets[bag + 1]; ++k) {
      const float value = values.empty() ? 1 : values[k];
      sum += combiner == proto::Embedding::MEAN ? value : value * value;
    }
    const float divisor =
        combiner == proto::Embedding::MEAN ? sum : std::sqrt(sum);
    for (uint32_t k = offsets[bag]; k < offsets[bag + 1]; ++k) {
      (*weights)[k] = (values.empty() ? 1 : values[k]) / divisor;
    }
  }
}

// Gradients go to sinks under the indices of the variables and, after them, of
// the tables.
class ClickNetwork final : public Network {
 public:
  ClickNetwork(const ClickModelParts& parts, const ExampleSpec& examples,
               std::unique_ptr<Chain> bottom, std::unique_ptr<Chain> layers,
               Backend* backend)
      : backend_(backend),
        num_numbers_(examples.input_size()),
        num_fields_(static_cast<int64_t>(examples.id_fields.size())),
        pairwise_(parts.pairwise),
        bottom_(std::move(bottom)),
        layers_(std::move(layers)) {
    if (parts.linear != nullptr) {
      linear_table_ = static_cast<int>(tables_.size());
      tables_.push_back(
          MakeTable(kLinear, 1, *parts.linear, Zeros(), num_fields_));
      if (num_numbers_ > 0) {
        variables_.push_back(MakeVariable(absl::StrCat(kLinear, "/kernel"),
                                          {num_numbers_, 1}, Zeros()));
      }
      variables_.push_back(
          MakeVariable(absl::StrCat(kLinear, "/bias"), {1}, Zeros()));
    }
    if (parts.embedding != nullptr) {
      row_length_ = parts.embedding->row_length();
      combiner_ = parts.embedding->combiner();
      proto::Initializer uniform;
      uniform.mutable_uniform()->set_low(-kEmbeddingRange);
      uniform.mutable_uniform()->set_high(kEmbeddingRange);
      embedding_table_ = static_cast<int>(tables_.size());
      tables_.push_back(MakeTable(kEmbedding, row_length_,
                                  parts.embedding->table(), uniform,
                                  num_fields_));
    }
    first_of_bottom_ = static_cast<int>(variables_.size());
    if (bottom_ != nullptr) Append(bottom_->variables());
    first_of_layers_ = static_cast<int>(variables_.size());
    if (layers_ != nullptr) Append(layers_->variables());
    row_gradients_.resize(tables_.size());
    row_staging_.resize(tables_.size());
    rows_.resize(tables_.size());
  }

  const std::vector<proto::Variable>& variables() const override {
    return variables_;
  }
  std::vector<ModelTable> tables() const override { return tables_; }
  const std::vector<int64_t>& output_shape() const override {
    return output_shape_;
  }
  std::string OutputName() const override { return "the logit"; }

  absl::StatusOr<ConstMatrix> Forward(const Pass& pass,
                                      absl::Span<const ConstMatrix> parameters,
                                      ConstMatrix x,
                                      const Batch& batch) override {
    absl::Status status = Bring(batch);
    if (!status.ok()) return status;
    x_ = x;
    const int64_t examples = batch.size();
    status = backend_->Reserve(examples, &logits_);
    if (!status.ok()) return status;
    const Matrix logits = logits_.View(examples, 1);
    bool first = true;
    if (linear_table_ >= 0) {
      ForwardLinear(parameters, logits);
      first = false;
    }
    if (pairwise_) {
      status = ForwardPairwise(examples, logits);
      if (!status.ok()) return status;
    }
    if (layers_ == nullptr) return logits;
    HOLDFAST_ASSIGN_OR_RETURN(const auto made,
                              ForwardLayers(pass, parameters, examples));
    if (first) return made;
    backend_->Add(logits, made, logits);
    return logits;
  }

  absl::Status Backward(absl::Span<const ConstMatrix> parameters, Matrix dy,
                        Layer::GradientSink sink) override {
    absl::Status status;
    Matrix embedding_gradient;
    if (embedding_table_ >= 0) {
      status = ReserveRows(embedding_table_, &embedding_gradient);
      if (!status.ok()) return status;
    }
    // Layers may write to the gradient that they are given.
    Matrix of_layers = dy;
    if (layers_ != nullptr && (pairwise_ || linear_table_ >= 0)) {
      status = backend_->Reserve(dy.size(), &logit_gradient_);
      if (!status.ok()) return status;
      of_layers = logit_gradient_.View(dy.rows, dy.cols);
      backend_->Copy(dy, of_layers);
    }
    if (layers_ != nullptr) {
      status = BackwardLayers(parameters, of_layers, embedding_gradient, sink);
      if (!status.ok()) return status;
    } else if (embedding_table_ >= 0) {
      backend_->Scale(0, rows_[embedding_table_], embedding_gradient);
    }
    if (pairwise_) {
      backend_->AddPairwiseBagsGradient(bags_.Merged(num_fields_),
                                        rows_[embedding_table_], sums_view_, dy,
                                        embedding_gradient);
    }
    if (embedding_table_ >= 0) {
      status = sink(PlaceOf(embedding_table_), embedding_gradient);
      if (!status.ok()) return status;
    }
    return linear_table_ < 0 ? absl::OkStatus() : BackwardLinear(dy, sink);
  }

 private:
  void Append(const std::vector<proto::Variable>& variables) {
    variables_.insert(variables_.end(), variables.begin(), variables.end());
  }
  int PlaceOf(int table) const {
    return static_cast<int>(variables_.size()) + table;
  }
  int64_t bags_size() const { return num_fields_ * row_length_; }

  // Uploads the batch's bags and rows.
  absl::Status Bring(const Batch& batch) {
    if (batch.bags == nullptr || batch.rows.size() != tables_.size()) {
      return absl::InvalidArgumentError(
          "the batch has no rows of the model's tables");
    }
    // All tables have the same fields, and so the same bags.
    const IdBags& ids = batch.bags->Of(0);
    if (ids.num_examples() != batch.size() || ids.num_fields() != num_fields_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the batch has ids of ", ids.num_fields(), " fields for ",
          ids.num_examples(), " examples; the model takes ", num_fields_,
          " fields for ", batch.size()));
    }
    Bags bags;
    bags.rows = ids.rows();
    bags.bags = ids.bags();
    bags.weights = ids.values();
    bags.offsets = ids.offsets();
    bags.uses = ids.uses();
    bags.begins = ids.begins();
    const bool combines =
        layers_ != nullptr && combiner_ != proto::Embedding::SUM;
    if (linear_table_ >= 0 || pairwise_ || !combines) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto uploaded,
                                backend_->UploadBags(bags, &bags_staging_));
      bags_ = uploaded;
      field_bags_ = uploaded;
    }
    if (combines) {
      WeighUses(ids, combiner_, &weights_);
      bags.weights = weights_;
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto uploaded,
          backend_->UploadBags(bags, &field_bags_staging_));
      field_bags_ = uploaded;
    }
    const int64_t num_rows = bags.num_rows();
    for (size_t t = 0; t < tables_.size(); ++t) {
      const int64_t length = tables_[t].declared.row_length();
      if (static_cast<int64_t>(batch.rows[t].size()) != num_rows * length) {
        return absl::InvalidArgumentError(
            absl::StrCat("the batch has ", batch.rows[t].size(), " values for ",
                         num_rows, " rows of the table \"",
                         tables_[t].declared.name(), "\" of ", length));
      }
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto rows,
          backend_->Upload(batch.rows[t], num_rows, length, &row_staging_[t]));
      rows_[t] = rows;
    }
    return absl::OkStatus();
  }

  absl::Status ReserveRows(int table, Matrix* rows) {
    const int64_t num_rows = rows_[table].rows;
    const int64_t length = rows_[table].cols;
    absl::Status status =
        backend_->Reserve(num_rows * length, &row_gradients_[table]);
    if (status.ok()) *rows = row_gradients_[table].View(num_rows, length);
    return status;
  }

  // The indices of the linear part's variables.
  int linear_bias() const { return num_numbers_ > 0 ? 1 : 0; }

  void ForwardLinear(absl::Span<const ConstMatrix> parameters, Matrix logits) {
    backend_->SumBags(bags_.Merged(num_fields_), rows_[linear_table_], logits);
    if (num_numbers_ > 0) {
      backend_->AddMatMul(Form::kPlain, x_, Form::kPlain, parameters[0],
                          logits);
    }
    backend_->AddBias(parameters[linear_bias()], logits);
  }

  absl::Status BackwardLinear(ConstMatrix dy, Layer::GradientSink sink) {
    const int bias = linear_bias();
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto db,
        backend_->ReserveFor(sink.Memory(bias), 1, 1, &bias_gradient_));
    backend_->SumRows(dy, db);
    absl::Status status = sink(bias, db);
    if (!status.ok()) return status;
    if (num_numbers_ > 0) {
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto dw, backend_->ReserveFor(sink.Memory(0), num_numbers_, 1,
                                              &kernel_gradient_));
      backend_->MatMul(Form::kTransposed, x_, Form::kPlain, dy, dw);
      status = sink(0, dw);
      if (!status.ok()) return status;
    }
    Matrix rows;
    status = ReserveRows(linear_table_, &rows);
    if (!status.ok()) return status;
    backend_->SumBagsGradient(bags_.Merged(num_fields_), dy, rows);
    return sink(PlaceOf(linear_table_), rows);
  }

  // Adds the pairwise part to `logits`.
  absl::Status ForwardPairwise(int64_t examples, Matrix logits) {
    absl::Status status = backend_->Reserve(examples * row_length_, &sums_);
    status.Update(backend_->Reserve(examples, &pairs_));
    if (!status.ok()) return status;
    const Matrix sums = sums_.View(examples, row_length_);
    const Matrix pairs = pairs_.View(examples, 1);
    backend_->PairwiseBags(bags_.Merged(num_fields_), rows_[embedding_table_],
                           sums, pairs);
    sums_view_ = sums;
    backend_->Add(logits, pairs, logits);
    return absl::OkStatus();
  }

  absl::StatusOr<ConstMatrix> ForwardLayers(
      const Pass& pass, absl::Span<const ConstMatrix> parameters,
      int64_t examples) {
    absl::Status status = backend_->Reserve(examples * bags_size(), &combined_);
    if (!status.ok()) return status;
    // The same memory with one row per bag, and one row per example.
    const Matrix by_bag = combined_.View(examples * num_fields_, row_length_);
    const Matrix combined = combined_.View(examples, bags_size());
    backend_->SumBags(field_bags_, rows_[embedding_table_], by_bag);
    ConstMatrix numbers = x_;
    ConstMatrix behind = combined;
    if (bottom_ != nullptr) {
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto made,
          bottom_->Forward(
              pass, ParametersOf(*bottom_, first_of_bottom_, parameters), x_));
      numbers = made;
      const int64_t vectors = num_fields_ + 1;
      const int64_t pairs = vectors * (vectors - 1) / 2;
      status = Join(numbers, combined, &vectors_);
      status.Update(backend_->Reserve(examples * pairs, &products_));
      if (!status.ok()) return status;
      vectors_view_ = vectors_.View(examples, vectors * row_length_);
      const Matrix products = products_.View(examples, pairs);
      backend_->DotPairs(vectors_view_, vectors, products);
      behind = products;
    }
    if (numbers.cols > 0) {
      status = Join(numbers, behind, &layer_inputs_);
      if (!status.ok()) return status;
      behind = layer_inputs_.View(examples, numbers.cols + behind.cols);
    }
    return layers_->Forward(
        pass, ParametersOf(*layers_, first_of_layers_, parameters), behind);
  }

  absl::Status BackwardLayers(absl::Span<const ConstMatrix> parameters,
                              Matrix dy, Matrix embedding_gradient,
                              Layer::GradientSink sink) {
    const int64_t examples = dy.rows;
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto of_inputs,
        BackwardChain(*layers_, first_of_layers_, parameters, dy,
                      /*want_dx=*/true, sink));
    const int64_t front = bottom_ != nullptr ? row_length_ : num_numbers_;
    if (bottom_ == nullptr && front == 0) {
      SumRowGradient(of_inputs, embedding_gradient);
      return absl::OkStatus();
    }
    absl::Status status =
        backend_->Reserve(examples * bags_size(), &combined_gradient_);
    if (!status.ok()) return status;
    const Matrix of_combined = combined_gradient_.View(examples, bags_size());
    if (bottom_ == nullptr) {
      backend_->CopyColumns(of_inputs, front, bags_size(), of_combined, 0);
      SumRowGradient(of_combined, embedding_gradient);
      return absl::OkStatus();
    }
    const int64_t vectors = num_fields_ + 1;
    const int64_t pairs = vectors * (vectors - 1) / 2;
    status = backend_->Reserve(examples * pairs, &product_gradient_);
    status.Update(backend_->Reserve(vectors_view_.size(), &vector_gradient_));
    status.Update(backend_->Reserve(examples * front, &bottom_gradient_));
    if (!status.ok()) return status;
    const Matrix of_products = product_gradient_.View(examples, pairs);
    const Matrix of_vectors =
        vector_gradient_.View(examples, vectors * row_length_);
    const Matrix of_bottom = bottom_gradient_.View(examples, front);
    backend_->CopyColumns(of_inputs, front, pairs, of_products, 0);
    backend_->DotPairsGradient(vectors_view_, vectors, of_products, of_vectors);
    backend_->CopyColumns(of_vectors, front, bags_size(), of_combined, 0);
    SumRowGradient(of_combined, embedding_gradient);
    backend_->CopyColumns(of_inputs, 0, front, of_bottom, 0);
    backend_->AddColumns(of_vectors, 0, front, of_bottom, 0);
    return BackwardChain(*bottom_, first_of_bottom_, parameters, of_bottom,
                         /*want_dx=*/false, sink)
        .status();
  }

  // `gradient` has one row per example.
  void SumRowGradient(ConstMatrix gradient, Matrix rows) {
    const ConstMatrix by_bag = {gradient.data, gradient.rows * num_fields_,
                                row_length_};
    backend_->SumBagsGradient(field_bags_, by_bag, rows);
  }

  // The columns of `a`, followed by those of `b`.
  absl::Status Join(ConstMatrix a, ConstMatrix b, DeviceBuffer* buffer) {
    HOLDFAST_RETURN_IF_ERROR(
        backend_->Reserve(a.rows * (a.cols + b.cols), buffer));
    const Matrix joined = buffer->View(a.rows, a.cols + b.cols);
    backend_->CopyColumns(a, 0, a.cols, joined, 0);
    backend_->CopyColumns(b, 0, b.cols, joined, a.cols);
    return absl::OkStatus();
  }

  static absl::Span<const ConstMatrix> ParametersOf(
      const Chain& chain, int first, absl::Span<const ConstMatrix> parameters) {
    return parameters.subspan(first, chain.variables().size());
  }

  static absl::StatusOr<Matrix> BackwardChain(
      Chain& chain, int first, absl::Span<const ConstMatrix> parameters,
      Matrix dy, bool want_dx, Layer::GradientSink sink) {
    const auto take = [&](int variable, Matrix gradient) {
      return sink(first + variable, gradient);
    };
    const auto memory_of = [&](int variable) {
      return sink.Memory(first + variable);
    };
    return chain.Backward(ParametersOf(chain, first, parameters), dy, want_dx,
                          Layer::GradientSink(take, memory_of));
  }

  Backend* const backend_;
  const int64_t num_numbers_;
  const int64_t num_fields_;
  const bool pairwise_;
  // Null if the model lacks this part.
  const std::unique_ptr<Chain> bottom_;
  const std::unique_ptr<Chain> layers_;
  const std::vector<int64_t> output_shape_ = {1};
  int64_t row_length_ = 0;
  proto::Embedding::Combiner combiner_ = proto::Embedding::SUM;
  std::vector<proto::Variable> variables_;
  std::vector<ModelTable> tables_;
  // Indices in tables_; -1 if the model has none.
  int linear_table_ = -1;
  int embedding_table_ = -1;
  // Indices in variables_.
  int first_of_bottom_ = 0;
  int first_of_layers_ = 0;

  // The state of the pass under way. The bags are kept both as in the batch,
  // and with the combiner's weights.
  ConstMatrix x_;
  DeviceBags bags_;
  DeviceBags field_bags_;
  std::vector<ConstMatrix> rows_;
  ConstMatrix sums_view_;
  ConstMatrix vectors_view_;

  // Kept to reuse their memory.
  std::vector<float> weights_;
  BagsBuffer bags_staging_;
  BagsBuffer field_bags_staging_;
  std::vector<DeviceBuffer> row_staging_;
  std::vector<DeviceBuffer> row_gradients_;
  DeviceBuffer logits_;
  DeviceBuffer logit_gradient_;
  DeviceBuffer kernel_gradient_;
  DeviceBuffer bias_gradient_;
  DeviceBuffer sums_;
  DeviceBuffer pairs_;
  DeviceBuffer combined_;
  DeviceBuffer vectors_;
  DeviceBuffer products_;
  DeviceBuffer layer_inputs_;
  DeviceBuffer combined_gradient_;
  DeviceBuffer product_gradient_;
  DeviceBuffer vector_gradient_;
  DeviceBuffer bottom_gradient_;
};

}  // namespace

bool IsClickModel(const proto::Model& config) { return PartsOf(config).ok(); }

absl::StatusOr<std::unique_ptr<NetworkModel>> CreateClickModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto parts, PartsOf(config));
  const auto num_fields = static_cast<int64_t>(examples.id_fields.size());
  if (num_fields == 0) {
    return absl::InvalidArgumentError(
        "the model has embedding tables, but the examples have no ids: use "
        "criteo or libsvm, or csv with columns of ids (docs/data.md, \"Ids\")");
  }
  if (examples.shape.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model takes numbers as a vector, but an example has "
                     "the shape ",
                     ShapeString(examples.shape)));
  }
  const int64_t numbers = examples.input_size();
  std::unique_ptr<Chain> bottom;
  std::unique_ptr<Chain> layers;
  if (parts.layers != nullptr) {
    const int64_t row_length = parts.embedding->row_length();
    int64_t inputs = numbers + num_fields * row_length;
    if (parts.bottom != nullptr) {
      if (numbers == 0) {
        return absl::InvalidArgumentError(
            "dlrm.bottom takes numbers, of which the examples have none: use "
            "deep_fm or wide_and_deep");
      }
      HOLDFAST_ASSIGN_OR_RETURN(
          auto made, Chain::Create(*parts.bottom, "bottom/", examples.shape,
                                   seed, kFirstBottomLayer, backend));
      bottom = std::move(made);
      const std::vector<int64_t>& shape = bottom->output_shape();
      if (shape.size() != 1 || shape[0] != row_length) {
        return absl::InvalidArgumentError(absl::StrCat(
            "layer \"", bottom->last_name(), "\", the last of dlrm.bottom, ",
            "gives the shape ", ShapeString(shape), "; it must be [",
            row_length, "], as embedding.row_length says"));
      }
      inputs = row_length + num_fields * (num_fields + 1) / 2;
    }
    auto made = Chain::Create(WithOutput(*parts.layers),
                              parts.bottom != nullptr ? "top/" : "deep/",
                              {inputs}, seed, /*first_place=*/0, backend);
    if (!made.ok()) return made.status();
    layers = *std::move(made);
  }
  proto::Loss config_of_loss;
  config_of_loss.mutable_sigmoid_cross_entropy();
  HOLDFAST_ASSIGN_OR_RETURN(const auto loss, Loss::Create(config_of_loss));
  return NetworkModel::Create(
      std::make_unique<ClickNetwork>(parts, examples, std::move(bottom),
                                     std::move(layers), backend),
      loss, examples, backend);
}

}  // namespace holdfast
