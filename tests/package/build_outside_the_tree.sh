#!/bin/sh
# build_outside_the_tree.sh BUILD SOURCE COMPILER SANITIZERS: installs BUILD into a temporary prefix, builds
# SOURCE/outside against it, runs it where no daemon is: it must say so, by its reason.
set -eu
build=$1 source=$2 compiler=$3 sanitizers=$4
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cmake --install "$build" --prefix "$place/prefix" >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
cp -r "$source/outside" "$place/program"
flags=''
[ -z "$sanitizers" ] || flags="-fsanitize=$(echo "$sanitizers" | tr ';' ',')"
if ! cmake -S "$place/program" -B "$place/out" -G Ninja -DCMAKE_PREFIX_PATH="$place/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" >"$place/log" 2>&1 ||
  ! cmake --build "$place/out" >>"$place/log" 2>&1; then
  cat "$place/log"
  exit 1
fi
code=0
said=$("$place/out/outside" "$place/nobody.sock") || code=$?
echo "$said"
[ "$code" = 1 ] && [ "$said" = DAEMON_UNREACHABLE ]
for file in bin/backendd bin/backendd-worker-cpu bin/backendctl share/backendd/backendd.protoset \
  share/backendd/proto/backendd/v1/flag.proto share/bash-completion/completions/backendctl; do
  [ -e "$place/prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
