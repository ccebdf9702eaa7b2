// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/log.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/c_api/holdfast.h"
#include "common/base/printable_text.h"
#include "common/process/text_log.h"
#include "common/rpc/grpc_log.h"
#include "glog/logging.h"

namespace holdfast::c_api {
namespace {

// Passes lines to the caller's sink; without one, to standard error.
class Sink final : public google::LogSink {
 public:
  void Set(holdfast_log_sink sink, void* context) {
    absl::MutexLock lock(&mutex_);
    sink_ = sink;
    context_ = context;
  }

  using google::LogSink::send;
  void send(google::LogSeverity severity, const char*, const char* file,
            int number, const google::LogMessageTime& time, const char* message,
            size_t length) override {
    absl::MutexLock lock(&mutex_);
    if (sink_ == nullptr) {
      if (severity == google::GLOG_FATAL) return;  // glog writes it
      return WriteLogLine(severity, file, number, time, {message, length});
    }
    const std::string line = PrintableLines({message, length});
    sink_(context_, std::min<int32_t>(severity, HOLDFAST_LOG_ERROR),
          line.c_str());
  }

 private:
  absl::Mutex mutex_;
  holdfast_log_sink sink_ ABSL_GUARDED_BY(mutex_) = nullptr;
  void* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

Sink& TheSink() {
  static Sink* const sink = new Sink;
  return *sink;
}

void Set(int32_t least, holdfast_log_sink sink, void* context) {
  FLAGS_minloglevel =
      std::clamp<int32_t>(least, HOLDFAST_LOG_INFO, HOLDFAST_LOG_NONE);
  TheSink().Set(sink, context);
}

}  // namespace

void BeginLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    Set(HOLDFAST_LOG_WARNING, nullptr, nullptr);
    // Another part of the process may use the same glog, and have initialized
    // it first.
    if (!google::IsGoogleLoggingInitialized()) {
      google::InitGoogleLogging("holdfast");
    }
    LogOnlyTo(&TheSink());
    // The caller may not be able to show the last words of a process.
    FLAGS_stderrthreshold = google::GLOG_FATAL;
    LimitGrpcLog();
  });
}

}  // namespace holdfast::c_api

extern "C" void holdfast_set_log(int32_t least, holdfast_log_sink sink,
                                 void* context) {
  holdfast::c_api::BeginLog();
  holdfast::c_api::Set(least, sink, context);
}
