// SPDX-License-Identifier: Apache-2.0
#include "common/job/testing/job_text.h"

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/job/job_file.h"
#include "gtest/gtest.h"

namespace holdfast {

std::string Changed(const std::string& from, const std::string& to) {
  const std::string job = kJob;
  EXPECT_NE(job.find(from), std::string::npos) << from;
  EXPECT_EQ(job.find(from), job.rfind(from)) << from;
  return absl::StrReplaceAll(job, {{from, to}});
}

std::vector<std::string> ErrorsOf(const std::string& text) {
  const auto job = ParseJobFile(text, "dir/job.textproto");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return absl::StrSplit(job.status().message(), '\n');
}

proto::Job ParseJob(const std::string& text) {
  const auto job = ParseJobFile(text, "job.textproto");
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

}  // namespace holdfast
