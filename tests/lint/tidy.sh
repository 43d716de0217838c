#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tidy.sh BUILD-FOLDER: clang-tidy with .clang-tidy over lib/ and transports/.
tool=$(command -v run-clang-tidy-14 || command -v run-clang-tidy) || {
    echo "skipped: there is no clang-tidy here"
    exit 77
}
exec "$tool" -quiet -p "$1" '/(lib|transports)/[^/]+/[^/]+\.c$'
