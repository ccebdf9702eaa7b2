#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every relative link of a Markdown file leads to a file or folder, and its anchor to a heading there."""

import os
import re
import sys

# The files themselves, not the copies that the test was given.
ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_SKIPPED = {".git", "node_modules"}


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)


def anchors(path):
    """As GitHub makes them of headings."""
    with open(path, encoding="utf-8") as file:
        text = without_code(file.read())
    found = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        count = 1
        unique = slug
        while unique in found:
            unique = f"{slug}-{count}"
            count += 1
        found.add(unique)
    return found | set(re.findall(r'<a name="([^"]+)"', text))


def main():
    links = 0
    broken = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith("bazel-")]
        for name in files:
            if not name.endswith(".md"):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                text = re.sub(r"`[^`\n]*`", "``", without_code(file.read()))
            for target in re.findall(r"\]\(\s*([^)\s]+)\s*\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                links += 1
                there, _, anchor = target.partition("#")
                there = os.path.normpath(os.path.join(folder, there)) if there else path
                where = f"{os.path.relpath(path, ROOT)}: {target}"
                if not os.path.exists(there):
                    broken.append(f"{where}: there is no such file")
                elif anchor and there.endswith(".md") and anchor not in anchors(there):
                    broken.append(f"{where}: there is no such heading")
    print("\n".join(broken))
    print(f"{links} links, {len(broken)} broken")
    return 0 if links > 100 and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
