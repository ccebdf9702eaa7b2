// SPDX-License-Identifier: Apache-2.0
#include "tests/world/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/tensor/row_ids.h"
#include "tests/world/disk.h"

namespace holdfast::sim {
namespace {

bool Same(const float* a, const float* b, size_t size) {
  return std::memcmp(a, b, size * sizeof(float)) == 0;
}

std::string Text(const Oracle::Cut& cut) {
  return absl::StrCat("step ", cut.second, " of generation ", cut.first);
}

std::string Text(uint64_t generation, const PushId& push) {
  return absl::StrCat(push.ToString(), " in generation ", generation);
}

std::set<uint64_t> SpentBy(const proto::Position& position) {
  std::set<uint64_t> spent;
  for (uint64_t i = 0; i < position.next_ticket(); ++i) spent.insert(i);
  for (const uint64_t i : position.returned_tickets()) spent.erase(i);
  return spent;
}

}  // namespace

Oracle::Oracle(const Job* job) : job_(*job) {}

PushId Oracle::PushOf(const proto::StepContribution& contribution) {
  const proto::TaskId& worker = contribution.worker();
  return {
      {{worker.job(), worker.index()}, Incarnation(contribution.incarnation())},
      PushSequence(contribution.sequence())};
}

const Values* Oracle::ValuesAt(const Cut& cut) const {
  const auto known = history_.find(cut);
  return known == history_.end() ? nullptr : &known->second.values;
}

// ---- Lines of generations ----

// Step v of generation g may have been made in an earlier generation, from
// whose checkpoint g resumed.
Oracle::Cut Oracle::Origin(Cut cut) const {
  for (;;) {
    const auto origin = origins_.find(cut.first);
    if (origin == origins_.end() || !origin->second.has_value() ||
        cut.second > origin->second->second) {
      return cut;
    }
    cut.first = origin->second->first;
  }
}

bool Oracle::IsOnLine(const Cut& cut, Cut end) const {
  const Cut made = Origin(cut);
  for (end = Origin(end);;) {
    if (end.first == made.first) return made.second <= end.second;
    const auto origin = origins_.find(end.first);
    if (origin == origins_.end() || !origin->second.has_value()) {
      return made.second == 0;
    }
    end = Origin(*origin->second);
  }
}

bool Oracle::Holds(uint64_t generation, Cut end) const {
  for (;;) {
    if (end.first == generation) return true;
    const auto origin = origins_.find(end.first);
    if (origin == origins_.end() || !origin->second.has_value()) return false;
    end = *origin->second;
  }
}

std::string Oracle::OnRestore(const proto::RestoreRequest& request,
                              const Disk& disk) {
  const uint64_t generation = request.sender().generation();
  std::optional<Cut> origin;
  if (request.has_checkpoint()) origin = Disk::NameOf(request.checkpoint());
  const auto [it, is_new] = origins_.emplace(generation, origin);
  if (it->second != origin) {
    return absl::StrCat("shards begin generation ", generation,
                        " with different states");
  }
  if (!is_new) return "";
  // [R11]
  if (job_.archive && request.declaration().total_steps() !=
                          disk.journal().declaration().total_steps()) {
    return absl::StrCat("generation ", generation, " begins with ",
                        request.declaration().total_steps(),
                        " steps, but the journal has another declaration");
  }
  const auto& kept = disk.journal().checkpoints();
  if (origin.has_value() &&
      (kept.empty() || Disk::NameOf(*kept.rbegin()) != *origin)) {
    return absl::StrCat("generation ", generation,
                        " does not begin with the journal's last checkpoint");
  }
  if (!origin.has_value() && !kept.empty()) {
    return absl::StrCat(
        "generation ", generation,
        " begins with first values, but the journal has a checkpoint");
  }
  if (job_.asynchronous()) return "";
  if (!origin.has_value()) {
    history_.emplace(Cut{generation, 0}, Initial());
    return "";
  }
  const auto saved = history_.find(*origin);
  if (saved == history_.end()) {
    return absl::StrCat("generation ", generation,
                        " begins with a checkpoint that was never made");
  }
  history_.emplace(Cut{generation, origin->second}, State(saved->second));
  return "";
}

void Oracle::OnDurable(uint64_t generation, uint64_t step) {
  uint64_t& told = told_durable_[generation];
  told = std::max(told, step);
}

void Oracle::OnDurableThrough(uint64_t generation, const WorkerLife& life,
                              uint64_t sequence) {
  uint64_t& told = told_through_[generation][life];
  told = std::max(told, sequence);
}

// ---- Synchronous ----

Oracle::State Oracle::Initial() const {
  State state;
  for (const proto::Variable& variable : job_.declaration.variables()) {
    const size_t n = NumElements(variable);
    if (variable.initializer().has_given()) {
      state.values[variable.name()] = job_.first_values.at(variable.name());
    } else {
      state.values[variable.name()].assign(
          n, variable.initializer().constant().value());
    }
    if (!variable.has_trainable() || variable.trainable()) {
      state.slots[variable.name()].assign(n, 0);
    }
  }
  state.loss_scale = job_.declaration.loss_scale().initial();
  return state;
}

float Oracle::RateAt(const proto::Journal& journal, uint64_t step) const {
  float factor = 1;
  for (const proto::LearningRateChange& change :
       journal.learning_rate_changes()) {
    if (change.step() <= step) factor = change.factor();
  }
  return static_cast<float>(
      double{job_.declaration.optimizers(0).learning_rate()} * factor);
}

std::string Oracle::OnRateSet(uint64_t step, const Disk& disk) {
  rates_told_.insert(step);
  return CheckRateIsKept(step, disk);
}

std::string Oracle::CheckRateIsKept(uint64_t step, const Disk& disk) const {
  for (const proto::LearningRateChange& change :
       disk.journal().learning_rate_changes()) {
    if (change.step() == step && change.factor() == RateFactorOf(step)) {
      return "";
    }
  }
  return absl::StrCat("the change of the learning rate at step ", step,
                      " was confirmed, but is not in the journal");
}

void Oracle::MakeStep(const std::vector<Batch>& batches, float rate,
                      State* state) const {
  state->rates.push_back(rate);
  uint64_t all = 0;
  uint64_t unit = 0;
  bool finite = true;
  for (const Batch& batch : batches) {
    all += batch.examples;
    unit = std::gcd(unit, batch.examples);
    finite = finite && !batch.not_finite();
  }
  const float loss_scale = state->loss_scale;
  if (!finite) {
    state->loss_scale = std::max(loss_scale / 2, 1.0f);
    state->steps_at_loss_scale = 0;
  } else if (++state->steps_at_loss_scale ==
             job_.declaration.loss_scale().growth_interval()) {
    state->loss_scale = loss_scale * 2;
    state->steps_at_loss_scale = 0;
  }
  if (all == 0) return;
  const bool adds =
      job_.declaration.consistency().synchronous().aggregation() ==
      proto::Consistency::SUM;
  std::vector<std::pair<float, Values>> gradients;
  for (const Batch& batch : batches) {
    if (batch.examples == 0) continue;
    gradients.emplace_back(adds ? 1 : static_cast<float>(batch.examples / unit),
                           GradientOf(job_, batch, state->values, loss_scale));
  }
  for (const proto::Variable& variable : job_.declaration.variables()) {
    const std::string& name = variable.name();
    const auto slots = state->slots.find(name);
    if (slots == state->slots.end()) continue;
    std::vector<float>& slot = slots->second;
    const float kept =
        job_.declaration.optimizers(variable.optimizer()).momentum().momentum();
    std::vector<float>& values = state->values[name];
    for (size_t i = 0; i < values.size(); ++i) {
      float mean = 0;
      bool first = true;
      for (const auto& [weight, gradient] : gradients) {
        const float g = weight * gradient.at(name)[i];
        mean = first ? g : mean + g;
        first = false;
      }
      if (!adds) mean /= static_cast<float>(all / unit);
      slot[i] = kept * slot[i] + mean;
      values[i] = values[i] - rate * slot[i];
    }
  }
}

Batch Oracle::BatchOf(uint64_t generation, uint64_t step,
                      const proto::StepContribution& contribution) const {
  if (!job_.by_ticket()) {
    return BatchOfSeat(job_, step, contribution.seat());
  }
  return BatchOfTicket(job_, tickets_.at(generation).at(PushOf(contribution)));
}

std::string Oracle::OnCommit(const proto::CommitRequest& request) {
  const uint64_t generation = request.sender().generation();
  const Cut cut = {generation, request.step()};
  const auto before = history_.find(cut);
  if (before == history_.end()) {
    return absl::StrCat("Commit of ", Text(cut), ", before its predecessor");
  }
  Contributions all(request.contributions().begin(),
                    request.contributions().end());
  const float rate = request.scalars(0).learning_rate();
  if (const auto made = steps_.find(cut); made != steps_.end()) {
    const bool same =
        std::equal(all.begin(), all.end(), made->second.begin(),
                   made->second.end(),
                   [](const auto& a, const auto& b) {
                     return a.seat() == b.seat() && PushOf(a) == PushOf(b) &&
                            a.weight() == b.weight() && a.share() == b.share();
                   }) &&
        history_.at({generation, request.step() + 1}).rates.back() == rate;
    return same ? ""
                : absl::StrCat(Text(cut), " was made of other pushes before");
  }
  if (all.empty()) return absl::StrCat(Text(cut), " is empty");
  if (const auto stop = stop_asked_.find(generation);
      stop != stop_asked_.end() && request.step() > stop->second) {
    return absl::StrCat(Text(cut), " was opened in a job that is stopping");
  }
  const bool is_last = request.step() + 1 == job_.steps();
  if (all.size() > job_.n() || (all.size() < job_.n() && !job_.continues() &&
                                !(is_last && job_.by_ticket()))) {
    return absl::StrCat(Text(cut), " is made of ", all.size(), " pushes");
  }
  State next = before->second;
  std::vector<Batch> batches;
  for (size_t i = 0; i < all.size(); ++i) {
    const PushId push = PushOf(all[i]);
    if (i > 0 && all[i - 1].seat() >= all[i].seat()) {
      return absl::StrCat(Text(cut), " is not in the order of seats");
    }
    if (computed_[generation].count(push) == 0) {
      return absl::StrCat("Commit of ", Text(generation, push),
                          ", which was never made");
    }
    const auto told = told_[generation].find(push);
    if (told != told_[generation].end() && told->second != proto::ACCEPTED) {
      return absl::StrCat("Commit of ", Text(generation, push),
                          ", whose worker was told that it does not count");
    }
    if (!accepted_[generation].insert(push).second) {
      return absl::StrCat(Text(generation, push), " counts twice");
    }
    if (job_.by_ticket()) {
      const auto& tickets = tickets_[generation];
      const auto ticket = tickets.find(push);
      if (ticket == tickets.end()) {
        return absl::StrCat(Text(generation, push), " counts without a ticket");
      }
      if (!next.spent.insert(ticket->second).second) {
        return absl::StrCat("ticket ", ticket->second, " counts twice");
      }
    }
    batches.push_back(BatchOf(generation, request.step(), all[i]));
  }
  MakeStep(batches, rate, &next);
  steps_.emplace(cut, std::move(all));
  history_.emplace(Cut{generation, request.step() + 1}, std::move(next));
  return "";
}

std::string Oracle::OnComputed(uint64_t generation, const PushId& push,
                               uint64_t version, const Values& values,
                               float loss_scale) {
  computed_[generation].insert(push);
  const auto known = history_.find({generation, version});
  if (known == history_.end()) {
    return absl::StrCat(Text(generation, push), " is of version ", version,
                        ", which was never made");
  }
  if (values != known->second.values ||
      loss_scale != known->second.loss_scale) {
    return absl::StrCat(Text(generation, push), " claims to be of version ",
                        version, ", but is not");
  }
  return "";
}

std::string Oracle::OnVerdict(uint64_t generation, const PushId& push,
                              proto::Verdict verdict) {
  if (job_.asynchronous() || verdict == proto::FENCED ||
      verdict == proto::ABORTED || verdict == proto::VERDICT_UNSPECIFIED) {
    return "";
  }
  if (told_[generation].emplace(push, verdict).first->second != verdict) {
    return absl::StrCat(Text(generation, push), " has another verdict");
  }
  if ((verdict == proto::ACCEPTED) == (accepted_[generation].count(push) > 0)) {
    return "";
  }
  return absl::StrCat(Text(generation, push), " was told ",
                      proto::Verdict_Name(verdict),
                      ", which differs from what was committed");
}

// ---- Asynchronous ----

std::string Oracle::OnTicket(uint64_t generation, const PushId& push,
                             uint64_t ticket) {
  const auto [it, is_new] = tickets_[generation].emplace(push, ticket);
  if (it->second != ticket) {
    return absl::StrCat(Text(generation, push), " has another ticket");
  }
  if (ticket >= job_.tickets()) {
    return absl::StrCat("there is no ticket ", ticket);
  }
  if (is_new && stop_asked_.count(generation) > 0) {
    return absl::StrCat("ticket ", ticket,
                        " is handed out in a job that is stopping");
  }
  if (!is_new || !job_.asynchronous()) return "";
  auto& holders = holders_[ticket];
  Given& given = given_[generation][push];
  given.ticket = ticket;
  given.attempt = holders.size();
  holders.emplace_back(generation, push);
  return "";
}

std::string Oracle::Decode(const float* row, Made* made) const {
  for (uint64_t ticket = 0; ticket < job_.tickets(); ++ticket) {
    const float c = row[2 * ticket];
    if (c == 0 && row[2 * ticket + 1] == 0) continue;
    const long attempt = std::lround(std::log2(row[2 * ticket + 1] / c) / 2);
    const auto holders = holders_.find(ticket);
    if (holders == holders_.end() || attempt < 0 ||
        static_cast<size_t>(attempt) >= holders->second.size()) {
      return absl::StrCat("no push has given ", c, " for ticket ", ticket);
    }
    const auto& [generation, push] = holders->second[attempt];
    const Given& given = given_.at(generation).at(push);
    if (given.clip_factor != c ||
        row[2 * ticket + 1] != c * std::ldexp(1.0f, 2 * given.attempt)) {
      return absl::StrCat("ticket ", ticket, " was not applied as given by ",
                          Text(generation, push), ": ", c);
    }
    made->pushes.push_back(&given);
    made->by.emplace_back(generation, push);
  }
  return "";
}

std::string Oracle::CheckRows(const std::string& variable, const float* values,
                              size_t size, const Made& made) const {
  std::vector<Given> counted;
  for (const Given* given : made.pushes) counted.push_back(*given);
  const std::vector<float> expected = MadeOf(job_, counted).at(variable);
  // All rows have the same values.
  if (size > expected.size() || !Same(values, expected.data(), size)) {
    return absl::StrCat(variable, " is not made of the pushes of ", kTickets);
  }
  return "";
}

std::string Oracle::CheckTable(const proto::ReadRange& range,
                               const TensorPiece& piece,
                               const Values& values) const {
  const auto ids = DecodeRowIds(range.rows().ids(), range.rows().num_rows());
  std::vector<float> rows(piece.data.size() / sizeof(float));
  piece.data.CopyTo(rows.data());
  if (rows.size() != ids->size() * RowLength(job_)) return "rows are missing";
  for (size_t i = 0; i < ids->size(); ++i) {
    const absl::Span<const float> expected = RowOf(job_, values, (*ids)[i]);
    const float* const row = &rows[i * RowLength(job_)];
    if (!Same(row, expected.data(), expected.size())) {
      return absl::StrCat("row ", (*ids)[i], " is ", row[0], " ..., expected ",
                          expected[0], " ...");
    }
  }
  return "";
}

std::string Oracle::CheckPulled(uint32_t ps, const proto::PullRequest& request,
                                const PullReply& reply) const {
  const Cut cut = {reply.generation.value(), reply.version.value()};
  const auto error = [&](auto... what) {
    return absl::StrCat("ps ", ps, " at ", Text(cut), ": ", what...);
  };
  const std::vector<TensorPiece> tensors =
      TensorsOf(job_, request, reply.tensors);
  if (job_.asynchronous()) {
    Made made;
    std::vector<float> values;
    const size_t row = 2 * job_.tickets();
    bool is_first = true;
    for (const TensorPiece& piece : tensors) {
      if (piece.variable != kTickets) continue;
      Made before = std::exchange(made, Made());
      values.resize(piece.data.size() / sizeof(float));
      piece.data.CopyTo(values.data());
      if (values.size() > row) return error("several rows");
      // A client that reads in parts may get them from different versions.
      if (values.size() < row) return "";
      const std::string broken = Decode(values.data(), &made);
      if (!broken.empty()) return error(broken);
      if (!std::exchange(is_first, false) && before.pushes != made.pushes) {
        return error("its rows are made of different pushes");
      }
    }
    // After a change of the number of ps, a ps may have only rows of other
    // variables.
    if (is_first) return "";
    bool some_give_nothing = false;
    for (const auto& [generation, pushes] : given_) {
      for (const auto& [push, given] : pushes) {
        some_give_nothing = some_give_nothing || given.clip_factor == 0;
      }
    }
    if (some_give_nothing ? made.pushes.size() > cut.second
                          : made.pushes.size() != cut.second) {
      return error(made.pushes.size(), " pushes are applied");
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorPiece& piece = tensors[i];
      if (piece.variable == kTickets) continue;
      if (piece.rows.has_value()) {
        std::vector<Given> counted;
        for (const Given* given : made.pushes) counted.push_back(*given);
        const std::string broken =
            CheckTable(request.ranges(i), piece, MadeOf(job_, counted));
        if (!broken.empty()) return error(broken);
        continue;
      }
      values.resize(piece.data.size() / sizeof(float));
      piece.data.CopyTo(values.data());
      const std::string broken =
          CheckRows(piece.variable, values.data(), values.size(), made);
      if (!broken.empty()) return error(broken);
    }
    return "";
  }
  const auto known = history_.find(cut);
  if (known == history_.end()) return error("it was never made");
  std::vector<float> values;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorPiece& piece = tensors[i];
    if (piece.rows.has_value()) {
      const std::string broken =
          CheckTable(request.ranges(i), piece, known->second.values);
      if (!broken.empty()) return error(broken);
      continue;
    }
    values.resize(piece.data.size() / sizeof(float));
    piece.data.CopyTo(values.data());
    const std::vector<float>& expected =
        known->second.values.at(piece.variable);
    if (piece.begin + values.size() > expected.size() ||
        !Same(values.data(), &expected[piece.begin], values.size())) {
      return error(piece.variable, " is not the result of its steps: ",
                   absl::StrJoin(values, " "), ", expected ",
                   absl::StrJoin(expected, " "), " from ", piece.begin);
    }
  }
  if (reply.loss_scale != known->second.loss_scale) {
    return error("the loss scale is ", reply.loss_scale);
  }
  return "";
}

