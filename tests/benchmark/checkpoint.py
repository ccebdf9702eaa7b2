# SPDX-License-Identifier: Apache-2.0

"""Measures checkpoints and recoveries of real jobs. See checkpoint.sh."""
import datetime
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

HOLDFAST = "bazel-bin/cli/holdfast"
JOB = """
name: "checkpoint"
model {{ sequential {{
  layers {{ flatten {{}} }}
  layers {{ dense {{ units: {units} }} }}
  layers {{ relu {{}} }}
  layers {{ dense {{ units: 10 }} }}
  loss {{ softmax_cross_entropy {{}} }}
}} }}
data {{ train {{ idx {{
  images: "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
  labels: "/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz"
}} }} }}
batch_size: {batch_size}
steps: {steps}
optimizer {{ learning_rate: 0.001 {optimizer} {{}} }}
checkpoints {{ every_steps: {every_steps} every_seconds: {every_seconds} keep: 2 }}
seed: 1
"""
STAMP = re.compile(r"^[IWE](\d{8} \d\d:\d\d:\d\d\.\d+)")


def write_job(path, **values):
    defaults = {"every_steps": 0, "every_seconds": 0, "batch_size": 20, "optimizer": "sgd"}
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(**{**defaults, **values}))


def start(job, run_dir, *flags):
    return subprocess.Popen(
        [HOLDFAST, "local", f"--job={job}", f"--run_dir={run_dir}", *flags],
        stdout=subprocess.DEVNULL)


def finish(run):
    if run.wait() != 0:
        sys.exit(f"a run ended with {run.returncode}")


def lines(run_dir, task):
    try:
        with open(f"{run_dir}/{task}.log", encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


def time_of(line):
    stamp = STAMP.match(line).group(1)
    return datetime.datetime.strptime(stamp, "%Y%m%d %H:%M:%S.%f").timestamp()


def dd_seconds(folder, mebibytes):
    """The median of three writes with fsync."""
    seconds = []
    for _ in range(3):
        begun = time.monotonic()
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={folder}/dd", "bs=1M", f"count={mebibytes}",
             "conv=fsync"], check=True, stderr=subprocess.DEVNULL)
        seconds.append(time.monotonic() - begun)
    os.remove(f"{folder}/dd")
    return statistics.median(seconds)


def seconds_of(text):
    """The seconds of a duration as Abseil prints it."""
    units = {"ms": 1e-3, "us": 1e-6, "s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit]
               for number, unit in re.findall(r"([\d.]+)(ms|us|s|m|h)", text))


def overhead(scratch, rounds):
    # 31.8e6 weights, and as many momentum slots: 254 MB.
    rates = {False: [], True: []}
    saves = []
    for round_number in range(rounds):
        for saving in (False, True):
            run_dir = f"{scratch}/overhead"
            write_job(f"{scratch}/job", units=40000, steps=10**6, optimizer="momentum",
                      every_seconds=30 if saving else 0)
            run = start(f"{scratch}/job", run_dir, "--ps=1", "--workers=1")
            while not any(" of " in line and "step" in line for line in lines(run_dir, "worker-0")):
                time.sleep(0.2)
            time.sleep(95)
            run.send_signal(signal.SIGINT)
            run.wait()
            steps = [(time_of(line), int(match.group(1)))
                     for line in lines(run_dir, "worker-0")
                     for match in [re.search(r"step (\d+) of", line)] if match]
            (begun, first), (ended, last) = steps[0], steps[-1]
            rates[saving].append((last - first) / (ended - begun))
            saves += [seconds_of(match.group(1)) for line in lines(run_dir, "ps-0")
                      for match in [re.search(r"on disk, (\S+) after", line)]
                      if match and saving]
            shutil.rmtree(run_dir)
        print(f"round {round_number}: {rates[False][-1]:.3f} steps/s without, "
              f"{rates[True][-1]:.3f} with a checkpoint of 254 MB every 30 s", flush=True)
    ratio = statistics.median(b / a for a, b in zip(rates[False], rates[True]))
    dd = dd_seconds(scratch, 242)
    print(f"training with checkpoints at {ratio:.3f} x the rate without")
    print(f"saved in {statistics.median(saves):.2f} s during training (median of "
          f"{len(saves)}), dd with fsync of as many bytes took {dd:.2f} s")


def recovery(scratch):
    # 251e6 weights: 1.0 GB.
    run_dir = f"{scratch}/recovery"
    write_job(f"{scratch}/job", units=316000, batch_size=2, steps=14, every_steps=4)
    lease = 2
    run = start(f"{scratch}/job", run_dir, "--ps=1", "--workers=1", f"--lease={lease}s",
                "--on_failure=restart")
    while not any("on disk" in line for line in lines(run_dir, "ps-0")):
        time.sleep(0.1)
    with open(f"{run_dir}/ps-0.pid", encoding="utf-8") as file:
        os.kill(int(file.read()), signal.SIGKILL)
    killed = time.time()
    finish(run)
    after = [line for line in lines(run_dir, "ps-0") if time_of_or_0(line) > killed]
    begun = time_of(after[0])
    trains = time_of(next(line for line in after if "the job is TRAINING" in line))
    saves = [seconds_of(match.group(1)) for line in lines(run_dir, "ps-0")
             for match in [re.search(r"on disk, (\S+) after", line)] if match]
    dd = dd_seconds(scratch, 956)
    print(f"a ps with 1.0 GB killed: {begun - killed:.2f} s until it ran again, then "
          f"{trains - begun:.2f} s until the job trained; lease {lease} s; "
          f"dd with fsync of as many bytes {dd:.2f} s; saved in "
          f"{statistics.median(saves):.2f} s during training")


def time_of_or_0(line):
    return time_of(line) if STAMP.match(line) else 0


def main():
    scratch, rounds = sys.argv[1], int(sys.argv[2])
    recovery(scratch)
    overhead(scratch, rounds)


if __name__ == "__main__":
    main()
