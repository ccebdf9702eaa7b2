// SPDX-License-Identifier: Apache-2.0
#include "common/job/consistency_rules.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/cluster.pb.h"

namespace holdfast {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

absl::StatusOr<Replicas> Resolve(const proto::Declaration& fields,
                                 uint32_t workers) {
  return ResolveConsistency(ConsistencyFieldsOf(fields), workers);
}

proto::Declaration Parse(const std::string& text) {
  proto::Declaration fields;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &fields)) << text;
  return fields;
}

std::vector<std::string> Broken(const std::string& text) {
  std::vector<std::string> broken;
  for (const BrokenRule& rule :
       FindBrokenConsistencyRules(ConsistencyFieldsOf(Parse(text)))) {
    broken.push_back(absl::StrCat(rule.path, ": ", rule.what));
  }
  return broken;
}

// job_file_test.cc tests these errors for a job file, with the line.
TEST(FindBrokenConsistencyRulesTest, TellsAll) {
  EXPECT_THAT(Broken("consistency { asynchronous {} } examples: BY_STEP "
                     "lost_workers { policy: WAIT }"),
              ElementsAre(HasSubstr("examples: must be BY_TICKET"),
                          HasSubstr("lost_workers.policy: must be CONTINUE")));
  EXPECT_THAT(Broken("lost_workers { min_replicas: 1 max_workers: 2 }"),
              ElementsAre("lost_workers.min_replicas: needs policy: CONTINUE",
                          "lost_workers.max_workers: needs policy: CONTINUE"));
  EXPECT_THAT(
      Broken("lost_workers { policy: CONTINUE min_replicas: 3 max_workers: 2 } "
             "consistency { synchronous { replicas_to_aggregate: 4 } }"),
      ElementsAre(
          "lost_workers.min_replicas: must be at most max_workers, which is 2, "
          "is 3",
          HasSubstr("replicas_to_aggregate: must be at most the 2 workers")));
  EXPECT_THAT(Broken("lost_workers { policy: CONTINUE min_replicas: 3 }"),
              ElementsAre());
  EXPECT_THAT(Broken(""), ElementsAre());
}

TEST(ResolveConsistencyTest, Synchronous) {
  const struct {
    std::string consistency;
    uint32_t workers;
    uint32_t n;
    uint32_t m;
    uint32_t seats;
  } kCases[] = {
      {"", 3, 3, 3, 3},
      {"synchronous {}", 1, 1, 1, 1},
      {"synchronous { total_num_replicas: 2 }", 2, 2, 2, 2},
      {"synchronous { replicas_to_aggregate: 2 }", 3, 2, 3, 3},
      {"synchronous { replicas_to_aggregate: 6 }", 3, 6, 3, 6},
      {"synchronous { replicas_to_aggregate: 3 }", 2, 3, 2, 3},
      {"synchronous { replicas_to_aggregate: 3 total_num_replicas: 2 }", 2, 3,
       2, 3},
      {"synchronous { replicas_to_aggregate: 2 total_num_replicas: 3 }", 3, 2,
       3, 3},
      {"synchronous { replicas_to_aggregate: 4 total_num_replicas: 2 }", 2, 4,
       2, 4},
  };
  for (const auto& test : kCases) {
    proto::Declaration fields;
    ASSERT_TRUE(TextFormat::ParseFromString(test.consistency,
                                            fields.mutable_consistency()));
    const auto resolved = Resolve(fields, test.workers);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_FALSE(resolved->asynchronous) << test.consistency;
    EXPECT_EQ(resolved->to_aggregate, test.n) << test.consistency;
    EXPECT_EQ(resolved->total, test.m) << test.consistency;
    EXPECT_EQ(resolved->seats(), test.seats) << test.consistency;
  }
}

TEST(ResolveConsistencyTest, WithoutLostWorkers) {
  const struct {
    std::string fields;
    uint32_t workers;
    uint32_t n;
    uint32_t m;
  } kCases[] = {
      {"lost_workers { policy: CONTINUE }", 3, 3, 3},
      {"lost_workers { policy: CONTINUE max_workers: 3 }", 3, 3, 3},
      {"lost_workers { policy: CONTINUE max_workers: 8 } examples: BY_TICKET",
       3, 8, 8},
      // As seen by a worker that is not in the ps tasks' ClusterSpec.
      {"lost_workers { policy: CONTINUE max_workers: 8 } examples: BY_TICKET",
       5, 8, 8},
      {"lost_workers { policy: CONTINUE max_workers: 8 } examples: BY_TICKET "
       "consistency { synchronous { replicas_to_aggregate: 4 } }",
       3, 4, 8},
      {"lost_workers { policy: CONTINUE max_workers: 8 } examples: BY_TICKET "
       "consistency { synchronous { total_num_replicas: 8 } }",
       3, 8, 8},
      {"lost_workers { max_workers: 8 } consistency { asynchronous {} }", 3, 0,
       8},
  };
  for (const auto& test : kCases) {
    proto::Declaration fields;
    ASSERT_TRUE(TextFormat::ParseFromString(test.fields, &fields));
    const auto resolved = Resolve(fields, test.workers);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->to_aggregate, test.n) << test.fields;
    EXPECT_EQ(resolved->total, test.m) << test.fields;
  }
}

