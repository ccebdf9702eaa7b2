// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_STATUS_PORT_H_
#define HOLDFAST_PS_SERVER_STATUS_PORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/strand.h"
#include "common/job/task_id.h"
#include "common/metrics/metrics.h"
#include "common/process/http_server.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/machine_queries.h"
#include "ps_server/ps_reporter.h"
#include "ps_server/service/neighbors.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// The HTTP server for people and Prometheus: /metrics of this ps and, on ps 0,
// the job's status page with the JSON that it fetches. On every other ps, it
// serves a page that says where ps 0 is.
//
// Thread-safe.
class StatusPort {
 public:
  struct Options {
    HttpServer::Options http;
    // The ps whose port this is.
    TaskId task;
    // host:port of ps 0.
    std::string coordinator_address;
    // The coordinator and its strand; null except on ps 0.
    Coordinator* coordinator = nullptr;
    Strand* coordinator_strand = nullptr;
    // Null if this ps shares no memory.
    const Neighbors* neighbors = nullptr;
  };

  // What `options` points to, `reporter` and `rpc` must outlive the port.
  // Errors: those of HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<StatusPort>> Start(
      const Options& options, const PsReporter* reporter, const RpcServer* rpc);

  StatusPort(const StatusPort&) = delete;
  StatusPort& operator=(const StatusPort&) = delete;

  uint16_t port() const { return server_->port(); }

 private:
  StatusPort(const Options& options, const PsReporter* reporter,
             const RpcServer* rpc);

  HttpServer::Pages MakePages(const Options& options);
  // Makes the current metrics, on the HTTP server's thread.
  Metrics Scrape();

  const TaskId task_;
  const PsReporter* const reporter_;
  const RpcServer* const rpc_;
  const Neighbors* const neighbors_;
  // Set only on ps 0.
  std::optional<MachineQueries<Coordinator>> coordinator_;
  // Uses the members above until it is destroyed.
  std::unique_ptr<HttpServer> server_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_STATUS_PORT_H_
