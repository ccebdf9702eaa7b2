// SPDX-License-Identifier: Apache-2.0
#include "cli/inspect_tfrecord.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "cli/table.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/data/find_files.h"
#include "common/data/image_decoder.h"
#include "common/data/tf_example.h"
#include "common/data/tfrecord_file.h"

namespace holdfast {
namespace {

// Minimum and maximum.
struct Range {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t greatest = 0;

  void Add(int64_t value) {
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  bool one() const { return least == greatest; }
  std::string Text() const {
    return one() ? absl::StrCat(least) : absl::StrCat(least, "-", greatest);
  }
};

// Statistics of a feature over the records that have it.
struct Profile {
  int64_t records = 0;
  // Kind in the first record, and whether all records have this kind.
  TfFeature::Kind kind = TfFeature::kNone;
  bool one_kind = true;
  Range values;
  // Sizes of byte strings.
  Range sizes;
  // Number of values that are image files, and a description of the first.
  int64_t images = 0;
  std::string image;
  Range heights;
  Range widths;
  // Statistics of numbers; the deviation is that of the population.
  int64_t numbers = 0;
  int64_t not_finite = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  double squares = 0;

  double stddev() const {
    return numbers > 0 ? std::sqrt(squares / static_cast<double>(numbers)) : 0;
  }
  // Whether the feature can be one of the model's inputs.
  bool is_numbers() const {
    return one_kind && kind != TfFeature::kBytes && values.one() &&
           values.least > 0 && not_finite == 0;
  }
  bool is_image() const { return images > 0 && images == records; }
  bool is_raw() const {
    return one_kind && kind == TfFeature::kBytes && values.one() &&
           values.least == 1 && sizes.one() && sizes.least > 0 && images == 0;
  }

