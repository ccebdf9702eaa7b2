// SPDX-License-Identifier: Apache-2.0
#include "ps_server/page/status_pages.h"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "ps_server/machine_queries.h"
#include "ps_server/page/status_page.h"

namespace holdfast {
namespace {

using Answer = HttpServer::Answer;
using Request = HttpServer::Request;

// Reads the parameters of `request` into `parameters`, which holds their
// defaults. Errors: INVALID_ARGUMENT, as StatusPages says.
absl::Status ReadParameters(const Request& request,
                            std::map<std::string, uint64_t>* parameters) {
  for (const auto& [name, text] : request.query) {
    const auto parameter = parameters->find(name);
    if (parameter == parameters->end()) {
      std::string known = "none";
      if (!parameters->empty()) {
        known = absl::StrJoin(*parameters, " and ",
                              [](std::string* out, const auto& entry) {
                                out->append(entry.first);
                              });
      }
      return absl::InvalidArgumentError(absl::StrCat(
          request.path, " has no parameter \"", name, "\"; it has ", known));
    }
    // Digits alone: SimpleAtoi would also take signs and spaces.
    if (text.find_first_not_of("0123456789") != std::string::npos ||
        !absl::SimpleAtoi(text, &parameter->second)) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", name, " of ", request.path,
                       " must be a whole number, not \"", text, "\""));
    }
  }
  return absl::OkStatus();
}

template <typename Response>
Answer JsonAnswer(const absl::StatusOr<Response>& response) {
  if (!response.ok()) return ErrorAnswer(response.status());
  return {200, ToJson(*response), "application/json"};
}

Answer Html(absl::string_view html) {
  return {200, std::string(html), "text/html; charset=utf-8"};
}

}  // namespace

HttpServer::Pages StatusPages(StatusQueries queries) {
  HttpServer::Pages pages;
  pages["/"] = [](const Request&) { return Html(StatusPage()); };
  pages["/status.json"] = [status = std::move(queries.status)](
                              const Request& request) {
    std::map<std::string, uint64_t> parameters;
    if (absl::Status read = ReadParameters(request, &parameters); !read.ok()) {
      return ErrorAnswer(read);
    }
    return JsonAnswer(status(proto::GetStatusRequest()));
  };
  pages["/events.json"] = [events = std::move(queries.events)](
                              const Request& request) {
    std::map<std::string, uint64_t> parameters = {{"after", 0}};
    if (absl::Status read = ReadParameters(request, &parameters); !read.ok()) {
      return ErrorAnswer(read);
    }
    proto::GetEventsRequest query;
    query.set_after(parameters["after"]);
    return JsonAnswer(events(query));
  };
  pages["/history.json"] = [history = std::move(queries.history)](
                               const Request& request) {
    std::map<std::string, uint64_t> parameters = {{"after_step", 0},
                                                  {"max_points", 0}};
    if (absl::Status read = ReadParameters(request, &parameters); !read.ok()) {
      return ErrorAnswer(read);
    }
    const uint64_t max_points = parameters["max_points"];
    if (max_points > std::numeric_limits<uint32_t>::max()) {
      return ErrorAnswer(absl::InvalidArgumentError(
          absl::StrCat("parameter max_points of ", request.path,
                       " is too large: ", max_points)));
    }
    proto::GetHistoryRequest query;
    query.set_after_step(parameters["after_step"]);
    query.set_max_points(static_cast<uint32_t>(max_points));
    return JsonAnswer(history(query));
  };
  return pages;
}

HttpServer::Pages ElsewherePages(absl::string_view self,
                                 absl::string_view ps0) {
  std::string text =
      absl::StrCat("This is ", self, ". The status page is on ", ps0,
                   ", on the port that its --status_port gives.\n");
  HttpServer::Pages pages;
  pages["/"] = [text = std::move(text)](const Request&) {
    return Answer{200, text};
  };
  return pages;
}

}  // namespace holdfast
