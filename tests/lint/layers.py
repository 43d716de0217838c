#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the order of folders in lib/LAYERS: layers.py ROOT"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
lib = root / "lib"
order = [l.strip() for l in (lib / "LAYERS").read_text().split("\n") if l.strip() and l[0] != "#"]
rank = {name: i for i, name in enumerate(order)}
failures = []
seen = 0


def includes(path):
    """(line number, what is included in quotes or as <kvx/...>)"""
    global seen
    seen += 1
    for number, line in enumerate(path.read_text().split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<(kvx/[^>]+)>)', line)
        if match:
            yield number, match.group(1) or match.group(2)


def fail(path, number, text):
    failures.append(f"{path.relative_to(root)}:{number}: {text}")


def check(path, number, name, limit, who):
    """An include of a file in lib: is it there, and not above limit?"""
    top = name.split("/")[0]
    if name.startswith("kvx/") or (name == "transport_list.h" and who == "transport"):
        return  # the list is written by the build
    if "/" not in name or top not in rank:
        fail(path, number, f'{who} includes "{name}", which is in no folder of lib/LAYERS')
    elif rank[top] > limit:
        fail(path, number, f"{who} must not include {top}, which comes later in lib/LAYERS")


for path in sorted(lib.glob("*/**/*.[ch]")):
    mine = path.relative_to(lib).parts[0]
    if mine == "include":
        for number, name in includes(path):
            if not name.startswith("kvx/"):
                fail(path, number, f'a public header includes "{name}"')
    elif mine not in rank:
        fail(path, 1, f"folder {mine} is not in lib/LAYERS")
    else:
        for number, name in includes(path):
            check(path, number, name, rank[mine], mine)

for path in sorted((root / "transports").glob("*/**/*.[ch]")):
    mine = path.relative_to(root / "transports").parts[0]
    for number, name in includes(path):
        if name.split("/")[0] == mine or (path.parent / name).exists():
            continue
        check(path, number, name, rank["transport"], f"transport {mine}")

for path in sorted((root / "examples").glob("**/*.[ch]")):
    for number, name in includes(path):
        if name.startswith("kvx/"):
            continue
        near = [path.parent / name, root / "examples" / name]
        if not any(p.exists() and (root / "examples") in p.resolve().parents for p in near):
            fail(path, number, f'an example includes "{name}", which is no public header')

print("\n".join(failures) or f"{seen} files keep the order")
sys.exit(bool(failures) or seen == 0)