// ---- What is on disk ----

std::string Oracle::CheckSynchronous(const Disk& disk, const Cut& name) const {
  const auto known = history_.find(name);
  if (known == history_.end()) return "it was never made";
  const State& state = known->second;
  const auto saved = disk.Read(name);
  for (const auto* arrays : {&state.values, &state.slots}) {
    const uint32_t slot = arrays == &state.slots ? 1 : 0;
    // A row that a step does not touch keeps its slot, and a variable does not.
    if (slot == 1 && job_.tables_alone) continue;
    for (const auto& [variable, expected] : *arrays) {
      const auto found = saved.find({variable, slot});
      if (found == saved.end() || found->second.size() != expected.size() ||
          !Same(found->second.data(), expected.data(), expected.size())) {
        return absl::StrCat(variable, slot == 1 ? " (slot)" : "",
                            " is not the result of its steps");
      }
    }
  }
  for (size_t step = 0; step < state.rates.size(); ++step) {
    if (state.rates[step] != RateAt(disk.journal(), step)) {
      return absl::StrCat("step ", step, " was made with the learning rate ",
                          state.rates[step], ", which is not in the journal");
    }
  }
  const proto::Manifest& manifest = disk.manifest(name);
  if (manifest.position().loss_scale() != state.loss_scale ||
      manifest.position().steps_at_loss_scale() != state.steps_at_loss_scale) {
    return "the loss scale differs";
  }
  if (job_.by_ticket() && SpentBy(manifest.position()) != state.spent) {
    return "the tickets of its position differ from those of its steps";
  }
  return "";
}

