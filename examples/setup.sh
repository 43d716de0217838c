#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that are missing: setup.sh build | test
# For Debian 12 and 13 and Ubuntu 24.04, as root or with sudo. Installs nothing when all is there.

build="gcc libc6-dev meson ninja-build pkg-config python3 libuv1-dev libinih-dev libpopt-dev libjansson-dev"
test="libcriterion-dev binutils g++"
# Without these some checks are skipped, but nothing fails.
extra="clang clang-format clang-tidy libclang-rt-dev doxygen valgrind"

case $1 in
build) needed=$build wanted= ;;
test) needed="$build $test" wanted=$extra ;;
*) echo "usage: examples/setup.sh build | test" >&2; exit 2 ;;
esac

if ! command -v apt-get > /dev/null || ! command -v dpkg-query > /dev/null; then
    echo "setup: no apt here; what is needed goes by these names on Debian: $needed" >&2
    exit 0
fi

# missing PACKAGE...
missing() {
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) in
        installed) ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo > /dev/null; then
        sudo DEBIAN_FRONTEND=noninteractive "$@"
    else
        echo "setup: neither root nor sudo; as root: apt-get install $missing_needed" >&2
        return 1
    fi
}

install() {
    echo "setup: installing $*"
    as_root apt-get install -y -q --no-install-recommends "$@"
}

# shellcheck disable=SC2086
missing_needed=$(missing $needed)
# shellcheck disable=SC2086
missing_wanted=$(missing $wanted)
[ -n "$missing_needed$missing_wanted" ] || exit 0

as_root apt-get update -q || [ -z "$missing_needed" ] || exit 1
if [ -n "$missing_needed" ]; then
    # shellcheck disable=SC2086
    install $missing_needed || exit 1
fi
for package in $missing_wanted; do
    install "$package" || echo "setup: goes on without $package"
done
exit 0
