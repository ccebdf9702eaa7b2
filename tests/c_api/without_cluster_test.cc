// SPDX-License-Identifier: Apache-2.0

// What the C API does without a cluster: its version, its options, files and
// the order of examples.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/c_api/holdfast.h"
#include "common/job/cluster_spec.h"
#include "common/job/example_order.h"
#include "common/process/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"
#include "tests/c_api/calls.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

TEST(CApiTest, TellsItsVersion) {
  EXPECT_EQ(holdfast_api_version(), HOLDFAST_API_VERSION);
  EXPECT_STREQ(holdfast_version(), kVersion);
}

TEST(CApiTest, NullIsNoHandle) {
  EXPECT_STREQ(CallAllWith(nullptr, nullptr, nullptr), nullptr);
  holdfast_error_free(nullptr);
  holdfast_text_free(nullptr);
  EXPECT_STREQ(holdfast_error_message(nullptr), "");
  EXPECT_STREQ(holdfast_error_task(nullptr), "");
  EXPECT_EQ(holdfast_error_kind(nullptr), HOLDFAST_OK);
  EXPECT_EQ(holdfast_error_exit_code(nullptr), 0);
}

TEST(CApiTest, ErrorsNeedNotBeLookedAt) {
  EXPECT_EQ(holdfast_leave(nullptr, nullptr, -1, nullptr), HOLDFAST_BAD_HANDLE);
}

TEST(CApiTest, ChecksumsTellWhatHasChanged) {
  const float same[2][3] = {{1, 2, 3}, {1, 2, 3}};
  const float other[3] = {1, 2, 4};
  const void* memory[] = {same[0], same[1], other, nullptr, "a"};
  const size_t bytes[] = {12, 12, 12, 0, 1};
  uint64_t sums[5];
  ASSERT_OK(Call(holdfast_checksums, memory, bytes, size_t{5}, sums));
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_NE(sums[0], sums[2]);
  EXPECT_EQ(sums[4], 0xe6c632b61e964e1f);  // XXH3-64
  const size_t one[] = {1};
  const void* const nothing[] = {nullptr};
  EXPECT_THAT(Call(holdfast_checksums, nothing, one, size_t{1}, sums).message,
              HasSubstr("memory[0] is NULL"));
}

TEST(CApiTest, WrongOptionsAreNamed) {
  const ClusterSpec spec =
      *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  const auto message = [](const Options& options) {
    holdfast_cluster* cluster = nullptr;
    const std::vector<holdfast_option> list = options.Get();
    const Result result =
        Call(holdfast_connect, list.data(), list.size(), &cluster);
    EXPECT_EQ(result.kind, HOLDFAST_INVALID);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(cluster, nullptr);
    return result.message;
  };
  const Options good(spec, "worker", 0);
  EXPECT_THAT(message(Options(good).Set("taks_index", "1")),
              HasSubstr("no option \"taks_index\"; there are: chief_hosts, "));
  EXPECT_THAT(message(Options(good).Set("task_index", "one")),
              HasSubstr("option task_index: \"one\""));
  EXPECT_THAT(message(Options(good).Set("task_index", "3")),
              HasSubstr("/job:worker/task:3"));
  EXPECT_THAT(message(Options(good).Set("connect_timeout", "soon")),
              HasSubstr("option connect_timeout: \"soon\""));
  EXPECT_THAT(message(Options(good).Set("insecure", "yes")),
              HasSubstr("option insecure: \"yes\""));
  EXPECT_THAT(message(Options(good).Set("same_host", "on")),
              HasSubstr("option same_host: \"on\""));
  EXPECT_THAT(message(Options(good).Set("job_name", "ps")),
              HasSubstr("/job:ps/task:0 does not train"));
  const ClusterSpec far = *ClusterSpec::FromHosts("a.net:1", "b.net:2", "");
  EXPECT_THAT(message(Options(far, "worker", 0).Set("insecure", "false")),
              HasSubstr("/job:ps/task:0 is at a.net:1, which is not this "
                        "machine; encrypt with tls_dir"));
  EXPECT_EQ(Call(holdfast_connect, nullptr, size_t{0}, nullptr).kind,
            HOLDFAST_INVALID);
  const holdfast_option null_value = {"job_name", nullptr};
  holdfast_cluster* cluster;
  EXPECT_EQ(Call(holdfast_connect, &null_value, size_t{1}, &cluster).kind,
            HOLDFAST_INVALID);
}

