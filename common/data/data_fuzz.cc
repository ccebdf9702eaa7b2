// SPDX-License-Identifier: Apache-2.0

// A libFuzzer target: the reader accepts or refuses any bytes of a data file,
// and what it accepts conforms to the format. Run by data_fuzz_test.sh:
//
//   data_fuzz FORMAT SEEDS_FOLDER [flags of libFuzzer]
//
// FORMAT is tfrecord, image, idx, npy, csv, ids (a cell of CSV) or libsvm.
// Before it begins, it writes seed files into the folder.

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/data/csv_reader.h"
#include "common/data/csv_rows.h"
#include "common/data/csv_schema.h"
#include "common/data/id_hash.h"
#include "common/data/idx.h"
#include "common/data/image_decoder.h"
#include "common/data/image_fit.h"
#include "common/data/libsvm_line.h"
#include "common/data/npy.h"
#include "common/data/testing/image_testing.h"
#include "common/data/tf_example.h"
#include "common/data/tfrecord_file.h"
#include "common/data/tfrecord_frame.h"
#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// ---- Checks of an input ----

// Readers take paths: the path of an in-memory file called `name`, the same for
// each input.
std::string AsFile(const char* name, const uint8_t* data, size_t size) {
  static const int fd = memfd_create("input", 0);
  static const std::string folder = [] {
    const char* const given = std::getenv("TEST_TMPDIR");
    std::string path =
        absl::StrCat(given != nullptr ? given : "/tmp", "/data_fuzz.XXXXXX");
    Expect(mkdtemp(&path[0]) != nullptr, "there is no folder for the input");
    return path;
  }();
  const std::string path = absl::StrCat(folder, "/", name);
  if (access(path.c_str(), F_OK) != 0) {
    const std::string file = absl::StrCat("/proc/self/fd/", fd);
    Expect(symlink(file.c_str(), path.c_str()) == 0, "no link could be made");
  }
  Expect(ftruncate(fd, 0) == 0 &&
             pwrite(fd, data, size, 0) == static_cast<ssize_t>(size),
         "the input could not be written");
  return path;
}

void ReadWhole(const TypedArray& array) {
  Expect(!array.shape.empty(), "an array without dimensions");
  size_t size = TypeSize(array.type);
  for (const int64_t each : array.shape) {
    Expect(each > 0, "an empty array");
    size *= each;
  }
  Expect(array.bytes.size() == size, "bytes that are not those of the shape");
  std::vector<float> numbers(array.row_size());
  for (int64_t row = 0; row < array.rows(); ++row) {
    array.ReadFloats(row * numbers.size(), {}, absl::MakeSpan(numbers));
  }
}

void FuzzIdx(const uint8_t* data, size_t size) {
  const auto array = ReadIdx(AsFile("x.idx", data, size));
  if (array.ok()) ReadWhole(*array);
}

// The first byte tells whether it is an archive.
void FuzzNpy(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const auto array = data[0] % 2 == 0
                         ? ReadNpy(AsFile("x.npy", data + 1, size - 1))
                         : ReadNpy(AsFile("x.npz", data + 1, size - 1) + ":x");
  if (array.ok()) ReadWhole(*array);
}

// The rows read from a prefix of a text are a prefix of the rows of the whole.
void FuzzCsvRows(const uint8_t* data, size_t size) {
  // Allocated with its exact size, so that any access outside it is detected.
  const std::unique_ptr<char[]> copy(new char[size]);
  std::memcpy(copy.get(), data, size);
  const absl::string_view text(copy.get(), size);
  CsvRows whole(text, ',', /*is_last=*/true);
  CsvRows begun(text, ',', /*is_last=*/false);
  std::vector<absl::string_view> row, same_row;
  while (begun.Next(&row) == CsvRows::Result::kRow) {
    Expect(whole.Next(&same_row) == CsvRows::Result::kRow && row == same_row,
           "another row where the text ends than where it goes on");
  }
}

void FuzzCsv(const uint8_t* data, size_t size) {
  if (size > 0) FuzzCsvRows(data, size);
  const bool is_gzip = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
  const auto reader = CsvReader::Open(AsFile("x.csv", data, size), ',');
  // The first piece of a gzip file may have been unpacked.
  if (!reader.ok()) return;
  std::vector<absl::string_view> row;
  int64_t line = 0;
  while (true) {
    const auto more = (*reader)->Next(&row);
    if (!more.ok() || !*more) return;
    Expect((*reader)->line() > line, "two rows in one line");
    line = (*reader)->line();
    Expect(!row.empty(), "a row without cells");
    size_t bytes = row.size() - 1;
    for (const absl::string_view cell : row) bytes += cell.size();
    // A packed file may be larger than the input.
    Expect(is_gzip || bytes <= size, "more in the cells than in the file");
  }
}

