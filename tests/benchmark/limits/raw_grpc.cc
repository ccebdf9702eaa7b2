// SPDX-License-Identifier: Apache-2.0

// Measures what gRPC itself can do on this machine: calls with bare ByteBuffers
// between processes over loopback. This is the limit for Holdfast's own wire
// measures.
//
// - wire: an echo of 16 bytes; a gradient pushed in parts of 4 MiB, to which
//   the server applies SGD directly from the slices received, then acknowledges
//   them; values pulled in such parts, sent without a copy, and copied into
//   place by the client.
// - control: echoes from one process while another one pushes 64 MB at a time.
// - crowd: many workers, each with two connections, make synchronous steps: all
//   push 32 kB and send an echo over the other connection, then all pull 32 kB.
//   Reports what a worker's step costs the server, the limit for
//   tests/benchmark/many_workers.cc.
//
// Server and client each wait in one thread: with gRPC's callback API, which
// uses two, an echo takes twice the time.
//
// gRPC's estimate of how many bytes may be under way (GRPC_ARG_HTTP2_BDP_PROBE)
// is off unless --bdp_probe is set: with it, 1 MB is pulled at 0.6 x and pushed
// at 0.85 x this rate. More parts in flight, larger frames and larger reads
// from the socket gain nothing.
//
// Prints JSON lines in the format of tests/benchmark/peers/harness.py.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/process/flags.h"

ABSL_FLAG(std::string, measures, "wire,control",
          "The measures: wire, control and crowd.");
ABSL_FLAG(double, seconds, 1.5, "Time for each measurement, in seconds.");
ABSL_FLAG(bool, bdp_probe, false, "Whether gRPC estimates the bandwidth.");
ABSL_FLAG(std::vector<std::string>, workers,
          std::vector<std::string>({"16", "200", "1000"}),
          "The numbers of workers to measure, for crowd.");
// Flags with which this program starts itself; see Spawned.
ABSL_FLAG(std::string, role, "", "server: serves; load: pushes.");
ABSL_FLAG(int, port, 0, "The server's port, for load.");
ABSL_FLAG(int, ready_fd, -1, "Receives the server's port once it is ready.");

namespace holdfast {
namespace {

constexpr int64_t kBytes = 64 << 20;
constexpr int64_t kPartBytes = 4 << 20;
constexpr size_t kPartsInFlight = 4;
constexpr char kEcho[] = "/Limits/Echo";
constexpr char kPush[] = "/Limits/Push";
constexpr char kPull[] = "/Limits/Pull";

// Precedes the gradient of a pushed part, and is the whole request of a pull.
struct Range {
  int64_t offset;  // In bytes, a multiple of 4.
  int64_t bytes;
};

grpc::Slice Borrow(const void* data, size_t bytes) {
  return grpc::Slice(data, bytes, grpc::Slice::STATIC_SLICE);
}

// values[i] -= 0.001 * gradient[i]. `gradient` may be unaligned.
__attribute__((target_clones("avx512f", "avx2", "default"))) void ApplySgd(
    const uint8_t* gradient, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    float element;
    std::memcpy(&element, gradient + i * sizeof(float), sizeof(float));
    values[i] -= 0.001f * element;
  }
}

// Reads the bytes of a message in order.
class Reader {
 public:
  explicit Reader(const grpc::ByteBuffer& message) { message.Dump(&slices_); }

  // Copies the next `bytes` bytes.
  void Read(void* to, size_t bytes) {
    auto* out = static_cast<uint8_t*>(to);
    while (bytes > 0 && Skip()) {
      const size_t count = std::min(bytes, slices_[slice_].size() - position_);
      std::memcpy(out, slices_[slice_].begin() + position_, count);
      position_ += count;
      out += count;
      bytes -= count;
    }
  }

  // Applies the bytes that follow as a gradient, without a copy.
  void Apply(float* values, float* end) {
    while (values < end && Skip()) {
      const int64_t count = std::min<int64_t>(
          (slices_[slice_].size() - position_) / sizeof(float), end - values);
      ApplySgd(slices_[slice_].begin() + position_, count, values);
      position_ += count * sizeof(float);
      values += count;
      if (values == end || position_ == slices_[slice_].size()) continue;
      // The next element spans two slices.
      uint8_t element[sizeof(float)];
      Read(element, sizeof(element));
      ApplySgd(element, 1, values++);
    }
  }

