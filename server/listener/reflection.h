// Server reflection, v1 and v1alpha, over the descriptor set that is built in: with comments, json
// names and every import. The library's own knows v1alpha only, and neither.
#ifndef BACKENDD_SERVER_LISTENER_REFLECTION_H_
#define BACKENDD_SERVER_LISTENER_REFLECTION_H_

#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Service;
}

namespace backendd {

struct ReflectionServices {
  std::unique_ptr<grpc::Service> v1, v1alpha;
};

// `names`: the services of the listener; both reflections are added.
ReflectionServices MakeReflection(std::vector<std::string> names);

}  // namespace backendd

#endif  // BACKENDD_SERVER_LISTENER_REFLECTION_H_
