#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says how much of a worker's communication was hidden behind its computation.

    hidden.py TRACE.json [--skip=10]

TRACE.json comes from a worker's --trace (docs/operating/tracing.md). For copies to and from the
GPU, for calls that carry tensors, and for all of these together, prints the time per step during
which there was at least one, and the share of that time during which the device computed as well.
The first --skip steps are left out.
"""

import argparse
import json
import pathlib


def union(spans):
    """Disjoint intervals, in order, that cover the same time."""
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(spans):
    return sum(end - begin for begin, end in spans)


def both(left, right):
    """The time that two lists of disjoint, ordered intervals have in common."""
    common = 0
    at = 0
    for begin, end in left:
        while at < len(right) and right[at][1] <= begin:
            at += 1
        i = at
        while i < len(right) and right[i][0] < end:
            common += min(end, right[i][1]) - max(begin, right[i][0])
            i += 1
    return common


def hidden(events, skip):
    """{what: (ms per step, share of it that is hidden)} and the number of steps."""
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [(tracks.get((e["pid"], e["tid"]), ""), e["cat"], e["ts"], e["ts"] + e["dur"])
             for e in events if e["ph"] == "X"]
    steps = sorted((begin, end) for _, kind, begin, end in spans if kind == "step")[skip:]
    if not steps:
        raise SystemExit(f"the trace has no more than {skip} steps")
    low, high = steps[0][0], steps[-1][1]

    def during(wanted):
        return union((max(begin, low), min(end, high)) for track, kind, begin, end in spans
                     if begin < high and end > low and wanted(track, kind))

    computing = during(lambda track, kind: kind == "compute" and track != "thread evaluator")
    kinds = {
        "copies in": lambda track, kind: kind == "copy" and track.endswith("copies in"),
        "copies out": lambda track, kind: kind == "copy" and track.endswith("copies out"),
        "calls with tensors": lambda track, kind: kind == "rpc" and track.startswith("tensors:"),
    }
    kinds["all of these"] = lambda track, kind: any(
        kinds[name](track, kind) for name in ("copies in", "copies out", "calls with tensors"))
    result = {}
    for name, wanted in kinds.items():
        times = during(wanted)
        if times:
            result[name] = (length(times) / len(steps) / 1e3, both(times, computing) / length(times))
    return result, len(steps), length(computing) / len(steps) / 1e3, (high - low) / len(steps) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--skip", type=int, default=10)
    args = parser.parse_args()
    events = json.loads(args.trace.read_text())["traceEvents"]
    result, steps, computing, step = hidden(events, args.skip)
    print(f"{steps} steps of {step:.2f} ms, of which the device computed {computing:.2f} ms")
    for name, (time, share) in result.items():
        print(f"{name}: {time:.2f} ms per step, {share:.1%} hidden")


if __name__ == "__main__":
    main()
