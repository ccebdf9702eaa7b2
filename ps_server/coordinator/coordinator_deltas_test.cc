// SPDX-License-Identifier: Apache-2.0

// Checkpoints that have only what changed in tables (docs/protocol/tables.md).
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

class CoordinatorDeltasTest : public CoordinatorTest {
 protected:
  static proto::Declaration WithTable() {
    proto::Declaration declaration = MakeDeclaration();
    declaration.mutable_checkpoints()->set_every_steps(1);
    declaration.mutable_checkpoints()->set_every_seconds(0);
    proto::EmbeddingTable& table = *declaration.add_tables();
    table.set_name("t");
    table.set_row_length(1);
    table.mutable_initializer()->mutable_zeros();
    table.set_max_rows_per_push(1);
    return declaration;
  }
  // A step, and the beginning of its checkpoint.
  std::string TrainStep(uint64_t step) {
    OfferBoth(step);
    AckCommits();
    return Begun();
  }
  // What shards are told about the checkpoint that is begun: "all" or
  // "changes", and its step.
  std::string Begun() {
    if (links_->saves.empty()) {
      ADD_FAILURE() << "no checkpoint is begun";
      return "";
    }
    const proto::SaveRequest& save = links_->saves[0].request;
    return absl::StrCat(save.changes() ? "changes" : "all", " since ",
                        save.durable_step());
  }
  // The chain of a checkpoint, and its previous checkpoint.
  std::string Chain(const std::string& name) {
    const proto::Manifest& manifest = archive_->complete.at(name);
    std::string text;
    for (const proto::ChainLink& link : manifest.chain()) {
      absl::StrAppend(&text, link.checkpoint().generation(), "/",
                      link.checkpoint().step(), " ");
    }
    return absl::StrCat(text, "after ", manifest.previous().generation(), "/",
                        manifest.previous().step());
  }
};

TEST_F(CoordinatorDeltasTest, HaveWhatChangedSinceTheLastDurableOne) {
  MakeWithArchive();
  StartTraining(WithTable());
  EXPECT_EQ(TrainStep(0), "all since 0");
  FinishSave();
  EXPECT_EQ(TrainStep(1), "changes since 1");
  PuppetLinks::AnswerAll(links_->saves);
  PuppetLinks::Answer(links_->awaits, 0,
                      absl::ResourceExhaustedError("disk full"));
  AnswerWritten(1);
  Pass(absl::Seconds(11), AllTasks());
  EXPECT_EQ(Begun(), "changes since 1") << "that of step 2 failed";
  FinishSave();
  EXPECT_EQ(Chain("1/2"), "1/1 after 1/1");
  EXPECT_EQ(TrainStep(2), "changes since 2");
  FinishSave();
  EXPECT_EQ(Chain("1/3"), "1/1 1/2 after 1/2");
}

TEST_F(CoordinatorDeltasTest, GoOnInTheNextGeneration) {
  MakeWithArchive();
  StartTraining(WithTable());
  for (uint64_t step : {0, 1}) {
    TrainStep(step);
    FinishSave();
  }
  EXPECT_EQ(TrainStep(2), "changes since 2");
  // The checkpoint is lost with a ps.
  Leave(Ps(1));
  Join(Ps(1), 2);
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(TrainStep(2), "changes since 2");
  FinishSave();
  EXPECT_EQ(Chain("2/3"), "1/1 1/2 after 1/2");
}

TEST_F(CoordinatorDeltasTest, NotOfAJobWithoutTables) {
  proto::Declaration declaration = WithTable();
  declaration.clear_tables();
  MakeWithArchive();
  StartTraining(declaration);
  TrainStep(0);
  FinishSave();
  EXPECT_EQ(TrainStep(1), "all since 0");
}

}  // namespace
}  // namespace holdfast
