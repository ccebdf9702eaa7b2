# SPDX-License-Identifier: Apache-2.0

"""Draws the results of compare.py as bars: compare_plot.py RESULTS.jsonl OUTPUT.svg."""

import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import compare

# Text is kept as text, and the same results give the same file.
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "holdfast", "font.size": 8,
                     "font.family": "DejaVu Sans"})

COLORS = ("#c0392b", "#e59866", "#7fb3d5", "#76c7a0", "#b39bc8", "#999999")

# The measures of a panel share a scale.
PANELS = [slice(0, 2), slice(2, 6), slice(6, 8), slice(8, 10)]


def main():
    results = compare.Results(pathlib.Path(sys.argv[1]))
    figure, axes = plt.subplots(
        1, len(PANELS), figsize=(12, 3), layout="constrained",
        width_ratios=[len(compare.MEASURES[panel]) for panel in PANELS])
    width = 0.8 / len(compare.PEERS)
    handles = {}
    for axis, panel in zip(axes, PANELS):
        measures = compare.MEASURES[panel]
        unit = measures[0][2]
        axis.set_ylabel(f"{unit} (less is better)" if unit == "us" else unit)
        axis.set_xticks(range(len(measures)),
                        [heading.replace(", ", ",\n") for _, heading, _ in measures])
        for index, (peer, label) in enumerate(compare.PEERS.items()):
            for x, (name, _, _) in enumerate(measures):
                values = results.values(peer, name)
                if not values:
                    continue
                median = statistics.median(values)
                handles[label] = axis.bar(
                    x + (index - (len(compare.PEERS) - 1) / 2) * width, median, width,
                    color=COLORS[index], error_kw={"linewidth": 0.6},
                    yerr=[[median - min(values)], [max(values) - median]])
    labels = [label for label in compare.PEERS.values() if label in handles]
    figure.legend([handles[label] for label in labels], labels, loc="outside lower center",
                  ncols=len(labels), frameon=False)
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
