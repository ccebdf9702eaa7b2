// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/loss_scaler.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {
namespace {

proto::LossScale Config(float initial, uint64_t growth_interval) {
  proto::LossScale config;
  config.set_initial(initial);
  config.set_growth_interval(growth_interval);
  return config;
}

LossScaler Scaler(float initial, uint64_t growth_interval) {
  return LossScaler(Config(initial, growth_interval), proto::Position());
}

// A step at the scaler's own scale.
void Step(LossScaler* scaler, bool finite) {
  scaler->OnStep(scaler->scale(), finite);
}

TEST(LossScalerTest, DoublesAfterSoManyStepsWithoutAnOverflow) {
  LossScaler scaler = Scaler(8, 3);
  for (const float expected : {8, 8, 16, 16, 16, 32}) {
    Step(&scaler, true);
    EXPECT_EQ(scaler.scale(), expected);
  }
}

TEST(LossScalerTest, AnOverflowHalvesAndTheCountBeginsAgain) {
  LossScaler scaler = Scaler(8, 3);
  Step(&scaler, true);
  Step(&scaler, true);
  Step(&scaler, false);
  EXPECT_EQ(scaler.scale(), 4);
  Step(&scaler, true);
  Step(&scaler, true);
  EXPECT_EQ(scaler.scale(), 4);
  Step(&scaler, true);
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(LossScalerTest, StaysWithinItsBounds) {
  LossScaler scaler = Scaler(2, 1);
  for (int i = 0; i < 3; ++i) Step(&scaler, false);
  EXPECT_EQ(scaler.scale(), 1);
  for (int i = 0; i < 30; ++i) Step(&scaler, true);
  EXPECT_EQ(scaler.scale(), 16777216);
  Step(&scaler, false);
  EXPECT_EQ(scaler.scale(), 8388608);
}

TEST(LossScalerTest, PushesOfAnEarlierScaleDoNotHalveAgain) {
  LossScaler scaler = Scaler(64, 10);
  scaler.OnStep(64, false);
  scaler.OnStep(64, false);
  scaler.OnStep(64, false);
  EXPECT_EQ(scaler.scale(), 32);
  scaler.OnStep(32, false);
  EXPECT_EQ(scaler.scale(), 16);
  // An overflow at the lower scale before it grew is all the more reason to
  // lower it.
  scaler.OnStep(8, false);
  EXPECT_EQ(scaler.scale(), 4);
}

TEST(LossScalerTest, GoesOnFromAPosition) {
  LossScaler scaler = Scaler(8, 3);
  Step(&scaler, false);
  Step(&scaler, true);
  Step(&scaler, true);
  proto::Position position;
  scaler.AddTo(&position);
  EXPECT_EQ(position.loss_scale(), 4);
  EXPECT_EQ(position.steps_at_loss_scale(), 2u);
  LossScaler again(Config(8, 3), position);
  EXPECT_EQ(again.scale(), 4);
  Step(&again, true);
  EXPECT_EQ(again.scale(), 8);
}

TEST(LossScalerTest, Defaults) {
  const proto::LossScale filled = WithDefaults(proto::LossScale());
  EXPECT_EQ(filled.initial(), 65536);
  EXPECT_EQ(filled.growth_interval(), 2000u);
  const proto::LossScale own = WithDefaults(Config(8, 3));
  EXPECT_EQ(own.initial(), 8);
  EXPECT_EQ(own.growth_interval(), 3u);
}

}  // namespace
}  // namespace holdfast
