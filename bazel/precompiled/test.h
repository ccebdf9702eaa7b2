// SPDX-License-Identifier: Apache-2.0
// What most tests include. Like common.h without a guard, since it is never
// included by a file.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "bazel/precompiled/common.h"
