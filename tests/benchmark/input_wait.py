# SPDX-License-Identifier: Apache-2.0

"""The share of its time that a worker of the MLP waits for input, by image format.

  bazel build //cli:holdfast //ps_server //worker:ps_worker
  python3 tests/benchmark/input_wait.py bazel-bin/cli/holdfast [--formats=idx,csv,tfrecord]

Writes Fashion-MNIST as CSV of 785 columns and as TFRecord of raw images to --folder, unless these
files exist, and trains examples/fashion_mnist_mlp.textproto on each format in turn, for --steps
steps and --rounds rounds, with 2 ps and 2 workers. Prints how long each worker waited, the rate,
and the digest of the model, which is the same for IDX and TFRecord.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
import shapes  # noqa: E402

IMAGES = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
LABELS = "/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz"
PIXELS = 28 * 28

FORMATS = {
    "idx": f'idx {{{{ images: "{IMAGES}" labels: "{LABELS}" }}}}',
    "csv": 'csv {{ files: "{folder}/fashion.csv" header: false shape: [28, 28] '
    "columns {{ range {{ first: 1 last: 784 }} number {{ stddev: 255 }} }} "
    "columns {{ range {{ first: 0 }} label {{}} }} }}",
    "tfrecord": 'tfrecord {{ files: "{folder}/fashion.tfrecord" shape: [28, 28] '
    'features {{ name: "image" raw {{}} }} features {{ name: "label" label {{}} }} }}',
}


def write(folder: pathlib.Path) -> None:
    table, records = folder / "fashion.csv", folder / "fashion.tfrecord"
    if table.exists() and records.exists():
        return
    with gzip.open(IMAGES) as images, gzip.open(LABELS) as labels:
        pixels, classes = images.read()[16:], labels.read()[8:]
    with table.open("w") as rows, records.open("wb") as file:
        for i, label in enumerate(classes):
            image = pixels[i * PIXELS : (i + 1) * PIXELS]
            rows.write(f"{label},{','.join(map(str, image))}\n")
            file.write(shapes.record(shapes.example(image, label)))


def train(holdfast: str, data: str, folder: pathlib.Path, steps: int) -> dict:
    job = (ROOT / "examples" / "fashion_mnist_mlp.textproto").read_text()
    sets = r"train \{.*?\n  \}\n  test \{.*?\n  \}\n"
    job = re.sub(sets, f"train {{ {data} }}\n", job, flags=re.DOTALL)
    job = re.sub(r"\nsteps: .*", f"\nsteps: {steps}", job)
    job = re.sub(r"\nevaluation .*", "", job)
    path = folder / "input_wait.textproto"
    path.write_text(job)
    run = folder / f"input_wait_{os.getpid()}_{train.runs}"
    train.runs += 1
    subprocess.run(
        [holdfast, "local", f"--job={path}", "--ps=2", "--workers=2", f"--run_dir={run}",
         "--checkpoint_dir=none", "--status_port=none"],
        stdout=subprocess.DEVNULL, check=True,
    )
    return json.loads((run / "result.json").read_text())


train.runs = 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("holdfast")
    parser.add_argument("--folder", default="/tmp", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--formats", default="idx,csv,tfrecord")
    parser.add_argument("--steps", default=800, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    options = parser.parse_args()
    write(options.folder)
    for _ in range(options.rounds):
        for name in options.formats.split(","):
            result = train(
                options.holdfast, FORMATS[name].format(folder=options.folder), options.folder,
                options.steps,
            )
            waits = [worker.get("input_wait") for worker in result["by_worker"]]
            print(
                f"{name}: waited {waits}, {result['steps_per_second']:.1f} steps/s, "
                f"digest {result['digest'][:12]}, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
