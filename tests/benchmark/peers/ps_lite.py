# SPDX-License-Identifier: Apache-2.0

"""ps-lite over ZeroMQ, built from the source that PS_LITE_SOURCE names."""

import argparse
import os
import pathlib
import subprocess

import harness


def build(source, folder, name="ps_lite_wire", more=()):
    """Builds the program `name` in `folder` with the system's ZeroMQ. Returns its path.

    `more`: additional arguments of the compiler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["protoc", f"--proto_path={source}/src", f"--cpp_out={folder}", "meta.proto"], check=True)
    program = folder / name
    subprocess.run(
        ["g++", "-std=c++17", "-O3", "-march=native", "-w",
         f"-I{folder}", f"-I{source}/include", f"-I{source}/src", "-o", program,
         pathlib.Path(__file__).parent / f"{name}.cc", folder / "meta.pb.cc",
         *[f"{source}/src/{name}.cc" for name in ("customer", "postoffice", "van")],
         *more, "-lprotobuf", "-lzmq", "-pthread"],
        check=True)
    return program


def run(words):
    """Runs a program as each role of a cluster of one server and one worker."""
    environment = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(harness.free_port()),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "1",
        "DMLC_INTERFACE": "lo",
        "DMLC_NODE_HOST": "127.0.0.1",
    }
    with harness.Processes() as processes:
        for role in ("scheduler", "server", "worker"):
            process = processes.run(words, {**environment, "DMLC_ROLE": role})
        processes.wait(process)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, help="only build the program, in this folder")
    parser.add_argument("--program", help="path of ps_lite_wire")
    flags = parser.parse_args()
    if flags.build:
        print(build(os.environ["PS_LITE_SOURCE"], flags.build))
        return
    run([flags.program])


if __name__ == "__main__":
    main()
