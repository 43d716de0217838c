#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input: each ends in a message that names the thing and the remedy, and harms nobody else."""
import os
import pathlib
import random
import socket
import struct
import subprocess
import threading
import time
import unittest

from pair_process import (PROGRAMS, SMALL, PairTest, Program, free_ports, main, settings,
                          wait_for)

SEED = int(os.environ.get("KVX_TEST_SEED", time.time_ns() % 1_000_000))
WORK = ("--requests", "4", "--tokens", "300")
HELLO, SUBSCRIBE, PING = 1, 4, 14


def frame(kind, payload, length=None, magic=0x564B):
    """A control message as it goes over the wire."""
    size = len(payload) + 8 if length is None else length
    return struct.pack("<IHH", size, kind, magic) + payload


def hello_of_version(version):
    return frame(HELLO, b"KVEXPRES" + struct.pack("<II", version, version) + bytes(64))


def connect(address):
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address[5:])
        return sock
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=30)


def send_and_read(address, data):
    """Say something and take what comes until the other side hangs up."""
    answer = b""
    with connect(address) as sock:
        sock.settimeout(30)
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while True:
                got = sock.recv(65536)
                if not got:
                    return answer
                answer += got
        except OSError:  # it was dropped before all was said
            return answer


class Addresses(PairTest):
    def refused(self, name, *words, says, env=None):
        program = self.run_program(name, *words, *SMALL, *WORK, env=env)
        self.assert_said(program, *says)
        return program

    def test_a_port_in_use(self):
        first = self.prefill(*SMALL, *WORK)
        self.refused("kvx-prefill", "--listen", first.address,
                     says=[rf"{first.address}: Address already in use", "choose (a free|another) port"])
        self.assert_serves(first, *SMALL)

    def test_a_port_in_use_by_something_else(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.refused("kvx-prefill", "--listen", address, says=[rf"{address}.*already in use"])

    def test_an_unknown_host(self):
        address = "no-such-host.invalid:7400"
        self.refused("kvx-prefill", "--listen", address, says=["no-such-host.invalid", "check the name"])
        self.refused("kvx-decode", "--connect", address, "--connect-s", "1",
                     says=["no-such-host.invalid", "check the name"])

    def test_an_address_of_another_host(self):
        self.refused("kvx-prefill", "--listen", "192.0.2.1:7400",
                     says=[r"192.0.2.1:7400.*(no interface|assign)", "--listen"])

    def test_addresses_that_are_none(self):
        for address in ("127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", ":7400",
                        "127.0.0.1:-1", "", "::1", "unix:" + "x" * 300):
            for name, option in (("kvx-prefill", "--listen"), ("kvx-decode", "--connect")):
                with self.subTest(address=address, name=name):
                    self.refused(name, option, address, says=[r"say host:port|at most 107 bytes|write \[addr\]"])

    def test_a_port_that_leaves_no_room_for_the_rank(self):
        program = self.run_program("kvx-prefill", "--listen", "127.0.0.1:65535", "--rank", "3")
        self.assert_said(program, "127.0.0.1:65535.*leaves room for the rank")

    def test_a_socket_path_without_a_folder(self):
        self.refused("kvx-prefill", "--listen", f"unix:{self.folder}/no/socket",
                     says=["No such file or directory", "folder"])

    def test_a_socket_that_a_killed_prefill_left_is_taken_over(self):
        listen = f"unix:{self.folder}/socket"
        self.prefill(*SMALL, *WORK, listen=listen).kill()
        self.assertTrue((self.folder / "socket").exists())
        prefill = self.prefill(*SMALL, *WORK, listen=listen)
        self.refused("kvx-prefill", "--listen", listen, says=["somebody listens there"])
        self.assert_serves(prefill, *SMALL)
        self.assertFalse((self.folder / "socket").exists(), "it is removed at the end")

    def test_a_file_in_place_of_the_socket_is_left_alone(self):
        path = self.folder / "notes"
        path.write_text("precious")
        self.refused("kvx-prefill", "--listen", f"unix:{path}", says=[str(path)])
        self.assertEqual(path.read_text(), "precious")

    def test_nobody_listens(self):
        address = f"127.0.0.1:{free_ports(1)}"
        program = self.refused("kvx-decode", "--connect", address, "--connect-s", "1", "--json",
                               says=[f"no prefill at {address}", "start kvx-prefill"])
        self.assertEqual((program.json()["transport"], program.json()["not_run"]), ("none", 4))

    def test_something_else_listens(self):
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None, frame(PING, bytes(8)),
                       frame(2, b"\xff" * 40), b"\x00" * 4096):
            with self.subTest(answer=answer):
                self.listen_and_say(answer)

    def listen_and_say(self, answer):
        """answer None: take the connection and say nothing."""
        held = []
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"

            def serve():
                while True:
                    try:
                        sock = server.accept()[0]
                    except OSError:
                        return
                    if answer is not None:
                        sock.sendall(answer)
                        sock.shutdown(socket.SHUT_WR)
                    held.append(sock)

            threading.Thread(target=serve, daemon=True).start()
            program = self.refused("kvx-decode", "--connect", address, "--connect-s", "1",
                                   *settings(hello_ms=300), says=[address])
            self.assertRegex(program.said(), r"cannot serve us|no prefill at")
            server.shutdown(socket.SHUT_RDWR)
        for sock in held:
            sock.close()


