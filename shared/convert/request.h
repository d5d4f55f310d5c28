// What no request may carry, whatever it asks for.
#ifndef BACKENDD_SHARED_CONVERT_REQUEST_H_
#define BACKENDD_SHARED_CONVERT_REQUEST_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace backendd {

// Longest text of a request, in bytes: names, reasons and ids are kept, listed and shown to others.
inline constexpr size_t kMostText = 1024;

// Every enumerator has a name and every text at most kMostText bytes (ARGUMENT_INVALID); a device
// is named with the scope DEVICE only (SCOPE_INVALID). Proto3 lets any number through, and what has
// no name would be read as the default.
absl::Status CheckRequest(const google::protobuf::Message& request);

}  // namespace backendd

#endif  // BACKENDD_SHARED_CONVERT_REQUEST_H_
