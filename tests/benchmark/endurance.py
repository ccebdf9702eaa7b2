# SPDX-License-Identifier: Apache-2.0

"""Runs a tiny job for many steps and samples its daemons. See endurance.sh."""
import glob
import json
import os
import random
import re
import struct
import subprocess
import sys
import time

JOB = """
name: "endurance"
model {{ sequential {{
  layers {{ flatten {{}} }}
  layers {{ dense {{ units: 2 }} }}
  loss {{ softmax_cross_entropy {{}} }}
}} }}
data {{ train {{ idx {{ images: "images" labels: "labels" }} }} }}
batch_size: 2
steps: {steps}
optimizer {{ learning_rate: 0.001 momentum {{}} }}
{mode}
checkpoints {{ every_seconds: 2 keep: 2 }}
seed: 1
local {{ ps: 2 workers: 2 }}
"""
MODES = {"synchronous": "", "asynchronous": "consistency { asynchronous {} }"}


def write_examples(folder, count=64, side=3):
    random.seed(1)
    with open(f"{folder}/images", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, side, side))
        file.write(bytes(random.randrange(256) for _ in range(count * side * side)))
    with open(f"{folder}/labels", "wb") as file:
        file.write(struct.pack(">II", 0x801, count))
        file.write(bytes(i % 2 for i in range(count)))


def sample(run_dir):
    """Resident KiB, threads and open files of each daemon."""
    result = {}
    for path in sorted(glob.glob(f"{run_dir}/*.pid")):
        with open(path, encoding="utf-8") as file:
            pid = file.read().strip()
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                status = dict(line.split(":", 1) for line in file)
            files = len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        result[os.path.basename(path)[:-4]] = (
            int(status["VmRSS"].split()[0]), int(status["Threads"]), files)
    return result


def step_of(log):
    """The latest step in a worker's log, or None."""
    try:
        with open(log, encoding="utf-8") as file:
            found = re.findall(r"step (\d+) of", file.read())
    except OSError:
        return None
    return int(found[-1]) if found else None


def main():
    scratch, steps = sys.argv[1], int(sys.argv[2])
    write_examples(scratch)
    for mode, text in MODES.items():
        job = f"{scratch}/{mode}.textproto"
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB.format(steps=steps, mode=text))
        run_dir = f"{scratch}/{mode}"
        begun = time.monotonic()
        run = subprocess.Popen(
            ["bazel-bin/cli/holdfast", "local", f"--job={job}", f"--run_dir={run_dir}"],
            stdout=subprocess.DEVNULL)
        print(f"{mode}, {steps} steps: KiB resident / threads / open files")
        due = steps // 10
        while run.poll() is None:
            time.sleep(0.5)
            step = step_of(f"{run_dir}/worker-0.log")
            if step is None or step < due:
                continue
            row = " | ".join(f"{name} {kib} / {threads} / {files}"
                             for name, (kib, threads, files) in sample(run_dir).items())
            print(f"  step {step}: {row}", flush=True)
            due += steps // 10
        if run.returncode != 0:
            sys.exit(f"{mode}: exit {run.returncode}")
        with open(f"{run_dir}/result.json", encoding="utf-8") as file:
            result = json.load(file)
        print(f"  done in {time.monotonic() - begun:.0f} s, "
              f"{result['steps_per_second']:.0f} steps/s")


if __name__ == "__main__":
    main()
