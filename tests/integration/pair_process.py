#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kvx-prefill and kvx-decode as an operator would, for the tests that drive them.

KVX_TEST_PROGRAMS names the folder of the built programs. Whatever is waited for has a deadline,
and whatever was started ends with the test that started it.
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAMS = pathlib.Path(os.environ.get("KVX_TEST_PROGRAMS", "build/examples"))
DATA = pathlib.Path(__file__).resolve().parents[2] / "examples" / "data"
# Generous: a loaded machine of two cores is to pass. Figures of their own have their own limits.
WAIT_S = 60.0
# A cache that is filled and pulled in a blink.
SMALL = ("--ranks", "1", "--token-bytes", "1152", "--layers", "2", "--page-tokens", "16",
         "--pool-tokens", "8192")
SKIP = 77
REPORTS = re.compile(r"ERROR: \w+Sanitizer|runtime error:|WARNING: ThreadSanitizer")


def settings(**values):
    """--set options."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def short_leases():
    """Settings that fit together and let an owner have its pages back after 1.3 s."""
    return settings(lease_ms=1000, margin_ms=50, ping_ms=100, drain_ms=50, close_ms=200,
                    fence_ms=300)


class Program:
    """A running program and all that it said, each line with the time at which it came."""

    def __init__(self, test, name, words, env=None, stdout=subprocess.PIPE):
        self.name = name
        self.lines = []  # (seconds, text)
        self.changed = threading.Condition()
        self.open_streams = 0
        self.process = subprocess.Popen(
            [str(PROGRAMS / name), *words], stdin=subprocess.DEVNULL, stdout=stdout,
            stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
        self.readers = [self._reader(stream) for stream in
                        (self.process.stdout, self.process.stderr) if stream is not None]
        test.addCleanup(self.end)

    def _reader(self, stream):
        self.open_streams += 1
        thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        thread.start()
        return thread

    def _read(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append((time.monotonic(), line.decode(errors="replace").rstrip("\n")))
                self.changed.notify_all()
        with self.changed:
            self.open_streams -= 1
            self.changed.notify_all()

    def said(self):
        with self.changed:
            return "\n".join(text for _, text in self.lines)

    def count(self, pattern):
        with self.changed:
            return sum(1 for _, text in self.lines if re.search(pattern, text))

    def times(self, pattern):
        """When the lines with this came."""
        with self.changed:
            return [at for at, text in self.lines if re.search(pattern, text)]

    def wait_line(self, pattern, nth=1, timeout_s=WAIT_S):
        """The match in the nth line that has one; a program that ends without it is a failure."""
        end = time.monotonic() + timeout_s
        with self.changed:
            while True:
                matches = [m for m in (re.search(pattern, text) for _, text in self.lines) if m]
                if len(matches) >= nth:
                    return matches[nth - 1]
                left = end - time.monotonic()
                if left <= 0 or self.open_streams == 0:
                    break
                self.changed.wait(left)
        why = "ended without" if left > 0 else f"did not within {timeout_s} s say"
        raise AssertionError(f"{self.name} {why} {pattern!r}, but:\n{self.said()}")

    def wait_exit(self, timeout_s=WAIT_S):
        """The exit status as a shell tells it; all output is here then."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {timeout_s} s; it said:\n{self.said()}") from None
        for reader in self.readers:
            reader.join(WAIT_S)
        if REPORTS.search(self.said()):
            raise AssertionError(f"{self.name}: a sanitizer reports:\n{self.said()}")
        return code if code >= 0 else 128 - code

    def json(self):
        """The object of --json."""
        objects = [text for _, text in self.lines if text.startswith("{")]
        if len(objects) != 1:
            raise AssertionError(f"{self.name}: not one JSON object:\n{self.said()}")
        return json.loads(objects[0])

    def is_running(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """SIGSTOP, and wait until it has stopped."""
        self.signal(signal.SIGSTOP)
        path = f"/proc/{self.process.pid}/stat"
        while self.is_running():
            with open(path, encoding="ascii", errors="replace") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "T":
                    return
            time.sleep(0.001)

    def go_on(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        """SIGKILL; returns when that was."""
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at

    def end(self):
        if self.is_running():
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class PairTest(unittest.TestCase):
    """What the tests of the two programs have to hand."""
    longMessage = True

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kvx-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def prefill(self, *words, listen="127.0.0.1:0", env=None):
        """A prefill that listens; .address tells where."""
        program = Program(self, "kvx-prefill", ["--listen", listen, *words], env)
        program.address = program.wait_line(r"^bound to (\S+)").group(1)
        return program

    def decode(self, address, *words, env=None):
        return Program(self, "kvx-decode", ["--connect", address, "--json", *words], env)

    def run_program(self, name, *words, code=None, timeout_s=WAIT_S, env=None):
        """Run a program to its end; code None: anything but success and death by a signal."""
        program = Program(self, name, words, env)
        got = program.wait_exit(timeout_s)
        if code is None:
            self.assertIn(got, range(1, 128), program.said())
        else:
            self.assertEqual(got, code, program.said())
        return program

    def assert_said(self, program, *patterns):
        for pattern in patterns:
            self.assertRegex(program.said(), re.compile(pattern, re.M), program.name)

    def assert_all_right(self, decode, requests, failed=0):
        """A decode that ended well: every request came, and every byte was right."""
        code = decode.wait_exit()
        report = decode.json()
        self.assertEqual((report["requests"], report["failed"], report["not_run"]),
                         (requests, failed, 0), decode.said())
        self.assertEqual((report["mismatches"], report["verified"]), (0, True), decode.said())
        self.assertEqual(code, 1 if failed else 0, decode.said())
        return report

    def assert_serves(self, prefill, *words, requests=4, tokens=300, timeout_s=WAIT_S):
        """A prefill that was maltreated still serves a good decode, then ends well itself."""
        decode = self.decode(prefill.address, *words, "--requests", str(requests), "--tokens",
                             str(tokens))
        decode.wait_exit(timeout_s)
        self.assert_all_right(decode, requests)
        self.assertEqual(prefill.wait_exit(timeout_s), 0, prefill.said())


def metric(path, name):
    """The sum of a metric over its labels; None: not written yet."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.M)
    return sum(float(value) for value in found) if found else None


def wait_for(condition, timeout_s=WAIT_S, pause_s=0.005):
    """Seconds until the condition was true; None: it never was."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > timeout_s:
            return None
        time.sleep(pause_s)
    return time.monotonic() - begun


def free_ports(count, host="127.0.0.1"):
    """The first of so many ports in a row that were free a moment ago."""
    while True:
        sockets = []
        try:
            sockets.append(socket.create_server((host, 0)))
            first = sockets[0].getsockname()[1]
            for i in range(1, count):
                sockets.append(socket.create_server((host, first + i)))
            return first
        except (OSError, OverflowError):
            continue
        finally:
            for taken in sockets:
                taken.close()


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        return True
    except OSError:
        return False


def reason_to_skip():
    """Why the programs cannot read each other's memory here; None: they can."""
    try:
        scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        scope = "0"
    if scope == "0" or os.geteuid() == 0:
        return None
    return f"kernel.yama.ptrace_scope is {scope}: cma cannot read another process"


def main():
    reason = reason_to_skip()
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(SKIP)
    unittest.main(verbosity=2, failfast=False)
