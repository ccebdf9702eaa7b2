// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_MACHINE_METHOD_H_
#define HOLDFAST_PS_SERVER_SERVICE_MACHINE_METHOD_H_

#include <grpcpp/support/byte_buffer.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/strand.h"
#include "common/base/validate.h"
#include "common/rpc/message_bytes.h"
#include "ps_server/reply/reply.h"
#include "ps_server/service/access.h"
#include "ps_server/service/call_recorder.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// Returns a handler that passes calls to `method` of `machine`, which lives on
// `strand`. A request that does not parse, or breaks the rules of its proto, is
// answered INVALID_ARGUMENT, and a request in the name of another sender
// PERMISSION_DENIED, without reaching the machine. `hand` is Strand::Post or,
// for quick methods, Strand::RunOrPost. `recorder` records the calls, on the
// strand; it may be null.
template <typename Machine, typename Request, typename Response>
RpcHandler MachineMethod(Strand* strand, void (Strand::*hand)(Strand::Task),
                         Machine* machine,
                         void (Machine::*method)(const Request&,
                                                 Reply<Response>),
                         CallRecorder* recorder) {
  return [strand, hand, machine, method, recorder](
             const Caller& caller, grpc::ByteBuffer bytes,
             Reply<grpc::ByteBuffer> reply) {
    Request request;
    absl::Status valid = FromBytes(&bytes, &request);
    if (valid.ok()) valid = CheckSenderOf(caller, request, 0);
    if (valid.ok()) valid = CheckUse(caller, request);
    if (valid.ok()) valid = ValidateMessage(request);
    if (!valid.ok()) return reply(std::move(valid));
    (strand->*hand)([machine, method, recorder, request = std::move(request),
                     reply = std::move(reply)]() mutable {
      Reply<Response> answer = [reply = std::move(reply)](
                                   absl::StatusOr<Response> response) mutable {
        if (!response.ok()) return reply(std::move(response).status());
        grpc::ByteBuffer bytes;
        absl::Status status = ToBytes(*response, &bytes);
        if (!status.ok()) return reply(std::move(status));
        reply(std::move(bytes));
      };
      (machine->*method)(request,
                         Recorded(recorder, request, std::move(answer)));
    });
  };
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_MACHINE_METHOD_H_
