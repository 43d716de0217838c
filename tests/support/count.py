#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what ran: count.py RESULTS. A line of RESULTS is STAGE <tab> log <tab> TESTLOG.JSON, or
STAGE <tab> passed|failed|skipped <tab> REASON.

A program of a test framework (Criterion, unittest) counts once for each test in it, any other once.
"""
import json
import re
import sys

passed, failed, skipped = 0, [], []


def count_unittest(stage, name, ok, ran, said):
    global passed
    bad = sum(map(int, re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", said)))
    reasons = re.findall(r"^(.*) \.\.\. skipped '?(.*?)'?$", said, re.M)
    left_out = sum(map(int, re.findall(r"skipped=(\d+)", said)))
    reasons += [("", "no reason shown")] * (left_out - len(reasons))
    skipped.extend(f"{stage}: {name}: {which.split(' ')[0]} {why}" for which, why in reasons)
    failed.extend([f"{stage}: {name}"] * max(bad, 0 if ok else 1))
    passed += max(ran - bad - left_out, 0)


def count_program(stage, name, test):
    global passed
    said = test.get("stdout", "") + test.get("stderr", "")
    said = re.sub(r"\x1b\[[0-9;]*m", "", said)
    ok = test["result"] in ("OK", "EXPECTEDFAIL")
    sums = re.findall(r"Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)", said)
    ran = re.findall(r"^Ran (\d+) tests? in", said, re.M)
    for reason in re.findall(r"\[SKIP\] (.*)", said):
        skipped.append(f"{stage}: {name}: {reason}")
    if test["result"] == "SKIP":
        lines = [line for line in said.strip().split("\n") if line]
        reason = lines[-1] if lines else "no reason given"
        skipped.append(f"{stage}: {name}: {reason.replace('skipped: ', '')}")
    elif sums:
        passed += sum(int(s[1]) for s in sums)
        bad = sum(int(s[2]) + int(s[3]) for s in sums)
        failed.extend([f"{stage}: {name}"] * max(bad, 0 if ok else 1))
        if sum(int(s[0]) for s in sums) == 0:
            failed.append(f"{stage}: {name}: has no tests")
    elif ran:
        count_unittest(stage, name, ok, sum(map(int, ran)), said)
    elif ok:
        passed += 1
    else:
        failed.append(f"{stage}: {name}: {test['result'].lower()}")


for line in open(sys.argv[1]):
    stage, kind, rest = line.rstrip("\n").split("\t")
    if kind == "passed":
        passed += 1
    elif kind == "failed":
        failed.append(f"{stage}: {rest}")
    elif kind == "skipped":
        skipped.append(f"{stage}: {rest}")
    else:
        for entry in open(rest):
            test = json.loads(entry)
            count_program(stage, test["name"], test)

for what in skipped:
    print(f"SKIPPED {what}")
for what in dict.fromkeys(failed):
    print(f"FAILED  {what}")
print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
sys.exit(bool(failed) or passed == 0)
