// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cudnn.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

std::string Folder() {
  return absl::StrCat(std::getenv("TEST_SRCDIR"), "/",
                      std::getenv("TEST_WORKSPACE"), "/worker/backend/cuda");
}

TEST(LoadCudnnTest, LoadsALibraryOfAFolder) {
  const auto cudnn =
      LoadCudnnFrom("libfake_cudnn.so", {"/there/is/none", Folder()});
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();
  EXPECT_EQ(cudnn->Version(), "9.28.1");
  EXPECT_EQ(cudnn->create(nullptr), 1001);
}

TEST(LoadCudnnTest, SaysWhereItLookedForAMissingLibrary) {
  const auto cudnn = LoadCudnnFrom("libcudnn-of-nowhere.so.9", {Folder()});
  EXPECT_TRUE(absl::IsFailedPrecondition(cudnn.status()));
  EXPECT_THAT(
      cudnn.status().message(),
      ::testing::AllOf(HasSubstr("libcudnn-of-nowhere.so.9"),
                       HasSubstr(Folder()), HasSubstr("LD_LIBRARY_PATH")));
}

TEST(LoadCudnnTest, RefusesALibraryThatLacksAFunction) {
  const auto cudnn = LoadCudnnFrom("libfake_cudnn_partial.so", {Folder()});
  EXPECT_TRUE(absl::IsFailedPrecondition(cudnn.status()));
  EXPECT_THAT(cudnn.status().message(),
              HasSubstr("cudnnGetConvolutionBackwardFilterAlgorithm_v7"));
}

TEST(LoadCudnnTest, RefusesAnotherMajorVersion) {
  const auto cudnn = LoadCudnnFrom("libfake_cudnn_8.so", {Folder()});
  EXPECT_TRUE(absl::IsFailedPrecondition(cudnn.status()));
  EXPECT_THAT(cudnn.status().message(), HasSubstr("80907"));
}

TEST(CudnnStatusTest, TellsWhatIsRefusedFromWhatFails) {
  const auto cudnn = LoadCudnnFrom("libfake_cudnn.so", {Folder()});
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();
  EXPECT_EQ(CudnnStatus(*cudnn, 0, "this"), absl::OkStatus());
  EXPECT_EQ(CudnnStatus(*cudnn, 3000, "this"),
            absl::UnimplementedError(
                "this: cuDNN returned CUDNN_STATUS_NOT_SUPPORTED"));
  for (const int refused : {1001, 2000, 3011, 4003}) {
    EXPECT_TRUE(absl::IsUnimplemented(CudnnStatus(*cudnn, refused, "this")));
  }
  for (const int failed : {5000, 5003}) {
    EXPECT_TRUE(absl::IsInternal(CudnnStatus(*cudnn, failed, "this")));
  }
}

constexpr size_t kLimit = 1000;

// A proposal that can be used.
Cudnn::Proposal Good() {
  Cudnn::Proposal proposal = {};
  proposal.status = Cudnn::kSuccess;
  proposal.memory = kLimit;
  proposal.determinism = Cudnn::kDeterministic;
  proposal.math = Cudnn::kDefaultMath;
  return proposal;
}

TEST(ChooseAlgorithmTest, TakesTheFirst) {
  const std::vector<Cudnn::Proposal> proposals = {Good(), Good()};
  EXPECT_EQ(ChooseAlgorithm(proposals, 0, kLimit), 0u);
  EXPECT_EQ(ChooseAlgorithm(proposals, 1, kLimit), 1u);
  EXPECT_EQ(ChooseAlgorithm(proposals, 2, kLimit), std::nullopt);
}

TEST(ChooseAlgorithmTest, LeavesOutWhatCannotBeUsed) {
  std::vector<Cudnn::Proposal> proposals(4, Good());
  proposals[0].status = Cudnn::kNotSupported;
  proposals[1].determinism = 0;
  proposals[2].memory = kLimit + 1;
  EXPECT_EQ(ChooseAlgorithm(proposals, 0, kLimit), 3u);
  proposals.pop_back();
  EXPECT_EQ(ChooseAlgorithm(proposals, 0, kLimit), std::nullopt);
  EXPECT_EQ(ChooseAlgorithm({}, 0, kLimit), std::nullopt);
}

TEST(ChooseAlgorithmTest, LeavesOutWhatRoundsToFloat16) {
  std::vector<Cudnn::Proposal> proposals(2, Good());
  proposals[0].math = Cudnn::kTensorOpMathAllowConversion;
  EXPECT_EQ(ChooseAlgorithm(proposals, 0, kLimit), 1u);
}

}  // namespace
}  // namespace holdfast