std::string Oracle::CheckAsynchronous(const Disk& disk, const Cut& name,
                                      Made* made) const {
  const auto saved = disk.Read(name);
  const std::set<uint64_t> spent = SpentBy(disk.manifest(name).position());
  if (spent.size() != name.second ||
      disk.manifest(name).position().pushes().accepted() != name.second) {
    return absl::StrCat(spent.size(), " tickets are spent");
  }
  const std::vector<float>& tickets = saved.at({kTickets, 0});
  const size_t row = 2 * job_.tickets();
  for (size_t begin = 0; begin < tickets.size(); begin += row) {
    *made = Made();
    std::string broken = Decode(&tickets[begin], made);
    if (!broken.empty()) return absl::StrCat("row ", begin / row, ": ", broken);
    std::set<uint64_t> applied;
    for (const Given* given : made->pushes) applied.insert(given->ticket);
    for (const uint64_t ticket : spent) {
      if (applied.erase(ticket) > 0) continue;
      // Then a push that gives nothing must have it.
      const auto holders = holders_.find(ticket);
      const bool gives_nothing =
          holders != holders_.end() &&
          std::any_of(holders->second.begin(), holders->second.end(),
                      [&](const auto& by) {
                        return given_.at(by.first).at(by.second).clip_factor ==
                               0;
                      });
      if (!gives_nothing) {
        return absl::StrCat("ticket ", ticket, " is spent, but not in row ",
                            begin / row);
      }
    }
    if (!applied.empty()) {
      return absl::StrCat("tickets ", absl::StrJoin(applied, " "),
                          " are in row ", begin / row, ", but not spent");
    }
  }
  for (const auto& [generation, push] : made->by) {
    if (!Holds(generation, name)) {
      return absl::StrCat(Text(generation, push),
                          " is of another line of generations");
    }
  }
  for (const auto& [array, values] : saved) {
    if (array.second != 0) continue;
    std::string broken =
        CheckRows(array.first, values.data(), values.size(), *made);
    if (!broken.empty()) return broken;
  }
  return "";
}

