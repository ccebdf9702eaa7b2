"""What breaks each rule of docs/recovery.md, as a change of one place or two.

A mutation is the text of a source file that it replaces and what it puts there,
where `Mutant("NAME")` says whether it is on, so that all of them are built at
once and chosen by the environment. Text that is not there exactly once is an
error: whoever changes the code says here how the rule is broken now.
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
    # Why no schedule can tell it from the code, where that is so.
    equivalent: str = ""


SHARD = "ps_server/shard/shard.cc"
APPLY = "ps_server/shard/shard_apply.cc"
CHECKPOINT = "ps_server/shard/shard_checkpoint.cc"
COORDINATOR = "ps_server/coordinator/"

MUTATIONS = [
    Mutation("R1_shard", "a shard takes an older generation for a newer one", [
        Change("ps_server/shard/shard.h",
               "return sender.generation() < generation_.value();",
               'return !Mutant("R1_shard") &&\n'
               "           sender.generation() < generation_.value();"),
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
        Change(COORDINATOR + "coordinator.cc",
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
    ]),
    Mutation("R3", "a second Restore of its generation restores a shard again", [
        Change(CHECKPOINT,
               "if (generation == generation_ && store_ != nullptr) {  // [R3]",
               "if (generation == generation_ && store_ != nullptr &&\n"
               '      !Mutant("R3")) {'),
    ]),
    Mutation("R4_life", "a Restore is for whatever life it finds", [
        Change(SHARD,
               "if (sender.receiver_nonce() != options_.nonce) {  // [P5, R4]",
               'if (sender.receiver_nonce() != options_.nonce && !Mutant("R4_life")) {'),
    ]),
    Mutation("R4_generation", "a newer life of a shard begins no generation", [
        Change(COORDINATOR + "coordinator.cc",
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
    Mutation("R6", "what is staged goes because a newer life shows up", [
        Change(SHARD,
               "  if (IsFenced(id.from)) return reply(PushAnswer(proto::FENCED));",
               '  if (Mutant("R6") && id.from.incarnation.value() > 1) {\n'
               "    staged_.DropAll({id.from.worker,\n"
               "                     Incarnation(id.from.incarnation.value() - 1)});\n"
               "  }\n"
               "  if (IsFenced(id.from)) return reply(PushAnswer(proto::FENCED));"),
    ]),
    Mutation("R8_cut", "a shard saves whatever version it has", [
        Change(CHECKPOINT,
               "if (version() != GlobalStep(request.step())) {  // [R8]",
               "if (version() != GlobalStep(request.step()) &&\n"
               '      !Mutant("R8_cut")) {'),
    ], equivalent="A shard's own check of what the coordinator sends: all shards "
       "are at the version that it names."),
    Mutation("R8_position", "a checkpoint's position is taken when it is on disk", [
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
    Mutation("R9", "a ticket may be returned and spent", [
        Change(COORDINATOR + "ticket_pool.cc",
               "bool TicketPool::Return(const PushId& push) {\n"
               "  const std::optional<Out> ticket = Remove(push);",
               "bool TicketPool::Return(const PushId& push) {\n"
               "  const std::optional<Out> ticket =\n"
               '      Mutant("R9") ? Find(push) : Remove(push);'),
    ]),
    Mutation("R10", "DONE is told before the last checkpoint is on disk", [
        Change(COORDINATOR + "coordinator.cc",
               "if (job_.archive == nullptr) return OnFinished();",
               'if (job_.archive == nullptr || Mutant("R10")) return OnFinished();'),
    ]),
    Mutation("P1", "a push is seated that a shard is not proven to hold", [
        Change(COORDINATOR + "verdicts.cc",
               "if (request.examples() == 0 || ClipFactorOf(request) == 0) {",
               "if (request.examples() == 0 || ClipFactorOf(request) == 0 ||\n"
               '      Mutant("P1")) {'),
    ]),
    Mutation("P2_scalars", "a push is applied with whatever scalars its worker says", [
        Change(APPLY,
               "                                                   request.ticket_receipt());\n"
               "      !status.ok()) {",
               "                                                   request.ticket_receipt());\n"
               '      !status.ok() && !Mutant("P2_scalars")) {'),
    ]),
    Mutation("P2_held", "a push is applied that another shard is not proven to hold", [
        Change(APPLY,
               "if (request.has_clip_factor() && request.clip_factor() == 0) {",
               "if ((request.has_clip_factor() && request.clip_factor() == 0) ||\n"
               '      Mutant("P2_held")) {'),
    ]),
    Mutation("P3_spent", "a ticket is booked that not every shard is proven to have applied", [
        Change(COORDINATOR + "verdicts.cc",
               "  if (status.ok()) return status;\n",
               '  if (status.ok() || Mutant("P3_spent")) return absl::OkStatus();\n'),
    ]),
    Mutation("P3_word", "a shard forgets by a worker's word", [
        Change(SHARD,
               "  if (!asynchronous()) {\n    ledger_.AckThrough(",
               '  if (!asynchronous() || Mutant("P3_word")) {\n    ledger_.AckThrough('),
    ]),
    Mutation("P4", "a push of the next step is not to be sent again", [
        Change(SHARD,
               "return refuse(will_pass ? absl::UnavailableError(text)",
               'return refuse(will_pass && !Mutant("P4") ? absl::UnavailableError(text)'),
    ]),
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
    Mutation("T2", "the next push of a worker has no place of its own", [
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
    Mutation("T4", "what is spent is booked only by requests that ask for no ticket", [
        Change(COORDINATOR + "coordinator.cc",
               "      Book({push.from, PushSequence(spent.sequence())}, spent);",
               '      if (Mutant("T4") && request.sequence() != 0) continue;\n'
               "      Book({push.from, PushSequence(spent.sequence())}, spent);"),
    ]),
    Mutation("T5_refused", "a shard goes on with a fenced life", [
        Change(SHARD,
               "  return fenced != fenced_.end() && from.incarnation <= fenced->second.through;",
               '  return fenced != fenced_.end() && !Mutant("T5_refused") &&\n'
               "         from.incarnation <= fenced->second.through;"),
    ]),
    Mutation("T5_union", "what one shard has applied of a fenced life is not applied by the others", [
        Change(COORDINATOR + "fence.cc",
               "    if (!ticket.has_value()) continue;\n",
               '    if (!ticket.has_value() || Mutant("T5_union")) continue;\n'),
    ]),
    Mutation("T5_counts", "what a shard has applied of a fenced life does not count", [
        Change(COORDINATOR + "fence.cc",
               "      if (!applied_.Contains(push)) {",
               '      if (!applied_.Contains(push) || Mutant("T5_counts")) {'),
    ]),
    Mutation("T6", "a checkpoint and a fence run at one time", [
        Change(COORDINATOR + "coordinator.cc",
               "  if (job_.running != nullptr) return;\n  // Between",
               "  if (job_.running != nullptr &&\n"
               '      !(Mutant("T6") && fence_.IsDue() && job_.running == &save_)) {\n'
               "    return;\n  }\n  // Between"),
    ]),
    Mutation("T7", "a parked application is not looked at when it is released", [
        Change(CHECKPOINT,
               "  for (const WorkerLife& life : waiting) RetryApplies(life);",
               '  if (Mutant("T7")) waiting.clear();\n'
               "  for (const WorkerLife& life : waiting) RetryApplies(life);"),
    ]),
    Mutation("T8", "a late Hold holds", [
        Change(CHECKPOINT,
               "  if (request.number() > share_.number) {",
               '  if (request.number() > share_.number || Mutant("T8")) {'),
    ]),
    Mutation("T9", "a checkpoint's position leaves out what only shards have applied", [
        Change(COORDINATOR + "save.cc",
               "      if (!applied_.Contains(push)) {\n        left.insert",
               '      if (!applied_.Contains(push) || Mutant("T9")) {\n        left.insert'),
    ]),
    Mutation("S1", "a worker waits for a verdict before it fills its next seat", [
        Change("tests/world/worker.cc",
               "  SendOffer(OfferOf(sequence, batch));\n  seat_ += job().m();\n  NextSeat();",
               "  SendOffer(OfferOf(sequence, batch));\n  seat_ += job().m();\n"
               '  if (!Mutant("S1")) NextSeat();'),
        Change("tests/world/worker.cc",
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
    ]),
    Mutation("S3_empty", "an empty step closes", [
        Change(COORDINATOR + "open_step.cc",
               "  if (step_->offers().empty()) return false;  // [S3]",
               '  if (step_->offers().empty() && !Mutant("S3_empty")) return false;'),
    ]),
    Mutation("S3_lease", "a step waits for a worker that is lost", [
        Change(COORDINATOR + "open_step.cc",
               "  members_.erase(life.worker);",
               '  if (!Mutant("S3_lease")) members_.erase(life.worker);'),
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
]
