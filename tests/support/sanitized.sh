#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test so that a sanitizer's report is a failure: the test framework runs each test in a
# child and would swallow it.
log=$(mktemp -d) || exit 99
trap 'rm -rf "$log"' EXIT
ASAN_OPTIONS="${ASAN_OPTIONS:-}:log_path=$log/san" \
LSAN_OPTIONS="${LSAN_OPTIONS:-}:print_suppressions=0:suppressions=$(dirname "$0")/leaks.txt" \
UBSAN_OPTIONS="${UBSAN_OPTIONS:-}:print_stacktrace=1:log_path=$log/san" \
TSAN_OPTIONS="${TSAN_OPTIONS:-}:log_path=$log/san" "$@"
rc=$?
for f in "$log"/san*; do
    [ -e "$f" ] || break
    cat "$f" >&2
    rc=1
done
exit $rc
