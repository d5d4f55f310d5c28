// What is built and found on this node, as far as flags and queries depend on it.
#ifndef BACKENDD_SERVER_NODE_FLAGS_FACTS_H_
#define BACKENDD_SERVER_NODE_FLAGS_FACTS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/flags/catalogue.h"
#include "server/node/flags/layer.h"
#include "shared/flag_value.h"

namespace backendd::node {

struct NodeFacts {
  struct Cuda {
    DeviceId id;  // uuid
    int capability_major = 0;
    int capability_minor = 0;
    friend bool operator==(const Cuda&, const Cuda&) = default;
  };
  // A kernel provider (the role of a DSL): what it registers, by operation and dispatch key.
  struct Provider {
    std::string version;
    std::map<std::string, std::vector<std::string>> operations;  // operation -> dispatch keys
    friend bool operator==(const Provider&, const Provider&) = default;
  };

  std::vector<Cuda> cuda_devices;                // in index order
  bool cuda_built = false;                       // this build has a CUDA worker
  std::string cpu_capability = "DEFAULT";        // best kernels of this CPU: DEFAULT, AVX2, AVX512
  std::map<std::string, std::string> libraries;  // name -> version: onednn, openblas, fftw, openmp
  bool einsum_planner = true;                    // opt_einsum's role
  std::map<std::string, Provider> providers;     // by DSL name

  friend bool operator==(const NodeFacts&, const NodeFacts&) = default;
};

// The built-in layer: a value, or why there is none.
struct BuiltIn {
  std::optional<FlagValue> value;
  std::string reason;  // of a value: why it is no, where it is one; else why there is none
};
BuiltIn BuiltInOf(FlagId flag, const std::optional<DeviceId>& device, const NodeFacts& facts);

// Why this node cannot have the flag at all; empty: it can.
std::string UnavailableBecause(FlagId flag, const std::optional<DeviceId>& device,
                               const NodeFacts& facts);

// The devices that have readings of their own, "cpu" first.
std::vector<DeviceId> DevicesOf(const NodeFacts& facts);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_FACTS_H_
