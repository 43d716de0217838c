#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of either program in mid-pull.

KVX_TEST_RESTARTS: restarts of prefill in a row. KVX_TEST_FIGURES: hold the figures, not just a
bound that a loaded machine keeps as well.
"""
import os
import pathlib
import random
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from pair_process import (SMALL, PairTest, free_ports, main, metric,  # noqa: E402
                          short_leases, wait_for)

RESTARTS = int(os.environ.get("KVX_TEST_RESTARTS", "5"))
REPORT_S = 1.0 if "KVX_TEST_FIGURES" in os.environ else 5.0
SEED = int(os.environ.get("KVX_TEST_SEED", time.time_ns() % 1_000_000))
LEASE_AND_FENCE_S = 1.3


class Kill(PairTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.decode_words = []

    def in_mid_pull(self, prefill, decode):
        """Stop prefill as it serves: what it was to confirm stays pulled and unconfirmed."""
        decode.wait_line("connected to")
        time.sleep(self.random.uniform(0.05, 0.3))
        prefill.stop()
        time.sleep(0.2)

    def test_a_killed_prefill_fails_the_rooms_at_once(self):
        words = [*SMALL, "--requests", "20000", "--tokens", "1500"]
        for moment in ("while it serves", "while pulls wait for its word"):
            with self.subTest(moment=moment):
                prefill = self.prefill(*words)
                decode = self.decode(prefill.address, *words)
                decode.wait_line("connected to")
                time.sleep(self.random.uniform(0.1, 0.4))
                if moment != "while it serves":
                    self.in_mid_pull(prefill, decode)
                killed = prefill.kill()
                code = decode.wait_exit(REPORT_S + 10)
                ended = time.monotonic()
                self.assertEqual(code, 1, decode.said())
                failures = decode.times(r"room \d+ failed: ")
                self.assertGreater(len(failures), 0, decode.said())
                late = max(failures) - killed
                print(f"rooms failed {1000 * late:.0f} ms after the kill, "
                      f"decode ended after {1000 * (ended - killed):.0f} ms")
                self.assertLess(late, REPORT_S, decode.said())
                self.assert_said(decode, r"^prefill at \S+ is lost", r"kvx-decode: prefill at "
                                 r"127.0.0.1:\d+ is gone \(")
                report = decode.json()
                self.assertEqual(report["mismatches"], 0)
                self.assertLessEqual(set(report["failures"]), {"peer_lost", "unreachable"})
                self.assertGreater(report["not_run"], 0)

    def restarts(self, count, words, listen, most_s):
        """Kill prefill in mid-pull and start it anew on its address, again and again. Returns
        both programs as they go on."""
        prefill = self.prefill(*words, listen=listen)
        decode = self.decode(listen, *words, *self.decode_words)
        noticed, back = [], []
        for restart in range(1, count + 1):
            decode.wait_line("connected to", nth=restart)
            time.sleep(self.random.uniform(0.0, most_s))
            killed = prefill.kill()
            decode.wait_line(r"^prefill at \S+ is lost", nth=restart)
            noticed.append(decode.times(r"^prefill at \S+ is lost")[restart - 1] - killed)
            prefill = self.prefill(*words, listen=listen)
            decode.wait_line("connected to", nth=restart + 1)
            back.append(decode.times("connected to")[restart] - killed)
        print(f"{count} restarts: the loss was noticed after at most {1000 * max(noticed):.0f} "
              f"ms, decode was connected again at most {1000 * max(back):.0f} ms after the kill")
        self.assertLess(max(noticed), REPORT_S)
        return prefill, decode

    def check_endless(self, prefill, decode, metrics):
        """Rooms come from the last prefill too; until then none was lost or wrong."""
        def pulled():
            return metric(metrics, "kvx_pulled_total") or 0

        before = pulled()
        self.assertIsNotNone(wait_for(lambda: pulled() > before), decode.said())
        decode.signal(signal.SIGINT)
        self.assertEqual(decode.wait_exit(), 130, decode.said())
        report = decode.json()
        self.assertEqual((report["failed"], report["mismatches"]), (0, 0), decode.said())
        self.assertGreater(report["retried"], 0)
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())
        print(f"{report['requests']} requests right, {report['retried']} asked for again")

    def test_decode_goes_on_with_a_restarted_prefill(self):
        """On the same port."""
        print(f"seed {SEED}")
        metrics = self.folder / "metrics"
        self.decode_words = ["--reconnect-s", "60", "--concurrency", "8", "--metrics", str(metrics)]
        words = [*SMALL, "--requests", "200000", "--tokens", "1500"]
        pair = self.restarts(RESTARTS, words, f"127.0.0.1:{free_ports(1)}", 0.15)
        self.check_endless(*pair, metrics)

    def test_the_same_with_several_ranks_and_pages_reserved_early(self):
        """On the same Unix socket, which a killed prefill leaves behind."""
        print(f"seed {SEED}")
        metrics = self.folder / "metrics"
        self.decode_words = ["--reconnect-s", "60", "--concurrency", "4", "--reserve", "early",
                             "--metrics", str(metrics)]
        words = ["--ranks", "4", *SMALL[2:], "--requests", "200000", "--tokens", "1500"]
        pair = self.restarts(max(3, RESTARTS // 5), words, f"unix:{self.folder}/socket", 0.15)
        self.check_endless(*pair, metrics)

    def test_every_request_comes_in_the_end(self):
        self.decode_words = ["--reconnect-s", "60", "--concurrency", "8"]
        words = [*SMALL, "--requests", "300", "--tokens", "1500"]
        prefill, decode = self.restarts(3, words, f"127.0.0.1:{free_ports(1)}", 0.01)
        self.assert_all_right(decode, 300)
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())

    def test_prefill_frees_what_a_killed_decode_had(self):
        """Within lease + fence, and it serves the next decode."""
        metrics = self.folder / "metrics"
        words = [*SMALL, *short_leases()]
        many = ["--requests", "20000", "--tokens", "1500"]
        prefill = self.prefill(*words, *many, "--metrics", str(metrics))
        decode = self.decode(prefill.address, *words, *many)
        decode.wait_line("connected to")
        self.assertIsNotNone(
            wait_for(lambda: (metric(metrics, "kvx_parked_rooms") or 0) > 0), prefill.said())
        decode.stop()
        time.sleep(0.1)  # what it had asked for is published
        killed = decode.kill()
        self.assertIsNotNone(
            wait_for(lambda: metric(metrics, "kvx_parked_rooms") == 0), prefill.said())
        took = time.monotonic() - killed
        print(f"all was free {took:.2f} s after the kill; the metrics are written once a second")
        self.assertEqual(metric(metrics, "kvx_leases"), 0)
        self.assertEqual(metric(metrics, "kvx_waiting_subscriptions"), 0)
        self.assertLess(took, LEASE_AND_FENCE_S + 1.0 + 5.0)
        self.assertTrue(prefill.is_running(), prefill.said())

        second = self.decode(prefill.address, *words, "--requests", "20", "--tokens", "1500")
        self.assert_all_right(second, 20)
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())
        self.assert_said(prefill, r" [1-9]\d* lapsed, .* 0 still parked; 0 failed")

    def test_one_killed_process_of_many_ranks_fails_its_rank_alone(self):
        ranks = 2
        listen = f"unix:{self.folder}/socket"
        words = ["--ranks", str(ranks), "--token-bytes", "1152", "--layers", "2", "--page-tokens",
                 "16", "--pool-tokens", "8192", "--requests", "400", "--tokens", "1500"]
        prefills = [self.prefill(*words, "--rank", str(r), listen=listen) for r in range(ranks)]
        decodes = [self.decode(listen, *words, "--rank", str(r)) for r in range(ranks)]
        for decode in decodes:
            decode.wait_line("connected to")
        prefills[0].kill()
        self.assertEqual(decodes[0].wait_exit(), 1)
        self.assertEqual(decodes[0].json()["mismatches"], 0)
        self.assert_all_right(decodes[1], 400)
        self.assertEqual(prefills[1].wait_exit(), 0)


if __name__ == "__main__":
    main()