// The first byte determines the columns: ids that are hashes or numbers, one or
// three per cell, and the treatment of missing ones.
void FuzzIds(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const bool numbers = data[0] & 1;
  const bool several = data[0] & 2;
  const auto missing = static_cast<proto::CsvColumn::Other>(data[0] / 4 % 3);
  proto::Csv config;
  config.add_missing("NA");
  config.add_columns()->add_name("u");
  proto::CsvColumn::Ids* const ids = config.mutable_columns(0)->mutable_ids();
  ids->set_numbers(numbers);
  ids->set_missing(missing);
  if (several) {
    ids->set_separator("|");
    ids->set_max_ids(3);
  }
  const absl::string_view names[] = {"u"};
  const auto schema = CsvSchema::Create(config, names);
  Expect(schema.ok(), "no schema");
  const size_t max_ids = several ? 3 : 1;
  Expect(static_cast<size_t>(schema->spec().max_ids()) == max_ids,
         "another number of ids");
  // Allocated with its exact size, so that any access outside it is detected.
  const std::unique_ptr<char[]> copy(new char[size - 1]);
  std::memcpy(copy.get(), data + 1, size - 1);
  const absl::string_view cell(copy.get(), size - 1);
  std::vector<uint32_t> cells(schema->cells());
  if (!schema->Pack({cell}, absl::MakeSpan(cells)).ok()) return;
  std::vector<uint64_t> got(max_ids);
  uint32_t count = 0;
  ExampleMemory to;
  to.ids = absl::MakeSpan(got);
  to.id_counts = absl::MakeSpan(&count, 1);
  schema->Unpack(cells.data(), to);
  Expect(count <= max_ids, "more ids than there may be");
  Expect(count > 0 || missing == proto::CsvColumn::NONE, "no id");
  if (numbers || several || cell.empty() || cell == "NA") return;
  Expect(got[0] == IdHash(IdSeed("u"), cell), "not the hash of the cell");
}

void FuzzLibsvm(const uint8_t* data, size_t size) {
  const std::unique_ptr<char[]> copy(new char[size]);
  if (size > 0) std::memcpy(copy.get(), data, size);
  LibsvmLine line(absl::string_view(copy.get(), size));
  uint64_t index = 0;
  float value = 0;
  size_t bytes = line.label().size();
  LibsvmLine::Result result;
  while ((result = line.Next(&index, &value)) == LibsvmLine::Result::kFeature) {
    Expect(std::isfinite(value), "a value that is not finite");
    bytes += line.part().size() + 1;
  }
  Expect((result == LibsvmLine::Result::kFault) != line.part().empty(),
         "a fault without a place");
  Expect(bytes <= line.text().size() + 1, "more in the parts than in the line");
}

