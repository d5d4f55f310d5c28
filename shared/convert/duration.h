// Durations between the wire and the domain, with range checks.
#ifndef BACKENDD_SHARED_CONVERT_DURATION_H_
#define BACKENDD_SHARED_CONVERT_DURATION_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "shared/status/error.h"

namespace backendd {

google::protobuf::Duration ToProto(absl::Duration duration);
google::protobuf::Timestamp ToProto(absl::Time time);
// Whole milliseconds from `least` to `most`; anything else is a TTL_OUT_OF_RANGE violation of
// `field` and reads as `least`.
absl::Duration CheckedDuration(const google::protobuf::Duration& message, absl::string_view field,
                               absl::Duration least, absl::Duration most,
                               std::vector<Violation>* violations);

}  // namespace backendd

#endif  // BACKENDD_SHARED_CONVERT_DURATION_H_
