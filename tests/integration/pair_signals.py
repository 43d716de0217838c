#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGINT and SIGTERM end either program at once, with a summary, and harm nobody else."""
import os
import signal
import time
import unittest

from pair_process import SMALL, PairTest, free_ports, main

# The figure that is promised is a second; a machine that does five things at once gets more.
LIMIT_S = 1.0 if "KVX_TEST_FIGURES" in os.environ else 5.0
MANY = ("--requests", "100000", "--tokens", "1500")
EIGHT = ("--ranks", "8", "--token-bytes", "1152", "--layers", "2", "--page-tokens", "16",
         "--pool-tokens", "8192")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals(PairTest):
    def end_by(self, program, number, code):
        """Send it and hold the end to its limit."""
        begun = time.monotonic()
        program.signal(number)
        got = program.wait_exit()
        took = time.monotonic() - begun
        print(f"{program.name} ended {1000 * took:.0f} ms after {number.name}")
        self.assertEqual(got, code, program.said())
        self.assertLess(took, LIMIT_S, program.said())
        self.assert_said(program, r"stopped by (Interrupt|Terminated)")

    def end_prefill(self, prefill, number):
        self.end_by(prefill, number, 0)
        self.assert_said(prefill, r"^requests +\d+ published: .* 0 failed$")

    def end_decode(self, decode, number):
        self.end_by(decode, number, 128 + number)
        report = decode.json()
        self.assertEqual(report["mismatches"], 0)
        self.assertGreater(report["not_run"], 0)
        self.assertNotIn("never freed", decode.said())

    def test_a_prefill_that_waits(self):
        for number in SIGNALS:
            with self.subTest(number=number):
                self.end_prefill(self.prefill(*SMALL, *MANY), number)

    def test_a_decode_that_waits(self):
        for number in SIGNALS:
            with self.subTest(number=number):
                decode = self.decode(f"127.0.0.1:{free_ports(1)}", *SMALL, *MANY)
                decode.wait_line("^requests: ")
                time.sleep(0.2)
                self.end_decode(decode, number)

    def test_a_busy_decode(self):
        """And prefill ends well, for it was told."""
        for number in SIGNALS:
            with self.subTest(number=number):
                prefill = self.prefill(*EIGHT, *MANY)
                decode = self.decode(prefill.address, *EIGHT, *MANY)
                decode.wait_line("connected to")
                time.sleep(0.3)
                self.end_decode(decode, number)
                self.assertEqual(prefill.wait_exit(), 0, prefill.said())
                self.assert_said(prefill, " 0 still parked; 0 failed")

    def test_a_busy_prefill(self):
        """And decode says that it is gone."""
        for number in SIGNALS:
            with self.subTest(number=number):
                prefill = self.prefill(*EIGHT, *MANY)
                decode = self.decode(prefill.address, *EIGHT, *MANY)
                decode.wait_line("connected to")
                time.sleep(0.3)
                self.end_prefill(prefill, number)
                self.assertEqual(decode.wait_exit(), 1, decode.said())
                self.assert_said(decode, r"prefill at 127.0.0.1:\d+ is gone")
                self.assertEqual(decode.json()["mismatches"], 0)

    def test_a_decode_whose_prefill_is_stopped(self):
        prefill = self.prefill(*SMALL, *MANY)
        decode = self.decode(prefill.address, *SMALL, *MANY)
        decode.wait_line("connected to")
        time.sleep(0.1)
        prefill.stop()
        time.sleep(0.3)
        self.end_decode(decode, signal.SIGTERM)

    def test_a_prefill_whose_decode_is_stopped(self):
        prefill = self.prefill(*SMALL, *MANY)
        decode = self.decode(prefill.address, *SMALL, *MANY)
        decode.wait_line("connected to")
        time.sleep(0.1)
        decode.stop()
        time.sleep(0.3)
        self.end_prefill(prefill, signal.SIGTERM)
        decode.go_on()
        self.assertEqual(decode.wait_exit(), 1, decode.said())
        self.assertEqual(decode.json()["mismatches"], 0, decode.said())

    def test_a_second_signal_ends_it_for_certain(self):
        prefill = self.prefill(*SMALL, *MANY)
        prefill.stop()
        prefill.signal(signal.SIGINT)
        prefill.signal(signal.SIGTERM)
        prefill.go_on()
        self.assertIn(prefill.wait_exit(), (0, 130, 143))

    def test_a_prefill_that_serves_on_after_a_decode_was_interrupted(self):
        prefill = self.prefill(*SMALL, "--requests", "400", "--tokens", "1500")
        first = self.decode(prefill.address, *SMALL, *MANY)
        second = self.decode(prefill.address, *SMALL, *MANY)
        for decode in (first, second):
            decode.wait_line("connected to")
        time.sleep(0.1)
        first.signal(signal.SIGINT)
        self.assertEqual(first.wait_exit(), 130, first.said())
        self.assertEqual(first.json()["mismatches"], 0)
        self.assertTrue(second.is_running(), second.said())
        second.signal(signal.SIGINT)
        self.assertEqual(second.wait_exit(), 130)
        self.assertEqual(second.json()["mismatches"], 0)
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())


if __name__ == "__main__":
    main()