TEST(ResolveConsistencyTest, RefusedWithoutLostWorkers) {
  const struct {
    std::string fields;
    std::string error;
  } kCases[] = {
      {"lost_workers { policy: CONTINUE max_workers: 2 }",
       "lost_workers.max_workers is 2, but the cluster has 3 workers (the "
       "chief included): set it to 3 or more"},
      {"lost_workers { policy: CONTINUE min_replicas: 4 }",
       "lost_workers.min_replicas is 4, but there may be 3 workers"},
      {"lost_workers { policy: CONTINUE max_workers: 4 }",
       "workers beyond the cluster need examples: BY_TICKET"},
      {"lost_workers { policy: CONTINUE } "
       "consistency { synchronous { replicas_to_aggregate: 6 } }",
       "replicas_to_aggregate is 6 of 3 workers: if lost_workers.policy is "
       "CONTINUE, it must be at most their number"},
      {"lost_workers { policy: CONTINUE } "
       "consistency { synchronous { total_num_replicas: 4 } }",
       "total_num_replicas is 4, but the cluster has 3 workers"},
      {"lost_workers { max_workers: 2 } consistency { asynchronous {} }",
       "lost_workers.max_workers is 2, but the cluster has 3 workers"},
      // Rules that hold on any cluster.
      {"lost_workers { max_workers: 3 }",
       "lost_workers.max_workers: needs policy: CONTINUE"},
  };
  for (const auto& test : kCases) {
    proto::Declaration fields;
    ASSERT_TRUE(TextFormat::ParseFromString(test.fields, &fields));
    const auto resolved = Resolve(fields, 3);
    EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(resolved.status()), HasSubstr(test.error));
  }
}

TEST(ResolveConsistencyTest, Asynchronous) {
  proto::Declaration fields;
  fields.mutable_consistency()->mutable_asynchronous();
  auto resolved = Resolve(fields, 3);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(resolved->asynchronous);
  EXPECT_EQ(resolved->total, 3);
  EXPECT_EQ(resolved->to_aggregate, 0);
  EXPECT_EQ(resolved->pipeline_depth, 1);
  EXPECT_EQ(resolved->staleness_bound, std::nullopt);

  auto* const async = fields.mutable_consistency()->mutable_asynchronous();
  async->set_pipeline_depth(4);
  async->set_staleness_bound(0);
  resolved = Resolve(fields, 1);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->total, 1);
  EXPECT_EQ(resolved->pipeline_depth, 4);
  EXPECT_EQ(resolved->staleness_bound, 0);
}

TEST(ResolveConsistencyTest, ExamplesByDefault) {
  const struct {
    std::string fields;
    bool by_ticket;
  } kCases[] = {
      {"", false},
      {"examples: BY_STEP", false},
      {"examples: BY_TICKET", true},
      {"consistency { synchronous {} }", false},
      {"consistency { synchronous {} } examples: BY_TICKET", true},
      {"consistency { asynchronous {} }", true},
      {"consistency { asynchronous {} } examples: BY_TICKET", true},
  };
  for (const auto& test : kCases) {
    proto::Declaration fields;
    ASSERT_TRUE(TextFormat::ParseFromString(test.fields, &fields));
    const auto resolved = Resolve(fields, 2);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->by_ticket(), test.by_ticket) << test.fields;
    EXPECT_EQ(resolved->examples,
              test.by_ticket ? proto::BY_TICKET : proto::BY_STEP)
        << test.fields;
  }
}

