# SPDX-License-Identifier: Apache-2.0

"""Measures the memory of a ps. See memory.sh."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
WORKERS = 2
SLOTS = 2  # slots of Adam per variable


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", text).groups()
    return int(number) * UNITS[unit]


def status_of(pid):
    """Peak and current resident bytes, or None if the process has gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file)
        return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS"))
    except (OSError, KeyError):
        return None


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


class Run:
    """Runs a ps and its workers for `seconds` after a warm-up."""

    def __init__(self, holdfast, scratch, size, mode, seconds, saves):
        self.holdfast = holdfast
        self.directory = f"{scratch}/checkpoints"
        self.scratch = f"{scratch}/run"
        self.saves = saves
        self.saved = set()  # the output of each save
        for folder in (self.directory, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(self.scratch)
        flags = [f"--size={size}", f"--modes={mode}", f"--seconds={seconds}",
                 f"--workers={WORKERS}", "--ps=1", "--optimizer=adam", "--json=-"]
        if saves:
            os.mkdir(self.directory)
            flags.append(f"--ps_flags=--checkpoint_dir={self.directory}")
        self.process = subprocess.Popen(
            [holdfast, "bench", "scale", *flags], env={**os.environ, "TMPDIR": self.scratch},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def samples(self):
        """Yields (seconds, peak, current) until the end; has checkpoints saved meanwhile."""
        begun = time.monotonic()
        save = None
        while self.process.poll() is None:
            time.sleep(0.05)
            pid = "".join(read(path) for path in glob.glob(f"{self.scratch}/*/ps-0.pid")).strip()
            status = status_of(pid) if pid else None
            if status is None:
                continue
            yield (time.monotonic() - begun, *status)
            if self.saves and (save is None or save.poll() is not None):
                if save is not None and save.returncode == 0:
                    self.saved.add(save.stdout.read())
                save = self.start_save()
        if save is not None:
            save.kill()  # It would wait for another ps.
            save.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        output = self.process.communicate()[0]
        if self.process.returncode != 0:
            sys.exit(f"holdfast bench scale ended with {self.process.returncode}")
        self.steps_per_second = json.loads(output)["steps_per_second"]

    def start_save(self):
        spec = glob.glob(f"{self.scratch}/*/cluster.json")
        address = json.loads(read(spec[0]))["ps"][0]
        return subprocess.Popen([self.holdfast, "checkpoint", "save", f"--ps={address}"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def needs(size, saves):
    """The formula of docs/performance.md, without the memory of the process itself."""
    values = trainable = size
    slots = SLOTS * trainable
    held = trainable + slots if saves else 0
    return values + slots + trainable + held + WORKERS * trainable


def peaks(holdfast, scratch, size, seconds):
    runs = [(mode, saves) for mode in ("synchronous", "asynchronous") for saves in (False, True)]
    small = Run(holdfast, scratch, "4kB", "synchronous", 2, False)
    own = max(peak for _, peak, _ in small.samples())
    print(f"a ps with 4 kB of values: {own / 1e6:.0f} MB\n")
    print("| mode | checkpoints | steps/s | peak, MB | formula, MB | ratio |")
    print("|---|---|---|---|---|---|")
    for mode, saves in runs:
        run = Run(holdfast, scratch, size, mode, seconds, saves)
        peak = max(peak for _, peak, _ in run.samples())
        formula = needs(bytes_of(size), saves) + own
        print(f"| {mode} | {len(run.saved) if saves else '-'} | {run.steps_per_second:.2f} | "
              f"{peak / 1e6:.0f} | {formula / 1e6:.0f} | {peak / formula:.3f} |", flush=True)


def growth(holdfast, scratch, size="4MB", seconds=40):
    for mode in ("synchronous", "asynchronous"):
        run = Run(holdfast, scratch, size, mode, seconds, False)
        rows = list(run.samples())
        tenths = [rows[len(rows) * i // 10][1] for i in range(1, 10)] + [rows[-1][1]]
        steps = run.steps_per_second * seconds
        print(f"{size}, {mode}, {steps:.0f} steps: peak in MB at every tenth: "
              + " ".join(f"{peak / 1e6:.1f}" for peak in tenths), flush=True)


def main():
    holdfast, scratch, size, seconds = sys.argv[1:5]
    peaks(holdfast, scratch, size, float(seconds))
    print()
    growth(holdfast, scratch)


if __name__ == "__main__":
    main()
