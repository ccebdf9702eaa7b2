// SPDX-License-Identifier: Apache-2.0

// Rows of embedding tables, between a client and puppets over gRPC.
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/client_test_base.h"
#include "client/cluster.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/row_ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// The job also has table 0, "t", whose rows have 2 values. At version v both
// values of row i are 100 v + i.
class TableWireTest : public ClientTest {
 protected:
  TableWireTest() {
    ps(0).place.Do([this](int, const auto&, auto* response) {
      AnswerPlacement(response);
      for (proto::Slice& slice : *response->mutable_slices()) {
        if (num_ps == 1) slice.set_ps(0);
      }
      proto::EmbeddingTable& table =
          *response->mutable_declaration()->add_tables();
      table.set_name("t");
      table.set_row_length(2);
      table.set_max_rows_per_push(10);
      return absl::OkStatus();
    });
    for (const uint32_t i : {0, 1}) {
      ps(i).pull.Do([](int, const auto& request, auto* response) {
        const absl::Status status =
            AnswerPull(request, request.min_version(), response);
        AddRows(request, request.min_version(), response);
        return status;
      });
    }
    ps(0).push_pull.Do([](int, const auto& request, auto* response) {
      const absl::Status status = AnswerPushPull(request, 8, response);
      AddRows(request, 8, response);
      return status;
    });
  }
  void TearDown() override {
    push_.reset();
    cluster_.reset();
    StopPs();
  }

  static std::vector<uint64_t> IdsOf(const proto::RowIds& rows) {
    const auto ids = DecodeRowIds(rows.ids(), rows.num_rows());
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.value_or(std::vector<uint64_t>());
  }
  template <typename Request, typename Response>
  static void AddRows(const Request& request, uint64_t version,
                      Response* response) {
    for (const proto::ReadRange& range : request.ranges()) {
      if (!range.has_rows()) continue;
      proto::TensorPart& part = *response->add_tensors();
      part.set_variable(range.variable());
      part.set_dtype(proto::FLOAT32);
      part.mutable_rows();
      for (const uint64_t id : IdsOf(range.rows())) {
        const float value = static_cast<float>(100 * version + id);
        const float row[] = {value, value};
        part.mutable_data()->append(reinterpret_cast<const char*>(row),
                                    sizeof(row));
      }
    }
  }
  // Adds the first value of each row that a request pushes.
  template <typename Request>
  static void TakeRows(const Request& request,
                       std::map<uint64_t, float>* rows) {
    for (const proto::TensorPart& part : request.tensors()) {
      if (!part.has_rows()) continue;
      EXPECT_EQ(part.variable(), "t");
      EXPECT_THAT(part.shape(), IsEmpty());
      const std::vector<uint64_t> ids = IdsOf(part.rows());
      ASSERT_EQ(part.data().size(), ids.size() * 2 * sizeof(float));
      for (size_t i = 0; i < ids.size(); ++i) {
        std::memcpy(&(*rows)[ids[i]], &part.data()[i * 2 * sizeof(float)],
                    sizeof(float));
      }
    }
  }

  // Pushes rows 1, 2 and 3, and pulls rows 2, 3 and 4 of version 8.
  void Exchange() {
    cluster_ = ConnectReady();
    ASSERT_NE(cluster_, nullptr);
    push_ = cluster_->StartPush(GlobalStep(7));
    EXPECT_EQ(push_->Add(0, a_), absl::OkStatus());
    EXPECT_EQ(push_->Add(1, b_), absl::OkStatus());
    EXPECT_EQ(push_->AddRows(0, ids_, gradients_), absl::OkStatus());
    next_.WantRows(0, {{2, 3, 4}});
    EXPECT_EQ(push_->Contribute({1, 8}, &next_), absl::OkStatus());
    const auto outcome = push_->Await(Late());
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(next_.version, GlobalStep(8));
    EXPECT_THAT(next_.RowsOf(0), ElementsAre(802, 802, 803, 803, 804, 804));
  }

  const std::vector<float> a_ = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b_ = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<uint64_t> ids_ = {1, 2, 3};
  const std::vector<float> gradients_ = {10, 11, 20, 21, 30, 31};
  Parameters next_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Cluster::Push> push_;
};

TEST_F(TableWireTest, WithOnePsRowsGoInTheExchange) {
  num_ps = 1;
  Exchange();
  std::map<uint64_t, float> rows;
  TakeRows(ps(0).push_pull.requests().back(), &rows);
  EXPECT_THAT(rows, ElementsAre(Pair(1, 10), Pair(2, 20), Pair(3, 30)));
  EXPECT_EQ(ps(0).push.num_calls(), 0);
  EXPECT_EQ(ps(0).pull.num_calls(), 0);
}

TEST_F(TableWireTest, WithTwoPsEachHasItsOwnRows) {
  Exchange();
  std::map<uint64_t, float> all;
  for (const uint32_t i : {0, 1}) {
    std::map<uint64_t, float> rows;
    for (const proto::PushRequest& request : ps(i).push.requests()) {
      EXPECT_EQ(request.num_parts(), ps(i).push.num_calls());
      TakeRows(request, &rows);
    }
    for (const auto& [id, value] : rows) {
      EXPECT_TRUE(BucketsOfPs(i, 2).Contains(BucketOfRow(id))) << id;
    }
    all.merge(rows);
  }
  EXPECT_THAT(all, UnorderedElementsAre(Pair(1, 10), Pair(2, 20), Pair(3, 30)));
}

TEST_F(TableWireTest, RowsArePulledByThemselves) {
  cluster_ = ConnectReady();
  ASSERT_NE(cluster_, nullptr);
  next_.WantRows(0, {{0, 5}});
  EXPECT_EQ(cluster_->StartPull(GlobalStep(3), &next_)->Await(Late()),
            absl::OkStatus());
  EXPECT_EQ(next_.version, GlobalStep(3));
  EXPECT_THAT(next_.RowsOf(0), ElementsAre(300, 300, 305, 305));
}

}  // namespace
}  // namespace holdfast::client
