#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers.sh C-COMPILER C++-COMPILER "INCLUDE FLAGS" HEADER...: each public header compiles alone,
# twice in one file, as C and as C++.
cc=$1 cxx=$2 flags=$3
shift 3
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
rc=0

for header in "$@"; do
    name=kvx/$(basename "$header")
    printf '#include "%s"\n#include "%s"\nextern int in_use;\n' "$name" "$name" > "$work/alone.c"
    cp "$work/alone.c" "$work/alone.cpp"
    # shellcheck disable=SC2086
    $cc -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wstrict-prototypes -Werror \
        $flags -fsyntax-only "$work/alone.c" || { echo "$name: not alone as C"; rc=1; }
    # shellcheck disable=SC2086
    $cxx -std=c++11 -Wall -Wextra -Wundef -Werror \
        $flags -fsyntax-only "$work/alone.cpp" || { echo "$name: not alone as C++"; rc=1; }
done
[ $rc -ne 0 ] || echo "$# headers compile alone as C and as C++"
exit $rc
