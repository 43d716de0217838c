#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The minimal pair, both under valgrind: right, no bad access, nothing leaked.
command -v valgrind > /dev/null || {
    echo "skipped: there is no valgrind here"
    exit 77
}
work=$(mktemp -d) || exit 99
prefill=
trap '[ -z "$prefill" ] || kill -9 "$prefill" 2> /dev/null; rm -rf "$work"' EXIT

checked() {
    exec valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=all \
        --errors-for-leak-kinds=all "$@"
}

fail() {
    echo "$1"
    tail -n 60 "$work"/*
    exit 1
}

(checked "$KVX_TEST_PROGRAMS/kvx-minimal-prefill" 127.0.0.1:0) > "$work/prefill" 2>&1 &
prefill=$!
tries=0
until address=$(sed -n 's/^listening on //p' "$work/prefill") && [ -n "$address" ]; do
    tries=$((tries + 1))
    kill -0 $prefill 2> /dev/null && [ $tries -lt 600 ] || fail "prefill does not listen"
    sleep 0.1
done
(checked "$KVX_TEST_PROGRAMS/kvx-minimal-decode" "$address") > "$work/decode" 2>&1 ||
    fail "decode: status $?"
wait $prefill || fail "prefill: status $?"
prefill=
grep -c 'right$' "$work/decode" | sed 's/$/ rooms right, valgrind has nothing to say/'
