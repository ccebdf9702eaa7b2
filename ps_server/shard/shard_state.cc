// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/shard_state.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/row_bucket.h"

namespace holdfast {

absl::StatusOr<std::vector<std::unique_ptr<EmbeddingTable>>> CreateTables(
    const proto::Declaration& declaration, uint32_t ps, uint32_t num_ps,
    const std::vector<int64_t>& max_bytes) {
  std::vector<std::unique_ptr<EmbeddingTable>> tables;
  for (int i = 0; i < declaration.tables_size(); ++i) {
    const proto::EmbeddingTable& declared = declaration.tables(i);
    if (declared.optimizer() >=
        static_cast<uint32_t>(declaration.optimizers_size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table \"", declared.name(), "\": there is no optimizer ",
          declared.optimizer(), ", only ", declaration.optimizers_size()));
    }
    EmbeddingTable::Options options;
    options.seed = declaration.seed();
    options.buckets = BucketsOfPs(ps, num_ps);
    if (!max_bytes.empty()) options.max_bytes = max_bytes[i];
    HOLDFAST_ASSIGN_OR_RETURN(
        auto table,
        EmbeddingTable::Create(
            declared, declaration.optimizers(declared.optimizer()), options));
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace holdfast
