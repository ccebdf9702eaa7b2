// SPDX-License-Identifier: Apache-2.0
#include "common/job/job_model_rules.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"

namespace holdfast {
namespace {

// For a size in two dimensions, at `path`.
void CheckSize(const google::protobuf::RepeatedField<uint32_t>& size,
               const std::string& path, std::vector<BrokenRule>* broken) {
  if (size.size() <= 2) return;
  broken->push_back(
      {path, absl::StrCat("must be one number, or two, [height, width], is ",
                          size.size(), " numbers")});
}

// For a layer of a kind that may have a bias.
template <typename Kind>
void CheckInitializers(const Kind& kind, const std::string& path,
                       std::vector<BrokenRule>* broken) {
  for (const auto& [field, initializer] :
       {std::pair("kernel_initializer", &kind.kernel_initializer()),
        std::pair("bias_initializer", &kind.bias_initializer())}) {
    if (!initializer->has_given()) continue;
    broken->push_back({absl::StrCat(path, ".", field, ".given"),
                       "a job file cannot contain values: only your own worker "
                       "programs can give them (client/cluster.h)"});
  }
  if (!kind.has_use_bias() || kind.use_bias()) return;
  if (!kind.has_bias_initializer()) return;
  broken->push_back({absl::StrCat(path, ".bias_initializer"),
                     "has no bias to initialize: use_bias is false"});
}

// Checks the names of sibling layers, and the rules between the fields of each
// layer.
void CheckLayers(const google::protobuf::RepeatedPtrField<proto::Layer>& layers,
                 const std::string& list, std::vector<BrokenRule>* broken) {
  const std::vector<std::string> names = LayerNames(layers);
  const std::string field = list.substr(list.rfind('.') + 1);
  std::map<std::string, int> first;
  for (int i = 0; i < layers.size() && broken->size() <= kMaxBrokenRulesTold;
       ++i) {
    const std::string path = absl::StrCat(list, "[", i, "]");
    const auto [same, fresh] = first.emplace(names[i], i);
    if (!fresh && !names[i].empty()) {
      broken->push_back(
          {path,
           absl::StrCat("has the name \"", absl::CEscape(names[i]), "\", like ",
                        field, "[", same->second, "]: give it another")});
    }
    const proto::Layer& layer = layers.Get(i);
    if (layer.has_dense()) {
      CheckInitializers(layer.dense(), path + ".dense", broken);
    } else if (layer.has_conv2d()) {
      const proto::Layer::Conv2d& conv = layer.conv2d();
      CheckInitializers(conv, path + ".conv2d", broken);
      CheckSize(conv.kernel_size(), path + ".conv2d.kernel_size", broken);
      CheckSize(conv.stride(), path + ".conv2d.stride", broken);
      if (conv.groups() > 0 && conv.filters() % conv.groups() != 0) {
        broken->push_back(
            {path + ".conv2d.groups",
             absl::StrCat("must divide filters, which is ", conv.filters(),
                          ", is ", conv.groups())});
      }
    } else if (layer.has_max_pool2d()) {
      CheckSize(layer.max_pool2d().size(), path + ".max_pool2d.size", broken);
      CheckSize(layer.max_pool2d().stride(), path + ".max_pool2d.stride",
                broken);
    } else if (layer.has_average_pool2d()) {
      CheckSize(layer.average_pool2d().size(), path + ".average_pool2d.size",
                broken);
      CheckSize(layer.average_pool2d().stride(),
                path + ".average_pool2d.stride", broken);
    } else if (layer.has_residual()) {
      CheckLayers(layer.residual().layers(), path + ".residual.layers", broken);
      CheckLayers(layer.residual().shortcut(), path + ".residual.shortcut",
                  broken);
    }
  }
}

// Whether an optimizer can update single rows.
bool ChangesRows(const proto::Optimizer& optimizer) {
  return optimizer.has_sgd() || optimizer.has_momentum() ||
         optimizer.has_adagrad() || optimizer.has_adam() ||
         optimizer.has_ftrl();
}

// For a table at `path`; `by_default` is the job's optimizer.
void CheckTable(const proto::TableOptions& table, const std::string& path,
                const proto::Optimizer& by_default,
                std::vector<BrokenRule>* broken) {
  const proto::Initializer& initializer = table.initializer();
  if (initializer.has_given()) {
    broken->push_back(
        {path + ".initializer.given",
         "a job file cannot contain values, and a table cannot be given any"});
  }
  if (initializer.has_glorot() || initializer.has_he()) {
    broken->push_back(
        {path + ".initializer",
         "depends on the number of rows, which a table does not have: use "
         "uniform, normal, truncated_normal, constant or "
         "zeros"});
  }
  const proto::Optimizer& optimizer =
      table.has_optimizer() ? table.optimizer() : by_default;
  if (optimizer.update_case() != proto::Optimizer::UPDATE_NOT_SET &&
      !ChangesRows(optimizer)) {
    broken->push_back(
        {path + ".optimizer",
         absl::StrCat(
             "tables need sgd, momentum, adagrad, adam or ftrl, which can "
             "update single rows",
             table.has_optimizer()
                 ? ""
                 : "; without its own optimizer, a table uses the job's")});
  }
  if (table.row_wise() &&
      optimizer.update_case() != proto::Optimizer::kAdagrad) {
    broken->push_back({path + ".row_wise", "is only for adagrad"});
  }
}

}  // namespace

void CheckModel(const proto::Job& job, std::vector<BrokenRule>* broken) {
  const proto::Model& model = job.model();
  CheckLayers(model.sequential().layers(), "model.sequential.layers", broken);
  CheckLayers(model.wide_and_deep().layers(), "model.wide_and_deep.layers",
              broken);
  CheckLayers(model.deep_fm().layers(), "model.deep_fm.layers", broken);
  CheckLayers(model.dlrm().bottom(), "model.dlrm.bottom", broken);
  CheckLayers(model.dlrm().top(), "model.dlrm.top", broken);
  const auto check_table = [&](const proto::TableOptions& table,
                               const std::string& path) {
    CheckTable(table, absl::StrCat("model.", path), job.optimizer(), broken);
  };
  if (model.has_logistic_regression()) {
    check_table(model.logistic_regression().linear(),
                "logistic_regression.linear");
  }
  if (model.has_factorization_machine()) {
    check_table(model.factorization_machine().linear(),
                "factorization_machine.linear");
    check_table(model.factorization_machine().embedding().table(),
                "factorization_machine.embedding.table");
  }
  if (model.has_wide_and_deep()) {
    check_table(model.wide_and_deep().linear(), "wide_and_deep.linear");
    check_table(model.wide_and_deep().embedding().table(),
                "wide_and_deep.embedding.table");
  }
  if (model.has_deep_fm()) {
    check_table(model.deep_fm().linear(), "deep_fm.linear");
    check_table(model.deep_fm().embedding().table(), "deep_fm.embedding.table");
  }
  if (model.has_dlrm()) {
    check_table(model.dlrm().embedding().table(), "dlrm.embedding.table");
  }
}

}  // namespace holdfast
