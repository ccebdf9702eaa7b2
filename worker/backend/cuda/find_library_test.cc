// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/find_library.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PythonLibraryFoldersTest : public ::testing::Test {
 protected:
  // Makes the folder and its parents.
  static void MakeFolder(const std::string& folder) {
    std::string path;
    const std::vector<std::string> parts = absl::StrSplit(folder, '/');
    for (const std::string& part : parts) {
      absl::StrAppend(&path, part, "/");
      ASSERT_TRUE(mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) << path;
    }
  }

  // A Python below `prefix`, with some of NVIDIA's packages.
  void MakePython(const std::string& prefix) {
    MakeFolder(prefix + "/bin");
    std::ofstream python(prefix + "/bin/python3");
    ASSERT_EQ(chmod((prefix + "/bin/python3").c_str(), 0755), 0);
    MakeFolder(Packages(prefix) + "cudnn/lib");
    MakeFolder(Packages(prefix) + "cu13/lib");
    MakeFolder(Packages(prefix) + "nccl/lib");
  }

  static std::string Packages(const std::string& prefix) {
    return prefix + "/lib/python3.11/site-packages/nvidia/";
  }

  const std::string root_ = absl::StrCat(
      absl::StripSuffix(::testing::TempDir(), "/"), "/",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(PythonLibraryFoldersTest, OfTheFirstPythonOnThePath) {
  MakePython(root_ + "/first");
  MakePython(root_ + "/second");
  MakeFolder(root_ + "/empty/bin");
  EXPECT_THAT(
      PythonLibraryFolders(absl::StrCat(root_, "/empty/bin::", root_,
                                        "/first/bin/:", root_, "/second/bin"),
                           ""),
      ElementsAre(Packages(root_ + "/first") + "cudnn/lib",
                  Packages(root_ + "/first") + "cu13/lib"));
}

TEST_F(PythonLibraryFoldersTest, OfAVirtualEnvironmentAndItsPython) {
  MakePython(root_ + "/python");
  MakePython(root_ + "/venv");
  const std::string link = root_ + "/venv/bin/python3";
  ASSERT_EQ(unlink(link.c_str()), 0);
  ASSERT_EQ(symlink((root_ + "/python/bin/python3").c_str(), link.c_str()), 0);
  EXPECT_THAT(PythonLibraryFolders(root_ + "/venv/bin", ""),
              ElementsAre(Packages(root_ + "/venv") + "cudnn/lib",
                          Packages(root_ + "/venv") + "cu13/lib",
                          Packages(root_ + "/python") + "cudnn/lib",
                          Packages(root_ + "/python") + "cu13/lib"));
  EXPECT_THAT(PythonLibraryFolders("", root_ + "/venv"),
              ElementsAre(Packages(root_ + "/venv") + "cudnn/lib",
                          Packages(root_ + "/venv") + "cu13/lib"));
}

// One link is relative; the environment is neither the first nor the last.
TEST_F(PythonLibraryFoldersTest, OfEachPythonInAChainOfLinks) {
  MakePython(root_ + "/venv");
  const std::string link = root_ + "/venv/bin/python3";
  ASSERT_EQ(rename(link.c_str(), (root_ + "/venv/bin/python3.11").c_str()), 0);
  ASSERT_EQ(symlink("python3.11", link.c_str()), 0);
  MakeFolder(root_ + "/local/bin");
  ASSERT_EQ(symlink(link.c_str(), (root_ + "/local/bin/python3").c_str()), 0);
  EXPECT_THAT(PythonLibraryFolders(root_ + "/local/bin", ""),
              ElementsAre(Packages(root_ + "/venv") + "cudnn/lib",
                          Packages(root_ + "/venv") + "cu13/lib"));
}

TEST_F(PythonLibraryFoldersTest, NoneWithoutAPython) {
  EXPECT_THAT(PythonLibraryFolders("", ""), IsEmpty());
  EXPECT_THAT(PythonLibraryFolders(root_, root_), IsEmpty());
}

}  // namespace
}  // namespace holdfast
