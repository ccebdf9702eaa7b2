// SPDX-License-Identifier: Apache-2.0

// Rows in ps-lite's KVServer, with one KVWorker: the server's handler finds
// them in an absl::flat_hash_map and applies SGD. Like ps_lite_wire.cc, this is
// one role of a cluster; ps_lite_rows.py builds it and starts all roles. The
// worker prints JSON lines in the format of rows.py.
//
//   ps_lite_rows ROWS IDS ZIPF ROW_LENGTH SECONDS

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cli/zipf.h"
#include "ps/ps.h"

namespace {

// As in rows.py.
constexpr int kBatches = 16;
constexpr uint64_t kPrime = 2654435761;
constexpr float kLearningRate = 0.001f;

struct Flags {
  uint64_t rows;
  size_t ids;
  double zipf;
  size_t row_length;
  double seconds;
};

// A table whose rows are contiguous, in the order in which they were created.
class Table {
 public:
  Table(uint64_t rows, size_t row_length) : row_length_(row_length) {
    places_.reserve(rows);
    values_.reserve(rows * row_length);
  }

  void Serve(const ps::KVMeta& meta, const ps::KVPairs<float>& request,
             ps::KVServer<float>* server) {
    ps::KVPairs<float> response;
    if (meta.push) {
      for (size_t i = 0; i < request.keys.size(); ++i) {
        const auto [place, made] =
            places_.try_emplace(request.keys[i], values_.size());
        if (made) values_.resize(values_.size() + row_length_);
        float* const row = values_.data() + place->second;
        const float* const gradient = request.vals.data() + i * row_length_;
        for (size_t e = 0; e < row_length_; ++e) {
          row[e] -= kLearningRate * gradient[e];
        }
      }
    }
    if (meta.pull) {
      response.keys = request.keys;
      response.vals.resize(request.keys.size() * row_length_);
      for (size_t i = 0; i < request.keys.size(); ++i) {
        const float* const row =
            values_.data() + places_.find(request.keys[i])->second;
        std::copy_n(row, row_length_, response.vals.data() + i * row_length_);
      }
    }
    server->Response(meta, response);
  }

 private:
  const size_t row_length_;
  absl::flat_hash_map<ps::Key, size_t> places_;
  std::vector<float> values_;
};

void Report(const char* operation, const Flags& flags, double rows,
            const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const auto length = std::chrono::duration<double>(flags.seconds);
  const Clock::time_point begin = Clock::now();
  std::vector<double> times;
  while (Clock::now() < begin + length || times.size() < 10) {
    const Clock::time_point before = Clock::now();
    call();
    const Clock::time_point after = Clock::now();
    if (after > begin + length / 4) {
      times.push_back(std::chrono::duration<double>(after - before).count());
    }
  }
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"peer\": \"ps_lite\", \"measure\": \"%s_%zu\", \"value\": %.6g, "
      "\"unit\": \"ns/row\"}\n",
      operation, flags.row_length, times[times.size() / 2] / rows * 1e9);
  std::fflush(stdout);
}

void Work(const Flags& flags) {
  ps::KVWorker<float> worker(/*app_id=*/0, /*customer_id=*/0);
  constexpr uint64_t kFilled = 65536;
  for (uint64_t begin = 0; begin < flags.rows; begin += kFilled) {
    ps::SArray<ps::Key> keys(std::min(kFilled, flags.rows - begin));
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = begin + i;
    worker.Wait(worker.ZPush(
        keys, ps::SArray<float>(keys.size() * flags.row_length, 0)));
  }

  holdfast::ZipfRanks ranks(flags.rows, flags.zipf, /*seed=*/1);
  std::vector<ps::SArray<ps::Key>> batches;
  double rows = 0;
  for (int i = 0; i < kBatches; ++i) {
    std::set<ps::Key> unique;
    for (size_t k = 0; k < flags.ids; ++k) {
      unique.insert(ranks.Next() * kPrime % flags.rows);
    }
    ps::SArray<ps::Key> keys(unique.size());
    std::copy(unique.begin(), unique.end(), keys.data());
    batches.push_back(keys);
    rows += static_cast<double>(unique.size()) / kBatches;
  }
  const ps::SArray<float> gradients(flags.ids * flags.row_length, 0.5f);
  ps::SArray<float> values;
  size_t turn = 0;
  const auto next = [&] { return batches[++turn % kBatches]; };
  const auto gradients_of = [&](const ps::SArray<ps::Key>& keys) {
    return gradients.segment(0, keys.size() * flags.row_length);
  };
  const auto push = [&] {
    const auto keys = next();
    worker.Wait(worker.ZPush(keys, gradients_of(keys)));
  };
  const auto pull = [&] {
    const auto keys = next();
    values.resize(keys.size() * flags.row_length);
    worker.Wait(worker.ZPull(keys, &values));
  };
  Report("push", flags, rows, push);
  Report("pull", flags, rows, pull);
  // ZPushPull pulls the rows that it pushes; a training step needs others.
  Report("pushpull", flags, rows, [&] {
    push();
    pull();
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const Flags flags = {std::strtoull(argv[1], nullptr, 10),
                       std::strtoull(argv[2], nullptr, 10), std::atof(argv[3]),
                       std::strtoull(argv[4], nullptr, 10), std::atof(argv[5])};
  ps::Start(/*customer_id=*/0);
  ps::KVServer<float>* server = nullptr;
  if (ps::IsServer()) {
    auto* const table = new Table(flags.rows, flags.row_length);
    server = new ps::KVServer<float>(/*app_id=*/0);
    server->set_request_handle([table](const ps::KVMeta& meta,
                                       const ps::KVPairs<float>& request,
                                       ps::KVServer<float>* server) {
      table->Serve(meta, request, server);
    });
  }
  if (!ps::IsScheduler()) {
    // A request that arrives before the handler is set ends the server.
    ps::Postoffice::Get()->Barrier(/*customer_id=*/0,
                                   ps::kWorkerGroup + ps::kServerGroup);
  }
  if (ps::IsWorker()) Work(flags);
  ps::Finalize(/*customer_id=*/0, /*do_barrier=*/true);
  delete server;
}