std::string Oracle::CheckCheckpoint(const Disk& disk, const Cut& name) const {
  const proto::Manifest& manifest = disk.manifest(name);
  std::string broken;
  if (!disk.IsWhole(name)) {
    broken = "it is incomplete or damaged";
  } else if (manifest.position().step() != name.second ||
             (manifest.finished() &&
              name.second != job_.ends_at.value_or(
                                 manifest.declaration().total_steps()))) {
    broken = "its position is of another step";
  } else if (job_.asynchronous()) {
    Made made;
    broken = CheckAsynchronous(disk, name, &made);
  } else {
    broken = CheckSynchronous(disk, name);
  }
  if (broken.empty()) return "";
  return absl::StrCat("the checkpoint of ", Text(name), ": ", broken);
}

std::string Oracle::CheckJournal(const Disk& disk) const {
  std::optional<Cut> before;
  for (const proto::CheckpointName& named : disk.journal().checkpoints()) {
    const Cut name = Disk::NameOf(named);
    if (before.has_value() &&
        (*before >= name || before->second > name.second ||
         !IsOnLine(*before, name))) {
      return absl::StrCat("the journal names ", Text(*before), " and ",
                          Text(name));
    }
    before = name;
    if (disk.damaged_any()) continue;
    if (!disk.IsWhole(name)) {
      return absl::StrCat(
          "the journal names a checkpoint that is incomplete or damaged: ",
          Text(name));
    }
    std::string broken = CheckCheckpoint(disk, name);
    if (!broken.empty()) return broken;
  }
  return "";
}

