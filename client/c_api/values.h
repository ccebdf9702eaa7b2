// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_VALUES_H_
#define HOLDFAST_CLIENT_C_API_VALUES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/background_calls.h"
#include "client/c_api/error.h"
#include "client/c_api/holdfast.h"
#include "client/c_api/variable_facts.h"
#include "client/cluster.h"
#include "client/row_request.h"
#include "proto/cluster.pb.h"

namespace holdfast::c_api {

class Connection;

// The object behind a handle on the values of all variables.
class Values {
 public:
  // Makes the object for the values of a pull that is in progress.
  Values(std::shared_ptr<Connection> connection,
         std::shared_ptr<const Parameters> values, client::RowRequest rows,
         std::shared_ptr<BackgroundCalls::Call> call);
  // Makes the object for values that are already available.
  Values(std::shared_ptr<const Declared> declared,
         std::shared_ptr<const Parameters> values);
  // The same for the values of a checkpoint, whose tables, if any, are read
  // from its folder when they are asked for.
  Values(std::shared_ptr<const Declared> declared,
         std::shared_ptr<const Parameters> values, std::string folder,
         std::vector<uint64_t> num_rows);

  void GiveUp() { given_up_ = true; }

  Error Await(absl::Time until);
  // Returns INVALID if Await has not succeeded.
  Error Check() const;
  // The following require that Await has succeeded.
  uint64_t step() const { return values_->version.value(); }
  size_t count() const { return declared_->variables.size(); }
  void GetVariable(size_t index, holdfast_variable* variable) const;
  // Reads the rows that were pulled with the values.
  Error GetRows(size_t index, absl::Span<float> into) const;
  std::string Digest() const;

  const std::shared_ptr<const Declared>& declared() const { return declared_; }
  const std::shared_ptr<const Parameters>& parameters() const {
    return values_;
  }

  // The tables of a checkpoint; there are none if the values are not from one.
  size_t num_tables() const { return num_rows_.size(); }
  // The following return INVALID if there is no such table.
  Error GetTable(size_t table, holdfast_table* into) const;
  Error GetNumRows(size_t table, size_t* count) const;
  // Reads all rows of a table, in the order of ids. Also INVALID unless `ids`
  // has as many elements as the table has rows. `values`: room for them all.
  // Other errors are those of the checkpoint's files.
  Error ReadTable(size_t table, absl::Span<uint64_t> ids, float* values) const;

 private:
  Error CheckTable(size_t table) const;

  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<const Parameters> values_;
  const client::RowRequest rows_;
  const std::shared_ptr<BackgroundCalls::Call> call_;
  std::atomic<bool> given_up_{false};
  std::atomic<bool> here_{false};
  const std::shared_ptr<const Declared> declared_;
  // The folder of the checkpoint, and the number of rows of each of its tables.
  const std::string folder_;
  const std::vector<uint64_t> num_rows_;
};

// Reads the checkpoint in the folder `path`, or the newest durable one in the
// directory `path`. Errors: those of its files.
absl::StatusOr<std::shared_ptr<Values>> LoadCheckpoint(const std::string& path);

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_VALUES_H_
