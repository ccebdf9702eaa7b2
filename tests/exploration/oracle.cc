#include "tests/exploration/oracle.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast::exploration {
namespace {

// Of momentum in synchronous jobs: halves are exact.
constexpr float kMomentum = 0.5;

std::string Text(const Values& values) {
  return absl::StrCat(values.value, " (slot ", values.slot, ")");
}

std::string Text(const Oracle::Push& push) {
  return absl::StrCat("push ", std::get<3>(push), " of worker ",
                      std::get<1>(push), " (incarnation ", std::get<2>(push),
                      ") in generation ", std::get<0>(push));
}

float GradientOf(uint64_t number, float other) {
  return 2.0f * (1 + number) + other;
}

}  // namespace

Oracle::Oracle(const proto::Declaration& declaration)
    : declaration_(declaration) {}

Oracle::State Oracle::Initial() const {
  State state;
  for (int v = 0; v < 2; ++v) {
    state.variables[v].value =
        declaration_.variables(v).initializer().constant().value();
  }
  return state;
}

std::string Oracle::Compute(const Push& push, uint64_t version,
                            const Pair& pulled, uint32_t seat,
                            std::optional<uint64_t> ticket,
                            std::array<float, 2>* gradient) {
  if (asynchronous()) {
    *gradient = {std::pow(4.0f, static_cast<float>(*ticket)),
                 std::pow(4.0f, static_cast<float>(*ticket))};
    return "";
  }
  const uint64_t number = ticket.has_value() ? 3 * *ticket : seat + 2 * version;
  for (int v = 0; v < 2; ++v) {
    (*gradient)[v] = GradientOf(number, pulled[1 - v].value);
  }
  pushes_[push] = {*gradient, ticket};
  const auto known = history_.find({std::get<0>(push), version});
  if (known == history_.end()) {
    return absl::StrCat(Text(push), " is of version ", version,
                        ", which no Commit has made");
  }
  for (int v = 0; v < 2; ++v) {  // [R7]
    if (pulled[v].value != known->second.variables[v].value) {
      return absl::StrCat(Text(push), " was computed on version ", version,
                          " with variable ", v, " ", pulled[v].value,
                          ", it is ", known->second.variables[v].value);
    }
  }
  return "";
}

std::string Oracle::OnRestore(const proto::RestoreRequest& request,
                              const Directory& directory) {
  const uint64_t generation = request.sender().generation();
  uint64_t version = 0;
  State state = Initial();
  if (request.has_checkpoint()) {
    const Directory::Name name = Directory::NameOf(request.checkpoint());
    version = name.second;
    if (!asynchronous()) {
      const auto saved = history_.find(name);
      if (saved == history_.end()) {
        return absl::StrCat("generation ", generation,
                            " begins with a checkpoint that nobody has made");
      }
      state = saved->second;
    }
    const auto& kept = directory.journal.checkpoints();
    if (kept.empty() || Directory::NameOf(*kept.rbegin()) != name) {
      return absl::StrCat("generation ", generation,
                          " does not begin with the journal's last checkpoint");
    }
  } else if (!directory.journal.checkpoints().empty()) {
    return absl::StrCat("generation ", generation,
                        " begins anew, and the journal has a checkpoint");
  }
  history_.emplace(std::make_pair(generation, version), state);
  return "";
}

Oracle::State Oracle::Next(const State& state,
                           const proto::CommitRequest& request) const {
  State next = state;
  for (int v = 0; v < 2; ++v) {
    float sum = 0;
    for (const auto& c : request.contributions()) {
      const Push push{request.sender().generation(), c.worker().index(),
                      c.incarnation(), c.sequence()};
      sum += c.weight() * pushes_.at(push).gradient[v];
    }
    sum /= request.weight_divisor();
    Values& variable = next.variables[v];
    variable.slot = kMomentum * variable.slot + sum;
    variable.value -= request.scalars(0).learning_rate() * variable.slot;
  }
  for (const auto& c : request.contributions()) {
    const Push push{request.sender().generation(), c.worker().index(),
                    c.incarnation(), c.sequence()};
    if (const auto& ticket = pushes_.at(push).ticket; ticket.has_value()) {
      ++next.tickets[*ticket];
    }
  }
  return next;
}

