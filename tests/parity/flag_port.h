// What a replay of recorded flag vectors asks of a node, so that it can be asked of a flag store
// directly or through the wire.
#ifndef BACKENDD_TESTS_PARITY_FLAG_PORT_H_
#define BACKENDD_TESTS_PARITY_FLAG_PORT_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "shared/flag_value.h"

namespace backendd::parity {

// One fresh node with one session of semantics COMPAT. Used by one thread.
class FlagPort {
 public:
  virtual ~FlagPort() = default;
  // The warnings that the node's start gave.
  virtual const std::vector<std::string>& warnings() const = 0;
  // nullopt: unavailable.
  virtual absl::StatusOr<std::optional<FlagValue>> Get(
      const std::string& flag, const std::optional<std::string>& device,
      const std::vector<std::string>& arguments) = 0;
  virtual absl::Status Set(const std::string& flag, const FlagValue& value) = 0;
};

// A node started with these variables, as the machine that runs the test would start it.
std::unique_ptr<FlagPort> StartNode(const std::map<std::string, std::string>& variables);

}  // namespace backendd::parity

#endif  // BACKENDD_TESTS_PARITY_FLAG_PORT_H_
