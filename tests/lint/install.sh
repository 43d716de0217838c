#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh BUILD-FOLDER C-COMPILER PROGRAM.c: what is installed is enough to build a program
# through pkg-config, against the shared and against the static library, and both find the same
# transports.
build=$1 cc=$2 program=$3
stage=$(mktemp -d) || exit 99
trap 'rm -rf "$stage"' EXIT

fail() {
    echo "$1"
    exit 1
}

meson install -C "$build" --no-rebuild --quiet --destdir "$stage" > "$stage/log" 2>&1 || {
    cat "$stage/log"
    fail "meson install failed"
}
pc=$(find "$stage" -name kvx.pc)
[ -f "$pc" ] || fail "no kvx.pc was installed"
prefix=$(sed -n 's/^prefix=//p' "$pc")
PKG_CONFIG_PATH=$(dirname "$pc")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH

ask() {
    pkg-config --define-variable=prefix="$stage$prefix" "$@" kvx
}

libdir=$(ask --variable=libdir)
named=$(ask --variable=transports)
# shellcheck disable=SC2046,SC2086
$cc -o "$stage/shared" "$program" $(ask --cflags --libs) || fail "does not link: shared"
shared=$(LD_LIBRARY_PATH="$libdir" "$stage/shared") || fail "does not run: shared"
readelf -d "$stage/shared" | grep -q 'NEEDED.*libkvx\.so\.0' || fail "the soname is not libkvx.so.0"

# Without the shared library beside it, -lkvx means the archive.
rm -f "$libdir"/libkvx.so*
# shellcheck disable=SC2046,SC2086
$cc -o "$stage/static" "$program" $(ask --cflags) $(ask --static --libs) || fail "does not link: static"
static=$("$stage/static") || fail "does not run: static"

for word in $shared; do echo "$word"; done | sort > "$stage/a"
for word in $static; do echo "$word"; done | sort > "$stage/b"
echo "$named" | tr ',' '\n' | sort > "$stage/c"
cmp -s "$stage/a" "$stage/b" || fail "shared finds: $shared; static finds: $static"
cmp -s "$stage/a" "$stage/c" || fail "shared finds: $shared; kvx.pc names: $named"
echo "shared and static programs find: $shared"