// Corrects the checksums of a PNG's chunks, because no mutation would find a
// valid one.
//
//   PNG   = signature{8} *chunk
//   chunk = size{4, big-endian} type{4} data{size} checksum{4}
void MendPng(std::vector<uint8_t>* file) {
  if (file->size() < 8 || (*file)[0] != 0x89) return;
  size_t at = 8;
  while (file->size() - at >= 12) {
    uint8_t* const chunk = file->data() + at;
    const size_t size =
        size_t{chunk[0]} << 24 | chunk[1] << 16 | chunk[2] << 8 | chunk[3];
    if (size > file->size() - at - 12) return;
    const uint32_t crc = crc32(0, chunk + 4, size + 4);
    for (int i = 0; i < 4; ++i) {
      chunk[8 + size + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
    }
    at += 12 + size;
  }
}

void FuzzImage(const uint8_t* data, size_t size) {
  std::vector<uint8_t> mended(data, data + size);
  MendPng(&mended);
  const absl::Span<const uint8_t> file(mended);
  const auto header = ReadImageHeader(file);
  if (header.ok() && header->height * header->width > 1 << 16) return;
  const int64_t channels = size % 2 == 0 ? 1 : 3;
  const auto pixels = DecodeImage(file, channels, /*background=*/77);
  if (!pixels.ok()) return;
  Expect(header.ok(), "an image with a header that is refused");
  Expect(pixels->height == header->height && pixels->width == header->width,
         "another size than the header's");
  std::vector<uint8_t> fit(7 * 5 * channels);
  for (const ImageFit how : {ImageFit::kStretch, ImageFit::kCrop}) {
    FitImage(*pixels, how, 7, 5, fit.data());
  }
}

// The example parsed by protoc's code, as text: features by name, the last of
// each.
std::string ByGeneratedCode(absl::string_view record) {
  proto::tensorflow::Example example;
  if (!example.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
    return "none";
  }
  std::string said;
  for (const auto& entry : example.features().feature()) {
    const proto::tensorflow::Feature& value = entry.value();
    absl::StrAppend(&said, entry.key(), "=", int{value.kind_case()}, ":");
    for (const std::string& each : value.bytes_list().value()) {
      absl::StrAppend(&said, each.size(), ":", each);
    }
    for (const float each : value.float_list().value()) {
      uint32_t bits;
      std::memcpy(&bits, &each, sizeof(bits));
      absl::StrAppend(&said, bits, ",");
    }
    for (const int64_t each : value.int64_list().value()) {
      absl::StrAppend(&said, each, ",");
    }
  }
  return said;
}

std::string ByOurs(absl::string_view record) {
  TfExample example;
  if (!example.Parse(record)) return "none";
  std::string said;
  for (const TfFeature& feature : example.features()) {
    absl::StrAppend(&said, feature.name, "=", int{feature.kind}, ":");
    if (feature.kind == TfFeature::kBytes) {
      feature.ForEachBytes([&](absl::string_view each) {
        absl::StrAppend(&said, each.size(), ":", each);
      });
    } else if (feature.kind == TfFeature::kFloats) {
      std::vector<float> floats(feature.num_floats());
      feature.ReadFloats(floats.data());
      for (const float each : floats) {
        uint32_t bits;
        std::memcpy(&bits, &each, sizeof(bits));
        absl::StrAppend(&said, bits, ",");
      }
    } else if (!feature.ForEachInteger(
                   [&](int64_t each) { absl::StrAppend(&said, each, ","); })) {
      return "none";
    }
  }
  return said;
}

// The first byte tells whether it is a file or a record, which is put into a
// file, because no mutation would find a valid checksum.
void FuzzTfRecord(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const bool is_record = data[0] % 2 != 0;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (is_record) {
    const std::string content = file;
    file.clear();
    AppendTfRecord(content, &file);
  }
  auto reader = TfRecordReader::Open(AsFile(
      ".tfrecord", reinterpret_cast<const uint8_t*>(file.data()), file.size()));
  if (!reader.ok()) return;
  TfRecordReader::Record record;
  while (true) {
    const auto more = reader->Next(&record);
    if (!more.ok() || !*more) break;
    Expect(ByOurs(record.data) == ByGeneratedCode(record.data),
           "another Example than protoc's code finds");
  }
  if (is_record) {
    Expect(reader->records() == 1 && record.intact, "the record was not read");
  }
}

// ---- Seeds ----

std::string Gzip(const std::string& plain) {
  z_stream stream = {};
  Expect(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) ==
             Z_OK,
         "gzip");
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(plain.data()));
  stream.avail_in = plain.size();
  stream.next_out = reinterpret_cast<uint8_t*>(&packed[0]);
  stream.avail_out = packed.size();
  Expect(deflate(&stream, Z_FINISH) == Z_STREAM_END, "gzip");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::vector<std::string> IdxSeeds() {
  std::string floats = IdxHeader({2, 2}) + std::string(16, '\1');
  floats[2] = 0x0d;
  const std::string bytes = IdxHeader({3, 1, 2}) + "abcdef";
  return {bytes, floats, Gzip(bytes)};
}

std::string Npy(const std::string& descr, const std::string& shape,
                const std::string& values) {
  const std::string header =
      absl::StrCat("{'descr': '", descr,
                   "', 'fortran_order': False, 'shape': ", shape, ", }\n");
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) +
         '\0' + header + values;
}

// A zip archive with the uncompressed member "x.npy".
std::string Zip(const std::string& member) {
  const auto number = [](uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) {
      text += static_cast<char>(value >> (8 * i));
    }
    return text;
  };
  const std::string name = "x.npy";
  const uint32_t crc =
      crc32(0, reinterpret_cast<const uint8_t*>(member.data()), member.size());
  // Flags, method, time, date, checksum, sizes, length of the name.
  const std::string about = number(0, 2) + number(0, 2) + number(0, 2) +
                            number(0x21, 2) + number(crc, 4) +
                            number(member.size(), 4) +
                            number(member.size(), 4) + number(name.size(), 2);
  const std::string local =
      "PK\3\4" + number(20, 2) + about + number(0, 2) + name + member;
  const std::string entry = "PK\1\2" + number(20, 2) + number(20, 2) + about +
                            number(0, 2 + 2 + 2 + 2 + 4) + number(0, 4) + name;
  return local + entry + "PK\5\6" + number(0, 2 + 2) + number(1, 2) +
         number(1, 2) + number(entry.size(), 4) + number(local.size(), 4) +
         number(0, 2);
}

