// SPDX-License-Identifier: Apache-2.0
#include "common/data/criteo.h"

#include "absl/strings/str_cat.h"

namespace holdfast {

CsvTable CriteoTable(const proto::Criteo& config, bool unlabeled) {
  CsvTable table;
  proto::Csv& csv = table.config;
  *csv.mutable_files() = config.files();
  csv.set_skip_bad_rows(config.skip_bad_rows());
  csv.set_delimiter("\t");
  csv.set_header(false);
  table.names.push_back("label");
  if (!unlabeled) {
    proto::CsvColumn* const label = csv.add_columns();
    label->add_name(table.names.back());
    label->mutable_label();
  }
  for (int i = 1; i <= kCriteoNumbers; ++i) {
    table.names.push_back(absl::StrCat("I", i));
    proto::CsvColumn* const column = csv.add_columns();
    column->add_name(table.names.back());
    column->mutable_number()->set_log1p(true);
    column->mutable_number()->set_missing(0);
  }
  for (int i = 1; i <= kCriteoCategories; ++i) {
    table.names.push_back(absl::StrCat("C", i));
    proto::CsvColumn* const column = csv.add_columns();
    column->add_name(table.names.back());
    column->mutable_ids()->set_missing(proto::CsvColumn::OWN);
  }
  return table;
}

}  // namespace holdfast
