// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/testing/fake_ps.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/deadline.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/status.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/health.grpc.pb.h"
#include "proto/shard.grpc.pb.h"

namespace holdfast {
namespace {

using grpc::ServerContext;
using grpc::Status;

class FakeCoordinator : public proto::Coordinator::Service {
 public:
  explicit FakeCoordinator(FakePs* ps) : ps_(ps) {}

  Status Register(ServerContext*, const proto::RegisterRequest* request,
                  proto::RegisterResponse* response) override {
    return ToGrpcStatus(ps_->do_register.Call(*request, response));
  }
  Status RenewLease(ServerContext*, const proto::RenewLeaseRequest* request,
                    proto::RenewLeaseResponse* response) override {
    return ToGrpcStatus(ps_->renew.Call(*request, response));
  }
  Status Declare(ServerContext*, const proto::DeclareRequest* request,
                 proto::DeclareResponse* response) override {
    return ToGrpcStatus(ps_->declare.Call(*request, response));
  }
  Status GetPlacement(ServerContext*, const proto::GetPlacementRequest* request,
                      proto::GetPlacementResponse* response) override {
    return ToGrpcStatus(ps_->place.Call(*request, response));
  }
  Status Contribute(ServerContext*, const proto::ContributeRequest* request,
                    proto::ContributeResponse* response) override {
    return ToGrpcStatus(ps_->contribute.Call(*request, response));
  }
  Status TakeTicket(ServerContext*, const proto::TakeTicketRequest* request,
                    proto::TakeTicketResponse* response) override {
    return ToGrpcStatus(ps_->take_ticket.Call(*request, response));
  }
  Status ReportEvaluation(ServerContext*,
                          const proto::ReportEvaluationRequest* request,
                          proto::ReportEvaluationResponse* response) override {
    return ToGrpcStatus(ps_->evaluation.Call(*request, response));
  }
  Status Leave(ServerContext*, const proto::LeaveRequest* request,
               proto::LeaveResponse* response) override {
    return ToGrpcStatus(ps_->leave.Call(*request, response));
  }
  Status GetStatus(ServerContext*, const proto::GetStatusRequest* request,
                   proto::GetStatusResponse* response) override {
    return ToGrpcStatus(ps_->get_status.Call(*request, response));
  }
  Status GetEvents(ServerContext*, const proto::GetEventsRequest* request,
                   proto::GetEventsResponse* response) override {
    return ToGrpcStatus(ps_->get_events.Call(*request, response));
  }
  Status GetHistory(ServerContext*, const proto::GetHistoryRequest* request,
                    proto::GetHistoryResponse* response) override {
    return ToGrpcStatus(ps_->get_history.Call(*request, response));
  }
  Status Checkpoint(ServerContext*, const proto::CheckpointRequest* request,
                    proto::CheckpointResponse* response) override {
    return ToGrpcStatus(ps_->checkpoint.Call(*request, response));
  }
  Status Trace(ServerContext*, const proto::TraceRequest* request,
               proto::TraceResponse* response) override {
    return ToGrpcStatus(ps_->trace.Call(*request, response));
  }
  Status ReportTrace(ServerContext*, const proto::ReportTraceRequest* request,
                     proto::ReportTraceResponse* response) override {
    return ToGrpcStatus(ps_->report_trace.Call(*request, response));
  }
  Status Stop(ServerContext*, const proto::StopRequest* request,
              proto::StopResponse* response) override {
    return ToGrpcStatus(ps_->stop.Call(*request, response));
  }
  Status SetLearningRate(ServerContext*,
                         const proto::SetLearningRateRequest* request,
                         proto::SetLearningRateResponse* response) override {
    return ToGrpcStatus(ps_->set_learning_rate.Call(*request, response));
  }

 private:
  FakePs* const ps_;
};

class FakeShard : public proto::Shard::Service {
 public:
  explicit FakeShard(FakePs* ps) : ps_(ps) {}

