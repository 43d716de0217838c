#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh SHARED STATIC HEADER...: the shared library exports what the public headers declare
# and nothing else, and the static one defines nothing outside kvx_.
shared=$1 static=$2
shift 2
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
rc=0

complain() {
    [ -s "$2" ] || return 0
    echo "$1:" && sed 's/^/    /' "$2"
    rc=1
}

nm -D --defined-only "$shared" | awk '{ print $3 }' | sort -u > "$work/exported"
nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | sort -u > "$work/global"
cat "$@" | tr '\n' ' ' | grep -oE 'KVX_API(_CHECKED)? [^;(]*\(' | grep -oE 'kvx_[a-z0-9_]+ *\($' |
    tr -d ' (' | sort -u > "$work/declared"
[ -s "$work/exported" ] && [ -s "$work/declared" ] || { echo "no symbols found"; exit 1; }

grep -v '^kvx_' "$work/exported" > "$work/foreign"
complain "exported, but not kvx_*" "$work/foreign"
grep -v '^kvx_' "$work/global" > "$work/foreign"
complain "global in the static library, but not kvx_*" "$work/foreign"
comm -23 "$work/exported" "$work/declared" > "$work/undeclared"
complain "exported, but in no public header" "$work/undeclared"
comm -13 "$work/exported" "$work/declared" > "$work/missing"
complain "declared in a public header, but not exported" "$work/missing"
[ $rc -ne 0 ] || echo "$(wc -l < "$work/exported") symbols exported, all kvx_* and declared"
exit $rc
