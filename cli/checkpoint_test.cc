// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint.h"

#include <zip.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cli/table_export.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/process/daemon.h"
#include "common/rpc/testing/fake_ps.h"
#include "common/tensor/digest.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/table_digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class CheckpointCommandTest : public ::testing::Test {
 protected:
  CheckpointCommandTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        directory_(MakeDirectory(folder_)) {}

  static CheckpointDirectory MakeDirectory(const std::string& folder) {
    fs::remove_all(folder);
    return *CheckpointDirectory::Open(folder, PosixFileSystem());
  }

  // Returns the exit code. The output is in out_ and err_.
  int Run(const std::vector<std::string>& args) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = CheckpointCommand(args);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  void Save(const proto::CheckpointName& name, uint32_t seed) {
    ASSERT_TRUE(
        SaveTestCheckpoint(directory_, name, SmallVariables(), 2, seed).ok());
  }
  void WriteJournal(const std::vector<proto::CheckpointName>& names,
                    bool finished = false) {
    proto::Journal journal;
    journal.set_generation(4);
    for (const auto& name : names) *journal.add_checkpoints() = name;
    journal.set_finished(finished);
    ASSERT_TRUE(directory_.WriteJournal(journal).ok());
  }
  std::string PathOf(const proto::CheckpointName& name,
                     const std::string& file) {
    return absl::StrCat(directory_.Folder(name), "/", file);
  }
  // Damages the first extent with elements; the index does not show it.
  void DamageData(const proto::CheckpointName& name) {
    std::fstream file(PathOf(name, "ps-0000-of-0002"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(9);
    file.put('\x7f');
  }
  // The line of the output that begins with `word`.
  std::string Line(const std::string& word) {
    std::istringstream lines(out_);
    for (std::string line; std::getline(lines, line);) {
      if (absl::StartsWith(line, word)) return line;
    }
    return "";
  }

  const std::string folder_;
  const CheckpointDirectory directory_;
  const proto::CheckpointName first_ = TestName(1, 10);
  const proto::CheckpointName second_ = TestName(2, 20);
  const proto::CheckpointName third_ = TestName(2, 30);
  std::string out_;
  std::string err_;
};

TEST_F(CheckpointCommandTest, ListTellsWhatARestartUses) {
  WriteJournal({});
  EXPECT_EQ(Run({"list", folder_}), kExitDone);
  EXPECT_THAT(out_, HasSubstr("a restart begins with the first values"));

  for (const auto& name : {first_, second_, third_}) Save(name, 1);
  ASSERT_TRUE(fs::remove(PathOf(third_, "MANIFEST")));
  WriteJournal({second_});
  EXPECT_EQ(Run({"list", folder_}), kExitDone);
  EXPECT_THAT(Line("g0001-step00000010"),
              HasSubstr("complete, not in the journal"));
  EXPECT_THAT(Line("g0002-step00000020"),
              ContainsRegex(" 20 +2 +1\\.[0-9] KiB +20[0-9-]+ [0-9:]+ +"
                            "durable, the newest$"));
  EXPECT_THAT(Line("g0002-step00000030"), HasSubstr("not complete"));
  EXPECT_THAT(out_, HasSubstr("Generation 4. A restart goes on from "
                              "g0002-step00000020."));

  // A damaged checkpoint is skipped.
  WriteJournal({first_, second_});
  fs::resize_file(PathOf(second_, "ps-0001-of-0002"), 100);
  EXPECT_EQ(Run({"list", folder_}), kExitDone);
  EXPECT_THAT(Line("g0002-step00000020"),
              AllOf(HasSubstr("damaged"), HasSubstr("ps-0001-of-0002")));
  EXPECT_THAT(out_, HasSubstr("A restart goes on from g0001-step00000010."));

  fs::remove_all(directory_.Folder(second_));
  fs::remove(PathOf(first_, "MANIFEST"));
  EXPECT_EQ(Run({"list", folder_}), kExitDone);
  EXPECT_THAT(Line("g0002-step00000020"), HasSubstr("missing"));
  EXPECT_THAT(Line("g0001-step00000010"), HasSubstr("missing"));
  EXPECT_THAT(out_, HasSubstr("a restart fails"));

  WriteJournal({first_}, /*finished=*/true);
  EXPECT_EQ(Run({"list", folder_}), kExitDone);
  EXPECT_THAT(out_, HasSubstr("The job is finished"));
}

TEST_F(CheckpointCommandTest, ListFailsWithoutItsJournal) {
  Save(first_, 1);
  WriteJournal({first_});
  fs::resize_file(folder_ + "/JOURNAL", 30);
  EXPECT_EQ(Run({"list", folder_}), kExitFailed);
  EXPECT_THAT(Line("g0001-step00000010"), HasSubstr("complete"));
  EXPECT_THAT(err_, HasSubstr("/JOURNAL: has 14 bytes"));
  EXPECT_EQ(Run({"list", folder_ + "/nowhere"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("/nowhere: No such file"));
}

// Such as its parent folder.
TEST_F(CheckpointCommandTest, AFolderThatIsNoCheckpointDirectory) {
  for (const char* verb : {"list", "verify", "inspect"}) {
    EXPECT_EQ(Run({verb, folder_}), kExitFailed) << verb;
    EXPECT_THAT(err_, HasSubstr("JOURNAL")) << verb;
  }
  EXPECT_EQ(Run({"verify", folder_}), kExitFailed);
  EXPECT_THAT(err_, HasSubstr(folder_ + ": is not the checkpoint directory of "
                                        "a job"));
  Save(first_, 1);
  EXPECT_EQ(Run({"list", folder_}), kExitFailed);
  EXPECT_THAT(Line("g0001-step00000010"), HasSubstr("complete"));
  EXPECT_THAT(out_, HasSubstr("There is no journal"));
}

TEST_F(CheckpointCommandTest, InspectTellsWhatItHolds) {
  Save(first_, 1);
  Save(second_, 2);
  proto::Manifest manifest = *directory_.ReadManifest(first_);
  manifest.mutable_declaration()->set_examples(proto::BY_TICKET);
  manifest.mutable_declaration()->add_optimizers()->mutable_momentum();
  proto::Position& position = *manifest.mutable_position();
  position.set_updates(9);
  position.set_next_ticket(17);
  position.add_returned_tickets(11);
  position.add_returned_tickets(13);
  position.set_examples(640);
  position.mutable_pushes()->set_accepted(10);
  position.mutable_pushes()->set_stale(3);
  position.mutable_pushes()->set_not_finite(2);
  position.set_loss_scale(512);
  position.set_steps_at_loss_scale(7);
  ASSERT_TRUE(directory_.WriteManifest(manifest).ok());
  WriteJournal({second_, first_});

  EXPECT_EQ(Run({"inspect", folder_}), kExitDone) << err_;
  EXPECT_THAT(out_, HasSubstr("checkpoint   g0001-step00000010\n"));
  EXPECT_THAT(out_, HasSubstr("saved by     2 ps\n"));
  EXPECT_THAT(out_, HasSubstr("step         10\n"));
  EXPECT_THAT(out_, HasSubstr("updates      9\n"));
  EXPECT_THAT(out_, HasSubstr("next 17, to be handed out again 11 13\n"));
  EXPECT_THAT(out_, HasSubstr("examples     640\n"));
  EXPECT_THAT(out_, HasSubstr("10 accepted, 3 stale"));
  EXPECT_THAT(out_, HasSubstr("2 of the accepted not finite"));
  EXPECT_THAT(out_, HasSubstr("512, for 7 steps"));
  EXPECT_THAT(out_, HasSubstr("optimizer 0  momentum { }\n"));
  EXPECT_THAT(out_, HasSubstr("dense/kernel FLOAT32 [5,3], optimizer 0, "
                              "2 slots\n"));
  EXPECT_THAT(out_, HasSubstr("scale FLOAT32 [], optimizer 0, 0 slots\n"));

  const TestState state = MakeTestState(SmallVariables(), 1);
  std::vector<proto::Variable> variables;
  std::vector<std::vector<float>> values;
  for (const auto& variable : manifest.declaration().variables()) {
    variables.push_back(variable);
    values.push_back(state.at(variable.name())[0]);
  }
  EXPECT_EQ(
      Line("digest"),
      "digest       " +
          DigestOfVariables(variables, std::vector<absl::Span<const float>>(
                                           values.begin(), values.end())));

  EXPECT_EQ(Run({"inspect", folder_, "--checkpoint=g0002-step00000020"}),
            kExitDone);
  EXPECT_THAT(out_, HasSubstr("checkpoint   g0002-step00000020\n"));
  EXPECT_THAT(out_, Not(HasSubstr("tickets")));
}

TEST_F(CheckpointCommandTest, VerifyNamesWhatIsDamaged) {
  for (const auto& name : {first_, second_, third_}) Save(name, 1);
  ASSERT_TRUE(fs::remove(PathOf(third_, "MANIFEST")));
  WriteJournal({first_, second_});
  EXPECT_EQ(Run({"verify", folder_}), kExitDone) << err_;
  EXPECT_THAT(Line("g0001"), HasSubstr("g0001-step00000010: whole, "));
  EXPECT_THAT(Line("g0002-step00000030"), HasSubstr("not complete"));

  DamageData(second_);
  EXPECT_EQ(Run({"list", folder_}), kExitDone);
  EXPECT_THAT(out_, Not(HasSubstr("damaged")));
  EXPECT_EQ(Run({"verify", folder_}), kExitFailed);
  EXPECT_THAT(Line("g0002-step00000020"),
              AllOf(HasSubstr("ps-0000-of-0002"), HasSubstr("dense/bias"),
                    HasSubstr("CRC32C")));
  EXPECT_THAT(err_, HasSubstr("1 is damaged"));
  EXPECT_EQ(Run({"verify", folder_, "--checkpoint=g0001-step00000010"}),
            kExitDone);
  EXPECT_EQ(Run({"verify", folder_, "--checkpoint=g0002-step00000020"}),
            kExitFailed);
  EXPECT_EQ(Run({"verify", folder_, "--checkpoint=g0002-step00000030"}),
            kExitFailed);

  // Checkpoints in the journal must exist, and the journal must be intact.
  fs::remove_all(directory_.Folder(second_));
  EXPECT_EQ(Run({"verify", folder_}), kExitFailed);
  EXPECT_THAT(Line("g0002-step00000020"), HasSubstr("No such file"));
  WriteJournal({first_});
  EXPECT_EQ(Run({"verify", folder_}), kExitDone);
  fs::resize_file(folder_ + "/JOURNAL", 30);
  EXPECT_EQ(Run({"verify", folder_}), kExitFailed);
  EXPECT_THAT(out_, HasSubstr("/JOURNAL: has 14 bytes"));
}

// The entries of a zip.
std::map<std::string, std::string> ReadZip(const std::string& path) {
  std::map<std::string, std::string> entries;
  int error;
  zip_t* const zip = zip_open(path.c_str(), ZIP_RDONLY, &error);
  EXPECT_NE(zip, nullptr) << path;
  if (zip == nullptr) return entries;
  for (zip_int64_t i = 0; i < zip_get_num_entries(zip, 0); ++i) {
    zip_stat_t about;
    EXPECT_EQ(zip_stat_index(zip, i, 0, &about), 0);
    std::string& data = entries[about.name];
    data.resize(about.size);
    zip_file_t* const file = zip_fopen_index(zip, i, 0);
    EXPECT_EQ(zip_fread(file, &data[0], data.size()),
              static_cast<zip_int64_t>(data.size()));
    zip_fclose(file);
  }
  zip_discard(zip);
  return entries;
}

// A .npy with this shape, as numpy.save writes it.
std::string Npy(const std::string& shape, absl::Span<const float> values) {
  std::string text = absl::StrCat(
      "{'descr': '<f4', 'fortran_order': False, 'shape': ", shape, ", }");
  text.resize(128 - 10 - 1, ' ');
  std::string npy("\x93NUMPY\x01\x00\x76\x00", 10);
  absl::StrAppend(&npy, text, "\n");
  npy.append(reinterpret_cast<const char*>(values.data()),
             values.size() * sizeof(float));
  return npy;
}

TEST_F(CheckpointCommandTest, ExportIsForNumPy) {
  Save(first_, 1);
  WriteJournal({first_});
  const std::string file = folder_ + "/all.npz";
  ASSERT_EQ(Run({"export", folder_, "--output=" + file, "--slots"}), kExitDone)
      << err_;
  const TestState state = MakeTestState(SmallVariables(), 1);
  const auto entries = ReadZip(file);
  EXPECT_THAT(entries, SizeIs(4 + 5));
  const std::vector<std::pair<std::string, std::string>> kShapes = {
      {"dense/kernel", "(5, 3)"},
      {"dense/bias", "(3,)"},
      {"scale", "()"},
      {"empty", "(0, 4)"}};
  for (const auto& [name, shape] : kShapes) {
    const auto& arrays = state.at(name);
    for (size_t slot = 0; slot < arrays.size(); ++slot) {
      const std::string entry =
          slot == 0 ? name + ".npy"
                    : absl::StrCat(name, ":slot", slot - 1, ".npy");
      ASSERT_EQ(entries.count(entry), 1u) << entry;
      EXPECT_EQ(entries.at(entry), Npy(shape, arrays[slot])) << entry;
    }
  }

  ASSERT_EQ(
      Run({"export", folder_, "--output=" + file, "--variables=sca,dense/b"}),
      kExitDone)
      << err_;
  EXPECT_THAT(ReadZip(file), SizeIs(2));

  EXPECT_EQ(Run({"export", folder_, "--output=" + file, "--variables=x"}),
            kExitUsage);
  EXPECT_THAT(err_, HasSubstr("no variable begins with \"x\""));
  EXPECT_EQ(Run({"export", folder_, "--output=" + folder_ + "/no/file.npz"}),
            kExitFailed);
  EXPECT_THAT(err_, HasSubstr("/no/file.npz: cannot be written"));

  // A damaged checkpoint is not exported, and the file is unchanged.
  DamageData(first_);
  EXPECT_EQ(Run({"export", folder_, "--output=" + file}), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("CRC32C"));
  EXPECT_THAT(ReadZip(file), SizeIs(2));
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The layout of https://github.com/huggingface/safetensors: the length of the
// header, the header, the arrays.
TEST_F(CheckpointCommandTest, ExportAsSafetensors) {
  Save(first_, 1);
  WriteJournal({first_});
  const std::string file = folder_ + "/all.safetensors";
  ASSERT_EQ(Run({"export", folder_, "--output=" + file, "--slots",
                 "--variables=dense/bias,scale,empty"}),
            kExitDone)
      << err_;
  const TestState state = MakeTestState(SmallVariables(), 1);
  std::string json = R"({"__metadata__":{"format":"pt","step":"10"})";
  std::string data;
  const auto add = [&](const std::string& name, const std::string& shape,
                       const std::vector<float>& values) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()),
                values.size() * sizeof(float));
    absl::StrAppend(&json, ",\"", name, R"(":{"dtype":"F32","shape":[)", shape,
                    R"(],"data_offsets":[)", begin, ",", data.size(), "]}");
  };
  const std::vector<std::pair<std::string, std::string>> kShapes = {
      {"dense/bias", "3"}, {"scale", ""}, {"empty", "0,4"}};
  for (const auto& [name, shape] : kShapes) {
    const auto& arrays = state.at(name);
    for (size_t slot = 0; slot < arrays.size(); ++slot) {
      add(slot == 0 ? name : absl::StrCat(name, ":slot", slot - 1), shape,
          arrays[slot]);
    }
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t size = json.size();
  const std::string length(reinterpret_cast<const char*>(&size), sizeof(size));
  EXPECT_TRUE(BytesOf(file) == length + json + data) << BytesOf(file);
  EXPECT_FALSE(fs::exists(file + ".tmp"));

  // A damaged checkpoint is not exported, and the file is unchanged.
  DamageData(first_);
  EXPECT_EQ(Run({"export", folder_, "--output=" + file}), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("CRC32C"));
  EXPECT_TRUE(BytesOf(file) == length + json + data);
  EXPECT_FALSE(fs::exists(file + ".tmp"));
}

TEST_F(CheckpointCommandTest, LargeVariablesAreExportedPieceByPiece) {
  const std::vector<TestVariable> variables = {{"v", {3, 1000001}}};
  ASSERT_TRUE(SaveTestCheckpoint(directory_, first_, variables, 2, 1).ok());
  const std::string file = folder_ + "/all.npz";
  ASSERT_EQ(Run({"export", folder_, "--output=" + file,
                 "--checkpoint=g0001-step00000010"}),
            kExitDone)
      << err_;
  EXPECT_TRUE(ReadZip(file)["v.npy"] ==
              Npy("(3, 1000001)", MakeTestState(variables, 1).at("v")[0]));
}

// The .npy of numbers; numpy.save writes the same.
template <typename Number>
std::string NpyOf(const std::string& type, const std::string& shape,
                  const std::vector<Number>& numbers) {
  std::string text =
      absl::StrCat("{'descr': '", type,
                   "', 'fortran_order': False, 'shape': ", shape, ", }");
  text.resize(128 - 10 - 1, ' ');
  std::string npy("\x93NUMPY\x01\x00\x76\x00", 10);
  absl::StrAppend(&npy, text, "\n");
  npy.append(reinterpret_cast<const char*>(numbers.data()),
             numbers.size() * sizeof(Number));
  return npy;
}

class TablesOfCheckpointTest : public CheckpointCommandTest {
 protected:
  TablesOfCheckpointTest() {
    EXPECT_TRUE(SaveTestCheckpoint(directory_, first_, SmallVariables(), 2, 0,
                                   SmallTables())
                    .ok());
    WriteJournal({first_});
    // Ids from 0 on.
    for (uint64_t id = 0; id < user_.rows; ++id) {
      ids_.push_back(id);
      const auto& row = state_.at("user")[id];
      values_.insert(values_.end(), row.begin() + 3,
                     row.begin() + 3 + user_.row_length);
    }
  }

  const TestTable user_ = SmallTables()[0];
  const TestState state_ = MakeTestState(SmallVariables(), 0, SmallTables());
  std::vector<uint64_t> ids_;
  std::vector<float> values_;
};

TEST_F(TablesOfCheckpointTest, AreListedInspectedAndVerified) {
  Save(second_, 1);
  EXPECT_EQ(Run({"list", folder_}), kExitDone);
  EXPECT_THAT(Line("checkpoint"), ContainsRegex(" size +rows +kind +written "));
  EXPECT_THAT(
      Line("g0001-step00000010"),
      ContainsRegex(" KiB +40 +all rows +20[0-9-]+ .*durable, the newest$"));
  EXPECT_THAT(Line("g0002-step00000020"), ContainsRegex(" KiB +20[0-9-]+ "));
  EXPECT_EQ(Run({"verify", folder_}), kExitDone);
  EXPECT_THAT(Line("g0001-step00000010"), HasSubstr(" KiB, 40 rows of tables"));
  EXPECT_THAT(Line("g0002-step00000020"), Not(HasSubstr("rows")));

  std::vector<RowsDigest> buckets(kRowBuckets);
  for (const uint64_t id : ids_) {
    buckets[BucketOfRow(id)].Add(
        id, absl::MakeConstSpan(values_).subspan(id * user_.row_length,
                                                 user_.row_length));
  }
  std::vector<std::string> digests;
  for (const RowsDigest& bucket : buckets) {
    digests.push_back(bucket.HexDigest());
  }
  proto::EmbeddingTable declared;
  declared.set_name("user");
  declared.set_row_length(user_.row_length);
  EXPECT_EQ(Run({"inspect", folder_}), kExitDone) << err_;
  EXPECT_EQ(Line("table        user"),
            "table        user FLOAT32 [*,2], optimizer 0, 40 rows, 8 "
            "candidates, 1.4 KiB, digest " +
                DigestOfTable(declared, digests));
  EXPECT_THAT(Line("table        nobody"),
              HasSubstr("nobody FLOAT32 [*,3], optimizer 0, 0 rows, 0 "
                        "candidates, 0 B, digest "));
}

TEST_F(TablesOfCheckpointTest, AreExportedForNumPy) {
  const std::string ids = NpyOf("<u8", "(40,)", ids_);
  const std::string values = NpyOf("<f4", "(40, 2)", values_);
  ASSERT_EQ(Run({"export", folder_, "--output=" + folder_ + "/all.npz"}),
            kExitDone)
      << err_;
  EXPECT_THAT(ReadZip(folder_ + "/all.npz"), SizeIs(4));
  EXPECT_TRUE(BytesOf(folder_ + "/all.user.ids.npy") == ids);
  EXPECT_TRUE(BytesOf(folder_ + "/all.user.values.npy") == values);
  EXPECT_EQ(BytesOf(folder_ + "/all.nobody.ids.npy"),
            NpyOf("<u8", "(0,)", std::vector<uint64_t>()));
  EXPECT_EQ(BytesOf(folder_ + "/all.nobody.values.npy"),
            NpyOf("<f4", "(0, 3)", std::vector<float>()));

  ASSERT_EQ(Run({"export", folder_, "--variables=us",
                 "--output=" + folder_ + "/some.safetensors"}),
            kExitDone)
      << err_;
  EXPECT_FALSE(fs::exists(folder_ + "/some.safetensors"));
  EXPECT_TRUE(BytesOf(folder_ + "/some.user.values.npy") == values);
  EXPECT_FALSE(fs::exists(folder_ + "/some.nobody.values.npy"));

  // Window by window.
  const auto reader = CheckpointReader::Open(directory_, first_);
  for (const uint64_t window_bytes : {1, 24, 1000}) {
    ASSERT_TRUE(ExportTables(reader->get(), {"user"}, folder_ + "/few.npz",
                             window_bytes)
                    .ok());
    EXPECT_TRUE(BytesOf(folder_ + "/few.user.ids.npy") == ids);
    EXPECT_TRUE(BytesOf(folder_ + "/few.user.values.npy") == values);
  }
}

TEST_F(TablesOfCheckpointTest, WhatIsDamagedIsNotExported) {
  const std::string file = PathOf(first_, "ps-0001-of-0002");
  std::string contents = BytesOf(file);
  // The last bytes of a row's id, and its count.
  const size_t rows = contents.find(std::string("\0\0\0\0\x01\0\0", 7));
  ASSERT_NE(rows, std::string::npos);
  contents[rows] ^= 1;
  std::ofstream(file, std::ios::binary) << contents;
  EXPECT_EQ(Run({"export", folder_, "--variables=user",
                 "--output=" + folder_ + "/all.npz"}),
            kExitFailed);
  EXPECT_THAT(err_, HasSubstr("of table \"user\""));
  EXPECT_FALSE(fs::exists(folder_ + "/all.user.ids.npy"));
  EXPECT_FALSE(fs::exists(folder_ + "/all.user.ids.npy.tmp"));
  EXPECT_EQ(Run({"verify", folder_}), kExitFailed);
  EXPECT_THAT(out_, HasSubstr("of table \"user\""));
  EXPECT_EQ(Run({"inspect", folder_}), kExitFailed);
}

TEST_F(TablesOfCheckpointTest, TwoOfOneFileAreRefused) {
  std::vector<TestTable> tables = {{"a/b", 1, 0, 3, 0}, {"a.b", 1, 0, 3, 0}};
  ASSERT_TRUE(
      SaveTestCheckpoint(directory_, second_, SmallVariables(), 1, 1, tables)
          .ok());
  WriteJournal({second_});
  EXPECT_EQ(Run({"export", folder_, "--output=" + folder_ + "/all.npz"}),
            kExitUsage);
  EXPECT_THAT(err_, HasSubstr("tables \"a/b\" and \"a.b\" would both be"));
  EXPECT_EQ(Run({"export", folder_, "--variables=a/",
                 "--output=" + folder_ + "/all.npz"}),
            kExitDone);
  EXPECT_TRUE(fs::exists(folder_ + "/all.a.b.ids.npy"));
}

TEST_F(CheckpointCommandTest, SaveWaitsUntilItIsOnDisk) {
  FakePs ps;
  ps.checkpoint.Do([](int call, const proto::CheckpointRequest& request,
                      proto::CheckpointResponse* response) {
    response->set_generation(1);
    response->set_step(120);
    response->set_durable_step(call < 2 ? 100 : 120);
    return absl::OkStatus();
  });
  EXPECT_EQ(Run({"save", "--ps=" + ps.address()}), kExitDone) << err_;
  EXPECT_EQ(out_, "The checkpoint of step 120 is on disk.\n");
  ASSERT_THAT(ps.checkpoint.requests(), SizeIs(3));
  EXPECT_EQ(ps.checkpoint.requests()[2].step(), 120u);

  ps.checkpoint.Do([](int, const auto&, proto::CheckpointResponse* response) {
    return absl::FailedPreconditionError("the ps have no --checkpoint_dir");
  });
  EXPECT_EQ(Run({"save", "--ps=" + ps.address()}), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("no --checkpoint_dir"));
}

TEST_F(CheckpointCommandTest, WrongUseIsTold) {
  const struct {
    std::vector<std::string> args;
    std::string error;
  } kCases[] = {
      {{}, "a verb is required"},
      {{"show"}, "unknown verb \"show\""},
      {{"list"}, "the checkpoint directory is required"},
      {{"list", "--checkpoint=x"}, "the checkpoint directory is required"},
      {{"list", folder_, "--slots"}, "unknown flag --slots"},
      {{"inspect", folder_, "more"}, "\"more\" is not a flag"},
      {{"inspect", folder_, "--checkpoint=x"}, "\"x\" is not the name"},
      {{"verify", folder_, "--checkpoint=x"}, "\"x\" is not the name"},
      {{"export", folder_}, "--output is required"},
      {{"delta", folder_}, "--since is required"},
      {{"delta", folder_, "--since=-1"}, "--since=-1: the step of"},
      {{"delta", folder_, "--since=10"}, "--output is required"},
      {{"save"}, "no cluster is named: give --ps=HOST:PORT"},
      {{"save", "--ps=nowhere"}, "--ps=nowhere"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Run(test.args), kExitUsage) << test.error;
    EXPECT_THAT(err_, HasSubstr(test.error));
    EXPECT_THAT(out_, IsEmpty());
  }
  EXPECT_EQ(Run({"--help"}), kExitDone);
  EXPECT_THAT(out_, HasSubstr("holdfast checkpoint verify DIR"));
  EXPECT_EQ(Run({"export", "--help"}), kExitDone);
  EXPECT_THAT(out_, HasSubstr("--output=FILE"));
}

}  // namespace
}  // namespace holdfast
