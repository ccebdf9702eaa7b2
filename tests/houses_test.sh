#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks which files may include which (docs/architecture.md, "Houses"), and that
# no two headers give the same name to different things. Bazel's visibility
# enforces this between targets, but not for headers of the system's libraries.
#
# gRPC, Boost and CUDA are searched for in everything that a file includes,
# directly or not.
set -euo pipefail

# The source tree itself, not the runfiles of the test.
cd "$(dirname "$(readlink -f WORKSPACE)")"

grep -rE '^ *# *include +[<"]' --include='*.cc' --include='*.h' --include='*.cu' \
    cli client common examples ps_server tests worker |
  sed -E 's/^([^:]+):[^<"]*([<"][^>"]+).*/\1 \2/' |
  awk '
    BEGIN {
      # A room, and the rooms that it may include, each with the rooms inside it.
      machine = "common proto ps_server/reply ps_server/protocol " \
          "ps_server/optimizer ps_server/table "
      law["ps_server/reply"] = "common proto ps_server/reply"
      law["common"] = "common proto"
      law["client"] = "client common proto"
      law["worker"] = "worker client common proto"
      law["cli"] = "cli client common proto"
      law["examples"] = "examples worker client common proto"
      law["ps_server"] = "ps_server common proto"
      law["ps_server/optimizer"] = "common proto ps_server/optimizer"
      law["ps_server/store"] = "common proto ps_server/store"
      law["ps_server/table"] = "common proto ps_server/optimizer ps_server/table"
      law["ps_server/protocol"] = machine
      law["ps_server/push_pull"] = machine "ps_server/push_pull"
      law["ps_server/coordinator"] = machine "ps_server/coordinator"
      law["ps_server/shard"] = machine "ps_server/store ps_server/shard"
      law["ps_server/disk"] = law["ps_server/shard"] \
          " ps_server/coordinator ps_server/disk"

      grpc = "^[<\"](grpc|grpcpp)/|\\.grpc\\.pb\\.h$"
      may_see["gRPC"] = "^(common/rpc/|common/base/steady_waits_test\\.cc" \
          "|client/(wire\\.|cluster\\.cc|client_test_base|[a-z_]*_test\\.cc)" \
          "|ps_server/service/|ps_server/[^/]*$|tests/)"
      boost = "^<boost/"
      may_see["Boost"] = "^(common/process/http_server" \
          "|ps_server/table/table_index_benchmark)\\.cc$"
      cuda = "^[<\"](cuda|cublas|cudnn|curand)"
      may_see["CUDA"] = "^(worker/backend/cuda/|examples/cuda_model/|tests/gpu/)"
      # Event machines are called by one thread at a time, and own no threads.
      threads = "^[<\"](thread|mutex|condition_variable|absl/synchronization/.*" \
          "|common/base/strand\\.h)$"
      machines = "^ps_server/(coordinator|shard|push_pull|protocol|optimizer)/"
      test_only = "((_test|_benchmark|testing)\\.(cc|h)$|/testing/)"
    }

    function room(path) {
      while (sub(/\/[^\/]*$/, "", path)) {
        if (path in law) return path
      }
      return path
    }
    function allows(rooms, other,   words, i, count) {
      count = split(rooms, words, " ")
      for (i = 1; i <= count; ++i) {
        if (other == words[i] || index(other, words[i] "/") == 1) return 1
      }
      return 0
    }
    function complain(what) {
      print what
      failed = 1
    }

    {
      from = $1
      path = substr($2, 2)
      ++lines
      in_room = room(from)
      house = from
      sub(/\/.*/, "", house)
      if (from ~ test_only) in_room = house
      if ($2 ~ /^"/ && path ~ /^(cli|client|common|examples|ps_server|worker)\// &&
          in_room in law && !allows(law[in_room], room(path))) {
        complain(from " may not include " path)
      }
      if (from ~ machines && from !~ test_only && $2 ~ threads) {
        complain(from " is part of an event machine, and includes " path)
      }
      if ($2 ~ grpc) sees["gRPC", from] = path
      if ($2 ~ boost) sees["Boost", from] = path
      if ($2 ~ cuda) sees["CUDA", from] = path
      included[lines] = path
      includer[lines] = from
    }

    END {
      if (lines < 1000) complain("only " lines " includes were found")
      for (what in may_see) {
        do {
          more = 0
          for (i = 1; i <= lines; ++i) {
            if (((what, included[i]) in sees) && !((what, includer[i]) in sees)) {
              sees[what, includer[i]] = \
                  included[i] ", which includes " sees[what, included[i]]
              more = 1
            }
          }
        } while (more)
      }
      for (pair in sees) {
        split(pair, parts, SUBSEP)
        if (parts[2] !~ may_see[parts[1]]) {
          complain(parts[2] " sees " parts[1] " by way of " sees[pair])
        }
      }
      exit failed
    }'

twice=$(find cli client common ps_server worker -name '*.h' -print0 | xargs -0 awk '
  FNR == 1 { space = "" }
  /^namespace .*\{/ { space = $2 }
  /^(class|struct|enum|enum class) [A-Za-z]+[^;(<]*$/ {
    name = $2 == "class" ? $3 : $2
    sub(/[:{].*/, "", name)
    key = space "::" name
    if (key in first && first[key] != FILENAME) {
      print key " is defined in " first[key] " and " FILENAME
    }
    first[key] = FILENAME
    ++names
  }
  END { if (names < 100) print "only " names " names were found" }')
if [[ -n "$twice" ]]; then
  echo "$twice"
  exit 1
fi
