// The daemon's environment variables as one layer: read once at start, with or without the device.
#ifndef BACKENDD_SERVER_NODE_FLAGS_ENVIRONMENT_H_
#define BACKENDD_SERVER_NODE_FLAGS_ENVIRONMENT_H_

#include <map>
#include <string>
#include <vector>

#include "server/node/flags/facts.h"
#include "server/node/flags/layer.h"

namespace backendd::node {

struct Environment {
  // Malformed text is an entry with a warning, which no reading follows.
  std::vector<LayerEntry> entries;
  // One for each variable with malformed text, also for those that set no flag: for the log.
  std::vector<std::string> warnings;
};

// Pure. `variables`: all of the environment; others than the panel's are not looked at.
Environment ParseEnvironment(const std::map<std::string, std::string>& variables,
                             const NodeFacts& facts);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_ENVIRONMENT_H_
