#!/bin/sh
# run_readme_lines.sh BACKENDD: runs each line of the README's grpcurl block exactly as typed, against a daemon of its
# own, with the real grpcurl (reflection v1alpha), then the same calls through buf curl (reflection v1).
set -eu
ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
cd "$ROOT"
# shellcheck source=deploy/setup.sh
. deploy/setup.sh
PATH=$VENV/bin:$PATH

fail() { printf 'FAILED: %s\n' "$*" >&2; sed 's/^/  | /' "$out" >&2; exit 1; }
# has TEXT...: each stands in the answer, whose white space does not count.
has() {
  for text; do
    tr -d ' \n' <"$out" | grep -qF -- "$text" || fail "no $text in the answer to: $line"
  done
}
# until_true COMMAND...: asks again for up to 10 s.
until_true() {
  tries=200
  until "$@"; do
    [ "$tries" -gt 0 ] || return 1
    sleep 0.05; tries=$((tries - 1))
  done
}
benchmark_reads() {
  grpcurl -plaintext -unix -d '{"flag":"cudnn.benchmark"}' "$socket" backendd.v1.FlagService/GetFlag >"$dir/flag" 2>&1 &&
    tr -d ' \n' <"$dir/flag" | grep -qF "\"value\":{\"bool\":$1}"
}
answered() { [ -s "$out" ] && tr -d ' \n' <"$out" | grep -qF -- "$1"; }

# A terminal's Ctrl-C reaches the whole line; a background command of a script ignores it unless told otherwise.
hold() { setsid env --default-signal=INT "$@" >"$out" 2>&1 </dev/null & CHILD=$!; }
interrupt() {  # interrupt SIGNAL
  kill -s "$1" -- "-$CHILD" 2>/dev/null || fail "the stream ended by itself: $line"
  wait "$CHILD" || true
  CHILD=''
}

# expect SIGNAL COMMAND...: runs it, checks what it must say; a stream is ended by SIGNAL.
expect() {
  signal=$1; shift
  case $line in
    *HoldLease*)
      benchmark_reads false || fail "cudnn.benchmark is not false before: $line"
      hold "$@"
      until_true answered '"granted"' || fail "no lease from: $line"
      has '"mode":"LEASE_MODE_EXCLUSIVE"' '"flag":"cudnn.benchmark"'
      benchmark_reads true || fail "cudnn.benchmark is not true under: $line"
      interrupt "$signal"
      until_true benchmark_reads false || fail "not rolled back after the interruption of: $line"
      return ;;
    *WatchFlags*)
      hold "$@"
      until_true answered '"snapshot"' || fail "no snapshot from: $line"
      until_true answered '"synced"' || fail "no end of the snapshot from: $line"
      has '"flag":"cudnn.benchmark"' '"flag":"cuda.matmul.fp32_precision"' '"epoch"'
      interrupt "$signal"
      return ;;
  esac
  run "$@" >"$out" 2>&1 || fail "exit $? from: $line"
  case $line in
    *' list') has backendd.v1.FlagService backendd.v1.LeaseService backendd.v1.SessionService \
      backendd.v1.DeviceService grpc.health.v1.Health ;;
    *' describe '*) has GetFlag ListFlags ExplainFlag SetFlags WatchFlags ;;
    *ListFlags*) has '"flag":"cudnn.benchmark"' '"flag":"cuda.matmul.fp32_precision"' '"flag":"mkldnn.deterministic"' \
      '"layer":"LAYER_BUILT_IN"' '"revision"' ;;
    *ExplainFlag*) has '"layers":[' '"winner":true' '"flag":"cuda.matmul.fp32_precision"' '"description":{' ;;
    *) fail "the README has a line that this test does not know: $line" ;;
  esac
}

dir=$(mktemp -d /tmp/bd.XXXXXX)
trap 'finish; rm -rf "$dir"' EXIT
socket=$dir/s out=$dir/out
: >"$out"
awk -v socket="$socket" -f deploy/readme_lines.awk README.md >"$dir/lines"
grep -q "^S=$socket\$" "$dir/lines" || fail 'README.md has no block after <!-- grpcurl --> that begins with S='
start_daemon "$1" "$socket" "$dir/log"
# Reachable is not yet serving: the first answer is waited for.
until_true benchmark_reads false || { cp "$dir/flag" "$out"; fail 'the daemon does not answer'; }

count=0
while IFS= read -r line; do
  case $line in S=* | '' | '#'*) continue ;; esac
  count=$((count + 1))
  printf 'grpcurl  %s\n' "$line"
  expect INT sh -c "S=$socket
$line"
  case $line in *' describe '*) grep -q '^  *// ' "$out" || fail "no comment described by: $line" ;; esac

  # The same for buf: -plaintext -unix is its --unix-socket, -d its -d, the method a path.
  url=http://backendd
  case $line in
    *' list') same="buf curl --list-services $url" ;;
    *' describe '*) same="buf curl --list-methods $url" ;;
    *) same=$(printf '%s' "$line" | sed "s|^grpcurl -plaintext -unix|buf curl|; s|\\\$S |$url/|") ;;
  esac
  same="$same --protocol grpc --unix-socket $socket"
  printf 'buf curl %s\n' "$same"
  expect KILL sh -c "$same"  # with one SIGINT it goes on
done <"$dir/lines"
[ "$count" -ge 6 ] || fail "only $count lines in the README's block"
stop_daemon || fail "the daemon ended with $?"
echo "$count lines answered by both"
