#!/usr/bin/env bash
# From a fresh clone to two tuned models: installs what is missing, builds release, runs the main
# job in both forms with a private daemon, and says what to try next.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage() {
  cat <<EOF
usage: deploy/quickstart.sh [--no-install] [--keep]
  --no-install  list missing packages and stop, instead of installing them (needs root)
  --keep        leave the daemon running, and its state in build/quickstart
EOF
}

install=yes
keep=no
for argument in "$@"; do
  case $argument in
    --no-install) install=no ;;
    --keep) keep=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

install_packages "$install" "${build_packages[@]}"
configure release -DBUILD_TESTING=OFF
build release

state=build/quickstart
rm -rf "$state"
mkdir -p "$state"
bin=build/release/bin
socket=$state/hbmtuned.sock
"$bin/hbmtuned" --state-dir "$state" --socket "$socket" --http off 2> "$state/hbmtuned.log" &
daemon=$!
stop_daemon() {
  kill "$daemon" 2> /dev/null && wait "$daemon" 2> /dev/null || true
}
[[ $keep == yes ]] || trap stop_daemon EXIT

export HBMTUNE_SOCKET=$socket
for _ in $(seq 50); do
  [[ -S $socket ]] && break
  kill -0 "$daemon" 2> /dev/null || fail "step 'daemon' failed; see $state/hbmtuned.log"
  sleep 0.1
done

show() {
  printf '\n$ hbmtune %s\n' "$*"
  "$bin/hbmtune" "$@" || fail "step 'hbmtune $1' failed"
}
show tune --model llama2-13b --seq-len 2048 --device model:mi210 --framework hf-sdpa+deepspeed
show tune --model deploy/quickstart/config.json --seq-len 256 --device host --memory 1GiB \
  --budget 60s

cat <<EOF

Try next (from $PWD):
  export PATH=\$PWD/$bin:\$PATH
  hbmtune estimate --local --model llama3-8b --seq-len 4096 --device model:mi300x --micro-batch 2
  hbmtune tune --local --model llama2-7b --device model:mi300x --framework hf-sdpa+deepspeed
  hbmtune --help
EOF
if [[ $keep == yes ]]; then
  echo "The daemon goes on (process $daemon): export HBMTUNE_SOCKET=$PWD/$socket"
  disown "$daemon"
else
  echo "What the studies print after \"next:\" asks this run's daemon: --keep leaves it running."
fi
