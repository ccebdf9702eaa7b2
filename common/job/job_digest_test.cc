// SPDX-License-Identifier: Apache-2.0

// JobDigest: by what workers notice that their job files differ.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/job/job_file.h"
#include "common/job/testing/job_text.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(JobDigestTest, TellsJobsApart) {
  const std::string digest = JobDigest(ParseJob(kJob));
  EXPECT_EQ(digest.size(), 64);
  EXPECT_EQ(JobDigest(ParseJob(kJob)), digest);
  // The same job in another place, or with data in another place.
  EXPECT_EQ(JobDigest(*ParseJobFile(kJob, "/other/dir/x.textproto")), digest);
  EXPECT_EQ(JobDigest(ParseJob(Changed("train-images", "images"))), digest);
  EXPECT_EQ(JobDigest(ParseJob(Changed("/data/test-labels", "labels"))),
            digest);
  EXPECT_EQ(JobDigest(ParseJob(Changed("seed: 7", "seed: 7 local { ps: 9 }"))),
            digest);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"seed: 7", "seed: 8"},
           {"batch_size: 100", "batch_size: 99"},
           {"steps: 3000", "steps: 3001"},
           {"sgd {}", "momentum {}"},
           {"units: 8", "units: 9"},
           {"scale: 0.5", "scale: 0.25"},
           {"scale: 0.5", "scale: 0.5 short_last_batch: true"},
           {"seed: 7", "seed: 7 examples: BY_TICKET"},
           {"seed: 7", "seed: 7 checkpoints { every_steps: 5 }"},
           {"seed: 7", "seed: 7 lost_workers { policy: CONTINUE }"},
           {"seed: 7", "seed: 7 micro_batches: 2"}}) {
    EXPECT_NE(JobDigest(ParseJob(Changed(from, to))), digest) << to;
  }
}

TEST(JobDigestTest, MapsHaveOneOrder) {
  proto::Job a;
  proto::Job b;
  for (int i = 0; i < 100; ++i) {
    (*a.mutable_model()->mutable_registered()->mutable_options())[absl::StrCat(
        "key", i)] = "value";
    (*b.mutable_model()->mutable_registered()->mutable_options())[absl::StrCat(
        "key", 99 - i)] = "value";
  }
  EXPECT_EQ(JobDigest(a), JobDigest(b));
}

// Workers must agree on the schema, but not on where the data are.
TEST(JobDigestTest, FilesDoNotMatterAndColumnsDo) {
  const auto digest = [](const std::string& files, const std::string& column) {
    const std::string text = Changed(
        "train { idx { images: \"train-images\" labels: \"train-labels\" } }",
        absl::StrCat("train { csv { ", files, " columns { name: '", column,
                     "' number {} } columns { name: 'y' label {} } } }"));
    const auto job = ParseJobFile(
        absl::StrReplaceAll(text, {{"scale: 0.5", ""}}), "job.textproto");
    EXPECT_TRUE(job.ok()) << job.status();
    return JobDigest(*job);
  };
  EXPECT_EQ(digest("files: 'a'", "x"), digest("files: 'b' files: 'c'", "x"));
  EXPECT_NE(digest("files: 'a'", "x"), digest("files: 'a'", "z"));
}

TEST(JobDigestTest, RecordsFilesDoNotMatter) {
  const auto digest = [](const std::string& files) {
    const auto job = ParseJobFile(
        Changed("train { idx { images: \"train-images\" labels: "
                "\"train-labels\" } }",
                absl::StrCat("train { tfrecord { ", files,
                             " shape: 2 features { name: 'x' raw {} } "
                             "features { name: 'y' label {} } } }")),
        "dir/job.textproto");
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->data().train().tfrecord().files(0), "dir/a");
    return JobDigest(*job);
  };
  EXPECT_EQ(digest("files: 'a'"), digest("files: 'a' files: 'c'"));
}

TEST(JobDigestTest, TheFolderOfImagesDoesNotMatter) {
  const auto digest = [](const std::string& folder, int height) {
    const auto job =
        ParseJobFile(Changed("train { idx { images: \"train-images\" labels: "
                             "\"train-labels\" } }",
                             absl::StrCat("train { images { folder: '", folder,
                                          "' picture { height: ", height,
                                          " width: 2 } } }")),
                     "dir/job.textproto");
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->data().train().images().folder(), "dir/" + folder);
    return JobDigest(*job);
  };
  EXPECT_EQ(digest("a", 1), digest("b", 1));
  EXPECT_NE(digest("a", 1), digest("a", 2));
}

}  // namespace
}  // namespace holdfast
