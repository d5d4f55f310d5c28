// Where a value comes from.
#ifndef BACKENDD_SERVER_NODE_FLAGS_LAYER_H_
#define BACKENDD_SERVER_NODE_FLAGS_LAYER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "server/flags/catalogue.h"
#include "shared/flag_value.h"

namespace backendd::node {

// A device's uuid; "cpu" for the CPU.
using DeviceId = std::string;

// Low to high. Numbers equal those of the wire's Layer.
enum class Layer {
  kBuiltIn = 1,
  kEnvironment = 2,
  kFile = 3,
  kPolicyDefault = 4,
  kBase = 5,
  kLease = 6,
  kSession = 7,
  kCall = 8,
};

// One value that a layer holds for a flag.
struct LayerEntry {
  FlagId flag;
  Layer layer = Layer::kBuiltIn;
  std::optional<DeviceId> device;  // nullopt: the node
  FlagValue value;
  std::string source;  // a variable, "file:12", a peer, a lease's prefix with its holder
  std::string reason;
  std::string warning;        // about malformed text; then `value` is what is used instead
  std::optional<FlagId> via;  // the legacy name it was written through
  uint64_t revision = 0;      // since
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_LAYER_H_