std::string Oracle::OnCommit(const proto::CommitRequest& request) {
  const uint64_t generation = request.sender().generation();
  const auto before = history_.find({generation, request.step()});
  if (before == history_.end()) {
    return absl::StrCat("Commit of step ", request.step(), " in generation ",
                        generation, " goes ahead of the one before");
  }
  std::set<uint32_t> seats;
  for (const auto& c : request.contributions()) {
    const Push push{generation, c.worker().index(), c.incarnation(),
                    c.sequence()};
    if (pushes_.count(push) == 0) {
      return absl::StrCat("Commit of ", Text(push), ", which was never made");
    }
    if (refused_.count(push) > 0) {
      return absl::StrCat("Commit of ", Text(push),
                          ", whose worker was told that it does not count");
    }
    if (!seats.insert(c.seat()).second) {
      return absl::StrCat("two pushes in seat ", c.seat());
    }
    accepted_.insert(push);
  }
  const State next = Next(before->second, request);
  const auto [made, is_new] =
      history_.emplace(std::make_pair(generation, request.step() + 1), next);
  for (int v = 0; v < 2; ++v) {
    if (!(made->second.variables[v] == next.variables[v])) {
      return absl::StrCat("step ", request.step(), " of generation ",
                          generation, " was made of other pushes before");
    }
  }
  for (const auto& [ticket, times] : next.tickets) {
    if (times > 1) {
      return absl::StrCat("ticket ", ticket, " counts ", times, " times");
    }
  }
  return "";
}

std::string Oracle::OnVerdict(const Push& push, proto::Verdict verdict) {
  if (asynchronous()) return "";
  const bool accepted = accepted_.count(push) > 0;
  if (verdict == proto::ACCEPTED && !accepted) {
    return absl::StrCat(Text(push), " is ACCEPTED, and in no Commit");
  }
  if (verdict == proto::STALE || verdict == proto::DUPLICATE) {
    if (accepted) {
      return absl::StrCat(Text(push), " is ", proto::Verdict_Name(verdict),
                          ", and in a Commit");
    }
    refused_.insert(push);
  }
  return "";
}

std::string Oracle::Decode(float value, std::set<uint64_t>* tickets) const {
  uint64_t left = static_cast<uint64_t>(
      declaration_.variables(0).initializer().constant().value() - value);
  for (uint64_t ticket = 0; left > 0; left /= 4, ++ticket) {
    if (left % 4 > 1) {
      return absl::StrCat("ticket ", ticket, " was applied ", left % 4,
                          " times");
    }
    if (left % 4 == 1) tickets->insert(ticket);
  }
  return "";
}

std::string Oracle::CheckShard(uint32_t ps, uint64_t generation,
                               uint64_t version, float value) const {
  const auto error = [&](auto... what) {
    return absl::StrCat("ps ", ps, " at version ", version, " of generation ",
                        generation, ": ", what...);
  };
  if (asynchronous()) {
    std::set<uint64_t> tickets;
    const std::string broken = Decode(value, &tickets);
    if (!broken.empty()) return error(broken);
    if (tickets.size() != version) {
      return error("tickets ", absl::StrJoin(tickets, " "), " are applied");
    }
    return "";
  }
  const auto known = history_.find({generation, version});
  if (known == history_.end()) return error("nothing has made it");
  const float expected = known->second.variables[ps].value;
  if (value == expected) return "";
  return error("it has ", value, ", expected ", expected);
}