TEST(CApiTest, MissingFilesAreNotFound) {
  const ClusterSpec spec =
      *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  Options options(spec, "worker", 0);
  const auto list = options.Set("tls_dir", "/nowhere").Get();
  holdfast_cluster* cluster = nullptr;
  const Result no_folder =
      Call(holdfast_connect, list.data(), list.size(), &cluster);
  EXPECT_EQ(no_folder.kind, HOLDFAST_NOT_FOUND) << no_folder.message;
  EXPECT_THAT(no_folder.message, HasSubstr("option tls_dir: /nowhere"));
  holdfast_values* values = nullptr;
  const Result result = Call(holdfast_load_checkpoint, "/nowhere", &values);
  EXPECT_EQ(result.kind, HOLDFAST_NOT_FOUND);
  EXPECT_THAT(result.message, HasSubstr("/nowhere"));
}

TEST(CApiTest, ReadsACheckpointWithoutACluster) {
  const std::string kGolden = "common/checkpoint/testdata/golden";
  for (const std::string& path : {kGolden, kGolden + "/g0003-step00001000/"}) {
    holdfast_values* values = nullptr;
    ASSERT_OK(Call(holdfast_load_checkpoint, path.c_str(), &values));
    EXPECT_OK(Call(holdfast_values_wait, values, int64_t{0}));
    uint64_t step = 0;
    EXPECT_OK(Call(holdfast_values_get_step, values, &step));
    EXPECT_EQ(step, 1000);
    size_t count = 0;
    EXPECT_OK(Call(holdfast_values_get_count, values, &count));
    ASSERT_GT(count, 0);
    holdfast_variable variable;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_OK(Call(holdfast_values_get_variable, values, i, &variable));
      EXPECT_EQ(variable.data == nullptr, variable.elements == 0);
      size_t elements = 1;
      for (size_t d = 0; d < variable.rank; ++d) elements *= variable.shape[d];
      EXPECT_EQ(variable.elements, elements) << variable.name;
    }
    EXPECT_EQ(Call(holdfast_values_get_variable, values, count, &variable).kind,
              HOLDFAST_INVALID);
    char* digest = nullptr;
    EXPECT_OK(Call(holdfast_values_get_digest, values, &digest));
    EXPECT_EQ(Take(digest).size(), 64);
    holdfast_values_free(values);
    EXPECT_EQ(Call(holdfast_values_get_step, values, &step).kind,
              HOLDFAST_BAD_HANDLE);
  }
}

TEST(CApiTest, BatchesAreThoseOfTheWorker) {
  const ExampleOrder order(7, 10);
  std::vector<int64_t> examples(4), expected;
  ASSERT_OK(Call(holdfast_batch_examples, uint64_t{7}, int64_t{10}, int64_t{4},
                 uint64_t{2}, examples.data()));
  for (int64_t position = 8; position < 12; ++position) {
    expected.push_back(order.At(position));
  }
  EXPECT_EQ(examples, expected);
  EXPECT_EQ(Call(holdfast_batch_examples, uint64_t{7}, int64_t{0}, int64_t{4},
                 uint64_t{2}, examples.data())
                .kind,
            HOLDFAST_INVALID);
  EXPECT_EQ(Call(holdfast_batch_examples, uint64_t{7}, int64_t{10}, int64_t{4},
                 ~uint64_t{0}, examples.data())
                .kind,
            HOLDFAST_INVALID);
}

TEST(CApiTest, BatchesMayBeShuffledLess) {
  const auto batch = [](int32_t shuffle, int64_t block) {
    std::vector<int64_t> examples(4);
    EXPECT_OK(Call(holdfast_batch_examples_shuffled, uint64_t{7}, shuffle,
                   block, int64_t{10}, int64_t{4}, uint64_t{2},
                   examples.data()));
    return examples;
  };
  const auto expected = [](const Shuffle& shuffle) {
    const ExampleOrder order(7, 10, shuffle);
    std::vector<int64_t> examples;
    for (int64_t position = 8; position < 12; ++position) {
      examples.push_back(order.At(position));
    }
    return examples;
  };
  EXPECT_EQ(batch(HOLDFAST_SHUFFLE_FULL, 0), expected({}));
  EXPECT_EQ(batch(HOLDFAST_SHUFFLE_BLOCKS, 3),
            expected({Shuffle::Kind::kBlocks, 3}));
  EXPECT_EQ(batch(HOLDFAST_SHUFFLE_BLOCKS, 0),
            expected({Shuffle::Kind::kBlocks, 4096}));
  EXPECT_EQ(batch(HOLDFAST_SHUFFLE_NONE, 0),
            (std::vector<int64_t>{8, 9, 0, 1}));
  int64_t example = 0;
  for (const auto& [shuffle, block] : {std::pair(3, 1), std::pair(1, -1)}) {
    EXPECT_EQ(
        Call(holdfast_batch_examples_shuffled, uint64_t{7}, shuffle,
             int64_t{block}, int64_t{10}, int64_t{1}, uint64_t{2}, &example)
            .kind,
        HOLDFAST_INVALID);
  }
}

}  // namespace
}  // namespace holdfast
