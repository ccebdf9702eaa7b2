// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include <string>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(StatusTest, EveryCodeSurvivesTheWayThereAndBack) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code),
                              code == 0 ? "" : "why");
    const grpc::Status sent = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(sent.error_code()), code);
    EXPECT_EQ(FromGrpcStatus(sent), status);
  }
}

TEST(StatusTest, NamesOfTheCodesAgree) {
  EXPECT_EQ(ToGrpcStatus(absl::AbortedError("x")).error_code(),
            grpc::StatusCode::ABORTED);
  EXPECT_EQ(ToGrpcStatus(absl::UnauthenticatedError("x")).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST(StatusTest, ACodeThatAbseilDoesNotKnowIsUnknown) {
  const grpc::Status odd(grpc::StatusCode::DO_NOT_USE, "odd");
  EXPECT_EQ(FromGrpcStatus(odd), absl::UnknownError("odd"));
}

TEST(StatusTest, ALongMessageIsCut) {
  const grpc::Status sent =
      ToGrpcStatus(absl::InternalError(std::string(1 << 20, 'x')));
  EXPECT_EQ(sent.error_message().size(), kMaxStatusMessage);
  EXPECT_EQ(sent.error_message().substr(kMaxStatusMessage - 4), "x...");
}

TEST(StatusTest, MessagesArePrintable) {
  const std::string message = "caf\xe9 \033]0;title\a\nline 2";
  const std::string printable = "caf? ?]0;title?\nline 2";
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(message)).error_message(),
            printable);
  EXPECT_EQ(FromGrpcStatus({grpc::StatusCode::INTERNAL, message}),
            absl::InternalError(printable));
}

TEST(StatusTest, ACharacterIsNotCut) {
  // Characters of two bytes each, so that the limit falls inside one of them at
  // one of the two offsets.
  for (const std::string& start : {std::string(), std::string("x")}) {
    std::string message = start;
    while (message.size() < 2 * kMaxStatusMessage) message += "\xc3\xa9";
    std::string sent =
        ToGrpcStatus(absl::InternalError(message)).error_message();
    ASSERT_GT(sent.size(), kMaxStatusMessage - 2);
    sent.resize(sent.size() - 3);  // the dots
    EXPECT_EQ((sent.size() - start.size()) % 2, 0u);
  }
}

}  // namespace
}  // namespace holdfast
