# Shared by quickstart.sh and check.sh: packages, steps with a log each, configure and build.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=$(basename "$0" .sh)
logs=build/logs

# What the build needs, then what the tests need besides. Debian 12, Debian 13, Ubuntu 24.04.
build_packages=(
  g++ cmake ninja-build pkg-config
  protobuf-compiler libprotobuf-dev protobuf-compiler-grpc libgrpc++-dev libgrpc-dev
  libabsl-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libspdlog-dev
  libsqlite3-dev libssl-dev prometheus-cpp-dev libcivetweb-dev
  libdnnl-dev libeigen3-dev libgloo-dev
)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev ccache git sqlite3
  openssl python3 python3-grpcio python3-protobuf python3-jsonschema prometheus systemd
  librocm-smi64-1
)

fail() {
  echo "$program: $*" >&2
  exit 1
}

# step NAME COMMAND…: runs quietly, output to build/logs/NAME.log; says how long it took, or the
# end of the log and the step's name.
step() {
  local name=$1 began=$SECONDS
  shift
  mkdir -p "$logs"
  [[ -t 1 ]] && printf '%s: %s …' "$program" "$name"
  if ! "$@" > "$logs/$name.log" 2>&1; then
    [[ -t 1 ]] && echo
    tail -n 25 "$logs/$name.log" >&2
    fail "step '$name' failed; the whole output is in $logs/$name.log"
  fi
  [[ -t 1 ]] && printf '\r\033[K'
  echo "$program: $name, $((SECONDS - began)) s"
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${Status}\n' "$package" 2> /dev/null | grep -q '^install ok' \
      || echo "$package"
  done
}

apt_install() {
  local root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo > /dev/null || fail "step 'install' needs root, or sudo, to install: $*"
    root=(sudo)
  fi
  "${root[@]}" apt-get update -q
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "$@"
}

# install_packages yes|no PACKAGE…: installs what is missing; with "no" lists it and stops.
install_packages() {
  local allowed=$1 missing
  shift
  command -v dpkg-query > /dev/null || fail "step 'install' knows Debian and Ubuntu only"
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -eq 0 ]] && return
  if [[ $allowed == no ]]; then
    echo "$program: missing packages: ${missing[*]}" >&2
    echo "$program: install them with: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  step install apt_install "${missing[@]}"
}

# configure PRESET [CMAKE ARGUMENT…]
configure() {
  local preset=$1
  shift
  step "configure-$preset" cmake --preset "$preset" "$@"
}

# build PRESET [TARGET…]
build() {
  local preset=$1 target arguments=()
  shift
  for target in "$@"; do arguments+=(--target "$target"); done
  step "build-$preset" cmake --build "build/$preset" --parallel "$(nproc)" "${arguments[@]}"
}
