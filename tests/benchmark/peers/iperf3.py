# SPDX-License-Identifier: Apache-2.0

"""iperf3 over loopback with one connection: the throughput of TCP itself."""

import json
import socket
import subprocess
import time

import harness


def main():
    port = str(harness.free_port())
    with harness.Processes() as processes:
        processes.run(["iperf3", "--server", "--port", port], {}, stdout=subprocess.DEVNULL)
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            processes.check()
            time.sleep(0.05)
        time.sleep(0.2)  # The server mistakes the probe for a client that has left.
        output = subprocess.run(
            ["iperf3", "--client", "127.0.0.1", "--port", port, "--time", "3", "--json"],
            check=True, capture_output=True).stdout
    rate = json.loads(output)["end"]["sum_received"]["bits_per_second"]
    harness.report("iperf3", "tcp", rate / 8e9, "GB/s")


if __name__ == "__main__":
    main()
