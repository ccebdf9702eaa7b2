// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PAGE_STATUS_PAGES_H_
#define HOLDFAST_PS_SERVER_PAGE_STATUS_PAGES_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/process/http_server.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// The queries that the pages of ps 0 make to the coordinator. Called on the
// HTTP server's thread; errors become the answer's code and text (ErrorAnswer).
struct StatusQueries {
  std::function<absl::StatusOr<proto::GetStatusResponse>(
      const proto::GetStatusRequest&)>
      status;
  std::function<absl::StatusOr<proto::GetEventsResponse>(
      const proto::GetEventsRequest&)>
      events;
  std::function<absl::StatusOr<proto::GetHistoryResponse>(
      const proto::GetHistoryRequest&)>
      history;
};

// The pages of ps 0 for people:
//   /              the status page, which asks for the three others
//   /status.json   GetStatusResponse
//   /events.json   GetEventsResponse; ?after=N, as in GetEventsRequest
//   /history.json  GetHistoryResponse; ?after_step=N&max_points=M
// Messages are JSON as common/base/json.h writes it. A request with a parameter
// that the page does not have, or that is not a whole number, is answered with
// 400 and the parameter's name.
HttpServer::Pages StatusPages(StatusQueries queries);

// The page "/" of every other task, which says in a sentence where ps 0 is.
// `self` and `ps0` are names for people.
HttpServer::Pages ElsewherePages(absl::string_view self, absl::string_view ps0);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PAGE_STATUS_PAGES_H_
