#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# format.sh ROOT: every source is as clang-format 14 writes it. Other versions differ in details,
# so they are not asked.
cd "$1" || exit 99
for tool in clang-format-14 clang-format; do
    command -v $tool > /dev/null || continue
    $tool --version | grep -q 'version 14\.' || continue
    bad=$(find lib transports examples tests -name '*.[ch]' -exec $tool --dry-run {} + 2>&1 |
        sed -n 's/^\([^:]*\):\([0-9]*\):.*warning:.*/\1:\2/p' | sort -t: -u -k1,1)
    [ -n "$bad" ] || exit 0
    echo "not as $tool writes it, first line of each file:"
    echo "$bad"
    echo "to repair: find lib transports examples tests -name '*.[ch]' -exec $tool -i {} +"
    exit 1
done
echo "skipped: there is no clang-format 14 here"
exit 77
