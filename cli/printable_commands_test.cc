// SPDX-License-Identifier: Apache-2.0

// What peers and files say cannot do anything to the terminal of an operator,
// whichever command shows it.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/checkpoint.h"
#include "cli/data.h"
#include "cli/printable_output.h"
#include "cli/progress.h"
#include "cli/set.h"
#include "cli/status.h"
#include "cli/stop.h"
#include "cli/terminal.h"
#include "cli/trace.h"
#include "common/base/printable_text.h"
#include "common/data/tfrecord_frame.h"
#include "common/rpc/testing/fake_ps.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using ::testing::HasSubstr;

using Command = int (*)(const std::vector<std::string>& args);

// Sets a title, clears the screen, turns text around, rings, hides. What is in
// a message has to be UTF-8; what is in a file, or its name, does not.
// A sentence may begin with it.
constexpr char kMarker[] = "old";
constexpr char kInMessage[] =
    "told\033]0;title\a\033[2J\xc2\x9b"
    "31m\xc2\x90\xe2\x80\xae\xe2\x81\xa6\b\r\x7f\xef\xbb\xbf";
constexpr char kInFile[] =
    "told\033]0;title\a\x9b"
    "31m\xc2\x9b"
    "2J\xe2\x80\xae\xe9\xff";

// Fills in all fields, with such text where there is text.
void Fill(Message* message, int depth) {
  const Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message->GetDescriptor()->field(i);
    if (field.is_map()) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (depth == 0) continue;
      Fill(field.is_repeated() ? reflection.AddMessage(message, &field)
                               : reflection.MutableMessage(message, &field),
           depth - 1);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      if (field.type() != FieldDescriptor::TYPE_STRING) continue;
      if (field.is_repeated()) {
        reflection.AddString(message, &field, kInMessage);
      } else {
        reflection.SetString(message, &field, kInMessage);
      }
    } else if (!field.is_repeated() &&
               field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      reflection.SetBool(message, &field, true);
    }
  }
}

class PrintableCommandsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { MakeOutputPrintable(); }

  // Fills in the answers of a method of ps 0; `then` may change them.
  template <typename Method>
  void Answer(Method* method, int depth = 4) {
    method->Do([depth](int, const auto&, auto* response) {
      Fill(response, depth);
      if constexpr (std::is_same_v<decltype(response), proto::StopResponse*>) {
        response->mutable_state()->set_phase(proto::STOPPED);
      }
      return absl::OkStatus();
    });
  }

  // All that the command prints.
  static std::string Run(Command command, std::vector<std::string> args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    command(args);
    std::cout << std::flush;
    std::string said = testing::internal::GetCapturedStdout();
    return said + testing::internal::GetCapturedStderr();
  }
  static void ExpectPrintable(const std::string& said) {
    EXPECT_EQ(said, PrintableLines(said));
    EXPECT_THAT(said, HasSubstr(kMarker));
  }

  static std::string Write(const std::string& ending,
                           const std::string& content) {
    const std::string path =
        absl::StrCat(testing::TempDir(), "/", kInFile, ending);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    return path;
  }

  FakePs ps_;
};

TEST_F(PrintableCommandsTest, OfAJob) {
  Answer(&ps_.get_status);
  Answer(&ps_.get_events);
  Answer(&ps_.get_history);
  Answer(&ps_.stop);
  const std::string ps = "--ps=" + ps_.address();
  ExpectPrintable(Run(StatusCommand, {ps}));
  ExpectPrintable(Run(EventsCommand, {ps}));
  ExpectPrintable(Run(StopCommand, {ps}));
  for (const auto& [command, args] :
       std::vector<std::pair<Command, std::vector<std::string>>>{
           {StatusCommand, {ps, "--json"}},
           {EventsCommand, {ps, "--json"}},
           {HistoryCommand, {ps}},
           {HistoryCommand, {ps, "--csv"}}}) {
    const std::string said = Run(command, args);
    EXPECT_EQ(said, PrintableLines(said));
    EXPECT_NE(said, "");
  }
}

TEST_F(PrintableCommandsTest, Errors) {
  for (const Command command :
       {StatusCommand, EventsCommand, HistoryCommand, StopCommand, SetCommand,
        TraceCommand, DataCommand, CheckpointCommand}) {
    ExpectPrintable(Run(command, {kInFile}));
  }
  ExpectPrintable(Run(StatusCommand, {absl::StrCat("--ps=", kInFile)}));
  ExpectPrintable(Run(TraceCommand, {absl::StrCat("--output=/no/", kInFile)}));
  for (const char* verb : {"list", "inspect", "verify"}) {
    ExpectPrintable(
        Run(CheckpointCommand, {verb, absl::StrCat("/no/", kInFile)}));
  }
}

TEST_F(PrintableCommandsTest, OfData) {
  const std::string csv =
      Write(".csv", absl::StrCat("x,\"", kInFile, "\",z\n1,", kInFile,
                                 ",0\n2,b,1\n3\n4,", kInFile, "2,1\n"));
  const std::string said = Run(DataCommand, {"inspect", csv});
  ExpectPrintable(said);
  // The schema still names the column.
  EXPECT_THAT(said, HasSubstr("told\\033]0;title\\007\\23331m\\302\\2332J"));
  ExpectPrintable(Run(DataCommand, {"split", csv, "--fraction=0.5"}));

  proto::tensorflow::Example example;
  auto* const feature = example.mutable_features()->add_feature();
  feature->set_key(kInFile);
  feature->mutable_value()->mutable_bytes_list()->add_value(kInFile);
  std::string records;
  AppendTfRecord(example.SerializeAsString(), &records);
  ExpectPrintable(Run(DataCommand, {"inspect", Write(".tfrecord", records)}));
  ExpectPrintable(Run(
      DataCommand,
      {"inspect", Write(".libsvm", absl::StrCat("1 2:3\n1 ", kInFile, "\n"))}));
  const std::string images =
      absl::StrCat(testing::TempDir(), "/images ", kInFile);
  std::filesystem::create_directories(absl::StrCat(images, "/", kInFile));
  std::ofstream(absl::StrCat(images, "/", kInFile, "/", kInFile, ".png"))
      << "no image";
  ExpectPrintable(Run(DataCommand, {"inspect", images}));
  for (const char* ending : {".npy", ".idx3-ubyte", ".csv.gz", "-missing"}) {
    ExpectPrintable(Run(DataCommand, {"inspect", Write(ending, kInFile)}));
  }
}

TEST(PrintableScreenTest, OfTopAndLocal) {
  proto::GetStatusResponse status;
  Fill(&status, 3);
  status.set_generation(2);
  ProgressDisplay progress({.terminal = false});
  ProgressDisplay live({.terminal = true, .width = 200});
  const std::string line = progress.Update(status, absl::UnixEpoch());
  EXPECT_EQ(line, PrintableLines(line));
  EXPECT_THAT(line, HasSubstr(kMarker));
  EXPECT_EQ(live.Update(status, absl::UnixEpoch()).find('\a'),
            std::string::npos);
  const std::string screen = DrawScreen({{kInMessage}}, {200, 1});
  EXPECT_THAT(screen, HasSubstr("told?]0;title??[2J?31m????"));
}

}  // namespace
}  // namespace holdfast