// ---- The end ----

void Oracle::OnStopAsked(uint64_t generation, uint64_t open_step) {
  stop_asked_.emplace(generation, open_step);
}

std::string Oracle::CheckStopped(const Disk& disk, uint64_t generation,
                                 uint64_t step) {
  // A job that was finished before stays finished.
  if (disk.journal().finished() &&
      step != disk.journal().declaration().total_steps()) {
    return "the journal says that it is finished";
  }
  const auto& kept = disk.journal().checkpoints();
  const Cut end =
      kept.empty() ? Cut{generation, 0} : Disk::NameOf(*kept.rbegin());
  if (end.second != step) {
    return absl::StrCat("the journal resumes from ", Text(end));
  }
  for (const auto& [cut, contributions] : steps_) {
    if (cut.first == generation && cut.second >= step) {
      return absl::StrCat(Text(cut), " was made after it");
    }
  }
  stopped_.insert(generation);
  if (kept.empty() || disk.damaged_any()) return "";
  OnDurable(generation, step);
  if (!job_.asynchronous()) return "";
  Made made;
  std::string broken = CheckAsynchronous(disk, end, &made);
  if (!broken.empty()) return broken;
  const std::set<std::pair<uint64_t, PushId>> in(made.by.begin(),
                                                 made.by.end());
  for (const auto& [push, given] : given_[generation]) {
    if (given.accepted && given.clip_factor != 0 &&
        in.count({generation, push}) == 0) {
      return absl::StrCat(Text(generation, push),
                          " was told ACCEPTED, but is not in it");
    }
  }
  return "";
}

