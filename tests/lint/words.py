#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words that are not used, and sizes that are not passed: words.py ROOT"""
import pathlib
import re
import sys

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
HEADER_LINES_MAX = 600  # public headers: most of their lines are the manual
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}

# (pattern, folders of lib in which it may stand, why not elsewhere). Transports count as lib.
BANNED = [
    (r"\b(abort|exit|_exit|quick_exit)\s*\(", [], "a library does not end its program"),
    (r"\b(v?printf|puts|putchar|perror)\s*\(", [], "the library prints nothing by itself"),
    (r"\b(stdout|stderr)\b", [], "the library prints nothing by itself"),
    (r"(?<![_\w])assert\s*\(", ["base"], "what comes from outside is never asserted"),
    (r"\b(secure_)?getenv\s*\(|\benviron\b", ["config"], "the environment is read in config only"),
    (r"\b(clock_gettime|gettimeofday|timespec_get|time)\s*\(", ["base"],
     "clocks are read in base only"),
    (r"\b(signal|sigaction|sigprocmask)\s*\(", [], "signals are the program's"),
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok)\s*\(", [], "writes without a bound"),
]

root = pathlib.Path(sys.argv[1]).resolve()
failures = []
seen = 0


def fail(path, number, text):
    failures.append(f"{path.relative_to(root)}:{number}: {text}")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_of(text):
    """The text without comments and strings, line by line as before."""
    pattern = r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, blank, text, flags=re.S)


def check_name(path):
    for word in re.split(r"[-_./]", str(path.relative_to(root))):
        if word.lower() in EMPTY_NAMES:
            fail(path, 1, f'"{word}" names no idea')


def check_functions(path, lines):
    begin = None
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{":
            begin = number
            while begin > 1 and lines[begin - 2].strip() and lines[begin - 2][0] not in "#}":
                begin -= 1
            name = re.search(r"(\w+)\s*\(", "\n".join(lines[begin - 1:number]))
            name = name.group(1) if name else "?"
            for word in name.split("_"):
                if word in EMPTY_NAMES - {"common"}:  # an adjective there
                    fail(path, begin, f'{name}: "{word}" names no idea')
        elif line.rstrip() == "}" and begin is not None:
            length = number - begin + 1
            if length > FUNCTION_LINES_MAX:
                fail(path, begin, f"{name} has {length} lines, at most {FUNCTION_LINES_MAX}")
            begin = None


def check_banned(path, lines, folder):
    for number, line in enumerate(lines, 1):
        for pattern, allowed, why in BANNED:
            match = re.search(pattern, line)
            if match and folder not in allowed:
                fail(path, number, f'"{match.group(0).strip()}": {why}')


for path in sorted(root.glob("*/**/*.[ch]")):
    top = path.relative_to(root).parts[0]
    if top not in ("lib", "transports", "examples", "tests"):
        continue
    seen += 1
    text = path.read_text()
    lines = text.split("\n")
    code = code_of(text).split("\n")
    check_name(path)
    if lines[0] != "/* SPDX-License-Identifier: Apache-2.0 */":
        fail(path, 1, "the first line is not the licence")
    for number, line in enumerate(lines, 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            fail(path, number, "work left to do belongs into the tracker")
        if "//" in code[number - 1]:
            fail(path, number, "comments are written /* like this */")
    if top == "tests":
        continue
    limit = HEADER_LINES_MAX if path.parent.parent.name == "include" else FILE_LINES_MAX
    if len(lines) - 1 > limit:
        fail(path, 1, f"{len(lines) - 1} lines, at most {limit}")
    check_functions(path, code)
    if top in ("lib", "transports"):
        folder = path.relative_to(root).parts[1] if top == "lib" else "transports"
        check_banned(path, code, folder)

print("\n".join(failures) or f"{seen} files read")
sys.exit(bool(failures) or seen == 0)