class Options(PairTest):
    def refused(self, *words, says, env=None):
        for name in ("kvx-prefill", "kvx-decode"):
            with self.subTest(name=name, words=words):
                program = self.run_program(name, *words, env=env)
                self.assert_said(program, *says)

    def test_an_unknown_transport(self):
        self.refused(*SMALL, "--transport", "cmaa", says=["cmaa is not known.*cma"])

    def test_an_unknown_setting(self):
        nearest = "nearest is lease_ms"
        self.refused(*SMALL, "--set", "leese_ms=100", says=["leese_ms", nearest])
        self.refused(*SMALL, says=["KVX_LEESE_MS", "nearest is KVX_LEASE_MS"],
                     env={"KVX_LEESE_MS": "100"})
        path = self.folder / "kvx.conf"
        path.write_text("lease_ms = 10000\nleese_ms = 100\n")
        self.refused(*SMALL, "--config", str(path), says=[f"{path}:2: .*leese_ms", nearest])

    def test_settings_out_of_range(self):
        for setting, limits in (("lease_ms=1", "10 ... 3600000"), ("lease_ms=-1", "10 ... 3600000"),
                                ("ping_ms=0", "1 ... 60000"), ("fence_ms=99999999999999999999", "number"),
                                ("window_bytes=1", "4KiB"), ("cma.call_entries=0", "1 ... 1023")):
            self.refused(*SMALL, "--set", setting, says=[setting.split("=")[0], limits])
        self.refused(*SMALL, "--set", "lease_ms", says=["--set lease_ms: say key=value"])

    def test_settings_that_do_not_fit_together(self):
        listen = self.run_program("kvx-prefill", "--listen", "127.0.0.1:0", *SMALL,
                                  *settings(lease_ms=100))
        self.assert_said(listen, "lease_ms 100 is below 4 times ping_ms 250: raise lease_ms")
        self.refused(*SMALL, *settings(fence_ms=10), says=["fence_ms 10 is below .*: raise fence_ms"])

    def test_a_missing_file_of_settings(self):
        self.refused(*SMALL, "--config", f"{self.folder}/none", says=[f"{self.folder}/none: No such"])

    def test_unknown_options_and_words(self):
        self.refused("--no-such-option", says=["--no-such-option", "--help"])
        self.refused("word", says=["word is no option", "--help"])
        self.refused("--ranks", says=["--ranks", "--help"])

    def test_numbers_out_of_range(self):
        for option, values in (("--ranks", ("0", "-1", "65", "99999999999")),
                               ("--rank", ("-2", "8")),
                               ("--layers", ("-1", "62", "1000000")),
                               ("--page-tokens", ("0", "-16", "65537")),
                               ("--pool-tokens", ("0", "-1", "99999999999999999999")),
                               ("--requests", ("-1", "100000001")),
                               ("--tokens", ("-1", "1073741825"))):
            for value in values:
                self.refused(option, value, says=[rf"{value}", "allowed|too large|has 61"])
        for value in ("x", "1e9", "12x", "0x"):
            self.refused("--page-tokens", value, says=["invalid numeric value", "--help"])

    def test_numbers_of_decode_out_of_range(self):
        for option, value in (("--concurrency", "0"), ("--concurrency", "-1"),
                              ("--concurrency", "4097"), ("--deadline-ms", "-1"),
                              ("--deadline-ms", "99999999"), ("--reconnect-s", "-1"),
                              ("--connect-s", "-1")):
            with self.subTest(option=option, value=value):
                program = self.run_program("kvx-decode", *SMALL, option, value)
                self.assert_said(program, f"{option} {value}: allowed are")

    def test_numbers_too_large_for_this_host(self):
        self.refused("--pool-tokens", "2147483648", says=["pools need .* GiB", "--pool-tokens"])
        self.refused(*SMALL, "--requests", "100000000", "--tokens", "1073741824",
                     says=["GiB", "--requests or --tokens"])

    def test_choices_that_are_none(self):
        self.refused("--model", "gpt", says=["gpt", "deepseek-671b, llama-3.1-70b, qwen3-235b"])
        self.refused("--token-bytes", "7", "--layers", "1", says=["--token-bytes 7", "multiple of 8"])
        self.refused("--log", "loud", says=["--log loud: say "])
        self.refused("--token-bytes", "8", "--model", "qwen3-235b", says=["exclude each other"])
        self.refused("--max-tokens", "8", says=["--max-tokens needs --trace"])
        self.refused("--axis", "x" * 300, says=["--axis", "longer than"])

    def test_traces_that_are_malformed(self):
        good = '{"timestamp": 1, "input_length": 10, "output_length": 3, "hash_ids": []}\n'
        path = self.folder / "trace.jsonl"
        for bad, says in (("{\n", "column"), ('{"timestamp": 1}\n', "input_length is missing"),
                          (good.replace("10", '"x"'), "input_length is not a whole number"),
                          (good.replace("10", "0"), "input_length is 0, allowed are"),
                          (good.replace("3,", "-3,"), "output_length is -3, allowed are"),
                          (good.replace("[]", "[1.5]"), "hash_ids"), ("[1]\n", "not a JSON object"),
                          ("\x00\x01\n", "column"), (good.replace("10", "1" * 30), "column|too big")):
            path.write_text(good + "\n" + bad)
            self.refused(*SMALL, "--trace", str(path), says=[rf"{path}:3: .*({says})"])

    def test_traces_that_cannot_be_read(self):
        self.refused(*SMALL, "--trace", f"{self.folder}/none", says=["/none: .*No such file"])
        self.refused(*SMALL, "--trace", str(self.folder), says=["Is a directory"])
        self.refused(*SMALL, "--trace", "/dev/null", says=["no request is left to run"])

    def test_metrics_that_cannot_be_written(self):
        where = ["--listen", "127.0.0.1:0", *SMALL]
        for path, why in ((f"{self.folder}/no/file", "No such file"), (str(self.folder), "directory"),
                          ("/dev/full", "No space left")):
            with self.subTest(path=path):
                program = self.run_program("kvx-prefill", *where, "--metrics", path)
                self.assert_said(program, rf"{path}: .*{why}", "--metrics")
                program = self.run_program("kvx-decode", *SMALL, "--metrics", path)
                self.assert_said(program, rf"{path}: .*{why}", "--metrics")
        self.assertFalse(pathlib.Path("/dev/full").is_file(), "a device is not replaced")
        self.assertEqual(list(self.folder.iterdir()), [])


