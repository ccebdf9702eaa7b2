// SPDX-License-Identifier: Apache-2.0

// The main program of the comparisons of device and CPU (*_parity_test.cc). Its
// last line tells how many ran. Without a device, no case runs: each test
// reports that and is skipped.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const auto device = holdfast::MakeDeviceUnderTest();
  if (device.ok()) {
    std::printf("%lld cases ran on %s\n",
                static_cast<long long>(holdfast::g_cases),
                (*device)->Describe().core.c_str());
  } else {
    std::printf("no case ran: %s\n", device.status().ToString().c_str());
  }
  return code;
}
