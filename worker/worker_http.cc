// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_http.h"

#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/job/job_phase.h"
#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/process/process_figures.h"
#include "glog/logging.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/metrics/worker_metrics.h"

namespace holdfast {
namespace {

// Each GPU once, however many replicas it has.
std::vector<int> GpusOf(const Device& device) {
  std::set<int> gpus;
  for (const Place& place : device.places) {
    if (place.has_value()) gpus.insert(*place);
  }
  return {gpus.begin(), gpus.end()};
}

std::vector<std::string> BusIdsOf(const std::vector<int>& gpus) {
  std::vector<std::string> ids;
  for (const int gpu : gpus) ids.push_back(CudaBusId(gpu));
  return ids;
}

// Starts a server if there are `options`.
absl::Status Start(const TaskId& task, const char* flag,
                   const std::optional<HttpServer::Options>& options,
                   HttpServer::Pages pages,
                   std::unique_ptr<HttpServer>* server) {
  if (!options.has_value()) return absl::OkStatus();
  auto started = HttpServer::Start(*options, std::move(pages));
  if (!started.ok()) {
    return absl::Status(started.status().code(),
                        absl::StrCat(flag, ": ", started.status().message()));
  }
  *server = *std::move(started);
  LOG(INFO) << task << " serves " << flag << " on port " << (*server)->port();
  return absl::OkStatus();
}

}  // namespace

absl::Status Readiness::Check() const {
  absl::MutexLock lock(&mutex_);
  if (cluster_ == nullptr) return absl::UnavailableError("not registered");
  if (HasVariables(cluster_->state().phase())) return absl::OkStatus();
  return absl::UnavailableError("there are no variables yet");
}

Scrape::Scrape(const TaskId& task, const Device& device,
               const PhaseMeter* meter)
    : task_(task),
      meter_(*meter),
      gpus_(GpusOf(device)),
      gpu_monitor_(BusIdsOf(gpus_)) {}

std::string Scrape::Text() const {
  Metrics metrics;
  AddProcessMetrics(task_, ReadProcessFigures(), &metrics);
  if (const auto report = meter_.Look(); report.has_value()) {
    AddWorkerMetrics(*report, &metrics);
  }
  AddGpuMetrics(gpus_, gpu_monitor_.Read(), &metrics);
  return metrics.ToText();
}

absl::Status StartHttp(const HttpOptions& options, const Readiness& readiness,
                       const Scrape& scrape, HttpServers* servers) {
  absl::Status status =
      Start(options.task, "--http_port", options.probes,
            HealthPages([] { return absl::OkStatus(); },
                        [&readiness] { return readiness.Check(); }),
            &servers->probes);
  if (!status.ok()) return status;
  HttpServer::Pages pages;
  pages["/metrics"] = [&scrape](const HttpServer::Request&) {
    return HttpServer::Answer{200, scrape.Text(), Metrics::kContentType};
  };
  return Start(options.task, "--status_port", options.status, std::move(pages),
               &servers->status);
}

}  // namespace holdfast