class Differences(PairTest):
    """What the two sides do not have in common both name, each in its own words."""

    def test_sides_that_differ(self):
        prefill = self.prefill(*SMALL, *WORK)
        for words, says, ours, theirs in (
                (["--page-tokens", "64"], "page_tokens of component kv", "64", "16"),
                (["--axis", "head,token"], "axis of component kv", '"head,token"', '"token,bytes"'),
                (["--compat", "other bf16"], "compat", '"other bf16"', '"custom bf16"'),
                (["--layers", "3"], "regions", "3", "2"),
                (["--token-bytes", "1160"], "page_bytes of region 0", "18560", "18432"),
                (["--token-bytes", "mla:1152"], "region 0", "mla of layer 0.*", "kv of layer 0.*"),
                (["--ranks", "2", "--rank", "0"], "ranks", "2", "1"),
                (["--transport", "loopback"], "transport", "loopback", "cma")):
            with self.subTest(words=words):
                self.check_difference(prefill, words, says, ours, theirs)
        self.assert_serves(prefill, *SMALL)

    def check_difference(self, prefill, words, says, ours, theirs):
        before = prefill.count("refused")
        decode = self.run_program("kvx-decode", "--connect", prefill.address, *SMALL, *WORK, *words,
                                  code=1)
        self.assert_said(decode, rf"cannot serve us: .*{says}.*: ours {ours}, theirs {theirs}; \w+")
        prefill.wait_line("refused", nth=before + 1)
        self.assert_said(prefill, rf"refused: {says}.*: ours {theirs}, theirs {ours}; \w+")

    def test_a_rank_that_is_not_there(self):
        prefill = self.prefill(*SMALL, *WORK)
        decode = self.run_program("kvx-decode", "--connect", prefill.address, *SMALL, *WORK,
                                  "--ranks", "2", "--connect-s", "1", code=1)
        self.assert_said(decode, r"rank 1 is not on \S+; it has ranks 0|ranks: ours 2, theirs 1")
        self.assert_serves(prefill, *SMALL)

    def test_other_requests_on_the_other_side(self):
        prefill = self.prefill(*SMALL, *WORK)
        decode = self.run_program("kvx-decode", "--connect", prefill.address, *SMALL, "--requests",
                                  "4", "--tokens", "301", "--json", code=1)
        self.assert_said(decode, "another request of 300 tokens, ours has 301: give both .* the "
                         "same --trace")
        self.assertEqual(decode.json()["failures"], {"mismatch": 4})
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())