std::vector<std::string> NpySeeds() {
  const std::string array = Npy("<f4", "(2, 2)", std::string(16, '\1'));
  return {std::string(1, '\0') + array,
          std::string(1, '\0') + Npy(">i2", "(3,)", "abcdef"),
          "\1" + Zip(array)};
}

std::vector<std::string> CsvSeeds() {
  const std::string table =
      "a,b,c\r\n1,\"x\"\"y\",3\n\n 4 ,\"5\n6\",\n\"\",,-1e5\n";
  return {table, "\xef\xbb\xbf" + table, Gzip(table)};
}

std::vector<std::string> IdsSeeds() {
  std::vector<std::string> seeds;
  for (const char kind : {0, 1, 2, 3, 7, 10}) {
    seeds.push_back(std::string(1, kind) + "17");
    seeds.push_back(std::string(1, kind) + " 18446744073709551615| |NA|7");
    seeds.push_back(std::string(1, kind));
  }
  return seeds;
}

std::vector<std::string> LibsvmSeeds() {
  return {"+1 3:0.5 17:1 4096:-2.25e3  # comment",
          "-1\t18446744073709551615:1\r", "1:2 3:4", "0"};
}

std::vector<std::string> ImageSeeds() {
  PngImage palette = {4, 4, 2, 3, false, std::string(4, '\x1b')};
  palette.palette = {
      {1, 2, 3, 255}, {4, 5, 6, 9}, {7, 8, 9, 0}, {1, 1, 1, 255}};
  const std::string pixels = RandomPixels(8 * 8 * 4, 1);
  const std::string rgb = pixels.substr(0, 8 * 8 * 3);
  return {EncodePng(palette),
          EncodePng({8, 8, 8, 6, true, pixels}),
          EncodePng({8, 8, 16, 0, false, pixels.substr(0, 128)}),
          EncodeJpeg(8, 8, 3, rgb),
          EncodeJpeg(8, 8, 3, rgb, /*progressive=*/true),
          EncodeJpeg(8, 8, 1, pixels.substr(0, 64))};
}

std::vector<std::string> TfRecordSeeds() {
  proto::tensorflow::Example example;
  const auto add = [&example](const std::string& name) {
    auto* const entry = example.mutable_features()->add_feature();
    entry->set_key(name);
    return entry->mutable_value();
  };
  add("x")->mutable_float_list()->add_value(1.5f);
  add("i")->mutable_int64_list()->add_value(-300);
  add("b")->mutable_bytes_list()->add_value("bytes");
  add("none");
  const std::string record = example.SerializeAsString();
  std::string file;
  AppendTfRecord(record, &file);
  AppendTfRecord("", &file);
  return {std::string(1, '\0') + file, std::string(1, '\0') + Gzip(file),
          "\1" + record};
}

struct Format {
  const char* name;
  void (*fuzz)(const uint8_t* data, size_t size);
  std::vector<std::string> (*seeds)();
};
constexpr Format kFormats[] = {
    {"tfrecord", FuzzTfRecord, TfRecordSeeds},
    {"image", FuzzImage, ImageSeeds},
    {"idx", FuzzIdx, IdxSeeds},
    {"npy", FuzzNpy, NpySeeds},
    {"csv", FuzzCsv, CsvSeeds},
    {"ids", FuzzIds, IdsSeeds},
    {"libsvm", FuzzLibsvm, LibsvmSeeds},
};
const Format* format = nullptr;

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using holdfast::Expect;
  Expect(*argc >= 3, "usage: data_fuzz FORMAT SEEDS_FOLDER [flags]");
  for (const holdfast::Format& each : holdfast::kFormats) {
    if (std::strcmp((*argv)[1], each.name) == 0) holdfast::format = &each;
  }
  Expect(holdfast::format != nullptr, "no such format");
  int seed = 0;
  for (const std::string& content : holdfast::format->seeds()) {
    const std::string path = absl::StrCat((*argv)[2], "/seed-", seed++);
    std::ofstream(path, std::ios::binary) << content;
  }
  // The folder and the flags are passed on to libFuzzer.
  (*argv)[1] = (*argv)[0];
  ++*argv;
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::format->fuzz(data, size);
  return 0;
}