  void AddNumber(double value) {
    if (!std::isfinite(value)) {
      ++not_finite;
      return;
    }
    min = numbers == 0 ? value : std::min(min, value);
    max = numbers == 0 ? value : std::max(max, value);
    ++numbers;
    const double before = value - mean;
    mean += before / static_cast<double>(numbers);
    squares += before * (value - mean);
  }
};

using Profiles = std::map<std::string, Profile>;

void AddBytes(absl::string_view value, Profile* profile) {
  profile->sizes.Add(value.size());
  const auto header = ReadImageHeader(
      {reinterpret_cast<const uint8_t*>(value.data()), value.size()});
  if (!header.ok()) return;
  if (profile->images++ == 0) profile->image = header->description;
  profile->heights.Add(header->height);
  profile->widths.Add(header->width);
}

// Returns false if the feature is damaged.
bool AddFeature(const TfFeature& feature, Profile* profile) {
  if (feature.empty()) return true;
  if (profile->records++ == 0) profile->kind = feature.kind;
  profile->one_kind = profile->one_kind && profile->kind == feature.kind;
  int64_t values = 0;
  bool good = true;
  if (feature.kind == TfFeature::kFloats) {
    std::vector<float> floats(feature.num_floats());
    feature.ReadFloats(floats.data());
    for (const float value : floats) profile->AddNumber(value);
    values = floats.size();
  } else if (feature.kind == TfFeature::kIntegers) {
    good = feature.ForEachInteger([&](int64_t value) {
      profile->AddNumber(static_cast<double>(value));
      ++values;
    });
  } else {
    feature.ForEachBytes([&](absl::string_view value) {
      AddBytes(value, profile);
      ++values;
    });
  }
  profile->values.Add(values);
  return good;
}

absl::string_view KindName(const Profile& profile) {
  if (!profile.one_kind) return "several kinds";
  switch (profile.kind) {
    case TfFeature::kBytes:
      return "bytes_list";
    case TfFeature::kFloats:
      return "float_list";
    case TfFeature::kIntegers:
      return "int64_list";
    case TfFeature::kNone:
      break;
  }
  return "nothing";
}

std::string Number(double value) { return absl::StrFormat("%.6g", value); }

void TellOf(const Profiles& profiles, int64_t records) {
  Table table({{"feature"},
               {"kind"},
               {"missing", true},
               {"values", true},
               {"bytes", true},
               {"min", true},
               {"max", true},
               {"mean", true},
               {"stddev", true},
               {"not finite", true},
               {"images"}});
  for (const auto& [name, profile] : profiles) {
    const bool has_numbers = profile.numbers > 0;
    table.Add({EscapedText(name), std::string(KindName(profile)),
               absl::StrCat(records - profile.records),
               profile.records > 0 ? profile.values.Text() : "",
               profile.kind == TfFeature::kBytes ? profile.sizes.Text() : "",
               has_numbers ? Number(profile.min) : "",
               has_numbers ? Number(profile.max) : "",
               has_numbers ? Number(profile.mean) : "",
               has_numbers ? Number(profile.stddev()) : "",
               profile.not_finite > 0 ? absl::StrCat(profile.not_finite) : "",
               profile.images > 0
                   ? absl::StrCat(profile.images, ": ", profile.heights.Text(),
                                  " x ", profile.widths.Text(), ", the first ",
                                  profile.image)
                   : ""});
  }
  for (const std::string& line : table.Lines()) std::cout << line << "\n";
}

// The feature whose name marks it as a label: "label", "image/class/label",
// "y_label".
std::string LabelAmong(const Profiles& profiles) {
  for (const auto& [name, profile] : profiles) {
    if (absl::EndsWith(absl::AsciiStrToLower(name), "label") &&
        profile.is_numbers() && profile.kind == TfFeature::kIntegers &&
        profile.values.least == 1) {
      return name;
    }
  }
  return "";
}

enum class Input { kImage, kNumbers, kRaw };

std::string InputOf(const Profile& profile, Input input, int64_t records) {
  const bool is_one = profile.values.least == 1;
  switch (input) {
    case Input::kImage:
      return absl::StrCat(
          "image { height: ", profile.heights.least,
          " width: ", profile.widths.least,
          profile.heights.one() && profile.widths.one() ? "" : " resize: CROP",
          absl::StrContains(profile.image, "grey") ? " channels: 1" : "", " }");
    case Input::kRaw:
      return "raw {}";
    case Input::kNumbers:
      break;
  }
  std::string text = "numbers {";
  if (!is_one) absl::StrAppend(&text, " size: ", profile.values.least);
  if (profile.stddev() > 0) {
    absl::StrAppend(&text, " mean: ", Number(profile.mean),
                    " stddev: ", Number(profile.stddev()));
  }
  if (profile.records < records) {
    absl::StrAppend(&text, " missing: ", Number(profile.mean));
  }
  return absl::StrCat(text, text.back() == '{' ? "}" : " }");
}

void SuggestSchema(const std::vector<std::string>& files,
                   const Profiles& profiles, int64_t records,
                   const std::string& answer, bool is_target) {
  const auto any = [&](auto is_such) {
    return std::any_of(
        profiles.begin(), profiles.end(), [&](const auto& profile) {
          return profile.first != answer && is_such(profile.second);
        });
  };
  const Input input =
      any([](const Profile& each) { return each.is_image(); }) ? Input::kImage
      : any([](const Profile& each) { return each.is_numbers(); })
          ? Input::kNumbers
          : Input::kRaw;
  std::cout << "tfrecord {\n";
  for (const std::string& file : files) {
    std::cout << "  files: \"" << EscapedText(file) << "\"\n";
  }
  bool has_array = false;
  for (const auto& [name, profile] : profiles) {
    const std::string quoted = absl::StrCat("\"", EscapedText(name), "\"");
    const std::string begin = absl::StrCat("  features { name: ", quoted, " ");
    if (name == answer) {
      const std::string size =
          profile.values.least == 1
              ? ""
              : absl::StrCat(" size: ", profile.values.least, " ");
      std::cout << begin
                << (is_target ? absl::StrCat("target {", size, "}")
                              : "label {}")
                << " }\n";
      continue;
    }
    const bool is_array = input != Input::kNumbers;
    const bool fits = input == Input::kImage ? profile.is_image()
                      : input == Input::kRaw ? profile.is_raw()
                                             : profile.is_numbers();
    if (fits && !(is_array && has_array)) {
      std::cout << begin << InputOf(profile, input, records) << " }\n";
      if (input == Input::kRaw) {
        std::cout
            << "  # Bytes (uint8); or the dimensions, with this product.\n"
            << "  shape: " << profile.sizes.least << "\n";
      }
      has_array = is_array;
      continue;
    }
    std::cout << "  # not used: " << quoted
              << (!profile.one_kind ? ", of several kinds"
                  : profile.not_finite > 0
                      ? ", which has numbers that are not finite"
                  : profile.records > 0 && !profile.values.one()
                      ? ", which does not always have the same number of values"
                      : "")
              << "\n";
  }
  std::cout << "}\n";
}

}  // namespace

absl::Status InspectTfRecord(const std::vector<std::string>& files,
                             absl::string_view answer, bool is_target) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto paths, FindFiles(files));
  Profiles profiles;
  TfExample example;
  int64_t records = 0;
  int64_t damaged = 0;
  for (const std::string& path : paths) {
    HOLDFAST_ASSIGN_OR_RETURN(auto reader, TfRecordReader::Open(path));
    TfRecordReader::Record record;
    while (true) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto more, reader.Next(&record));
      if (!more) break;
      if (!record.intact) {
        ++damaged;
        continue;
      }
      bool good = example.Parse(record.data);
      for (const TfFeature& feature : example.features()) {
        good =
            good && AddFeature(feature, &profiles[std::string(feature.name)]);
      }
      if (!good) {
        return reader.Error(absl::StatusCode::kInvalidArgument,
                            "its bytes do not parse as a tf.train.Example");
      }
      ++records;
    }
  }
  if (records == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", files[0], "\" has no records"));
  }
  const bool chosen = !answer.empty();
  const std::string learned =
      chosen ? std::string(answer) : LabelAmong(profiles);
  if (chosen && profiles.count(learned) == 0) {
    std::string names;
    for (const auto& [name, profile] : profiles) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no feature \"", learned, "\"; there are ", names));
  }
  std::cout << records << " records\n";
  if (damaged > 0) {
    std::cout << damaged << " more records have a wrong checksum\n";
  }
  std::cout << "\n";
  TellOf(profiles, records);
  std::cout << "\n# A schema to start from";
  if (learned.empty()) {
    std::cout << ". It has no label or target: name the feature to be learned\n"
                 "# with --label or --target";
  } else if (!chosen) {
    std::cout << "; \"" << EscapedText(learned)
              << "\" is assumed to be the label, unless --label or\n"
                 "# --target names another feature";
  }
  std::cout << ".\n";
  SuggestSchema(files, profiles, records, learned, is_target);
  return absl::OkStatus();
}

}  // namespace holdfast
