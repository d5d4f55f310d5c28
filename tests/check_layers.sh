#!/bin/sh
# Fails on an include that crosses a line between rooms (README.md, "Rooms"). Prints FILE:LINE, the include and the rule.
#   tests/check_layers.sh              checks the tree
#   tests/check_layers.sh --self-test  proves that each rule can fail, on a seeded tree
# To fix a finding: move the code to the room that may include it, or pass a value instead of a header.
set -eu

# One rule a line: files it holds for (awk regex) ; files exempt ; includes forbidden ; what is forbidden in words.
# Paths are relative to the tree; generated protos (backendd/**/*.pb.h) are open to all rooms unless a rule names them.
rules() {
  cat <<'RULES'
^shared/ ; - ; ^(server|client|tests)/|^backendd/[a-z_]+\.h ; shared includes only shared and generated protos
^server/ ; - ; ^(client|tests)/|^backendd/[a-z_]+\.h ; server includes only server, shared and generated protos
^client/ ; - ; ^(server|tests)/ ; client includes only client, shared and generated protos
^server/node/ ; - ; ^server/worker/ ; server/node never includes server/worker
^server/worker/ ; - ; ^server/node/ ; server/worker never includes server/node
^server/(flags|listener|control)/ ; - ; ^server/(node|worker)/ ; rooms used by both planes include neither
^server/flags/ ; - ; ^server/(listener|control)/ ; server/flags is pure: no wire, no control link
^server/node/lease/ ; - ; ^server/(flags|node/[a-km-z]) ; leases know no flags and no sessions
^server/node/session/ ; - ; ^server/node/rpc/ ; rpc calls session, never the other way round
^server/worker/(buffer|program|plan|session|device|kernels)/ ; - ; ^server/worker/rpc/ ; rpc calls the core, never the other way round
^server/worker/(rpc|session|buffer|program|plan|kernels)/ ; - ; ^server/worker/device/(cpu|cuda)/ ; devices are reached through device/device.h
^server/worker/device/(cpu|cuda)/ ; - ; ^server/worker/(rpc|session|program)/ ; a device knows the seam, not its callers
^server/worker/device/cpu/ ; - ; ^server/worker/device/cuda/ ; devices do not know each other
^server/worker/device/cuda/ ; - ; ^server/worker/device/cpu/ ; devices do not know each other
. ; ^(client|tests)/|(^|/)rpc/|^shared/status/grpc_status\.|^server/(listener|control)/|^server/node/(main\.cc|daemon\.)|^server/worker/(main\.cc|worker\.) ; ^(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h ; gRPC headers only in rpc/, listener, control, client, grpc_status and the wiring
. ; ^server/worker/device/cuda/ ; ^(cuda|cublas|cudnn|cufft|cusolver|cusparse|curand|nvrtc|nvml|driver_types|library_types)[a-zA-Z0-9_]*\.h ; CUDA headers only in server/worker/device/cuda
. ; ^server/worker/device/cpu/|^tests/ ; ^(dnnl|oneapi/dnnl/dnnl|cblas|openblas|fftw3|lapacke?)[a-z_]*\.h|^(openblas|oneapi/dnnl)/ ; math libraries only in server/worker/device/cpu
RULES
}

# check DIR: the findings, one a line; succeeds when there is none.
check() {
  (
    cd "$1"
    rules >"$scratch/rules"
    find shared server client tests \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.c' \) \
      -exec grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]' {} + |
      awk -v rules="$scratch/rules" '
        BEGIN {
          while ((getline line < rules) > 0) {
            split(line, part, " ; ")
            ++n; where[n] = part[1]; exempt[n] = part[2]; forbidden[n] = part[3]; says[n] = part[4]
          }
        }
        {
          split($0, part, ":"); file = part[1]
          header = $0; sub(/^[^<"]*[<"]/, "", header); sub(/[>"].*/, "", header)
          for (i = 1; i <= n; ++i)
            if (file ~ where[i] && (exempt[i] == "-" || file !~ exempt[i]) && header ~ forbidden[i]) {
              print file ":" part[2] ": includes " header ": " says[i]; bad = 1
            }
        }
        END {exit bad}'
  )
}

# Each seed is FILE HEADER; those after "fine" must pass, all others must each be found.
self_test() {
  seeds='shared/a.h server/flags/b.h
shared/a.h backendd/client.h
server/flags/a.cc backendd/client.h
client/backendd/a.cc server/flags/b.h
server/node/a.cc server/worker/b.h
server/worker/a.cc server/node/b.h
server/listener/a.cc server/node/daemon.h
server/flags/a.cc server/control/link.h
server/node/lease/a.cc server/flags/b.h
server/node/lease/a.cc server/node/session/b.h
server/node/session/a.cc server/node/rpc/b.h
server/worker/program/a.cc server/worker/rpc/b.h
server/worker/program/a.cc server/worker/device/cpu/b.h
server/worker/device/cpu/a.cc server/worker/program/b.h
server/worker/device/cpu/a.cc server/worker/device/cuda/b.h
server/worker/device/cuda/a.cc server/worker/device/cpu/b.h
server/node/flags/a.cc grpcpp/grpcpp.h
server/node/workers/a.cc backendd/v1/flag_service.grpc.pb.h
server/worker/program/a.cc cuda_runtime.h
tests/unit/a.cc cublasLt.h
client/backendd/a.cc cblas.h
server/worker/program/a.cc oneapi/dnnl/dnnl.hpp'
  fine='shared/a.h backendd/v1/flag.pb.h
shared/status/grpc_status.h grpcpp/grpcpp.h
server/node/rpc/a.cc backendd/v1/flag_service.grpc.pb.h
server/node/lease/a.cc server/node/lease/b.h
server/node/main.cc grpcpp/grpcpp.h
server/worker/device/cpu/a.cc dnnl.hpp
server/worker/device/cuda/a.cc cuda_runtime.h
client/backendd/a.cc backendd/client.h
tests/unit/a.cc server/node/lease/b.h'
  plant "$fine"
  check "$scratch/tree" || { echo 'self-test: an allowed include was refused'; return 1; }
  printf '%s\n' "$seeds" | while read -r seed; do
    plant "$seed"
    ! check "$scratch/tree" >/dev/null || { echo "self-test: not found: $seed"; return 1; }
  done
  echo "self-test: all $(printf '%s\n' "$seeds" | wc -l) seeded faults were found"
}
plant() {  # plant LINES: a tree with these includes only
  rm -rf "$scratch/tree"
  for room in shared server client tests; do mkdir -p "$scratch/tree/$room"; done
  printf '%s\n' "$1" | while read -r file header; do
    mkdir -p "$scratch/tree/${file%/*}"
    printf '#include "%s"\n' "$header" >>"$scratch/tree/$file"
  done
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
case ${1:-} in
  '') check "$(dirname "$0")/.." ;;
  --self-test) self_test ;;
  *) echo "usage: tests/check_layers.sh [--self-test]" >&2; exit 2 ;;
esac
