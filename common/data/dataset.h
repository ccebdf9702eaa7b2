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
    // Of inputs that are arrays. Default: 1/255 for uint8, 1 for other types.
    std::optional<float> scale;
    float mean = 0;
    float stddev = 1;
    // Nobody wants labels: images need no folders of classes, and may lie in
    // one.
    bool unlabeled = false;
    ReadingOptions reading;

    // Of arrays of `type`.
    InputScaling ScalingOf(ElementType type) const;
  };
  // Those that the job says.
  static Options OptionsOf(const proto::Data& data);

  // Opens what `config` names: reads it once, and tests it as far as its format
  // is tested beforehand.
  // Errors: those of the format, which name file and place; INVALID_ARGUMENT
  // when the parts do not belong together.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const proto::Dataset& config, const Options& options);

  // The same, of an Idx of these files.
  static absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(
      const std::string& images, const std::string& labels,
      const Options& options);

  // Where the greatest label stands, for messages: "label 9 of example 3 (from
  // 0) in "labels"". Empty where there are none.
  virtual std::string GreatestLabelPlace() const { return ""; }

  // Of a source whose examples are files each, the name of one: its path within
  // the data set's folder. Empty: they are not.
  virtual std::string FileOf(int64_t /*index*/) const { return ""; }

  // In hexadecimal, of the examples as they are stored: the same for a plain
  // file and a gzip file. Of a source that makes its examples, of what they
  // follow from: workers whose digests differ do not train together.
  virtual const std::string& digest() const = 0;
  // Whether it is of samples (data_digest.h).
  virtual bool digest_is_sampled() const { return false; }

  // Bytes of examples: in memory of this process, and in mapped files, which
  // the kernel reads and forgets as it needs.
  struct Footprint {
    int64_t memory = 0;
    int64_t mapped = 0;
  };
  virtual Footprint footprint() const { return {}; }

  // Rows that did not fit and were left out, and what was wrong with the first
  // few.
  virtual int64_t skipped_rows() const { return 0; }
  virtual absl::Span<const std::string> skipped_because() const { return {}; }
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_DATASET_H_