std::string Oracle::CheckFinalState(const proto::Journal& journal,
                                    const State& state) const {
  if (job_.by_ticket()) {
    // With fewer workers, steps are made of fewer contributions, and the number
    // of steps stays.
    if (state.spent.size() < job_.tickets() && !job_.continues()) {
      return absl::StrCat("tickets that count: ",
                          absl::StrJoin(state.spent, " "));
    }
    return "";
  }
  if (job_.n() < job_.m() || job_.continues()) return "";
  // The only correct result, that of a single process.
  State expected = Initial();
  for (uint64_t step = 0; step < job_.end(); ++step) {
    std::vector<Batch> batches;
    for (uint32_t seat = 0; seat < job_.n(); ++seat) {
      batches.push_back(BatchOfSeat(job_, step, seat));
    }
    MakeStep(batches, RateAt(journal, step), &expected);
  }
  if (state.values != expected.values || state.slots != expected.slots) {
    return "the job did not end with the only correct result";
  }
  return "";
}

// Checks that every verdict that was reported is what became of the push.
std::string Oracle::CheckVerdicts(const Disk& disk, const Cut& end,
                                  bool damaged) const {
  Made made;
  std::string broken = CheckAsynchronous(disk, end, &made);
  if (!broken.empty()) return broken;
  const std::set<std::pair<uint64_t, PushId>> in(made.by.begin(),
                                                 made.by.end());
  for (const auto& [generation, pushes] : given_) {
    for (const auto& [push, by] : pushes) {
      if (!by.accepted || by.clip_factor == 0) continue;
      bool is_final = generation == end.first ||
                      (!damaged && stopped_.count(generation) > 0);
      if (const auto told = told_through_.find(generation);
          !damaged && told != told_through_.end()) {
        const auto through = told->second.find(push.from);
        is_final = is_final || (through != told->second.end() &&
                                push.sequence.value() <= through->second);
      }
      if (is_final && in.count({generation, push}) == 0) {
        return absl::StrCat(Text(generation, push),
                            " was told ACCEPTED, but does not count");
      }
    }
  }
  return "";
}

