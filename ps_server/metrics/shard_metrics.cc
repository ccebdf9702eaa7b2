// SPDX-License-Identifier: Apache-2.0
#include "ps_server/metrics/shard_metrics.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/time/time.h"
#include "proto/training.pb.h"

namespace holdfast {

namespace {

constexpr const char* kTables = "tables";

void AddTableMetrics(const proto::TableReport& table, Metrics* metrics) {
  const Metrics::Labels labels = {{"table", table.name()}};
  metrics->Gauge("holdfast_shard_table_present_rows",
                 "Rows of an embedding table.", table.rows(), labels);
  metrics->Gauge(
      "holdfast_shard_table_candidates",
      "Ids that have been pushed, but not often enough to have a row.",
      table.candidates(), labels);
  metrics->Counter("holdfast_shard_table_reads_total",
                   "Rows that pulls asked for.", table.reads(), labels);
  metrics->Counter("holdfast_shard_table_hits_total",
                   "Rows that pulls asked for and that existed.", table.hits(),
                   labels);
  metrics->Counter("holdfast_shard_table_admissions_total",
                   "Rows that were made.", table.admissions(), labels);
  metrics->Counter("holdfast_shard_table_expirations_total",
                   "Rows that were removed because no step had touched them "
                   "for expire_after_steps.",
                   table.expirations(), labels);
  metrics->Counter("holdfast_shard_table_evictions_total",
                   "Rows that were removed because their bucket was full.",
                   table.evictions(), labels);
}

}  // namespace

void AddShardMetrics(const ShardFigures& figures, Metrics* metrics) {
  for (const auto& [kind, bytes] : {
           std::pair("values", figures.values),
           std::pair("slots", figures.slots),
           std::pair("versions", figures.versions),
           std::pair("pushes", figures.pushes),
           std::pair(kTables, figures.tables),
       }) {
    if (kind == kTables && figures.by_table.empty()) continue;
    metrics->Gauge("holdfast_shard_memory_bytes",
                   "Memory of this ps's share of the job.", bytes,
                   {{"kind", kind}});
  }
  metrics->Gauge("holdfast_shard_memory_limit_bytes",
                 "Memory limit of this ps's share (--memory_limit).",
                 figures.limit);
  if (!figures.by_table.empty()) {
    metrics->Gauge("holdfast_shard_table_rows", "Rows of embedding tables.",
                   figures.table_rows);
  }
  for (const proto::TableReport& table : figures.by_table) {
    AddTableMetrics(table, metrics);
  }
  metrics->Counter("holdfast_shard_updates_total",
                   "Commits or, in asynchronous jobs, applied pushes.",
                   figures.updates);
  metrics->Counter("holdfast_shard_update_seconds_total",
                   "Time that updates took.",
                   absl::ToDoubleSeconds(figures.update_time));
  for (const proto::Encoding encoding :
       {proto::EXACT, proto::FLOAT16, proto::BFLOAT16, proto::INT8,
        proto::TOP_K}) {
    const Metrics::Labels labels = {
        {"encoding", absl::AsciiStrToLower(proto::Encoding_Name(encoding))}};
    metrics->Counter(
        "holdfast_shard_received_bytes_total",
        "Bytes of gradients and given values that were received, as encoded.",
        figures.received[encoding], labels);
    // Values are not sent in these encodings.
    if (encoding == proto::INT8 || encoding == proto::TOP_K) continue;
    metrics->Counter("holdfast_shard_sent_bytes_total",
                     "Bytes of values that were sent, as encoded.",
                     figures.sent[encoding], labels);
  }
  metrics->Counter("holdfast_shard_saves_total",
                   "Shares of checkpoints that were written.", figures.saves);
  metrics->Counter("holdfast_shard_saves_failed_total",
                   "Shares of checkpoints that could not be written.",
                   figures.failed_saves);
  if (figures.saves == 0) return;
  metrics->Gauge("holdfast_shard_save_seconds",
                 "Time that writing the latest share of a checkpoint took.",
                 absl::ToDoubleSeconds(figures.save_time));
  metrics->Gauge("holdfast_shard_save_bytes",
                 "Size of the latest share of a checkpoint.",
                 figures.save_bytes);
}

}  // namespace holdfast
