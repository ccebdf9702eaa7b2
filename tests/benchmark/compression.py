# SPDX-License-Identifier: Apache-2.0

"""Trains example jobs with each encoding; tests/benchmark/compression.sh."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ENCODINGS = {
    "EXACT": "",
    "FLOAT16": "compression { push: FLOAT16 }",
    "BFLOAT16": "compression { push: BFLOAT16 }",
    "INT8": "compression { push: INT8 }",
    "TOP_K 1 %": "compression { push: TOP_K top_k: 0.01 }",
    "INT8, pull BFLOAT16": "compression { push: INT8 pull: BFLOAT16 }",
}

# Prints sockets as they close, unbuffered, so that the last ones are not lost.
RUN = """
ip link set lo up
stdbuf -oL ss -tinHOE >"$1" &
sockets=$!
"${@:2}" >&2
sleep 0.5
kill $sockets
"""


def received_bytes(sockets: str) -> int:
    """The bytes received by sockets of listening ports."""
    listening = set()
    received = []
    for line in sockets.splitlines():
        words = line.split()
        if len(words) < 5:
            continue
        local, peer = words[3], words[4]
        port = local.rsplit(":", 1)[1]
        if peer.endswith(":*"):
            listening.add(port)
        count = re.search(r"bytes_received:(\d+)", line)
        if count:
            received.append((port, int(count[1])))
    return sum(count for port, count in received if port in listening)


def run(binaries: str, job: str, compression: str, scratch: pathlib.Path):
    """The run's result.json, and the bytes that the ps have received."""
    text = pathlib.Path(f"examples/{job}.textproto").read_text(encoding="utf-8")
    # Without evaluations, which pull values and take time.
    text = re.sub(r"^evaluation .*$", "", text, flags=re.M)
    job_file = scratch / "job.textproto"
    job_file.write_text(text + compression, encoding="utf-8")
    sockets = scratch / "sockets"
    run_dir = tempfile.mkdtemp(dir=scratch)
    command = [
        f"{binaries}/cli/holdfast", "local", f"--job={job_file}",
        f"--run_dir={run_dir}", "--checkpoint_dir=none",
    ]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--net", "bash", "-euc", RUN, "run", sockets, *command],
        stderr=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    result = json.loads(pathlib.Path(run_dir, "result.json").read_text(encoding="utf-8"))
    return result, received_bytes(sockets.read_text(encoding="utf-8"))


def main() -> None:
    binaries, *jobs = sys.argv[1:]
    print("| job | encoding | test accuracy | difference | bytes received per push | "
          "reduction factor |")
    print("|---|---|---|---|---|---|")
    for job in jobs or ["fashion_mnist_softmax", "fashion_mnist_mlp"]:
        exact = None
        for name, compression in ENCODINGS.items():
            with tempfile.TemporaryDirectory() as scratch:
                result, received = run(binaries, job, compression, pathlib.Path(scratch))
            accuracy = result["test_accuracy"]
            pushes = result["global_step"] * result["workers"]
            exact = exact or (accuracy, received)
            print(f"| {job} | {name} | {accuracy:.4f} | {100 * (accuracy - exact[0]):+.2f} % "
                  f"| {received / pushes:,.0f} | {exact[1] / received:.2f} |", flush=True)


if __name__ == "__main__":
    main()