std::string Oracle::CheckFinal(const Disk& disk) const {
  if (!disk.journal().finished()) return "the journal is not finished";
  const Cut end = Disk::NameOf(*disk.journal().checkpoints().rbegin());
  if (end.second != job_.end()) {
    return absl::StrCat("the job ended at ", Text(end));
  }
  for (const uint64_t step : rates_told_) {
    if (std::string broken = CheckRateIsKept(step, disk); !broken.empty()) {
      return broken;
    }
  }
  const bool damaged = disk.damaged_any() || disk.num_set_aside() > 0;
  if (!damaged) {
    for (const auto& [generation, step] : told_durable_) {
      if (origins_.count(generation) == 0) continue;
      if (!IsOnLine({generation, step}, end)) {
        return absl::StrCat(Text(Cut{generation, step}),
                            " was reported as final, but is not in the end");
      }
    }
  }
  return job_.asynchronous()
             ? CheckVerdicts(disk, end, damaged)
             : CheckFinalState(disk.journal(), history_.at(end));
}

std::string Oracle::CheckFinal(uint64_t generation) const {
  if (job_.asynchronous()) return "";
  const auto last = history_.find({generation, job_.end()});
  if (last == history_.end()) return "not all steps were made";
  return CheckFinalState(proto::Journal(), last->second);
}

}  // namespace holdfast::sim