class Strangers(PairTest):
    """Whoever talks nonsense to the port of prefill is dropped, and costs nobody else anything."""

    def setUp(self):
        super().setUp()
        self.server = self.prefill(*SMALL, *WORK, *settings(hello_ms=500))

    def open_files(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def check_unharmed(self, files):
        """No connection stays, and a decode of good manners is served."""
        self.assertIsNotNone(wait_for(lambda: self.open_files() <= files), self.server.said())
        self.assertTrue(self.server.is_running(), self.server.said())
        self.assert_serves(self.server, *SMALL)

    def test_garbage(self):
        print(f"seed {SEED}")
        chance = random.Random(SEED)
        files = self.open_files()
        for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\n",
                     bytes(100000), frame(PING, bytes(8)), frame(SUBSCRIBE, bytes(40)), frame(99, b""),
                     frame(HELLO, b""), frame(HELLO, bytes(200)), frame(HELLO, b"KVEXPRES"),
                     frame(HELLO, b"KVEXPRES" + struct.pack("<II", 1, 1) + b"\xff" * 500)):
            send_and_read(self.server.address, data)
        for _ in range(100):
            send_and_read(self.server.address, chance.randbytes(chance.randrange(1, 300)))
        self.assert_said(self.server, r"not a HELLO of this protocol.*another port")
        self.check_unharmed(files)

    def test_frames_that_are_too_large(self):
        files = self.open_files()
        for length in (0, 7, 65537, 1 << 24, (1 << 24) + 1, 1 << 31, (1 << 32) - 1):
            send_and_read(self.server.address, frame(HELLO, b"KVEXPRES" + bytes(1000), length))
        self.check_unharmed(files)

    def test_a_hello_of_another_protocol_version(self):
        files = self.open_files()
        answer = send_and_read(self.server.address, hello_of_version(9))
        wanted = r"protocol version: .*9-9.*1-1.*run the same release on both sides"
        self.assertRegex(answer.decode(errors="replace"), wanted)
        self.server.wait_line(wanted)
        self.check_unharmed(files)

    def test_connections_that_say_nothing(self):
        """More than may wait for their HELLO at once."""
        silent = [connect(self.server.address) for _ in range(200)]
        self.assert_serves(self.server, *SMALL)
        for sock in silent:
            sock.close()

    def test_silent_connections_are_closed(self):
        files = self.open_files()
        silent = [connect(self.server.address) for _ in range(30)]
        for sock in silent:
            sock.settimeout(30)
            self.assertEqual(sock.recv(1), b"")
            sock.close()
        self.check_unharmed(files)

    def test_a_hello_that_comes_a_byte_at_a_time_for_ever(self):
        files = self.open_files()
        begun = time.monotonic()
        with connect(self.server.address) as sock:
            sock.settimeout(30)
            try:
                for byte in frame(HELLO, bytes(60000)):
                    sock.sendall(bytes([byte]))
                    time.sleep(0.02)
                    if time.monotonic() - begun > 30:
                        break
            except (ConnectionResetError, BrokenPipeError):
                pass
        self.assertLess(time.monotonic() - begun, 25)
        self.check_unharmed(files)

    def test_connections_that_end_at_once(self):
        files = self.open_files()
        for _ in range(200):
            connect(self.server.address).close()
        self.check_unharmed(files)

    def test_garbage_while_a_decode_pulls(self):
        words = [*SMALL, "--requests", "300", "--tokens", "300"]
        prefill = self.prefill(*words)
        decode = self.decode(prefill.address, *words)
        count = 0
        while decode.is_running() and count < 300:
            try:
                send_and_read(prefill.address, bytes([count % 256]) * 50)
            except ConnectionRefusedError:
                break
            count += 1
        self.assert_all_right(decode, 300)
        self.assertEqual(prefill.wait_exit(), 0, prefill.said())


