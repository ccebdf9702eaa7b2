#include "cli/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/exit_code.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Said {
  int code = 0;
  std::string out;
  std::string error;
};

Said DataSays(std::vector<std::string> args) {
  Said said;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  said.code = DataCommand(args);
  said.out = testing::internal::GetCapturedStdout();
  said.error = testing::internal::GetCapturedStderr();
  return said;
}

std::string Write(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

// The deviation of 1, 2, 3 is sqrt(2 / 3).
TEST(DataCommandTest, TellsOfColumnsAndASchema) {
  const std::string path = Write("people.csv",
                                 "id,age,city,same,grade\n"
                                 "a,1,rome,5,2\n"
                                 "b,2,paris,5,0\n"
                                 "c,NA,rome,5,1\n"
                                 "d,3,,5,1\n"
                                 "e,3\n");
  const Said said = DataSays({"inspect", path});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("4 rows of 5 columns"),
                    HasSubstr("1 more rows are not as long; " + path +
                              ": line 6 has 2 cells in place of 5"),
                    HasSubstr("0.816497"), HasSubstr("rome (2), paris (1)")));
  EXPECT_THAT(
      said.out,
      HasSubstr(
          "csv {\n  files: \"" + path +
          "\"\n  missing: \"NA\"\n"
          "  columns { name: \"id\" category { values: \"a\" values: \"b\" "
          "values: \"c\" values: \"d\" } }\n"
          "  columns { name: \"age\" number { mean: 2 stddev: 0.816497 "
          "missing: 2 } }\n"
          "  columns { name: \"city\" category { values: \"rome\" values: "
          "\"paris\" other: OWN } }\n"
          "  # not used: \"same\", the same number in all rows\n"
          "  columns { name: \"grade\" label {} }\n}\n"));
  EXPECT_THAT(DataSays({"inspect", path, "--label=city"}).out,
              HasSubstr("label { values: \"paris\" values: \"rome\" }"));
  EXPECT_THAT(DataSays({"inspect", path, "--target=age"}).out,
              HasSubstr("columns { name: \"age\" target {} }"));
  const Said wrong = DataSays({"inspect", path, "--label=height"});
  EXPECT_EQ(wrong.code, kExitUsage);
  EXPECT_THAT(wrong.error, HasSubstr("there is no column \"height\"; there are "
                                     "id, age, city, same, grade"));
}

TEST(DataCommandTest, TellsOfColumnsWithoutNames) {
  const std::string path = Write("rows.tsv", "1\tx\n2\ty\n");
  const Said said = DataSays({"inspect", path, "--no_header", "--label=1"});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_THAT(said.out,
              HasSubstr("  delimiter: \"\\t\"\n  header: false\n"
                        "  columns { range { first: 0 } number { mean: 1.5 "
                        "stddev: 0.5 } }\n"
                        "  columns { range { first: 1 } label { values: \"x\" "
                        "values: \"y\" } }\n"));
}

TEST(DataCommandTest, TellsOfArrays) {
  const std::string path =
      Write("images-idx", std::string("\0\0\x08\x02\0\0\0\2\0\0\0\1\3\5", 14));
  const Said said = DataSays({"inspect", path});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_EQ(said.out, path + ": uint8 [2,1], from 3 to 5, mean 4, stddev 1\n");
}

TEST(DataCommandTest, SaysWhatIsWrong) {
  EXPECT_EQ(DataSays({}).code, kExitUsage);
  EXPECT_EQ(DataSays({"look"}).code, kExitUsage);
  EXPECT_EQ(DataSays({"inspect"}).code, kExitUsage);
  EXPECT_EQ(DataSays({"inspect", "--help"}).code, kExitDone);
  EXPECT_EQ(DataSays({"inspect", testing::TempDir() + "/none.csv"}).code,
            kExitFailed);
  EXPECT_THAT(DataSays({"inspect", Write("empty.csv", "a,b\n")}).error,
              HasSubstr("has no rows"));
  EXPECT_THAT(DataSays({"inspect", "x", "--format=xml"}).error,
              HasSubstr("must be csv, tsv, npy or idx"));
  EXPECT_THAT(DataSays({"inspect", "x", "--label=a", "--target=b"}).error,
              HasSubstr("exclude each other"));
}

}  // namespace
}  // namespace holdfast
