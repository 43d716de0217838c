#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds into build/, and runs prefill and decode with 8 ranks each on this host:
# decode pulls every page of 60 requests and checks every byte. Options go to both programs.
cd "$(dirname "$0")/.." || exit 2

./examples/setup.sh build || exit 1
if [ ! -f build/build.ninja ]; then
    meson setup build -Dexamples=enabled || exit 1
fi
ninja -C build examples/kvx-prefill examples/kvx-decode examples/kvx-bench || exit 1

work=$(mktemp -d) || exit 1
prefill=
finish() {
    [ -z "$prefill" ] || kill "$prefill" 2> /dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# The address of prefill's line "bound to ADDRESS ...".
bound() {
    sed -n 's/^bound to \([^ ]*\).*/\1/p' "$work/prefill" 2> /dev/null
}

trace=examples/data/small.jsonl
echo "==> prefill"
build/examples/kvx-prefill --listen 127.0.0.1:0 --ranks 8 --transport cma --pool-tokens 65536 \
    --trace "$trace" "$@" > "$work/prefill" 2>&1 &
prefill=$!
while [ -z "$(bound)" ]; do
    if ! kill -0 "$prefill" 2> /dev/null; then
        cat "$work/prefill"
        exit 1
    fi
    sleep 0.1
done
cat "$work/prefill"

echo "==> decode"
build/examples/kvx-decode --connect "$(bound)" --ranks 8 --transport cma --pool-tokens 65536 \
    --trace "$trace" "$@"
status=$?

echo "==> prefill"
[ $status = 0 ] || kill "$prefill" 2> /dev/null
wait "$prefill" || [ $status != 0 ] || status=$?
prefill=
tail -n 3 "$work/prefill"
[ $status = 0 ] && echo "quickstart: every byte was right" || echo "quickstart: FAILED ($status)"
exit $status