 private:
  // Advances to a slice with bytes left.
  bool Skip() {
    while (slice_ < slices_.size() && position_ == slices_[slice_].size()) {
      ++slice_;
      position_ = 0;
    }
    return slice_ < slices_.size();
  }

  std::vector<grpc::Slice> slices_;
  size_t slice_ = 0;
  size_t position_ = 0;
};

// One call at the server, from before it arrives until its answer is sent. The
// server's only thread makes the operations one after the other.
class Call {
 public:
  Call(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue,
       std::vector<float>* values)
      : service_(service), queue_(queue), values_(values) {
    service->RequestCall(&context_, &stream_, queue, queue, this);
  }

  void OnDone(bool ok) {
    switch (std::exchange(stage_, stage_ + 1)) {
      case 0:
        new Call(service_, queue_, values_);  // Deletes itself, like this one.
        stream_.Read(&request_, this);
        break;
      case 1:
        Answer(ok);
        break;
      default:
        delete this;
    }
  }

 private:
  void Answer(bool ok) {
    if (!ok) {
      stream_.Finish({grpc::StatusCode::INVALID_ARGUMENT, "no message"}, this);
      return;
    }
    grpc::ByteBuffer response;
    if (context_.method() == kEcho) {
      response.Swap(&request_);
    } else {
      Reader reader(request_);
      Range range{};
      reader.Read(&range, sizeof(range));
      // The client is this program, so the range is valid.
      float* const begin = values_->data() + range.offset / sizeof(float);
      if (context_.method() == kPush) {
        reader.Apply(begin, begin + range.bytes / sizeof(float));
        request_.Clear();
      }
      const grpc::Slice slice =
          Borrow(begin, context_.method() == kPull ? range.bytes : 0);
      response = grpc::ByteBuffer(&slice, 1);
    }
    stream_.WriteAndFinish(response, grpc::WriteOptions(), grpc::Status::OK,
                           this);
  }

  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  std::vector<float>* const values_;
  int stage_ = 0;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer request_;
};

// Reports the port to the program that has started this one.
bool SayReady(int port) {
  return write(absl::GetFlag(FLAGS_ready_fd), &port, sizeof(port)) ==
         sizeof(port);
}

int Serve() {
  std::vector<float> values(kBytes / sizeof(float));
  grpc::AsyncGenericService service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("localhost:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE,
                             absl::GetFlag(FLAGS_bdp_probe) ? 1 : 0);
  builder.RegisterAsyncGenericService(&service);
  const std::unique_ptr<grpc::ServerCompletionQueue> queue =
      builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || !SayReady(port)) return 1;
  new Call(&service, queue.get(), &values);
  void* tag;
  bool ok;
  // Until it is killed.
  while (queue->Next(&tag, &ok)) static_cast<Call*>(tag)->OnDone(ok);
  return 0;
}

// Returns a channel with a separate connection.
std::shared_ptr<grpc::Channel> Connect(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE,
                   absl::GetFlag(FLAGS_bdp_probe) ? 1 : 0);
  return grpc::CreateCustomChannel(absl::StrCat("localhost:", port),
                                   grpc::InsecureChannelCredentials(),
                                   arguments);
}

// Makes calls over its own connection. Thread-compatible.
class Client {
 public:
  explicit Client(int port) : stub_(Connect(port)) {}

  void Echo() {
    const grpc::Slice slice = Borrow(values_.data(), 16);
    Start(kEcho, grpc::ByteBuffer(&slice, 1), nullptr);
    Finish();
  }

  void Push(int64_t bytes) {
    InParts(bytes, [this](const Range* range) {
      const grpc::Slice slices[] = {
          Borrow(range, sizeof(*range)),
          Borrow(values_.data() + range->offset / sizeof(float), range->bytes)};
      Start(kPush, grpc::ByteBuffer(slices, 2), nullptr);
    });
  }

  void Pull(int64_t bytes) {
    InParts(bytes, [this](const Range* range) {
      const grpc::Slice slice = Borrow(range, sizeof(*range));
      Start(kPull, grpc::ByteBuffer(&slice, 1), range);
    });
  }

 private:
  struct Started {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
    const Range* range;  // Set for a pull.
  };

