#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGSTOP of either program.

KVX_TEST_STOPS: stops of decode, spread over KVX_TEST_PAIRS pairs. KVX_TEST_FIGURES: hold the
figures, not just a bound that a loaded machine keeps as well.
"""
import os
import pathlib
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from pair_process import PairTest, main, metric, settings  # noqa: E402

STOPS = int(os.environ.get("KVX_TEST_STOPS", "20"))
PAIRS = int(os.environ.get("KVX_TEST_PAIRS", "2"))
SEED = int(os.environ.get("KVX_TEST_SEED", time.time_ns() % 1_000_000))
IS_STRICT = "KVX_TEST_FIGURES" in os.environ
CACHE = ("--ranks", "2", "--token-bytes", "1152", "--layers", "2", "--page-tokens", "16")
LEASE_AND_FENCE_S = 0.245
# Silence must not end it first: the connection outlives every stop.
SHORT = settings(lease_ms=200, margin_ms=20, ping_ms=50, drain_ms=10, close_ms=30, fence_ms=45,
                 peer_timeout_ms=20000)
# How decodes go about it, one way after the other.
WAYS = (["--concurrency", "16"], ["--reserve", "early"], ["--concurrency", "4", "--prefix", "off"])
PASSING = {"expired", "gone", "refused"}  # what a reader that came too late is told


class Stop(PairTest):
    def stopped_pair(self, requests, *decode_words):
        """A prefill whose few pages are wanted again at once, and a decode that keeps asking."""
        words = [*CACHE, *SHORT, "--requests", str(requests), "--tokens", "3000"]
        prefill = self.prefill(*words, "--pool-tokens", "13000", "--metrics",
                               str(self.folder / f"metrics-{requests}"))
        decode = self.decode(prefill.address, *words, "--pool-tokens", "50000",
                             *decode_words)
        decode.wait_line("connected to")
        return prefill, decode

    def stop_for(self, decode, chance):
        """One stop at a random moment, longer than lease + fence."""
        time.sleep(chance.uniform(0.0, 0.3))
        decode.stop()
        time.sleep(LEASE_AND_FENCE_S + chance.uniform(0.01, 0.15))
        decode.go_on()

    def stops_of_one_pair(self, number, sums, failures):
        chance = random.Random(SEED * 1000 + number)
        try:
            prefill, decode = self.stopped_pair(100000 + number, "--reconnect-s", "30",
                                                *WAYS[number % len(WAYS)])
            for _ in range(STOPS // PAIRS):
                self.stop_for(decode, chance)
            time.sleep(0.3)
            decode.signal(signal.SIGINT)
            code = decode.wait_exit()
            report = decode.json()
            self.assertEqual(code, 130, decode.said())
            self.assertEqual(report["mismatches"], 0, decode.said())
            self.assertLessEqual(set(report["failures"]), PASSING | {"cancelled", "peer_lost"},
                                 decode.said())
            self.assertTrue(prefill.is_running() or prefill.wait_exit() == 0, prefill.said())
            sums["right"] += report["requests"] - report["failed"]
            sums["failed"] += report["failed"]
            sums["again"] += report["retried"]
            prefill.end()
        except BaseException as error:  # pylint: disable=broad-except; it is raised again
            failures.append(error)

    def test_a_decode_that_is_stopped_over_and_over_gets_no_wrong_byte(self):
        print(f"seed {SEED}")
        sums = {"right": 0, "failed": 0, "again": 0}
        failures = []
        workers = [threading.Thread(target=self.stops_of_one_pair, args=(i, sums, failures))
                   for i in range(PAIRS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]
        print(f"{STOPS // PAIRS * PAIRS} stops of decode, each longer than lease + fence: "
              f"{sums['right']} requests right, {sums['again']} asked for again after a lost "
              f"lease, {sums['failed']} given up, 0 wrong bytes")
        self.assertGreater(sums["right"], 0)
        self.assertGreater(sums["again"] + sums["failed"], 0, "no stop ever cost a lease")

    def test_a_decode_that_lost_its_leases_fails_those_rooms_and_goes_on(self):
        prefill, decode = self.stopped_pair(240)
        chance = random.Random(SEED)
        for _ in range(3):
            self.stop_for(decode, chance)
        code = decode.wait_exit()
        report = decode.json()
        self.assertEqual((report["requests"], report["not_run"], report["mismatches"]),
                         (240, 0, 0), decode.said())
        self.assertGreater(report["failed"], 0, decode.said())
        self.assertLess(report["failed"], 240, decode.said())
        self.assertLessEqual(set(report["failures"]), PASSING)
        self.assertEqual(code, 1)
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())
        self.assert_said(prefill, r" 0 still parked; 0 failed")
        self.assertEqual(metric(self.folder / "metrics-240", "kvx_leases"), 0)

    def test_a_prefill_that_is_stopped_costs_its_pulls_at_their_deadline(self):
        """And they succeed again when it goes on."""
        words = [*CACHE, "--requests", "600", "--tokens", "1500", "--pool-tokens", "16384",
                 *settings(peer_timeout_ms=60000)]
        prefill = self.prefill(*words)
        decode = self.decode(prefill.address, *words, "--deadline-ms", "500")
        decode.wait_line("connected to")
        chance = random.Random(SEED)
        late = []
        while not late and decode.is_running():  # until a stop falls into a pull
            time.sleep(chance.uniform(0.05, 0.2))
            prefill.stop()
            stopped = time.monotonic()
            time.sleep(0.8 if IS_STRICT else 2.0)
            prefill.go_on()
            late = [at - stopped for at in decode.times(r"room \d+ failed: .*deadline")]
        self.assertTrue(late, decode.said())
        print(f"deadline 500 ms: {len(late)} pulls failed {1000 * min(late):.0f} to "
              f"{1000 * max(late):.0f} ms after prefill stopped")
        # A pull that waited for its turn may have begun a little before the stop, or after it.
        self.assertGreater(min(late), 0.4)
        self.assertLess(max(late), 0.6 if IS_STRICT else 5.0)
        decode.wait_exit()
        report = decode.json()
        self.assertEqual((report["requests"], report["not_run"], report["mismatches"]),
                         (600, 0, 0), decode.said())
        self.assertEqual(set(report["failures"]), {"deadline"}, decode.said())
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())

    def test_a_prefill_that_falls_silent_is_lost_after_the_peer_timeout(self):
        words = [*CACHE, "--requests", "600", "--tokens", "1500", "--pool-tokens", "16384",
                 *settings(peer_timeout_ms=600, ping_ms=100)]
        prefill = self.prefill(*words)
        decode = self.decode(prefill.address, *words, "--reconnect-s", "60")
        decode.wait_line("connected to")
        time.sleep(0.1)
        prefill.stop()
        stopped = time.monotonic()
        decode.wait_line(r"^prefill at \S+ is lost")
        silent = decode.times(r"^prefill at \S+ is lost")[0] - stopped
        print(f"silence of 600 ms was noticed after {1000 * silent:.0f} ms")
        self.assertGreater(silent, 0.45)
        self.assertLess(silent, 0.9 if IS_STRICT else 10.0)
        prefill.go_on()
        decode.wait_line("connected to", nth=2)
        report = self.assert_all_right(decode, 600)
        self.assertGreater(report["retried"], 0)
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())


if __name__ == "__main__":
    main()
