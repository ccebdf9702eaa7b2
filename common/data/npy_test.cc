// SPDX-License-Identifier: Apache-2.0
#include "common/data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/data/data_cache.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Path(const std::string& name) {
  return testing::TempDir() + "/npy_test." + name;
}

std::string Write(const std::string& content) {
  std::ofstream(Path("a.npy"), std::ios::binary | std::ios::trunc) << content;
  return Path("a.npy");
}

// The format of numpy.save, except for the padding.
std::string Npy(const std::string& descr, const std::string& shape,
                const std::string& values, bool fortran = false,
                char version = 1) {
  const std::string header = absl::StrCat(
      "{'descr': '", descr, "', 'fortran_order': ", fortran ? "True" : "False",
      ", 'shape': ", shape, ", }\n");
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  const int digits = version == 1 ? 2 : 4;
  for (int i = 0; i < digits; ++i) {
    file += static_cast<char>(header.size() >> (8 * i));
  }
  return file + header + values;
}

template <typename T>
std::string BytesOf(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()),
          numbers.size() * sizeof(T)};
}

absl::Status ReadError(const std::string& content) {
  const std::string path = Write(content);
  const absl::Status status = ReadNpy(path).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(path));
  return status;
}

TEST(NpyTest, ReadsArrays) {
  const std::string floats = BytesOf<float>({1, 2, 3, 4, 5, 6.5f});
  for (const char version : {1, 2, 3}) {
    const auto array =
        ReadNpy(Write(Npy("<f4", "(3, 2)", floats, false, version)));
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_THAT(array->shape, ElementsAre(3, 2));
    EXPECT_EQ(array->type, ElementType::kFloat32);
    EXPECT_EQ(array->FloatAt(5), 6.5f);
  }
  auto array = ReadNpy(Write(Npy("<i8", "(2,)", BytesOf<int64_t>({-1, 9}))));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->shape, ElementsAre(2));
  EXPECT_EQ(array->IntegerAt(0), -1);
  array = ReadNpy(Write(Npy(">i2", "(2,)", std::string("\0\1\xff\xfe", 4))));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->IntegerAt(0), 1);
  EXPECT_EQ(array->IntegerAt(1), -2);
  array = ReadNpy(Write(Npy("|b1", "(2, 1)", std::string("\1\0", 2))));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->type, ElementType::kUint8);
}

TEST(NpyTest, SaysWhatItCannotRead) {
  const std::string values = BytesOf<float>({1, 2});
  struct Case {
    std::string content;
    absl::StatusCode code;
    std::string message;
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto loss = absl::StatusCode::kDataLoss;
  for (const Case& c : std::vector<Case>{
           {"", loss, "ends within its header"},
           {"hello, world", invalid, "it is not a .npy file"},
           {"PK\3\4....", invalid, "name one of its arrays: \"FILE.npz:NAME\""},
           {Npy("<f4", "(2,)", values, true), invalid, "ascontiguousarray"},
           {Npy("<f2", "(2,)", values), invalid, "its type is \"<f2\""},
           {Npy("|O", "(2,)", values), invalid, "its type is \"|O\""},
           {Npy("<f4", "()", values), invalid, "it is a single number"},
           {Npy("<f4", "(0, 2)", ""), invalid, "it is empty"},
           {Npy("<f4", "(2,)", values, false, 9), invalid, "version 9"},
           {Npy("<f4", "(3,)", values), loss,
            "(3) float32 take more than the 8 bytes"},
           {Npy("<f4", "(9223372036854775807, 9)", values), loss, "ends early"},
           {Npy("<f4", "(1,)", values), loss,
            "4 bytes after the end of the array"}}) {
    const absl::Status status = ReadError(c.content);
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
}

TEST(NpyTest, NoticesEveryTruncation) {
  const std::string whole = Npy("<f4", "(2,)", BytesOf<float>({1, 2}));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(ReadError(whole.substr(0, size)).code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
}

// With any damaged byte in the header, the array still fits into the file.
TEST(NpyTest, AnyByteMayBeDamaged) {
  const std::string whole = Npy("<f4", "(2, 3)", std::string(24, '\1'));
  for (size_t place = 0; place < whole.size(); ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[place] ^= 1 << bit;
      const auto array = ReadNpy(Write(damaged));
      if (!array.ok()) continue;
      EXPECT_EQ(static_cast<int64_t>(array->bytes.size()),
                array->rows() * array->row_size() * TypeSize(array->type));
    }
  }
}

void WriteArchive(const std::string& path,
                  const std::map<std::string, std::string>& files,
                  int compression) {
  std::remove(path.c_str());
  zip_t* const archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
  ASSERT_NE(archive, nullptr);
  for (const auto& [name, content] : files) {
    zip_source_t* const source =
        zip_source_buffer(archive, content.data(), content.size(), 0);
    const zip_int64_t index =
        zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
    ASSERT_GE(index, 0);
    ASSERT_EQ(zip_set_file_compression(archive, index, compression, 0), 0);
  }
  ASSERT_EQ(zip_close(archive), 0);
}

TEST(NpyTest, ReadsArraysOfArchives) {
  const std::string path = Path("data.npz");
  for (const int compression : {ZIP_CM_STORE, ZIP_CM_DEFLATE}) {
    WriteArchive(path,
                 {{"x.npy", Npy("<f4", "(2, 1)", BytesOf<float>({1, 2}))},
                  {"y.npy", Npy("|u1", "(2,)", "\3\4")}},
                 compression);
    auto array = ReadNpy(path + ":x");
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->FloatAt(1), 2);
    array = ReadNpy(path + ":y");
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->IntegerAt(1), 4);
  }
  const absl::Status other = ReadNpy(path + ":z").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(other.message(),
              AllOf(HasSubstr(path + ":z"), HasSubstr("it has x, y")));
  EXPECT_EQ(ReadNpy(Path("missing.npz") + ":x").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadNpy(Path("missing.npy")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(NpyTest, UnpacksIntoTheCache) {
  const std::string folder = testing::TempDir() + "/npy_cache";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/test.npz";
  WriteArchive(path,
               {{"x.npy", Npy("<f4", "(2,)", BytesOf<float>({1, 2}))},
                {"y.npy", Npy("<f4", "(2,)", BytesOf<float>({3, 4}))}},
               ZIP_CM_DEFLATE);
  int lines = 0;
  const auto cache =
      DataCache::Open(folder, [&](const std::string&) { ++lines; });
  ASSERT_TRUE(cache.ok()) << cache.status();
  ReadingOptions options;
  options.cache = cache->get();
  for (int i = 0; i < 2; ++i) {
    const auto x = ReadNpy(path + ":x", options);
    ASSERT_TRUE(x.ok()) << x.status();
    EXPECT_TRUE(x->mapped);
    EXPECT_EQ(x->FloatAt(1), 2);
    const auto y = ReadNpy(path + ":y", options);
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ(y->FloatAt(0), 3);
  }
  EXPECT_EQ(lines, 4);
  EXPECT_EQ(ReadNpy(path + ":z", options).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadNpy(path + ":x")->mapped);
}

TEST(NpyTest, NoticesDamagedArchives) {
  const std::string path = Path("damaged.npz");
  const std::string values = "a rather particular string";
  WriteArchive(
      path,
      {{"x.npy", Npy("|u1", absl::StrCat("(", values.size(), ",)"), values)}},
      ZIP_CM_STORE);
  std::ifstream in(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(in)), {});
  content[content.find(values)] ^= 1;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  const absl::Status status = ReadNpy(path + ":x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.message(), HasSubstr("CRC"));
}

}  // namespace
}  // namespace holdfast
