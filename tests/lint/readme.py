#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README tells the truth: its C compiles, its table of settings is the library's, the files
that it names exist.

readme.py README PRINT_SETTINGS CC "INCLUDE FLAGS" [--write]    --write renews the table
"""
import pathlib
import re
import subprocess
import sys
import tempfile

C_LINES_MAX = 40
TABLE = re.compile(r"(<!-- settings: begin.*?-->\n).*?(<!-- settings: end -->)", re.S)

readme, print_settings, cc, flags = sys.argv[1:5]
path = pathlib.Path(readme)
text = path.read_text()
failures = []


def settings():
    """(key, default, help) of each setting"""
    printed = subprocess.run([print_settings], check=True, capture_output=True, text=True).stdout
    section = ""
    for block in printed.split("\n\n"):
        lines = [line for line in block.split("\n") if line]
        for line in lines:
            match = re.match(r"\[(\w+)\]$", line)
            if match:
                section = match.group(1) + "."
        about = dict(re.findall(r"^# (\w[\w ]*): (.*)$", block, re.M))
        match = re.search(r"^(\w+) =", block, re.M)
        if match:
            yield section + match.group(1), about["default"], lines[0][2:]


def table():
    rows = [(f"`{key}`", f"`{value}`" if value else "", words) for key, value, words in settings()]
    rows.insert(0, ("setting", "default", "what it is"))
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    rows.insert(1, ("-" * widths[0], "-" * widths[1], "---"))
    return "".join(f"| {r[0]:{widths[0]}} | {r[1]:{widths[1]}} | {r[2]} |\n" for r in rows)


def check_table():
    global text
    wanted = TABLE.sub(lambda m: m.group(1) + table() + m.group(2), text)
    if not TABLE.search(text):
        failures.append("no table of settings")
    if wanted == text:
        return
    if "--write" in sys.argv:
        path.write_text(wanted)
        text = wanted
    else:
        failures.append("the table of settings is not the library's; renew it with:\n    python3 "
                        + " ".join(f"'{a}'" if " " in a else a for a in sys.argv) + " --write")


def check_code():
    blocks = re.findall(r"^```c\n(.*?)^```", text, re.M | re.S)
    if not blocks:
        failures.append("no C in it")
    for block in blocks:
        if block.count("\n") > C_LINES_MAX:
            failures.append(f"{block.count(chr(10))} lines of C, at most {C_LINES_MAX}")
        with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
            file.write(block)
            file.flush()
            command = [*cc.split(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", *flags.split(),
                       "-fsyntax-only", file.name]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                failures.append("its C does not compile:\n" + result.stderr)


def check_paths():
    for name in re.findall(r"`\.?/?((?:lib|transports|examples|tests)/[\w./-]+)`", text):
        if not (path.parent / name).exists():
            failures.append(f"it names {name}, which does not exist")


check_table()
check_code()
check_paths()
print("\n".join(failures) or "the README's code compiles and its settings are the library's")
sys.exit(bool(failures))
