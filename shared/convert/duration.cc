#include "shared/convert/duration.h"

#include "absl/strings/str_cat.h"
#include "shared/text.h"

namespace backendd {

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration message;
  message.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  message.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
  return message;
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp message;
  absl::Duration left = time - absl::UnixEpoch();
  message.set_seconds(absl::IDivDuration(left, absl::Seconds(1), &left));
  message.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(left)));
  return message;
}

absl::Duration CheckedDuration(const google::protobuf::Duration& message, absl::string_view field,
                               absl::Duration least, absl::Duration most,
                               std::vector<Violation>* violations) {
  constexpr int32_t kMillisecond = 1000000, kSecond = 1000 * kMillisecond;
  const absl::Duration duration =
      absl::Seconds(message.seconds()) + absl::Nanoseconds(message.nanos());
  const bool whole = message.nanos() % kMillisecond == 0 && message.nanos() > -kSecond &&
                     message.nanos() < kSecond;
  if (whole && duration >= least && duration <= most) return duration;
  violations->push_back({Str(field), Reason::kTtlOutOfRange,
                         absl::StrCat(field, " is ", absl::FormatDuration(duration),
                                      "; allowed: ", absl::FormatDuration(least), " to ",
                                      absl::FormatDuration(most), " in whole milliseconds")});
  return least;
}

}  // namespace backendd
