// SPDX-License-Identifier: Apache-2.0

// ps-lite's KVServer and KVWorker, with a server that applies SGD: one role of
// a cluster of scheduler, server and worker, as set by ps-lite's environment
// variables. ps_lite.py builds it and starts all three. The worker prints JSON
// lines in the format of harness.py.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

namespace {

void Serve(const ps::KVMeta& meta, const ps::KVPairs<float>& request,
           ps::KVServer<float>* server) {
  static std::unordered_map<ps::Key, ps::SArray<float>> store;
  const ps::Key key = request.keys[0];
  ps::KVPairs<float> response;
  if (meta.push) {
    ps::SArray<float>& values = store[key];
    if (values.empty()) values.resize(request.vals.size(), 1.0f);
    float* const value = values.data();
    const float* const gradient = request.vals.data();
    for (std::size_t i = 0; i < request.vals.size(); ++i) {
      value[i] -= 0.001f * gradient[i];
    }
  } else {
    response.keys = request.keys;
    response.vals = store[key];  // Shared, not copied.
    response.lens = {static_cast<int>(response.vals.size())};
  }
  server->Response(meta, response);
}

void Report(const std::string& measure, size_t bytes,
            const std::function<void()>& operation) {
  using Clock = std::chrono::steady_clock;
  const auto length = std::chrono::milliseconds(1500);
  const Clock::time_point begin = Clock::now();
  std::vector<double> times;
  while (Clock::now() < begin + length || times.size() < 10) {
    const Clock::time_point before = Clock::now();
    operation();
    const Clock::time_point after = Clock::now();
    if (after > begin + length / 4) {
      times.push_back(std::chrono::duration<double>(after - before).count());
    }
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const bool small = bytes < 1000;
  std::printf(
      "{\"peer\": \"ps_lite\", \"measure\": \"%s\", \"value\": %.6g, "
      "\"unit\": \"%s\"}\n",
      measure.c_str(), small ? median * 1e6 : bytes / median / 1e9,
      small ? "us" : "GB/s");
  std::fflush(stdout);
}

void Work() {
  struct Size {
    const char* name;
    size_t bytes;
  };
  ps::KVWorker<float> worker(/*app_id=*/0, /*customer_id=*/0);
  ps::Key key = 0;
  for (const Size& size : {Size{"16B", 16}, Size{"1MB", size_t{1} << 20},
                           Size{"64MB", size_t{64} << 20}}) {
    const ps::SArray<ps::Key> keys = {key++};
    ps::SArray<float> values(size.bytes / sizeof(float), 1.0f);
    const ps::SArray<int> push_lengths = {static_cast<int>(values.size())};
    ps::SArray<int> pull_lengths = push_lengths;
    Report(std::string("push_") + size.name, size.bytes,
           [&] { worker.Wait(worker.ZPush(keys, values, push_lengths)); });
    Report(std::string("pull_") + size.name, size.bytes,
           [&] { worker.Wait(worker.ZPull(keys, &values, &pull_lengths)); });
  }
}

}  // namespace

int main() {
  ps::Start(/*customer_id=*/0);
  ps::KVServer<float>* server = nullptr;
  if (ps::IsServer()) {
    server = new ps::KVServer<float>(/*app_id=*/0);
    server->set_request_handle(Serve);
  }
  if (!ps::IsScheduler()) {
    // A request that arrives before the handler is set ends the server.
    ps::Postoffice::Get()->Barrier(/*customer_id=*/0,
                                   ps::kWorkerGroup + ps::kServerGroup);
  }
  if (ps::IsWorker()) Work();
  ps::Finalize(/*customer_id=*/0, /*do_barrier=*/true);
  delete server;
}