std::string Oracle::CheckDirectory(const Directory& directory) const {
  for (const proto::CheckpointName& named : directory.journal.checkpoints()) {
    const Directory::Name name = Directory::NameOf(named);
    const auto error = [&](auto... what) {
      return absl::StrCat("the checkpoint of step ", name.second,
                          " (generation ", name.first, "), which the journal ",
                          "names: ", what...);
    };
    const auto manifest = directory.manifests.find(name);
    const auto shares = directory.shares.find(name);
    if (manifest == directory.manifests.end()) return error("no manifest");
    if (shares == directory.shares.end() || shares->second.size() != 2) {
      return error("a share is missing");
    }
    const proto::Position& position = manifest->second.position();
    if (position.step() != name.second) return error("its position is another");
    std::set<uint64_t> spent;
    for (uint64_t t = 0; t < position.next_ticket(); ++t) spent.insert(t);
    for (const uint64_t t : position.returned_tickets()) spent.erase(t);
    for (const auto& [ps, values] : shares->second) {
      if (asynchronous()) {
        std::set<uint64_t> tickets;
        const std::string broken = Decode(values.value, &tickets);
        if (!broken.empty()) return error("ps ", ps, ": ", broken);
        if (tickets != spent || spent.size() != name.second) {
          return error("ps ", ps, " holds tickets ",
                       absl::StrJoin(tickets, " "), ", spent are ",
                       absl::StrJoin(spent, " "));
        }
        continue;
      }
      const auto known = history_.find(name);
      if (known == history_.end()) return error("nothing has made it");
      if (!(values == known->second.variables[ps])) {
        return error("ps ", ps, " holds ", Text(values), ", expected ",
                     Text(known->second.variables[ps]));
      }
      std::set<uint64_t> counted;
      for (const auto& [ticket, times] : known->second.tickets) {
        counted.insert(ticket);
      }
      if (counted != spent) {
        return error("tickets ", absl::StrJoin(spent, " "),
                     " are spent, those of its steps are ",
                     absl::StrJoin(counted, " "));
      }
    }
  }
  return "";
}

std::string Oracle::CheckFinalState(const State& state) const {
  const auto& mode = declaration_.consistency().synchronous();
  const bool continues =
      declaration_.lost_workers().policy() == proto::LostWorkers::CONTINUE;
  // With fewer workers steps are made of fewer tickets, and their number stays.
  if (declaration_.total_tickets() > 0 && !continues) {
    for (uint64_t t = 0; t < declaration_.total_tickets(); ++t) {
      if (state.tickets.count(t) == 0) {
        return absl::StrCat("ticket ", t, " does not count");
      }
    }
    return "";
  }
  const bool one_right_answer =
      mode.replicas_to_aggregate() == mode.total_num_replicas() && !continues;
  if (!one_right_answer) return "";
  State expected = Initial();
  const uint32_t n = mode.replicas_to_aggregate();
  for (uint64_t step = 0; step < declaration_.total_steps(); ++step) {
    const State at = expected;
    for (int v = 0; v < 2; ++v) {
      float sum = 0;
      for (uint32_t seat = 0; seat < n; ++seat) {
        sum += GradientOf(seat + 2 * step, at.variables[1 - v].value) / n;
      }
      Values& variable = expected.variables[v];
      variable.slot = kMomentum * variable.slot + sum;
      variable.value -=
          declaration_.optimizers(0).learning_rate() * variable.slot;
    }
  }
  for (int v = 0; v < 2; ++v) {
    if (!(state.variables[v] == expected.variables[v])) {
      return absl::StrCat("the job ended with ", Text(state.variables[v]),
                          " in variable ", v, ", the one right answer is ",
                          Text(expected.variables[v]));
    }
  }
  return "";
}

std::string Oracle::CheckFinal(const Directory& directory) const {
  if (!directory.journal.finished()) return "the journal is not finished";
  const Directory::Name name =
      Directory::NameOf(*directory.journal.checkpoints().rbegin());
  if (name.second != declaration_.total_steps()) {
    return absl::StrCat("the job ended at step ", name.second);
  }
  return asynchronous() ? "" : CheckFinalState(history_.at(name));
}

std::string Oracle::CheckFinal(uint64_t generation) const {
  if (asynchronous()) return "";
  const auto last = history_.find({generation, declaration_.total_steps()});
  if (last == history_.end()) return "not all steps were made";
  return CheckFinalState(last->second);
}

}  // namespace holdfast::exploration
