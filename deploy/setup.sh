# shellcheck shell=sh
# Sourced by quickstart, test, .ci/run and the grpcurl test, in the tree's root, with ROOT set. Installs what is missing,
# builds, and ends what was started here, by its pid, also on Ctrl-C. Only apt-get writes outside build/.
# Exit codes: 0 done, 1 job or test failed, 2 usage, 3 needs root, 4 offline with something missing.

VENV=$ROOT/build/venv
PACKAGES="ca-certificates ccache cmake g++ grpc-proto libabsl-dev libbenchmark-dev libcli11-dev libdnnl-dev
  libfftw3-dev libfmt-dev libgmock-dev libgrpc++-dev libgtest-dev liblapacke-dev libopenblas-dev libpng-dev
  libprotobuf-dev libspdlog-dev libyaml-cpp-dev ninja-build nlohmann-json3-dev pkg-config protobuf-compiler
  protobuf-compiler-grpc python3-venv zlib1g-dev"
CHILD='' DAEMON=''

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$2" >&2; exit "$1"; }  # die CODE SENTENCE

# stop PID: asks the process, or the group that it leads, to end; insists after 15 s.
stop() {
  kill -s TERM -- "-$1" 2>/dev/null || kill -TERM "$1" 2>/dev/null || return 0
  left=150
  while kill -0 "$1" 2>/dev/null && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
  kill -s KILL -- "-$1" 2>/dev/null || true
}
stop_daemon() {  # the daemon alone is asked: it ends its workers itself
  [ -n "$DAEMON" ] || return 0
  kill -TERM "$DAEMON" 2>/dev/null || true
  wait "$DAEMON" && ended=0 || ended=$?
  stop "$DAEMON"
  DAEMON=''
  return "$ended"
}
finish() {
  trap '' INT TERM HUP
  [ -z "$CHILD" ] || stop "$CHILD"
  stop_daemon || true
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# run COMMAND...: in a session of its own, so that a signal to this script ends all of it.
run() {
  setsid "$@" </dev/null &
  CHILD=$!
  wait "$CHILD" && status=0 || status=$?
  CHILD=''
  return "$status"
}

# The first line of LOG in which a tool says what went wrong.
first_error() { grep -m1 -E '^(E:|ERROR)|error:|connection broken' "$1" || grep -m1 -iE '^(W:|Err)|fail' "$1" || tail -n 1 "$1"; }

check_system() {
  # shellcheck source=/dev/null
  system=$(. /etc/os-release 2>/dev/null && echo "$ID $VERSION_ID" || echo unknown)
  case "$system $(uname -m)" in
    'debian 12 x86_64' | 'ubuntu 24.04 x86_64') ;;
    *) say "warning: made for Debian 12 and Ubuntu 24.04 on x86_64, not for $system; trying all the same" ;;
  esac
  command -v dpkg-query >/dev/null || die 3 "no dpkg here; install by hand what these hold: $PACKAGES"
}

# The wire code needs gRPC 1.51; an older one, installed or on offer, is refused before anything is built.
check_grpc() {
  grpc=$(dpkg-query -W -f='${Version}' libgrpc++-dev 2>/dev/null || true)
  [ -n "$grpc" ] || grpc=$(apt-cache policy libgrpc++-dev 2>/dev/null | sed -n 's/^  Candidate: //p')
  case $grpc in
    '' | '(none)') ;;
    *) dpkg --compare-versions "$grpc" ge 1.51 || die 1 "libgrpc++-dev $grpc is too old: 1.51 is needed" ;;
  esac
}

# What is missing of PACKAGES. Nothing missing: no network, no root.
install_packages() {
  check_system
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $PACKAGES 2>/dev/null |
    sed -n 's/^installed //p' | tr '\n' ' ')
  missing=''
  for package in $PACKAGES; do
    case " $installed" in *" $package "*) ;; *) missing="$missing $package" ;; esac
  done
  check_grpc
  [ -n "$missing" ] || return 0
  say "missing packages:$missing"
  if [ "$(id -u)" = 0 ]; then as_root='env'
  elif sudo -n true 2>/dev/null; then as_root='sudo -n env'
  else die 3 "installing needs root, and sudo would ask for a password; as root, run:
apt-get update && apt-get install -y --no-install-recommends$missing"
  fi
  log=$ROOT/build/install.log
  unasked='-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold'
  # shellcheck disable=SC2086
  if ! { # an interrupted dpkg is mended first
    $as_root dpkg --force-confdef --force-confold --configure -a
    $as_root DEBIAN_FRONTEND=noninteractive apt-get update
    $as_root DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get install -y --no-install-recommends \
      -o DPkg::Lock::Timeout=120 $unasked $missing
  } >"$log" 2>&1 </dev/null; then
    die 4 "could not install$missing: $(first_error "$log") (all of it: $log)"
  fi
  check_grpc
}

# build/venv: the pinned PyPI packages, made anew only when a pin, the tree's place or the interpreter changes.
# The stamp is written last, so that the next run repairs an interrupted one.
install_venv() {
  pins=$(readlink -f "$ROOT" /usr/bin/python3; cat deploy/requirements-build.txt deploy/requirements.txt)
  [ "$pins" != "$(cat "$VENV/stamp" 2>/dev/null)" ] || return 0
  say "build/venv from PyPI: $(sed -n 's/ --hash.*//p' deploy/requirements.txt | tr '\n' ' ')"
  rm -rf "$VENV"
  log=$ROOT/build/install.log
  run /usr/bin/python3 -m venv "$VENV" >"$log" 2>&1 || die 1 "could not make $VENV: $(first_error "$log")"
  for file in deploy/requirements-build.txt deploy/requirements.txt; do
    run "$VENV/bin/pip" install --no-deps --require-hashes --no-build-isolation --retries 2 -r "$file" >"$log" 2>&1 ||
      die 4 "could not install $file from PyPI: $(first_error "$log") (all of it: $log)"
  done
  printf '%s\n' "$pins" >"$VENV/stamp"
}
install_missing() {
  mkdir -p build
  [ -w build ] || die 1 "$ROOT/build belongs to another user: remove it, or run this as $(stat -c %U build)"
  install_packages
  install_venv
}

# build PRESET [TARGET...]: configured and built; a folder configured for another place is begun anew.
build() {
  preset=$1; shift
  grep -qsx "CMAKE_HOME_DIRECTORY:INTERNAL=$ROOT" "build/$preset/CMakeCache.txt" || rm -rf "build/$preset"
  mkdir -p "build/$preset"
  say "building $preset${*:+: $*}"
  run cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 ||
    { tail -n 20 "build/$preset/configure.log" >&2; die 1 "cmake --preset $preset failed"; }
  run ninja -C "build/$preset" "$@" || die 1 "the build of $preset failed"
}

# start_daemon BINARY SOCKET LOG: returns once the socket is there; DAEMON is its pid.
start_daemon() {
  [ "$(printf %s "$2" | wc -c)" -le 90 ] ||
    die 1 "a Unix socket's path holds 107 bytes, and workers' sockets lie beside $2: move the tree to a shorter path"
  setsid "$1" --socket "$2" >"$3" 2>&1 </dev/null &
  DAEMON=$!
  left=300
  until [ -S "$2" ]; do
    if [ "$left" = 0 ] || ! kill -0 "$DAEMON" 2>/dev/null; then
      tail -n 20 "$3" >&2; die 1 "backendd did not start; its log is $3"
    fi
    sleep 0.1; left=$((left - 1))
  done
}
