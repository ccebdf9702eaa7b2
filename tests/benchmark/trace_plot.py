# SPDX-License-Identifier: Apache-2.0

"""Draws some steps of a trace: trace_plot.py TRACE.json OUTPUT.svg FIRST_STEP STEPS.

TRACE.json comes from a worker's --trace or from `holdfast trace`. Each row is a track of the file,
below the name of its process if there are several; spans that are nested in others are drawn below
them.
"""

import html
import json
import pathlib
import sys

WIDTH = 1180  # width of the spans, in pixels
LEFT = 120
ROW = 13
GAP = 9
COLORS = {"step": "#d6dbdf", "model": "#f5cba7", "compute": "#c0392b", "copy": "#b39bc8",
          "wait": "#f2f3f4", "rpc": "#7fb3d5"}


def read(path):
    """The names of processes and of tracks, and (track, event, begin, end) of each span, in ms."""
    processes = {}
    names = {}
    spans = []
    for event in json.loads(path.read_text())["traceEvents"]:
        track = (event["pid"], event["tid"])
        if event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"].split(" ")[0]
        if event["name"] == "thread_name":
            names[track] = event["args"]["name"]
        if event["ph"] == "X":
            begin = event["ts"] / 1e3
            spans.append((track, event, begin, begin + event["dur"] / 1e3))
    return processes, names, spans


def window(spans, first, count):
    """The beginning of the first of these steps, and the end of the last."""
    steps = [(begin, end) for _, event, begin, end in spans
             if event["cat"] == "step" and first <= event["args"].get("step", -1) < first + count]
    if not steps:
        sys.exit(f"the trace has no step {first}")
    return min(begin for begin, _ in steps), max(end for _, end in steps)


def text(x, y, words, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {extra}>{html.escape(words)}</text>'


def main():
    processes, names, spans = read(pathlib.Path(sys.argv[1]))
    low, high = window(spans, int(sys.argv[3]), int(sys.argv[4]))
    scale = WIDTH / (high - low)
    drawn = []
    y = 24
    previous = None
    process = None
    for track, name in names.items():
        here = [span for span in spans if span[0] == track and span[3] > low and span[2] < high]
        if not here:
            continue
        if len(processes) > 1 and track[0] != process:
            process = track[0]
            previous = None
            y += 2 * GAP
            drawn.append(text(4, y + ROW - 3, processes[process], 'font-weight="bold"'))
            y += ROW - GAP
        if name != previous:
            y += GAP
            drawn.append(text(LEFT - 8, y + ROW - 3, name, 'text-anchor="end"'))
            previous = name
        open_ends = []
        deepest = 0
        for _, event, begin, end in here:
            while open_ends and open_ends[-1] <= begin + 1e-6:
                open_ends.pop()
            depth = len(open_ends)
            deepest = max(deepest, depth)
            open_ends.append(end)
            x = LEFT + (max(begin, low) - low) * scale
            width = max((min(end, high) - max(begin, low)) * scale, 0.3)
            top = y + depth * ROW
            drawn.append(f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}" '
                         f'fill="{COLORS[event["cat"]]}" stroke="#888" stroke-width="0.2"/>')
            label = event["name"]
            if event["cat"] == "step" and " " not in label:
                label += f' {event["args"].get("step", "")}'
            if width > 5.2 * len(label):
                drawn.append(text(x + 2, top + ROW - 4, label))
        y += (deepest + 1) * ROW
    for tick, anchor in enumerate(["start"] + ["middle"] * 4 + ["end"]):
        drawn.append(text(LEFT + WIDTH * tick / 5, 12, f"{(high - low) * tick / 5:.1f} ms",
                          f'text-anchor="{anchor}"'))
    y += GAP + ROW
    x = LEFT
    for kind, color in COLORS.items():
        if not any(span[1]["cat"] == kind for span in spans):
            continue
        drawn.append(f'<rect x="{x}" y="{y}" width="12" height="{ROW - 1}" fill="{color}" '
                     'stroke="#888" stroke-width="0.2"/>')
        drawn.append(text(x + 16, y + ROW - 3, kind))
        x += 80
    pathlib.Path(sys.argv[2]).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{y + 2 * ROW}" '
        'font-family="DejaVu Sans, sans-serif" font-size="8">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(drawn) + "\n</svg>\n")


if __name__ == "__main__":
    main()