class Streams(PairTest):
    def test_output_that_cannot_be_written(self):
        for words in (["--json"], []):
            prefill = self.prefill(*SMALL, *WORK)
            with open("/dev/full", "wb") as full:
                decode = Program(self, "kvx-decode", ["--connect", prefill.address, *SMALL, *WORK,
                                                      *words], stdout=full)
                self.assertEqual(decode.wait_exit(), 1, decode.said())
            self.assert_said(decode, "standard output: No space left")
            self.assertEqual(prefill.wait_exit(), 0)

    def test_output_that_nobody_reads(self):
        prefill = self.prefill(*SMALL, *WORK)
        ours, theirs = os.pipe()
        os.close(ours)
        with os.fdopen(theirs, "wb") as broken:
            decode = Program(self, "kvx-decode", ["--connect", prefill.address, *SMALL, *WORK],
                             stdout=broken)
            self.assertNotEqual(decode.wait_exit(), 0)
        self.assert_serves(prefill, *SMALL)

    def test_closed_streams_get_no_socket_in_their_place(self):
        """A line that is printed must not go to a peer."""
        for closed in ("<&- >&-", "2>&-", "<&- >&- 2>&-"):
            with self.subTest(closed=closed):
                prefill = self.prefill(*SMALL, *WORK)
                words = f"{PROGRAMS}/kvx-decode --connect {prefill.address} {' '.join(SMALL + WORK)}"
                decode = subprocess.run(["sh", "-c", f"exec {words} --log debug {closed}"],
                                        timeout=60, capture_output=True, check=False)
                self.assertEqual(decode.returncode, 0, decode.stderr)
                self.assertEqual(prefill.wait_exit(), 0, prefill.said())
                self.assert_said(prefill, "4 released")


if __name__ == "__main__":
    main()