TEST(ResolveConsistencyTest, Refused) {
  const struct {
    std::string consistency;
    uint32_t workers;
    std::string error;
  } kCases[] = {
      {"synchronous { total_num_replicas: 3 }", 2,
       "total_num_replicas is 3, but the cluster has 2 workers (the chief "
       "included): set total_num_replicas to 2, or start a cluster of 3"},
      {"synchronous { total_num_replicas: 2 }", 1,
       "total_num_replicas is 2, but the cluster has 1 worker (the chief"},
      {"synchronous { replicas_to_aggregate: 0 }", 2, "is 0 of 2 workers"},
      {"synchronous { replicas_to_aggregate: 2049 }", 2,
       "replicas_to_aggregate is 2049, which is above 1024 times "
       "total_num_replicas, 2"},
      {"", 0, "must be at least 1"},
      {"asynchronous {}", 0, "must be at least 1"},
  };
  for (const auto& test : kCases) {
    proto::Declaration fields;
    ASSERT_TRUE(TextFormat::ParseFromString(test.consistency,
                                            fields.mutable_consistency()));
    const auto resolved = Resolve(fields, test.workers);
    EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(resolved.status()), HasSubstr(test.error));
  }
}

// ---- FillIn ----

TEST(FillInTest, DefaultsSpelledOutResolveToTheSame) {
  const struct {
    std::string fields;
    std::string filled_in;
  } kCases[] = {
      {"",
       "consistency { synchronous { replicas_to_aggregate: 3 "
       "total_num_replicas: 3 } } lost_workers { policy: WAIT }"},
      {"consistency { synchronous { replicas_to_aggregate: 2 "
       "aggregation: SUM } } lost_workers { policy: CONTINUE }",
       "consistency { synchronous { replicas_to_aggregate: 2 "
       "total_num_replicas: 3 aggregation: SUM } } "
       "lost_workers { policy: CONTINUE min_replicas: 1 max_workers: 3 }"},
      {"consistency { asynchronous { staleness_bound: 4 } } "
       "lost_workers { min_replicas: 2 max_workers: 8 }",
       "consistency { asynchronous { staleness_bound: 4 pipeline_depth: 1 } } "
       "lost_workers { policy: CONTINUE min_replicas: 2 max_workers: 8 }"},
  };
  for (const auto& test : kCases) {
    proto::Declaration fields = Parse(test.fields);
    for (int times = 0; times < 2; ++times) {
      const auto replicas = Resolve(fields, 3);
      ASSERT_TRUE(replicas.ok()) << test.fields << replicas.status();
      FillIn(*replicas, fields.mutable_consistency());
      FillIn(*replicas, fields.mutable_lost_workers());
      EXPECT_EQ(fields.ShortDebugString(),
                Parse(test.filled_in).ShortDebugString());
    }
  }
}

// ---- Tickets ----

TEST(ResolveTicketsTest, AreThoseOfTheSteps) {
  const Replicas by_step = {.to_aggregate = 2, .total = 2};
  const Replicas by_ticket = {
      .to_aggregate = 2, .total = 2, .examples = proto::BY_TICKET};
  const Replicas many_by_ticket = {
      .to_aggregate = 65536, .total = 65536, .examples = proto::BY_TICKET};
  const Replicas asynchronous = {
      .total = 2, .asynchronous = true, .examples = proto::BY_TICKET};
  const struct {
    Replicas replicas;
    uint64_t steps;
    uint64_t tickets;
    // A fragment of the result or of the error.
    std::optional<uint64_t> resolved;
    std::string error;
  } kCases[] = {
      {by_step, 3, 0, 0, ""},
      {by_step, 3, 6, std::nullopt,
       "total_tickets is 6, but examples are BY_STEP"},
      {by_ticket, 3, 6, 6, ""},
      {by_ticket, 3, 5, 5, ""},
      {by_ticket, 3, 4, std::nullopt, "which make 2 steps of 2; total_steps"},
      {by_ticket, 3, 7, std::nullopt, "which make 4 steps of 2; total_steps"},
      {by_ticket, 3, 0, 6, ""},
      {by_ticket, 0, 0, std::nullopt, "total_tickets is 0"},
      {by_ticket, 1'000'000'000'000'000, 0, 2'000'000'000'000'000, ""},
      {many_by_ticket, 1'000'000'000'000'000, 0, std::nullopt,
       "with 65536 tickets in each: more than 1000000000000000000 tickets"},
      {asynchronous, 3, 0, 3, ""},
      {asynchronous, 3, 3, 3, ""},
      {asynchronous, 3, 4, std::nullopt,
       "total_tickets is 4, but must be total_steps, 3"},
  };
  for (const auto& test : kCases) {
    const auto tickets =
        ResolveTickets(test.replicas, test.steps, test.tickets);
    EXPECT_EQ(tickets.ok() ? std::optional(*tickets) : std::nullopt,
              test.resolved);
    EXPECT_THAT(Message(tickets.status()), HasSubstr(test.error));
  }
}

}  // namespace
}  // namespace holdfast