  Status Give(ServerContext*, const proto::GiveRequest* request,
              proto::GiveResponse* response) override {
    return ToGrpcStatus(ps_->give.Call(*request, response));
  }
  Status Push(ServerContext*, const proto::PushRequest* request,
              proto::PushResponse* response) override {
    return ToGrpcStatus(ps_->push.Call(*request, response));
  }
  Status Apply(ServerContext*, const proto::ApplyRequest* request,
               proto::ApplyResponse* response) override {
    return ToGrpcStatus(ps_->apply.Call(*request, response));
  }
  Status Pull(ServerContext*, const proto::PullRequest* request,
              proto::PullResponse* response) override {
    return ToGrpcStatus(ps_->pull.Call(*request, response));
  }
  Status PushPull(ServerContext*, const proto::PushPullRequest* request,
                  proto::PushPullResponse* response) override {
    return ToGrpcStatus(ps_->push_pull.Call(*request, response));
  }
  Status Pin(ServerContext*, const proto::PinRequest* request,
             proto::PinResponse* response) override {
    return ToGrpcStatus(ps_->pin.Call(*request, response));
  }
  Status Unpin(ServerContext*, const proto::UnpinRequest* request,
               proto::UnpinResponse* response) override {
    return ToGrpcStatus(ps_->unpin.Call(*request, response));
  }
  Status Link(ServerContext*, const proto::LinkRequest* request,
              proto::LinkResponse* response) override {
    return ToGrpcStatus(ps_->link.Call(*request, response));
  }

 private:
  FakePs* const ps_;
};

// Healthy, whichever task it is asked for.
class FakeHealth : public grpc::health::v1::Health::Service {
 public:
  Status Check(ServerContext*, const grpc::health::v1::HealthCheckRequest*,
               grpc::health::v1::HealthCheckResponse* response) override {
    response->set_status(grpc::health::v1::HealthCheckResponse::SERVING);
    return Status::OK;
  }
};

}  // namespace

struct FakePs::Services {
  Services(FakePs* ps, int wanted_port) : coordinator(ps), shard(ps) {
    server = grpc::ServerBuilder()
                 .AddListeningPort(absl::StrCat("127.0.0.1:", wanted_port),
                                   grpc::InsecureServerCredentials(), &port)
                 .SetMaxReceiveMessageSize(kMaxMessageBytes)
                 .RegisterService(&coordinator)
                 .RegisterService(&shard)
                 .RegisterService(&health)
                 .BuildAndStart();
    address = absl::StrCat("127.0.0.1:", port);
  }

  FakeCoordinator coordinator;
  FakeShard shard;
  FakeHealth health;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
  std::string address;

  absl::Mutex mutex;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  proto::RenewLeaseResponse news ABSL_GUARDED_BY(mutex);
};

FakePs::FakePs(int port) : services_(std::make_unique<Services>(this, port)) {}

FakePs::~FakePs() { Stop(); }

const std::string& FakePs::address() const { return services_->address; }

int FakePs::port() const { return services_->port; }

void FakePs::Stop() {
  {
    absl::MutexLock lock(&services_->mutex);
    if (services_->stopped) return;
    services_->stopped = true;
  }
  services_->server->Shutdown(GrpcDeadline(SteadyNow()));
  services_->server->Wait();
}

absl::Status FakePs::Mute() const {
  absl::MutexLock lock(&services_->mutex);
  services_->mutex.Await(absl::Condition(&services_->stopped));
  return absl::UnavailableError("stopped");
}

void FakePs::Tell(const proto::RenewLeaseResponse& news) {
  absl::MutexLock lock(&services_->mutex);
  services_->news = news;
}

absl::Status FakePs::TellNews(const proto::RenewLeaseRequest& request,
                              proto::RenewLeaseResponse* response) const {
  absl::MutexLock lock(&services_->mutex);
  const auto due = [&] {
    const proto::RenewLeaseResponse& news = services_->news;
    return services_->stopped ||
           news.generation() != request.sender().generation() ||
           news.state().phase() != request.known_phase();
  };
  services_->mutex.AwaitWithTimeout(absl::Condition(&due),
                                    absl::Milliseconds(request.wait_ms()));
  *response = services_->news;
  return absl::OkStatus();
}

}  // namespace holdfast
