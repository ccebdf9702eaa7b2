// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_DATASET_H_
#define HOLDFAST_COMMON_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "common/data/typed_array.h"
#include "common/data/unpack.h"
#include "proto/job.pb.h"

namespace holdfast {

// The examples that a job file names: docs/data.md.
//
// Immutable, thus thread-safe.
class Dataset : public ExampleSource {
 public:
  struct Options {
    // Scaling of inputs that are arrays. The default of `scale` is 1/255 for
    // uint8, and 1 for other types.
    std::optional<float> scale;
    float mean = 0;
    float stddev = 1;
    // Whether to do without labels. Images then need no folders of classes, and
    // may all be in one folder.
    bool unlabeled = false;
    ReadingOptions reading;

    // The scaling of arrays of `type`.
    InputScaling ScalingOf(ElementType type) const;
  };
  // The options that the job specifies.
  static Options OptionsOf(const proto::Data& data);

  // Opens the data set that `config` names. Reads it once, and validates as
  // much as its format allows in advance.
  // Errors: those of the format, with file and position; INVALID_ARGUMENT when
  // the parts do not fit together.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const proto::Dataset& config, const Options& options);

  // Like Open, for a data set of IDX files.
  static absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(
      const std::string& images, const std::string& labels,
      const Options& options);

  // The position of the greatest label, for messages: "label 9 of example 3
  // (from 0) in "labels"". Empty if there are no labels.
  virtual std::string GreatestLabelPlace() const { return ""; }

  // If each example is a file, the path of example `index` within the data
  // set's folder; otherwise empty.
  virtual std::string FileOf(int64_t /*index*/) const { return ""; }

  // A digest of the stored examples, in hexadecimal: the same for a plain file
  // and a gzip file. For a source that generates its examples, a digest of what
  // determines them. Workers whose digests differ do not train together.
  virtual const std::string& digest() const = 0;
  // Whether the digest covers only samples (data_digest.h).
  virtual bool digest_is_sampled() const { return false; }

  // Bytes of examples: in memory of this process, and in mapped files, which
  // the kernel loads and evicts as needed.
  struct Footprint {
    int64_t memory = 0;
    int64_t mapped = 0;
  };
  virtual Footprint footprint() const { return {}; }

  // The number of rows that did not fit and were skipped, and what was wrong
  // with the first few.
  virtual int64_t skipped_rows() const { return 0; }
  virtual absl::Span<const std::string> skipped_because() const { return {}; }
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_DATASET_H_
