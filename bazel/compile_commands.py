#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes compile_commands.json at the repository's root, for clangd and clang-tidy.

    bazel/compile_commands.py [targets; default //...]

The commands are those of Bazel's compile actions, with --config=plain, since clang cannot read the
headers that GCC has precompiled. Headers that are generated (*.pb.h) are found once they have been built.
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What GCC knows and clang does not.
_GCC_ONLY = re.compile(r"^-(fno-canonical-system-headers|Wunused-but-set-parameter|Wno-free-nonheap-object)$")


def bazel(*words):
    return subprocess.run(
        ["/usr/bin/bazel", *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
    ).stdout


def main():
    targets = sys.argv[1:] or ["//..."]
    query = f'mnemonic("CppCompile", deps({" + ".join(targets)}))'
    graph = json.loads(bazel("aquery", "--config=plain", "--output=jsonproto", "--noshow_progress", query))
    # Sources are at the root, and bazel-out is a link there; external repositories are not.
    external = bazel("info", "output_base").decode().strip() + "/external/"
    commands = {}
    for action in graph["actions"]:
        arguments = [
            re.sub(r"^external/", external, word)
            for word in action["arguments"]
            if not _GCC_ONLY.match(word)
        ]
        source = arguments[arguments.index("-c") + 1]
        if source.startswith(("bazel-out/", external)):
            continue
        commands[source] = {"directory": ROOT, "file": source, "arguments": arguments}
    with open(os.path.join(ROOT, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump([commands[source] for source in sorted(commands)], file, indent=1)
        file.write("\n")
    print(f"{len(commands)} files", file=sys.stderr)


if __name__ == "__main__":
    main()
