// SPDX-License-Identifier: Apache-2.0
#include "ps_server/status_port.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/process/process_figures.h"
#include "glog/logging.h"
#include "proto/coordinator.pb.h"
#include "ps_server/metrics/ps_metrics.h"
#include "ps_server/page/status_pages.h"

namespace holdfast {

StatusPort::StatusPort(const Options& options, const PsReporter* reporter,
                       const RpcServer* rpc)
    : task_(options.task),
      reporter_(reporter),
      rpc_(rpc),
      neighbors_(options.neighbors) {
  if (options.coordinator != nullptr) {
    coordinator_.emplace("the coordinator", options.coordinator,
                         options.coordinator_strand);
  }
}

absl::StatusOr<std::unique_ptr<StatusPort>> StatusPort::Start(
    const Options& options, const PsReporter* reporter, const RpcServer* rpc) {
  auto port = absl::WrapUnique(new StatusPort(options, reporter, rpc));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto server, HttpServer::Start(options.http, port->MakePages(options)));
  port->server_ = std::move(server);
  LOG(INFO) << options.task << " serves its status by "
            << (options.http.tls.has_value() ? "HTTPS, to operators," : "HTTP")
            << " on port " << port->port();
  return port;
}

HttpServer::Pages StatusPort::MakePages(const Options& options) {
  HttpServer::Pages pages;
  if (coordinator_.has_value()) {
    pages = StatusPages(
        {[this](const proto::GetStatusRequest& request) {
           return coordinator_->Ask(&Coordinator::GetStatus, request);
         },
         [this](const proto::GetEventsRequest& request) {
           return coordinator_->Ask(&Coordinator::GetEvents, request);
         },
         [this](const proto::GetHistoryRequest& request) {
           return coordinator_->Ask(&Coordinator::GetHistory, request);
         }});
  } else {
    const TaskId ps0{kPsJob, 0};
    pages = ElsewherePages(
        options.task.ToString(),
        absl::StrCat(ps0.ToString(), " (", options.coordinator_address, ")"));
  }
  pages["/metrics"] = [this](const HttpServer::Request&) {
    return HttpServer::Answer{200, Scrape().ToText(), Metrics::kContentType};
  };
  return pages;
}

Metrics StatusPort::Scrape() {
  PsSnapshot snapshot;
  snapshot.task = task_;
  snapshot.process = ReadProcessFigures();
  snapshot.rpc = rpc_->figures();
  snapshot.shard = reporter_->shard();
  if (neighbors_ != nullptr) snapshot.neighbors = neighbors_->figures();
  if (coordinator_.has_value()) {
    auto status =
        coordinator_->Ask(&Coordinator::GetStatus, proto::GetStatusRequest());
    if (status.ok()) snapshot.status = *std::move(status);
  }
  return PsMetrics(snapshot);
}

}  // namespace holdfast
