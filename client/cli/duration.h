// Durations of the wire.
#ifndef BACKENDD_CLIENT_CLI_DURATION_H_
#define BACKENDD_CLIENT_CLI_DURATION_H_

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"

namespace backendd::cli {

inline absl::Duration FromProto(const google::protobuf::Duration& d) {
  return absl::Seconds(d.seconds()) + absl::Nanoseconds(d.nanos());
}

inline void ToProto(absl::Duration from, google::protobuf::Duration* to) {
  to->set_seconds(absl::IDivDuration(from, absl::Seconds(1), &from));
  to->set_nanos(static_cast<int>(absl::ToInt64Nanoseconds(from)));
}

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_DURATION_H_
