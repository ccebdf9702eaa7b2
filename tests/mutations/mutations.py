# SPDX-License-Identifier: Apache-2.0

"""Mutations that break each rule of docs/protocol/recovery.md by a change in a few places.

A mutation replaces text of source files with code in which `Mutant("NAME")` says whether the
mutation is on, so all of them are built at once and selected through the environment. A text
that does not occur exactly once is an error: when you change the code, change the mutation here
as well.
"""
from typing import NamedTuple


class Change(NamedTuple):
    file: str
    before: str
    after: str


class Mutation(NamedTuple):
    name: str
    what: str
    changes: list
    # The reason, if no schedule can distinguish it from the original code.
    equivalent: str = ""


CLIENT = "client/"
SHARD = "ps_server/shard/shard.cc"
APPLY = "ps_server/shard/shard_apply.cc"
CHECKPOINT = "ps_server/shard/shard_checkpoint.cc"
STAGED = "ps_server/shard/staged_pushes.cc"
COORDINATOR = "ps_server/coordinator/"

MUTATIONS = [
    Mutation("R1_shard", "a shard executes requests of an older generation", [
        Change(SHARD,
               "absl::Status Shard::CheckGeneration(const proto::Sender& sender) const {\n",
               "absl::Status Shard::CheckGeneration(const proto::Sender& sender) const {\n"
               '  if (IsOver(sender) && store_ != nullptr && Mutant("R1_shard")) {\n'
               "    return absl::OkStatus();\n"
               "  }\n"),
        Change(SHARD, "if (IsOver(part.sender)) return",
               'if (IsOver(part.sender) && !Mutant("R1_shard")) return'),
        Change(APPLY, "if (IsOver(request.sender())) return",
               'if (IsOver(request.sender()) && !Mutant("R1_shard")) return'),
    ]),
    Mutation("R1_coordinator", "the coordinator takes calls of an older generation", [
        Change(COORDINATOR + "members.cc",
               "if (sender.generation() != owner_->generation().value()) {",
               "if (sender.generation() != owner_->generation().value() &&\n"
               '      !Mutant("R1_coordinator")) {'),
        Change(COORDINATOR + "coordinator.cc",
               "if (request.sender().generation() != job_.generation.value()) {\n"
               "    return decide(proto::ABORTED);",
               "if (request.sender().generation() != job_.generation.value() &&\n"
               '      !Mutant("R1_coordinator")) {\n'
               "    return decide(proto::ABORTED);"),
        Change(COORDINATOR + "coordinator_tickets.cc",
               "if (request.sender().generation() != job_.generation.value()) {\n"
               "    return job_.outbox.Answer(std::move(reply), TicketRefusal(proto::ABORTED));",
               "if (request.sender().generation() != job_.generation.value() &&\n"
               '      !Mutant("R1_coordinator")) {\n'
               "    return job_.outbox.Answer(std::move(reply), TicketRefusal(proto::ABORTED));"),
    ]),
    Mutation("R2", "a shard takes calls of a newer generation than its own", [
        Change(SHARD,
               "(sender.generation() != generation_.value() || store_ == nullptr)) {",
               '((sender.generation() != generation_.value() && !Mutant("R2")) ||\n'
               "       store_ == nullptr)) {"),
    ], equivalent="No call of a newer generation reaches a shard with state: workers hear "
       "that there are variables only when every shard is restored, and a shard "
       "that has died starts without state."),
    Mutation("R3", "a second Restore of its generation restores a shard again", [
        Change(CHECKPOINT,
               "if (generation == generation_ && store_ != nullptr) {  // [R3]",
               "if (generation == generation_ && store_ != nullptr &&\n"
               '      !Mutant("R3")) {'),
    ]),
    Mutation("R4_life", "a shard accepts a Restore that was sent to another life", [
        Change(SHARD,
               "if (sender.receiver_nonce() != options_.nonce) {  // [P5, R4]",
               'if (sender.receiver_nonce() != options_.nonce && !Mutant("R4_life")) {'),
    ]),
    Mutation("R4_generation", "a newer life of a shard does not begin a generation", [
        Change(COORDINATOR + "coordinator_members.cc",
               "if (again && (job_.created || job_.running == &restore_)) {",
               "if (again && (job_.created || job_.running == &restore_) &&\n"
               '      !Mutant("R4_generation")) {'),
    ]),
    Mutation("R5", "messages name a generation before the journal does", [
        Change(COORDINATOR + "restore.cc",
               "  job_->journal.Change(\n"
               "      [next](proto::Journal* journal) { journal->set_generation(next); },",
               '  if (Mutant("R5")) job_->generation = Generation(next);\n'
               "  job_->journal.Change(\n"
               "      [next](proto::Journal* journal) { journal->set_generation(next); },"),
    ]),
    Mutation("R6", "staged pushes are dropped because a newer life appears", [
        Change(SHARD,
               "  if (IsFenced(id.from)) return reply(PushAnswer(proto::FENCED));",
               '  if (Mutant("R6") && id.from.incarnation.value() > 1) {\n'
               "    staged_.DropAll({id.from.worker,\n"
               "                     Incarnation(id.from.incarnation.value() - 1)});\n"
               "  }\n"
               "  if (IsFenced(id.from)) return reply(PushAnswer(proto::FENCED));"),
    ]),
    Mutation("R7", "a pull accepts values of different versions", [
        Change(CLIENT + "pull.cc",
               "if (which_ == Which::kNewest && version > shard.version) {",
               "if (which_ == Which::kNewest && version > shard.version &&\n"
               '          !Mutant("R7")) {'),
    ]),
    Mutation("R7_early", "a pull overwrites values that are being read with newer ones", [
        Change(CLIENT + "pull.cc",
               "if (handed_out_) {\n"
               "      superseded_ = true;\n"
               "      newer_ =",
               'if (handed_out_ && !Mutant("R7_early")) {\n'
               "      superseded_ = true;\n"
               "      newer_ ="),
    ]),
    Mutation("R8_cut", "a shard saves another version than it was asked for", [
        Change(CHECKPOINT,
               "if (version() != GlobalStep(request.step())) {  // [R8]",
               "if (version() != GlobalStep(request.step()) &&\n"
               '      !Mutant("R8_cut")) {'),
    ], equivalent="A shard's own check of the coordinator's request: all shards "
       "are at the version that it names."),
    Mutation("R8_position", "a checkpoint's position is taken only when its shares are on disk", [
        Change(COORDINATOR + "save.cc",
               "void Save::WriteManifest() {\n",
               "void Save::WriteManifest() {\n"
               '  if (Mutant("R8_position")) {\n'
               "    *saving_->manifest.mutable_position() = PositionNow();\n"
               "  }\n"),
    ]),
    Mutation("R8_names", "files of all generations have the same names", [
        Change(CHECKPOINT,
               "  name.set_generation(generation_.value());\n  name.set_step(",
               '  name.set_generation(Mutant("R8_names") ? 1 : generation_.value());\n'
               "  name.set_step("),
    ]),
    Mutation("R9", "a ticket can be both returned and spent", [
        Change(COORDINATOR + "ticket_pool.cc",
               "bool TicketPool::Return(const PushId& push) {\n"
               "  const std::optional<Out> ticket = Remove(push);",
               "bool TicketPool::Return(const PushId& push) {\n"
               "  const std::optional<Out> ticket =\n"
               '      Mutant("R9") ? Find(push) : Remove(push);'),
    ]),
    Mutation("R10", "DONE is announced before the last checkpoint is on disk", [
        Change(COORDINATOR + "coordinator_end.cc",
               "if (job_.archive == nullptr) return OnFinished();",
               'if (job_.archive == nullptr || Mutant("R10")) return OnFinished();'),
    ]),
    Mutation("P1", "a push gets a seat without proof that every shard holds it", [
        Change(COORDINATOR + "verdicts.cc",
               "if (request.examples() == 0 || ClipFactorOf(request) == 0) {",
               "if (request.examples() == 0 || ClipFactorOf(request) == 0 ||\n"
               '      Mutant("P1")) {'),
    ]),
    Mutation("P2_scalars", "a push is applied with any scalars that its worker names", [
        Change(APPLY,
               "HOLDFAST_RETURN_IF_ERROR(receipts_->CheckTicket(push, request.scalars(),\n"
               "                                                  request.ticket_receipt()));",
               "const absl::Status ticket = receipts_->CheckTicket(\n"
               "      push, request.scalars(), request.ticket_receipt());\n"
               '  if (!Mutant("P2_scalars")) HOLDFAST_RETURN_IF_ERROR(ticket);'),
    ]),
    Mutation("P2_held", "a push is applied without proof that the other shards hold it", [
        Change(APPLY,
               "if (request.has_clip_factor() && request.clip_factor() == 0) {",
               "if ((request.has_clip_factor() && request.clip_factor() == 0) ||\n"
               '      Mutant("P2_held")) {'),
    ]),
    Mutation("P3_spent", "a ticket is booked without proof that every shard has applied its push", [
        Change(COORDINATOR + "verdicts.cc",
               "  if (status.ok()) return status;\n",
               '  if (status.ok() || Mutant("P3_spent")) return absl::OkStatus();\n'),
    ]),
    Mutation("P3_word", "a shard forgets verdicts because a worker says so", [
        Change(SHARD,
               "  if (!asynchronous()) {\n    ledger_.AckThrough(",
               '  if (!asynchronous() || Mutant("P3_word")) {\n    ledger_.AckThrough('),
    ]),
    Mutation("P4", "a push of the next step is refused for good", [
        Change(SHARD,
               "return refuse(will_pass ? absl::UnavailableError(text)",
               'return refuse(will_pass && !Mutant("P4") ? absl::UnavailableError(text)'),
    ], equivalent="The workers here pull from every ps before they push. The rule is for "
       "clients that do not (shard_test, tests/interop)."),
    Mutation("P5", "a shard believes any message in the coordinator's name", [
        Change(SHARD,
               'options_.nonce && !Mutant("R4_life")) {',
               'options_.nonce && !Mutant("R4_life") &&\n'
               '      !(Mutant("P5") && sender.receiver_nonce() == 0)) {'),
    ]),
    Mutation("T1", "a returned ticket is handed out again and again", [
        Change(COORDINATOR + "ticket_pool.cc",
               "    returned_.erase(returned_.begin());",
               '    if (!Mutant("T1")) returned_.erase(returned_.begin());'),
    ]),
    Mutation("T2", "there is no room reserved for the next push of a worker", [
        Change(SHARD,
               "  return !asynchronous() ||\n         push.sequence ==",
               '  if (Mutant("T2")) return false;\n'
               "  return !asynchronous() ||\n         push.sequence =="),
    ]),
    Mutation("T3", "a worker's pushes are applied in any order", [
        Change(APPLY,
               "  if (holding_ || id.sequence > next) {",
               '  if (holding_ || (id.sequence > next && !Mutant("T3"))) {'),
    ]),
    Mutation("T4", "spent tickets are booked only by requests that do not ask for a ticket", [
        Change(COORDINATOR + "coordinator_tickets.cc",
               "      Book({push.from, PushSequence(spent.sequence())}, spent);",
               '      if (Mutant("T4") && request.sequence() != 0) continue;\n'
               "      Book({push.from, PushSequence(spent.sequence())}, spent);"),
    ]),
    Mutation("T5_refused", "a shard still serves a fenced life", [
        Change(SHARD,
               "  return fenced != fenced_.end() && from.incarnation <= fenced->second.through;",
               '  return fenced != fenced_.end() && !Mutant("T5_refused") &&\n'
               "         from.incarnation <= fenced->second.through;"),
    ]),
    Mutation("T5_union", "a push of a fenced life is not applied by all shards when one has applied it", [
        Change(COORDINATOR + "fence.cc",
               "    if (!ticket.has_value()) continue;\n",
               '    if (!ticket.has_value() || Mutant("T5_union")) continue;\n'),
    ]),
    Mutation("T5_counts", "a push of a fenced life that a shard has applied does not count", [
        Change(COORDINATOR + "fence.cc",
               "      if (!applied_.Contains(push)) {",
               '      if (!applied_.Contains(push) || Mutant("T5_counts")) {'),
    ]),
    Mutation("T6", "a checkpoint and a fence run at the same time", [
        Change(COORDINATOR + "coordinator.cc",
               "  if (job_.running != nullptr) return;\n  // Between",
               "  if (job_.running != nullptr &&\n"
               '      !(Mutant("T6") && fence_.IsDue() && job_.running == &save_)) {\n'
               "    return;\n  }\n  // Between"),
    ]),
    Mutation("T7", "parked applications are not retried when they are released", [
        Change(CHECKPOINT,
               "  for (const WorkerLife& life : waiting) RetryApplies(life);",
               '  if (Mutant("T7")) waiting.clear();\n'
               "  for (const WorkerLife& life : waiting) RetryApplies(life);"),
    ]),
    Mutation("T8", "a late Hold takes effect", [
        Change(CHECKPOINT,
               "  if (request.number() > share_.number) {",
               '  if (request.number() > share_.number || Mutant("T8")) {'),
    ]),
    Mutation("T9", "a checkpoint's position omits pushes that only shards know to be applied", [
        Change(COORDINATOR + "save.cc",
               "      if (!applied_.Contains(push)) {\n        left.insert",
               '      if (!applied_.Contains(push) || Mutant("T9")) {\n        left.insert'),
    ]),
    Mutation("S1", "a worker waits for a verdict before it fills its next seat", [
        Change("tests/world/synchronous_worker.cc",
               "  SendOffer(OfferOf(sequence, batch));\n  seat_ += job().m();\n  NextSeat();",
               "  SendOffer(OfferOf(sequence, batch));\n  seat_ += job().m();\n"
               '  if (!Mutant("S1")) NextSeat();'),
        Change("tests/world/synchronous_worker.cc",
               "  --open_offers_;\n  NextWhenTold();",
               "  --open_offers_;\n"
               '  if (Mutant("S1") && !pushed_all_) return NextSeat();\n'
               "  NextWhenTold();"),
    ]),
    Mutation("S2", "a step is committed while a fence is due", [
        Change(COORDINATOR + "coordinator.cc",
               "  for (Operation* operation : operations_) {\n"
               "    if (operation->IsDue()) return operation->Start();",
               '  if (Mutant("S2") && commit_.IsDue()) return commit_.Start();\n'
               "  for (Operation* operation : operations_) {\n"
               "    if (operation->IsDue()) return operation->Start();"),
    ], equivalent="A lost life's offers leave the open step at once, and a shard drops pushes "
       "that a Commit does not name: a fence that comes a step late finds nothing. "
       "Fencing before the Commit keeps a lost life's pushes from taking room."),
    Mutation("S3_empty", "an empty step closes", [
        Change(COORDINATOR + "open_step.cc",
               "  if (step_->num_offers() == 0) return false;  // [S3]",
               '  if (step_->num_offers() == 0 && !Mutant("S3_empty")) return false;'),
    ]),
    Mutation("S3_lease", "a step waits for a lost worker", [
        Change(COORDINATOR + "open_step.cc",
               "  if (members_.erase(life.worker) > 0) members_as_of_.reset();",
               '  if (!Mutant("S3_lease") && members_.erase(life.worker) > 0) {\n'
               "    members_as_of_.reset();\n"
               "  }"),
    ]),
    Mutation("L1", "a task is admitted by a call that was parked", [
        Change(COORDINATOR + "members.cc",
               "    } else if (!IsAdmitted(parked.request)) {\n",
               '    } else if (!IsAdmitted(parked.request) && Mutant("L1")) {\n'
               "      Admit(parked.key.first, parked.request);\n"
               "      outbox_->Answer(std::move(parked.reply),\n"
               "                      RegisterAnswer(parked.key.first));\n"
               "    } else if (!IsAdmitted(parked.request)) {\n"),
    ]),
    Mutation("E2_step", "a step opens in a job that is stopping", [
        Change(COORDINATOR + "commit.cc",
               "  if (job_->stopping()) {\n",
               '  if (job_->stopping() && !Mutant("E2_step")) {\n'),
        Change(COORDINATOR + "coordinator_end.cc",
               "  if (job_.step.open() && !commit_.IsDue()) job_.step.Reset();",
               '  if (job_.step.open() && !commit_.IsDue() && !Mutant("E2_step")) {\n'
               "    job_.step.Reset();\n"
               "  }"),
    ]),
    Mutation("E2_ticket", "a ticket is handed out in a job that is stopping", [
        Change(COORDINATOR + "coordinator_tickets.cc",
               "  if (!job_.training() || !job_.tickets.open()",
               '  if (!(Mutant("E2_ticket") ? job_.at_work() : job_.training()) ||\n'
               "      !job_.tickets.open()"),
    ]),
    Mutation("E2_decided", "the last checkpoint is taken before the pushes in flight are decided", [
        Change(COORDINATOR + "save.cc",
               "      (job_->step.open() || !concluding_since_",
               '      ((job_->step.open() && !Mutant("E2_decided")) ||\n'
               "       !concluding_since_"),
    ]),
    Mutation("E3", "a shard applies pushes after the checkpoint that the job stops with", [
        Change(CHECKPOINT,
               "  if (request.last()) return;",
               '  if (request.last() && !Mutant("E3")) return;'),
    ]),
    Mutation("E4", "the journal says that a stopped job is finished", [
        Change(COORDINATOR + "save.cc",
               "concluding_since_.has_value() && job_->AllMade());",
               "concluding_since_.has_value() &&\n"
               '                        (job_->AllMade() || Mutant("E4")));'),
    ]),
    Mutation("R11", "a changed declaration is restored before the journal has it", [
        Change(COORDINATOR + "job_declaration.cc",
               "    standing_ = Standing::kChanged;",
               '    standing_ = Mutant("R11") ? Standing::kSettled : Standing::kChanged;'),
        Change(COORDINATOR + "coordinator.cc",
               "  if (job_.declared.settled()) return absl::OkStatus();\n"
               "  job_.journal.Change(",
               '  if (job_.declared.settled() && !Mutant("R11")) return absl::OkStatus();\n'
               "  job_.journal.Change("),
    ]),
    Mutation("R12", "a worker may have another value of an agreed fact", [
        Change(COORDINATOR + "coordinator.cc",
               "  HOLDFAST_RETURN_IF_ERROR(\n"
               "      CheckAgreed(task.ToString(), complete.agreed(), *job_.declared));",
               '  if (!Mutant("R12")) {\n'
               "    HOLDFAST_RETURN_IF_ERROR(\n"
               "        CheckAgreed(task.ToString(), complete.agreed(), *job_.declared));\n"
               "  }"),
    ]),
    Mutation("J1", "lives of a finished job's coordinator hand out the same incarnations", [
        Change(COORDINATOR + "restore.cc",
               "  if (job_->finished_before) return StartGeneration();",
               "  if (job_->finished_before) {\n"
               '    if (!Mutant("J1")) return StartGeneration();\n'
               "    beginning_ = false;\n"
               "    return job_->director->OnGenerationBegun({});\n"
               "  }"),
    ]),
    # Tensors that could not be lent are sent in more parts (docs/protocol/same_host.md).
    Mutation("H7_push", "a push switches to more parts while some of the fewer are in flight", [
        Change(CLIENT + "part_sender.cc",
               "if (shard.not_lent && shard.in_flight == 0) {",
               "if (shard.not_lent &&\n"
               '        (shard.in_flight == 0 || Mutant("H7_push"))) {'),
    ]),
    Mutation("H7_pull", "a pull switches to more parts while some of the fewer are in flight", [
        Change(CLIENT + "pull.cc",
               "if (!shard.not_lent || shard.in_flight > 0) return;",
               "if (!shard.not_lent ||\n"
               '        (shard.in_flight > 0 && !Mutant("H7_pull"))) {\n'
               "      return;\n"
               "    }"),
    ]),
    Mutation("H7_early", "a pull asks for more parts while values are being read", [
        Change(CLIENT + "pull.cc",
               "if (handed_out_) {\n"
               "      superseded_ = true;\n"
               "      return;",
               'if (handed_out_ && !Mutant("H7_early")) {\n'
               "      superseded_ = true;\n"
               "      return;"),
    ]),
    Mutation("H8_anew", "parts of a greater number join those of the smaller one", [
        Change(STAGED,
               "const bool anew = held.num_parts < part.num_parts;",
               "const bool anew = held.num_parts < part.num_parts &&\n"
               '                      !Mutant("H8_anew");'),
    ]),
    Mutation("H8_complete", "a complete push starts over", [
        Change(STAGED,
               "if (held.step == part.step && held.num_parts != part.num_parts &&",
               "if (held.step == part.step && held.num_parts != part.num_parts &&\n"
               '        !(Mutant("H8_complete") && held.num_parts < part.num_parts) &&'),
    ]),
    Mutation("H8_half", "a push that starts over keeps the parts that it holds", [
        Change(STAGED, "      Empty(&held);\n",
               '      if (Mutant("H8_half")) {\n'
               "        held.parts.clear();\n"
               "      } else {\n"
               "        Empty(&held);\n"
               "      }\n"),
    ]),
    Mutation("H8_more", "a push that is started again has as many parts as before", [
        Change(CLIENT + "part_sender.cc",
               "if (num_parts > 0) num_parts = std::max(num_parts, shard.announced + 1);",
               'if (num_parts > 0 && !Mutant("H8_more")) {\n'
               "    num_parts = std::max(num_parts, shard.announced + 1);\n"
               "  }"),
    ]),
    Mutation("H8_last", "the last part is sent before the push is contributed", [
        Change(CLIENT + "part_sender.cc",
               "(holds_back_ && shard.unsent == 1)",
               '(holds_back_ && shard.unsent == 1 && !Mutant("H8_last"))'),
    ]),
    Mutation("rows_sum", "rows are summed instead of averaged", [
        Change(SHARD, "for (RowSum& rows : sum.tables) rows.divisor =",
               'for (RowSum& rows : sum.tables) if (!Mutant("rows_sum")) rows.divisor ='),
    ]),
    Mutation("B15_since", "a delta lacks a step", [
        Change("ps_server/shard/shard_checkpoint.cc",
               "durable = GlobalStep(request.durable_step());",
               'durable = GlobalStep(request.durable_step() + (Mutant("B15_since") ? 1 : 0));'),
    ]),
    Mutation("B15_chain", "a delta does not name the one before it as needed", [
        Change("ps_server/coordinator/checkpoint_chain.cc",
               "*next->mutable_chain() = links;",
               "*next->mutable_chain() = links;\n"
               '  if (Mutant("B15_chain") && next->chain_size() > 1) {\n'
               "    next->mutable_chain()->RemoveLast();\n"
               "  }"),
    ]),
    Mutation("H9", "a late part of the smaller number is accepted", [
        Change(STAGED,
               "if (held.step != part.step || held.num_parts > part.num_parts) {",
               "if (held.step != part.step ||\n"
               '        (held.num_parts > part.num_parts && !Mutant("H9"))) {'),
    ]),
    # Rules of docs/protocol/recovery.md for workers, which the client must keep.
    Mutation("client_sequence", "retries have another sequence", [
        Change(CLIENT + "call_group.h",
               "template <typename Request, typename Response>\n"
               "class CallOf final : public Call {\n public:\n",
               "template <typename M>\n"
               "auto Renumber(M* request, int)\n"
               "    -> decltype(request->set_sequence(1), void()) {\n"
               "  request->set_sequence(request->sequence() + 1);\n"
               "}\n"
               "template <typename M>\n"
               "void Renumber(M*, long) {}\n\n"
               "template <typename Request, typename Response>\n"
               "class CallOf final : public Call {\n public:\n"
               "  int attempts = 0;\n"),
        Change(CLIENT + "call_group.h",
               "    response_ = Response();\n    attempt->timeout",
               '    if (attempts++ > 0 && Mutant("client_sequence")) {\n'
               "      Renumber(&MessageOf(request_), 0);\n"
               "    }\n"
               "    response_ = Response();\n    attempt->timeout"),
    ]),
    Mutation("client_generation", "calls of a generation continue in the next", [
        Change(CLIENT + "call.cc",
               "FillIn(group_->sender != nullptr ? *group_->sender",
               "FillIn(group_->sender != nullptr && !Mutant(\"client_generation\")\n"
               "               ? *group_->sender"),
        Change(CLIENT + "context.cc",
               "return !ended_.ok() || (sender != nullptr && IsRolledBack(*sender));",
               "return !ended_.ok() || (sender != nullptr && IsRolledBack(*sender) &&\n"
               '                          !Mutant("client_generation"));'),
    ]),
    Mutation("client_kept", "sequences and tickets outlive their generation", [
        Change(CLIENT + "client.cc",
               "if (generation_ == nullptr || !generation_->WhyOver().ok()) {",
               "if (generation_ == nullptr ||\n"
               '      (!generation_->WhyOver().ok() && !Mutant("client_kept"))) {'),
    ]),
    Mutation("client_held", "a push is offered or applied before all shards acknowledge it", [
        Change(CLIENT + "part_sender.h",
               "return num_unacknowledged_ == 0 || decided();",
               "return num_unacknowledged_ == 0 || decided() ||\n"
               '           (Mutant("client_held") && num_unacknowledged_ == 1);'),
    ]),
    Mutation("client_acked", "a verdict is acknowledged in the request that asks for it", [
        Change(CLIENT + "offer.cc",
               "request.set_acked_through(sequences.acked_through().value());",
               'request.set_acked_through(Mutant("client_acked")\n'
               "                                    ? push_.sequence.value()\n"
               "                                    : sequences.acked_through().value());"),
    ]),
    Mutation("client_ticket", "a pending ticket is requested again under the next sequence", [
        Change(CLIENT + "tickets.cc",
               "if (!waiting_.empty()) return Next::kAgain;",
               'if (Mutant("client_ticket")) {\n'
               "          asked_for_.reset();\n"
               "        } else if (!waiting_.empty()) {\n"
               "          return Next::kAgain;\n"
               "        }"),
    ]),
    Mutation("client_deal", "a ticket is given to two pushes", [
        Change(CLIENT + "tickets.cc",
               "    waiting_.front()->Answer(std::move(here_.begin()->second));\n"
               "    waiting_.pop_front();\n"
               "    here_.erase(here_.begin());",
               "    waiting_.front()->Answer(here_.begin()->second);\n"
               "    waiting_.pop_front();\n"
               '    if (!Mutant("client_deal")) here_.erase(here_.begin());'),
    ]),
    Mutation("client_spent", "a ticket is reported as spent when one shard has applied its push", [
        Change(CLIENT + "application.cc",
               "if (--num_left_ > 0) return Next::kDone;",
               'if (--num_left_ > 0 && !Mutant("client_spent")) return Next::kDone;'),
    ]),
    Mutation("client_told", "spent tickets are reported only with the next request for a ticket", [
        Change(CLIENT + "tickets.cc",
               "    spent_.push_back(spent);\n",
               "    spent_.push_back(spent);\n"
               '    if (Mutant("client_told")) return;\n'),
    ]),
    Mutation("client_values", "values are taken from an exchange without a verdict", [
        Change(CLIENT + "push_exchange.cc",
               "message.verdict() == proto::VERDICT_UNSPECIFIED) {",
               "(message.verdict() == proto::VERDICT_UNSPECIFIED &&\n"
               '       !Mutant("client_values"))) {'),
    ], equivalent="The client's own check of the answer: a ps sends values only "
       "with a verdict (exchange_answer)."),
    Mutation("exchange_version", "an exchange returns the current values, not the next step's", [
        Change("ps_server/push_pull/push_pull_exchange.cc",
               "out.pull = Pull(request_.step() + 1);",
               'out.pull = Pull(Mutant("exchange_version") ? 0 : request_.step() + 1);'),
    ]),
    Mutation("exchange_answer", "an exchange answers before there is a verdict", [
        Change("ps_server/push_pull/push_pull_exchange.cc",
               "if (!decided_ || !pulled_) return {};",
               'if ((!decided_ && !Mutant("exchange_answer")) || !pulled_) return {};'),
    ], equivalent="The client takes no values without a verdict (client_values), and "
       "asks for the verdict with one more call."),
    Mutation("exchange_held", "an exchange contributes before the shard holds the push", [
        Change("ps_server/push_pull/push_pull_exchange.cc",
               "  part.tensors = std::move(tensors);\n  return out;",
               "  part.tensors = std::move(tensors);\n"
               '  if (Mutant("exchange_held")) {\n'
               "    if (request_.has_application()) {\n"
               "      out.apply = Application();\n"
               "    } else {\n"
               "      out.contribute = Contribution(0);\n"
               "      out.pull = Pull(request_.step() + 1);\n"
               "    }\n"
               "  }\n"
               "  return out;"),
    ]),
    Mutation("V1_shard", "a shard counts as restored with the first range of first values", [
        Change(CHECKPOINT,
               "if (wanted_->complete()) OnRestored(wanted_->TakeStore());  // [V1]",
               'if (wanted_->complete() || (Mutant("V1_shard") && !part.tensors.empty())) {\n'
               "      OnRestored(wanted_->TakeStore());\n"
               "    }"),
    ]),
    Mutation("V1_coordinator", "a shard that lacks first values counts as restored", [
        Change(COORDINATOR + "restore.cc",
               "if (status.ok() && response->pending()) {",
               "if (status.ok() && response->pending() &&\n"
               '      !(Mutant("V1_coordinator") && !response->wants_values_of().empty())) {'),
    ]),
    Mutation("V2", "a shard accepts any values that it is given", [
        Change("ps_server/shard/wanted_values.cc",
               "if (GivenDigest(piece.data) != variable.digests[range]) {  // [V2]",
               "if (GivenDigest(piece.data) != variable.digests[range] &&\n"
               '      !Mutant("V2")) {'),
    ]),
    Mutation("V3", "generations after the first do not ask for first values", [
        Change(COORDINATOR + "coordinator.cc",
               "response.set_values_wanted(restore_.wants_values());",
               "response.set_values_wanted(restore_.wants_values() &&\n"
               '                               !(Mutant("V3") && job_.generation.value() > 1));'),
    ]),
    Mutation("judged_fixed", "a step is made before the evaluation that decides about it", [
        Change(COORDINATOR + "commit.cc",
               "job_->evaluations.MayCommit(job_->step.number().value(),\n"
               "                                     job_->journal.journal()) &&",
               '(Mutant("judged_fixed") ||\n'
               "          job_->evaluations.MayCommit(job_->step.number().value(),\n"
               "                                      job_->journal.journal())) &&"),
    ]),
    Mutation("judged_best", "the journal names a best checkpoint before it is kept", [
        Change(COORDINATOR + "decision_writer.cc",
               "if (!HasName(journal.best(), name) && !HasName(linked_, name)) {",
               "if (!HasName(journal.best(), name) && !HasName(linked_, name) &&\n"
               '        !Mutant("judged_best")) {'),
    ]),
    Mutation("rates_told", "a change of the learning rate is confirmed before it is on disk", [
        Change(COORDINATOR + "decision_writer.cc",
               "if (saved()) return then(absl::OkStatus());",
               'if (saved() || Mutant("rates_told")) return then(absl::OkStatus());'),
    ]),
    Mutation("rates_saved", "the journal has a checkpoint without the rates of its steps", [
        Change(COORDINATOR + "save.cc",
               "job->rates.AddTo(journal->mutable_learning_rate_changes());",
               'if (!Mutant("rates_saved")) {\n'
               "          job->rates.AddTo(journal->mutable_learning_rate_changes());\n"
               "        }"),
    ], equivalent="The archive executes requests in order, so a change is written before the "
       "checkpoint, unless two best checkpoints are being linked, which "
       "coordinator_evaluation_test covers."),
]
