#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds everything and runs every test; --help tells more.
usage() {
    cat << 'END'
usage: tests/run.sh [--quick] [--help]

Installs what is missing (apt, as root or with sudo), builds, runs all tests, and ends in one line:
N passed, N failed, N skipped. Stages, each in a build folder of its own:

    build         gcc: every test and every lint; the programs are in build/examples/
    build-asan    gcc with AddressSanitizer and UndefinedBehaviorSanitizer
    build-clang   clang with thread-safety analysis and clang-tidy
    build-tsan    gcc with ThreadSanitizer: the race programs

    --quick       only the first stage

Environment: KVX_TEST_SEED=N repeats a failure that printed its seed.
END
}

quick=no
for argument in "$@"; do
    case $argument in
    --quick) quick=yes ;;
    --help | -h) usage; exit 0 ;;
    *) echo "tests/run.sh: unknown option $argument" >&2; usage >&2; exit 2 ;;
    esac
done

cd "$(dirname "$0")/.." || exit 2
logs=$(mktemp -d) || exit 2
trap 'rm -rf "$logs"' EXIT
started=$(date +%s)
: > "$logs/results" # lines: stage, testlog.json, or a result by itself

heading() {
    printf '\n==> %s (%s s)\n' "$1" "$(($(date +%s) - started))"
}

# A stage that is no test: result STAGE RESULT WHY
result() {
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >> "$logs/results"
    [ "$2" = passed ] || echo "$1: $2: $3"
}

# Runs a command quietly; shows what it said if it fails.
quietly() {
    if ! "$@" > "$logs/said" 2>&1; then
        tail -n 60 "$logs/said"
        return 1
    fi
}

# Warnings are errors with the compilers that the project is developed with; newer ones know more.
werror() {
    case "$($1 -dumpversion)" in
    12* | 14.0.*) echo -Dwerror=true ;;
    *) echo -Dwerror=false ;;
    esac
}

# configure FOLDER COMPILER OPTION...
configure() {
    folder=$1 compiler=$2
    shift 2
    if [ -f "$folder/build.ninja" ]; then
        quietly meson configure "$folder" -Dtests=enabled -Dexamples=enabled "$@"
    else
        rm -rf "$folder"
        CC=$compiler quietly meson setup "$folder" -Dtests=enabled -Dexamples=enabled "$@"
    fi
}

# stage FOLDER COMPILER "OPTIONS" "TEST ARGUMENTS"
stage() {
    folder=$1 compiler=$2 options=$3 arguments=$4
    heading "$folder: build"
    # shellcheck disable=SC2086
    configure "$folder" "$compiler" $options || { result "$folder" failed "does not configure"; return; }
    [ "$folder" = build-tsan ] || quietly ninja -C "$folder" || {
        result "$folder" failed "does not build"
        return
    }
    heading "$folder: test"
    rm -f "$folder"/meson-logs/testlog*.json
    # shellcheck disable=SC2086
    meson test -C "$folder" --print-errorlogs $arguments
    for log in "$folder"/meson-logs/testlog*.json; do
        if [ -f "$log" ]; then
            printf '%s\tlog\t%s\n' "$folder" "$log" >> "$logs/results"
        else
            result "$folder" failed "ran no test"
        fi
    done
}

# In a function, so that the shell has read all of it before it begins.
main() {
    heading "set-up"
    ./examples/setup.sh test || { echo "the set-up failed"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

    stage build gcc "$(werror gcc)" "--no-rebuild"

    if [ $quick = no ]; then
        stage build-asan gcc "-Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false" \
            "--no-rebuild --setup sanitize"
        if command -v clang > /dev/null; then
            stage build-clang clang "$(werror clang)" \
                "--no-rebuild --suite unit --suite contract --suite fuzz --suite model --no-suite mutants"
            heading "clang-tidy"
            tests/lint/tidy.sh build-clang > "$logs/tidy" 2>&1
            case $? in
            0) result clang-tidy passed "" ;;
            77) result clang-tidy skipped "there is no clang-tidy here" ;;
            *) grep -E 'error:|warning:' "$logs/tidy" | head -n 40
               result clang-tidy failed "see above" ;;
            esac
        else
            result build-clang skipped "there is no clang here"
        fi
        stage build-tsan gcc "-Db_sanitize=thread -Db_lundef=false" "--setup sanitize --suite race"
    fi

    heading "result"
    python3 tests/support/count.py "$logs/results"
}

main
exit
