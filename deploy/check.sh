#!/usr/bin/env bash
# The whole test run: installs, builds, runs every test through CTest, then the sanitizer suites.
# Ends with CTest's own summary; fails on any skipped test that tests/tidy/skips.txt does not list.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage() {
  cat <<EOF
usage: deploy/check.sh [--no-install] [--no-sanitizers]
  --no-install     list missing packages and stop, instead of installing them
  --no-sanitizers  leave out the address and thread sanitizer suites
EOF
}

install=yes
sanitizers=yes
for argument in "$@"; do
  case $argument in
    --no-install) install=no ;;
    --no-sanitizers) sanitizers=no ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

# Skips inside a GoogleTest or unittest program are invisible to CTest: read its log for them.
check_skips() {
  local log=$1 skipped
  skipped=$(grep -E '^\[  SKIPPED \] [A-Za-z]|\.\.\. skipped' "$log" | sort -u || true)
  while IFS= read -r permitted; do
    [[ $permitted =~ ^# || -z $permitted ]] && continue
    skipped=$(grep -vF "${permitted%% *}" <<< "$skipped" || true)
  done < tests/tidy/skips.txt
  if [[ -n $skipped ]]; then
    echo "$skipped" >&2
    fail "step 'skips': tests were skipped that tests/tidy/skips.txt does not list"
  fi
}

# sanitize PRESET LABEL: the tests of that label under that sanitizer.
sanitize() {
  local preset=$1 label=$2
  configure "$preset"
  build "$preset" "${label}_tests"
  step "test-$preset" ctest --test-dir "build/$preset" -L "^$label\$" --output-on-failure \
    --no-tests=error
}

install_packages "$install" "${build_packages[@]}" "${test_packages[@]}"
export ASAN_OPTIONS=detect_leaks=1:halt_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
if [[ $sanitizers == yes ]]; then
  sanitize asan address
  sanitize tsan thread
fi
configure release -DBUILD_TESTING=ON  # quickstart.sh turns it off there
build release
# Three at once: tests of processes wait most of the time, and waiting threads must not spin.
export OMP_WAIT_POLICY=passive
ctest --test-dir build/release --parallel 3 --output-on-failure --no-tests=error \
  || fail "step 'test' failed; the tests above have the details"
check_skips build/release/Testing/Temporary/LastTest.log