  void InParts(int64_t bytes, const std::function<void(const Range*)>& start) {
    std::vector<Range> ranges;
    for (int64_t offset = 0; offset < bytes; offset += kPartBytes) {
      ranges.push_back({offset, std::min(kPartBytes, bytes - offset)});
    }
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (i >= kPartsInFlight) Finish();
      start(&ranges[i]);
    }
    for (size_t i = 0; i < std::min(kPartsInFlight, ranges.size()); ++i) {
      Finish();
    }
  }

  void Start(const char* method, const grpc::ByteBuffer& request,
             const Range* range) {
    auto* call = new Started;
    call->range = range;
    call->context.set_wait_for_ready(true);
    call->reader =
        stub_.PrepareUnaryCall(&call->context, method, request, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->response, &call->status, call);
  }

  // Waits for any of the started calls to finish.
  void Finish() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    const std::unique_ptr<Started> call(static_cast<Started*>(tag));
    if (!call->status.ok()) {
      std::fprintf(stderr, "raw_grpc: %s\n",
                   call->status.error_message().c_str());
      std::exit(1);
    }
    if (call->range != nullptr) {
      Reader(call->response)
          .Read(values_.data() + call->range->offset / sizeof(float),
                call->range->bytes);
    }
  }

  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
  grpc::CompletionQueue queue_;
  std::vector<float> values_ = std::vector<float>(kBytes / sizeof(float), 1);
};

// Many workers, simulated by one thread. Thread-compatible.
class Crowd {
 public:
  Crowd(int port, int workers) {
    for (int i = 0; i < 2 * workers; ++i) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(Connect(port)));
    }
  }

  void Step() {
    const grpc::Slice gradient[] = {
        Borrow(&kRange, sizeof(kRange)),
        Borrow(gradient_.data(), gradient_.size() * sizeof(float))};
    const grpc::Slice range = Borrow(&kRange, sizeof(kRange));
    for (size_t i = 0; i < stubs_.size(); i += 2) {
      Start(stubs_[i].get(), kPush, grpc::ByteBuffer(gradient, 2));
      Start(stubs_[i + 1].get(), kEcho, grpc::ByteBuffer(&range, 1));
    }
    FinishAll();
    for (size_t i = 0; i < stubs_.size(); i += 2) {
      Start(stubs_[i].get(), kPull, grpc::ByteBuffer(&range, 1));
    }
    FinishAll();
  }

 private:
  static constexpr Range kRange = {0, 32000};

  struct Started {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
  };

  void Start(grpc::GenericStub* stub, const char* method,
             const grpc::ByteBuffer& request) {
    auto* call = new Started;
    call->context.set_wait_for_ready(true);
    call->reader =
        stub->PrepareUnaryCall(&call->context, method, request, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->response, &call->status, call);
    ++under_way_;
  }

  void FinishAll() {
    for (; under_way_ > 0; --under_way_) {
      void* tag = nullptr;
      bool ok = false;
      queue_.Next(&tag, &ok);
      const std::unique_ptr<Started> call(static_cast<Started*>(tag));
      if (!call->status.ok()) {
        std::fprintf(stderr, "raw_grpc: %s\n",
                     call->status.error_message().c_str());
        std::exit(1);
      }
    }
  }

  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<float> gradient_ =
      std::vector<float>(kRange.bytes / sizeof(float), 1);
  int under_way_ = 0;
};

// Returns the times of calls of `operation` in seconds, sorted, after a
// warm-up.
std::vector<double> Times(const std::function<void()>& operation) {
  const absl::Duration length = absl::Seconds(absl::GetFlag(FLAGS_seconds));
  const absl::Time begin = absl::Now();
  std::vector<double> times;
  while (absl::Now() < begin + length || times.size() < 10) {
    const absl::Time before = absl::Now();
    operation();
    const absl::Time after = absl::Now();
    if (after > begin + length / 4) {
      times.push_back(absl::ToDoubleSeconds(after - before));
    }
  }
  std::sort(times.begin(), times.end());
  return times;
}

void Report(const std::string& measure, double value, const char* unit) {
  std::printf(
      "{\"peer\": \"raw_grpc\", \"measure\": \"%s\", \"value\": %.6g, "
      "\"unit\": \"%s\"}\n",
      measure.c_str(), value, unit);
  std::fflush(stdout);
}

void ReportWire(const std::string& measure,
                const std::function<void(int64_t)>& operation) {
  struct Size {
    const char* name;
    int64_t bytes;
  };
  for (const Size& size : {Size{"1MB", 1 << 20}, Size{"64MB", kBytes}}) {
    const std::vector<double> times =
        Times([&operation, &size] { operation(size.bytes); });
    Report(absl::StrCat(measure, "_", size.name),
           size.bytes / times[times.size() / 2] / 1e9, "GB/s");
  }
}

