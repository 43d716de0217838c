#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plant each bug of mutants.txt in a copy of its source, build the model with it, and see that
the model catches it. Prints a table; the exit status is 1 if a bug survives."""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile


class Mutant:
    def __init__(self, name, text):
        self.name, self.text = name, text
        self.set, self.fault, self.edits = "all", None, []


def fail(text):
    sys.exit("mutants: " + text)


def read_edit(path, lines):
    if next(lines, None) != "<<<":
        fail(f"edit {path}: no <<<")
    old, new, part = [], [], 0
    for line in lines:
        if line == ">>>":
            return path, "\n".join(old), "\n".join(new)
        if line == "===":
            part = 1
        else:
            (new if part else old).append(line)
    fail(f"edit {path}: no >>>")


def read_mutants(path):
    mutants, lines = [], iter(path.read_text().split("\n"))
    for line in lines:
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "mutant":
            mutants.append(Mutant(words[1], words[2]))
        elif words[0] == "set":
            mutants[-1].set = words[1]
        elif words[0] == "fault":
            mutants[-1].fault = words[1]
        elif words[0] == "edit":
            mutants[-1].edits.append(read_edit(words[1], lines))
        else:
            fail(f"cannot read {line!r}")
    return mutants


def plant(root, mutant, folder):
    """Copies of the sources with the edits made; a text that is not there once is an error."""
    sources = {}
    for path, old, new in mutant.edits:
        text = sources.get(path) or (root / path).read_text()
        if text.count(old) != 1:
            fail(f"{mutant.name}: {path} has its old text {text.count(old)} times")
        sources[path] = text.replace(old, new)
    planted = []
    for path, text in sources.items():
        copy = folder / path.replace("/", "_")
        copy.write_text(text)
        planted.append(copy)
    return planted


def compiler(options):
    command = [options.cc, "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-w"]
    for include in ["lib", "lib/include", "tests/model"]:
        command += ["-I", str(options.root / include)]
    for include in options.include:
        command += ["-I", include]
    return command


def must_run(what, command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{what} does not build:\n{done.stderr}")


def compile_model(options, folder, pool):
    """The model itself, once for all mutants."""
    sources = [path for path in sorted((options.root / "tests/model").glob("*.c"))
               if path.name != "script.c" and not path.name.startswith("test_")]
    objects = [str(folder / (path.stem + ".o")) for path in sources]
    list(pool.map(lambda pair: must_run(pair[0].name, compiler(options)
                                        + ["-c", str(pair[0]), "-o", pair[1]]),
                  zip(sources, objects)))
    return objects


def build(options, mutant, objects, folder):
    """What is planted comes first, so that the library's own object is not linked."""
    program = folder / "model"
    planted = [str(path) for path in plant(options.root, mutant, folder)]
    must_run(mutant.name, compiler(options) + planted + objects
             + [options.library, "-lpthread", "-o", str(program)])
    return program


def try_mutant(options, mutant, objects):
    with tempfile.TemporaryDirectory(prefix="kvx-mutant-") as name:
        program = build(options, mutant, objects, pathlib.Path(name))
        command = [str(program), "run", "--seeds", str(options.seeds), "--set", mutant.set]
        if mutant.fault:
            command += ["--fault", mutant.fault]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = re.match(r"seed (\d+) set (\w+) run (\d+): (I\d+): (.*)", done.stdout)
    if done.returncode == 1 and found:
        return found.groups()
    if done.returncode != 0:
        fail(f"{mutant.name}: the model ended with {done.returncode}: {done.stdout[-200:]}")
    return None


def run(options, chosen):
    """Returns how many survive."""
    survivors = 0
    print(f"{'mutant':<22} {'caught by':<9} {'set':<8} {'seed':>6} {'runs':>6}  how")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, \
            tempfile.TemporaryDirectory(prefix="kvx-model-") as folder:
        objects = compile_model(options, pathlib.Path(folder), pool)
        results = pool.map(lambda mutant: try_mutant(options, mutant, objects), chosen)
        for mutant, result in zip(chosen, results):
            survivors += result is None
            show(options, mutant, result)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return survivors


def show(options, mutant, result):
    if result is None:
        print(f"{mutant.name:<22} SURVIVES  {mutant.set:<8} {'':>6} {options.seeds:>6}  "
              f"{mutant.text}", flush=True)
        return
    seed, set_name, runs, rule, how = result
    print(f"{mutant.name:<22} {rule:<9} {set_name:<8} {seed:>6} {runs:>6}  {how}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True, help="the source tree")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--include", action="append", default=[], help="generated headers")
    parser.add_argument("--library", required=True, help="the library as an archive")
    parser.add_argument("--seeds", type=int, default=40000, help="most runs a mutant gets")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("only", nargs="*", help="names; all without")
    options = parser.parse_args()

    mutants = read_mutants(options.root / "tests/model/mutants.txt")
    unknown = set(options.only) - {m.name for m in mutants}
    if unknown:
        fail("no mutant named " + ", ".join(sorted(unknown)))
    chosen = [m for m in mutants if not options.only or m.name in options.only]
    if run(options, chosen) > 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
