#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pair runs in the ways that its options offer, and every byte is right."""
import pathlib
import re
import socket
import unittest

from pair_process import DATA, SMALL, PairTest, free_ports, has_ipv6, main, metric

JSON_NAMES = {"requests", "failed", "mismatches", "bytes", "pages", "reads", "seconds",
              "gb_per_s", "transport", "read_mode", "usable_us"}
TRACE = str(DATA / "small.jsonl")
TRACE_REQUESTS = 60


def cache(ranks=1, page_tokens=16, pool_tokens=8192, geometry=("--token-bytes", "1152", "--layers", "2")):
    return ["--ranks", str(ranks), "--page-tokens", str(page_tokens), "--pool-tokens",
            str(pool_tokens), *geometry]


class Runs(PairTest):
    def pair(self, words, requests, decode_words=(), listen="127.0.0.1:0", failed=0,
             prefill_code=0):
        """One prefill and one decode to their ends; the decode's report."""
        prefill = self.prefill(*words, listen=listen)
        decode = self.decode(prefill.address, *words, *decode_words)
        report = self.assert_all_right(decode, requests, failed)
        self.assertEqual(prefill.wait_exit(), prefill_code, prefill.said())
        self.assertEqual(report["transport"], "cma")
        return report

    def made(self, requests=12, tokens=1000):
        return ["--requests", str(requests), "--tokens", str(tokens)]

    def test_one_rank(self):
        report = self.pair(cache() + self.made(), 12)
        self.assertGreaterEqual(report["bytes"] + report["skipped_bytes"], 12 * 1000 * 1152 * 2)

    def test_eight_ranks_in_one_process(self):
        report = self.pair(cache(ranks=8) + self.made(), 12)
        self.assertGreaterEqual(report["bytes"] + report["skipped_bytes"], 8 * 12 * 1000 * 1152 * 2)

    def test_one_process_per_rank(self):
        ranks = 4
        words = cache(ranks=ranks) + self.made()
        listen = f"127.0.0.1:{free_ports(ranks)}"
        rank = [["--rank", str(r)] for r in range(ranks)]
        prefills = [self.prefill(*words, *rank[r], listen=listen) for r in range(ranks)]
        decodes = [self.decode(listen, *words, *rank[r]) for r in range(ranks)]
        for decode in decodes:
            self.assert_all_right(decode, 12)
        for prefill in prefills:
            self.assertEqual(prefill.wait_exit(), 0, prefill.said())

    def test_one_process_per_rank_over_unix_sockets(self):
        words = cache(ranks=2) + self.made()
        listen = f"unix:{self.folder}/socket"
        prefills = [self.prefill(*words, "--rank", str(r), listen=listen) for r in range(2)]
        for r in range(2):
            self.assert_all_right(self.decode(listen, *words, "--rank", str(r)), 12)
            self.assertEqual(prefills[r].wait_exit(), 0, prefills[r].said())

    def test_pages_of_1_16_and_64_tokens(self):
        for page_tokens in (1, 16, 64):
            with self.subTest(page_tokens=page_tokens):
                self.pair(cache(page_tokens=page_tokens) + self.made(), 12)

    def test_other_models_cut_by_layers(self):
        for model in ("llama-3.1-70b", "qwen3-235b", "deepseek-671b"):
            with self.subTest(model=model):
                geometry = ("--model", model, "--layers", "3")
                self.pair(cache(ranks=2, geometry=geometry) + self.made(), 12)

    def test_layers_with_several_roles(self):
        geometry = ("--token-bytes", "k:256,v:128,scale:8", "--layers", "5")
        self.pair(cache(geometry=geometry) + self.made(), 12)

    def test_pages_reserved_early(self):
        report = self.pair(cache(ranks=2) + self.made(), 12, ["--reserve", "early"])
        self.assertEqual(report["reserve"], "early")

    def test_without_prefix_hits_and_without_verification(self):
        prefill = self.prefill(*cache(), *self.made())
        decode = self.decode(prefill.address, *cache(), *self.made(), "--prefix", "off",
                             "--verify", "off")
        self.assertEqual(decode.wait_exit(), 0, decode.said())
        report = decode.json()
        self.assertEqual((report["verified"], report["skipped_bytes"]), (False, 0))
        self.assertEqual(prefill.wait_exit(), 0)

    def test_ipv6(self):
        if not has_ipv6():
            self.skipTest("this host has no IPv6 loopback")
        self.pair(cache() + self.made(), 12, listen="[::1]:0")

    def test_unix_socket(self):
        self.pair(cache() + self.made(), 12, listen=f"unix:{self.folder}/socket")

    def test_a_name_instead_of_an_address(self):
        try:
            socket.getaddrinfo("localhost", 0)
        except OSError:
            self.skipTest("this host does not know the name localhost")
        prefill = self.prefill(*cache(), *self.made(), listen="localhost:0")
        port = prefill.address.rpartition(":")[2]
        self.assert_all_right(self.decode(f"localhost:{port}", *cache(), *self.made()), 12)

    def test_one_request_at_once_and_32(self):
        for concurrency in ("1", "32"):
            with self.subTest(concurrency=concurrency):
                self.pair(cache(ranks=2) + self.made(40, 700), 40, ["--concurrency", concurrency])

    def test_the_trace_that_comes_along(self):
        words = cache(ranks=2, pool_tokens=16384, geometry=("--token-bytes", "64", "--layers", "2"))
        report = self.pair([*words, "--trace", TRACE], TRACE_REQUESTS)
        self.assertGreater(report["skipped_bytes"], 0, "its requests share prefixes")

    def test_a_request_larger_than_the_pool_fails_alone(self):
        trace = self.folder / "trace.jsonl"
        lines = ['{"timestamp": %d, "input_length": %d, "output_length": 60, "hash_ids": []}\n'
                 % (i, 9000 if i == 3 else 500) for i in range(8)]
        trace.write_text("".join(lines))
        words = [*cache(), "--trace", str(trace)]
        prefill = self.prefill(*words)
        decode = self.decode(prefill.address, *words)
        self.assert_all_right(decode, 8, failed=1)
        self.assert_said(decode, r"room 4 failed: ")
        self.assertEqual(prefill.wait_exit(), 1, prefill.said())
        self.assert_said(prefill, r"room 4 of 9000 tokens failed: larger than the pool.*--pool-tok")

    def test_a_request_larger_than_the_pool_of_decode_fails_alone(self):
        trace = self.folder / "trace.jsonl"
        trace.write_text("".join(
            '{"timestamp": %d, "input_length": %d, "output_length": 60, "hash_ids": []}\n'
            % (i, 5000 if i == 3 else 500) for i in range(8)))
        for reserve in ("ready", "early"):
            with self.subTest(reserve=reserve):
                prefill = self.prefill(*cache(), "--trace", str(trace))
                decode = self.decode(prefill.address, *cache(pool_tokens=4096), "--trace",
                                     str(trace), "--reserve", reserve)
                report = self.assert_all_right(decode, 8, failed=1)
                self.assertEqual(report["failures"], {"too_large": 1})
                self.assert_said(decode, r"room 4 failed: larger than our pool")
                self.assertEqual(prefill.wait_exit(), 0, prefill.said())

    def test_a_decode_that_comes_first_waits_for_prefill(self):
        port = free_ports(1)
        decode = self.decode(f"127.0.0.1:{port}", *cache(), *self.made(), "--connect-s", "60")
        self.assertRaises(AssertionError, decode.wait_line, "connected to", timeout_s=0.4)
        prefill = self.prefill(*cache(), *self.made(), listen=f"127.0.0.1:{port}")
        self.assert_all_right(decode, 12)
        self.assertEqual(prefill.wait_exit(), 0)

    def test_the_object_of_json_has_the_promised_names(self):
        report = self.pair(cache() + self.made(), 12)
        self.assertLessEqual(JSON_NAMES, set(report))
        self.assertLessEqual({"p50", "p99", "max"}, set(report["usable_us"]))
        usable = report["usable_us"]
        self.assertTrue(0 < usable["p50"] <= usable["p99"] <= usable["max"], usable)
        self.assertEqual(report["read_mode"], "one-sided")
        self.assertAlmostEqual(report["gb_per_s"], report["bytes"] / report["seconds"] / 1e9,
                               delta=0.1 * report["gb_per_s"] + 0.001)

    def test_people_get_a_summary(self):
        prefill = self.prefill(*cache(), *self.made())
        decode = self.run_program("kvx-decode", "--connect", prefill.address, *cache(),
                                  *self.made(), code=0)
        self.assert_said(decode, r"^requests +12 of 12 right, 0 failed$", r"0 mismatches$",
                         r"GiB in .* GB/s \(cma, one-sided\)$", r"pages a read$",
                         r"^reserve +ready: .* page-seconds")
        for stage in ("wait", "allocate", "plan", "wire", "confirm", "usable"):
            self.assert_said(decode, rf"^ +{stage} +[\d.]+ +[\d.]+ +[\d.]+")
        self.assert_said(prefill, r"^bound to 127.0.0.1:\d+ \(this host only\)$", r"^advertised as")
        self.assertEqual(prefill.wait_exit(), 0)

    def test_the_metrics_files_are_prometheus_text(self):
        files = [self.folder / name for name in ("prefill", "decode")]
        prefill = self.prefill(*cache(ranks=2), *self.made(), "--metrics", str(files[0]))
        decode = self.decode(prefill.address, *cache(ranks=2), *self.made(), "--metrics",
                             str(files[1]))
        self.assert_all_right(decode, 12)
        self.assertEqual(prefill.wait_exit(), 0)
        for path in files:
            self.check_prometheus(path)
        self.assertEqual(metric(files[0], "kvx_published_total"), 24)
        self.assertEqual(metric(files[0], "kvx_parked_rooms"), 0)
        self.assertEqual(metric(files[1], "kvx_pulled_total"), 24)

    def check_prometheus(self, path):
        name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
        sample = re.compile(rf'({name})(\{{{name}="[^"]*"(,{name}="[^"]*")*\}})? [-+0-9.e]+|\+Inf')
        types, seen = {}, set()
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            kind = re.fullmatch(rf"# TYPE ({name}) (counter|gauge|histogram)", line)
            if kind:
                self.assertNotIn(kind.group(1), types, "a family comes once")
                types[kind.group(1)] = kind.group(2)
                continue
            if re.match(rf"# HELP {name} \S", line):
                continue
            match = sample.fullmatch(line)
            self.assertTrue(match, line)
            self.assertNotIn(line.rpartition(" ")[0], seen, "a sample comes once")
            seen.add(line.rpartition(" ")[0])
            family = re.sub(r"_(bucket|sum|count)$", "", match.group(1))
            self.assertTrue(match.group(1) in types or types.get(family) == "histogram", line)
        self.assertGreater(len(types), 20)

    def test_two_decodes_at_once_get_no_wrong_byte_from_one_prefill(self):
        words = [*SMALL, *self.made(100)]
        prefill = self.prefill(*words)
        decodes = [self.decode(prefill.address, *words, "--concurrency", "4") for _ in range(2)]
        for decode in decodes:
            decode.wait_exit()
            report = decode.json()
            self.assertEqual(report["mismatches"], 0, decode.said())
            # A room has one reader here: who comes second is refused, by name.
            self.assertLessEqual(set(report["failures"]), {"refused", "gone"}, decode.said())
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())


if __name__ == "__main__":
    main()