void MeasureWire(int port) {
  Client client(port);
  const std::vector<double> times = Times([&client] { client.Echo(); });
  Report("echo_16B", times[times.size() / 2] * 1e6, "us");
  ReportWire("push", [&client](int64_t bytes) { client.Push(bytes); });
  ReportWire("pull", [&client](int64_t bytes) { client.Pull(bytes); });
}

void MeasureControl(int port) {
  Client client(port);
  const std::vector<double> times = Times([&client] { client.Echo(); });
  Report("control_p50", times[times.size() / 2] * 1e6, "us");
  Report("control_p99", times[times.size() * 99 / 100] * 1e6, "us");
}

// User and system time of a process.
absl::Duration CpuTime(pid_t pid) {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 ||
      clock_gettime(clock, &time) != 0) {
    std::fprintf(stderr, "raw_grpc: cannot read the server's CPU time\n");
    std::exit(1);
  }
  return absl::DurationFromTimespec(time);
}

void MeasureCrowd(int port, pid_t server) {
  for (const std::string& number : absl::GetFlag(FLAGS_workers)) {
    int workers;
    if (!absl::SimpleAtoi(number, &workers) || workers < 1) {
      std::fprintf(stderr, "raw_grpc: --workers=%s\n", number.c_str());
      std::exit(2);
    }
    Crowd crowd(port, workers);
    const absl::Duration length = absl::Seconds(absl::GetFlag(FLAGS_seconds));
    const auto run = [&] {
      const absl::Time begin = absl::Now();
      int steps = 0;
      for (; steps < 3 || absl::Now() < begin + length; ++steps) crowd.Step();
      return steps;
    };
    run();  // connects, and warms up
    const absl::Duration before = CpuTime(server);
    const int steps = run();
    Report(
        absl::StrCat("crowd_", workers),
        absl::ToDoubleMicroseconds(CpuTime(server) - before) / steps / workers,
        "us");
  }
}

int Load(int port) {
  Client client(port);
  client.Push(kBytes);
  if (!SayReady(port)) return 1;
  for (;;) client.Push(kBytes);  // Until it is killed.
}

// Runs this program in another role, and kills it when the object is destroyed.
class Spawned {
 public:
  Spawned(const std::string& role, int port) {
    int fds[2];
    if (pipe(fds) != 0) return;
    const std::string flags[] = {
        absl::StrCat("--role=", role), absl::StrCat("--port=", port),
        absl::StrCat("--ready_fd=", fds[1]),
        absl::StrCat("--bdp_probe=", absl::GetFlag(FLAGS_bdp_probe))};
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl("/proc/self/exe", "raw_grpc", flags[0].c_str(), flags[1].c_str(),
            flags[2].c_str(), flags[3].c_str(), nullptr);
      _exit(1);
    }
    close(fds[1]);
    if (read(fds[0], &port_, sizeof(port_)) != sizeof(port_)) port_ = 0;
    close(fds[0]);
  }

  ~Spawned() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;

  // The server's port; 0 if it has not become ready.
  int port() const { return port_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

int Run(int argc, char** argv) {
  const auto arguments =
      ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
  if (!arguments.ok()) {
    std::fprintf(stderr, "raw_grpc: %s\n",
                 std::string(arguments.status().message()).c_str());
    return 2;
  }
  if (absl::GetFlag(FLAGS_role) == "server") return Serve();
  if (absl::GetFlag(FLAGS_role) == "load") {
    return Load(absl::GetFlag(FLAGS_port));
  }
  const Spawned server("server", 0);
  if (server.port() == 0) return 1;
  for (const std::string& measure : std::vector<std::string>(
           absl::StrSplit(absl::GetFlag(FLAGS_measures), ','))) {
    if (measure == "wire") {
      MeasureWire(server.port());
    } else if (measure == "control") {
      const Spawned load("load", server.port());
      if (load.port() == 0) return 1;
      MeasureControl(server.port());
    } else if (measure == "crowd") {
      MeasureCrowd(server.port(), server.pid());
    } else {
      std::fprintf(stderr, "raw_grpc: --measures=%s: wire, control or crowd\n",
                   measure.c_str());
      return 2;
    }
  }
  return 0;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) { return holdfast::Run(argc, argv); }
