#include "shared/status/error.h"

#include <array>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "shared/text.h"

namespace backendd {
namespace {

struct ReasonRow {
  absl::string_view name;
  absl::StatusCode code;
};
// In the order of the enum.
constexpr ReasonRow kReasons[] = {
    {"FLAG_VALUE_INVALID", absl::StatusCode::kInvalidArgument},
    {"SHAPE_INVALID", absl::StatusCode::kInvalidArgument},
    {"TTL_OUT_OF_RANGE", absl::StatusCode::kInvalidArgument},
    {"SCOPE_INVALID", absl::StatusCode::kInvalidArgument},
    {"ID_INVALID", absl::StatusCode::kInvalidArgument},
    {"FRAME_INVALID", absl::StatusCode::kInvalidArgument},
    {"REQUEST_ID_REUSED", absl::StatusCode::kInvalidArgument},
    {"POLICY_INVALID", absl::StatusCode::kInvalidArgument},
    {"SEALS_MISSING", absl::StatusCode::kInvalidArgument},
    {"DEVICE_MISMATCH", absl::StatusCode::kInvalidArgument},
    {"HANDLE_KIND", absl::StatusCode::kInvalidArgument},
    {"OVERLAP", absl::StatusCode::kInvalidArgument},
    {"DTYPE_INVALID", absl::StatusCode::kInvalidArgument},
    {"ARGUMENT_INVALID", absl::StatusCode::kInvalidArgument},
    {"INDEX_INVALID", absl::StatusCode::kInvalidArgument},
    {"MATRIX_SINGULAR", absl::StatusCode::kInvalidArgument},
    {"NOT_POSITIVE_DEFINITE", absl::StatusCode::kInvalidArgument},
    {"NOT_CONVERGED", absl::StatusCode::kInvalidArgument},
    {"FLAG_UNKNOWN", absl::StatusCode::kNotFound},
    {"DEVICE_UNKNOWN", absl::StatusCode::kNotFound},
    {"LEASE_UNKNOWN", absl::StatusCode::kNotFound},
    {"BUFFER_UNKNOWN", absl::StatusCode::kNotFound},
    {"SESSION_UNKNOWN", absl::StatusCode::kNotFound},
    {"POLICY_UNKNOWN", absl::StatusCode::kNotFound},
    {"PROGRAM_UNKNOWN", absl::StatusCode::kNotFound},
    {"BUFFER_EXISTS", absl::StatusCode::kAlreadyExists},
    {"FLAGS_FROZEN", absl::StatusCode::kFailedPrecondition},
    {"FLAG_READ_ONLY", absl::StatusCode::kFailedPrecondition},
    {"FLAG_UNAVAILABLE", absl::StatusCode::kFailedPrecondition},
    {"LEASE_STALE", absl::StatusCode::kFailedPrecondition},
    {"SCOPE_QUARANTINED", absl::StatusCode::kFailedPrecondition},
    {"PRECISION_MIXED", absl::StatusCode::kFailedPrecondition},
    {"BUFFER_POISONED", absl::StatusCode::kFailedPrecondition},
    {"BUFFER_RELEASING", absl::StatusCode::kFailedPrecondition},
    {"NO_KERNEL", absl::StatusCode::kFailedPrecondition},
    {"FLAG_UNMET", absl::StatusCode::kFailedPrecondition},
    {"SIGNATURE_QUARANTINED", absl::StatusCode::kFailedPrecondition},
    {"REPLAY_MISMATCH", absl::StatusCode::kFailedPrecondition},
    {"ABI_VERSION", absl::StatusCode::kFailedPrecondition},
    {"SESSION_FORKED", absl::StatusCode::kFailedPrecondition},
    {"LEASE_CONFLICT", absl::StatusCode::kAborted},
    {"REVISION_STALE", absl::StatusCode::kAborted},
    {"SESSION_MOVED", absl::StatusCode::kAborted},
    {"GENERATION_STALE", absl::StatusCode::kAborted},
    {"POLICY_DENIES", absl::StatusCode::kPermissionDenied},
    {"PEER_NOT_ALLOWED", absl::StatusCode::kPermissionDenied},
    {"LEASE_NOT_YOURS", absl::StatusCode::kPermissionDenied},
    {"QUOTA_EXCEEDED", absl::StatusCode::kResourceExhausted},
    {"DEVICE_OUT_OF_MEMORY", absl::StatusCode::kResourceExhausted},
    {"QUEUE_FULL", absl::StatusCode::kResourceExhausted},
    {"STORE_FULL", absl::StatusCode::kResourceExhausted},
    {"WATCH_LAGGED", absl::StatusCode::kResourceExhausted},
    {"WORKSPACE_TOO_SMALL", absl::StatusCode::kResourceExhausted},
    {"HOST_OUT_OF_MEMORY", absl::StatusCode::kResourceExhausted},
    {"DEVICE_INDEX", absl::StatusCode::kOutOfRange},
    {"SEQUENCE_GAP", absl::StatusCode::kOutOfRange},
    {"REVISION_COMPACTED", absl::StatusCode::kOutOfRange},
    {"SIZE_TOO_LARGE", absl::StatusCode::kOutOfRange},
    {"DRAINING", absl::StatusCode::kUnavailable},
    {"WORKER_STARTING", absl::StatusCode::kUnavailable},
    {"DEVICE_LOST", absl::StatusCode::kUnavailable},
    {"SNAPSHOT_BEHIND", absl::StatusCode::kUnavailable},
    {"DEVICE_DOWN", absl::StatusCode::kUnavailable},
    {"DAEMON_UNREACHABLE", absl::StatusCode::kUnavailable},
    {"DEADLINE_BEFORE_START", absl::StatusCode::kDeadlineExceeded},
    {"DEADLINE_EXCEEDED", absl::StatusCode::kDeadlineExceeded},
    {"OP_UNSUPPORTED", absl::StatusCode::kUnimplemented},
    {"INTERNAL", absl::StatusCode::kInternal},
};
static_assert(sizeof(kReasons) / sizeof(kReasons[0]) == static_cast<size_t>(Reason::kInternal) + 1);

constexpr absl::string_view kDomain = "backendd.dev";
// An absl status carries its details as one google.rpc.Status, exactly what goes over the wire.
constexpr absl::string_view kPayload = "type.googleapis.com/google.rpc.Status";
constexpr size_t kMaxText = 1024;
constexpr size_t kMaxDetails = 4096;

std::string Clip(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return ValidUtf8(text);
  return absl::StrCat(ValidUtf8(text.substr(0, limit - 3)), "...");
}

}  // namespace

absl::string_view ReasonName(Reason reason) { return kReasons[static_cast<size_t>(reason)].name; }
absl::StatusCode CodeOf(Reason reason) { return kReasons[static_cast<size_t>(reason)].code; }

std::optional<Reason> ReasonFromName(absl::string_view name) {
  for (size_t i = 0; i < sizeof(kReasons) / sizeof(kReasons[0]); ++i) {
    if (kReasons[i].name == name) return static_cast<Reason>(i);
  }
  return std::nullopt;
}

absl::Status Error(Reason reason, absl::string_view sentence,
                   std::map<std::string, std::string> metadata) {
  ErrorDetails details;
  details.reason = reason;
  details.metadata = std::move(metadata);
  return Error(std::move(details), sentence);
}

absl::Status Error(ErrorDetails details, absl::string_view sentence) {
  const std::string text = Clip(sentence, kMaxText);
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(CodeOf(details.reason)));
  wire.set_message(text);
  google::rpc::ErrorInfo info;
  info.set_reason(Str(ReasonName(details.reason)));
  info.set_domain(Str(kDomain));
  for (const auto& [key, value] : details.metadata) {
    (*info.mutable_metadata())[Clip(key, 64)] = Clip(value, 512);
  }
  google::rpc::BadRequest bad;
  size_t bytes = info.ByteSizeLong() + text.size();
  size_t dropped = 0;
  for (const Violation& violation : details.violations) {
    google::rpc::BadRequest::FieldViolation field;
    field.set_field(Clip(violation.field, 256));
    field.set_description(
        absl::StrCat(ReasonName(violation.reason), ": ", Clip(violation.description, 512)));
    bytes += field.ByteSizeLong() + 4;
    if (bytes > kMaxDetails) {
      ++dropped;
    } else {
      *bad.add_field_violations() = std::move(field);
    }
  }
  if (dropped > 0) (*info.mutable_metadata())["violations_not_shown"] = absl::StrCat(dropped);
  wire.add_details()->PackFrom(info);
  if (bad.field_violations_size() > 0) wire.add_details()->PackFrom(bad);
  if (details.retry_after) {
    google::rpc::RetryInfo retry;
    const int64_t nanos = absl::ToInt64Nanoseconds(*details.retry_after);
    retry.mutable_retry_delay()->set_seconds(nanos / 1'000'000'000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
    wire.add_details()->PackFrom(retry);
  }
  absl::Status status(CodeOf(details.reason), text);
  status.SetPayload(kPayload, absl::Cord(wire.SerializeAsString()));
  return status;
}

absl::Status ErrorFrom(std::vector<Violation> violations) {
  if (violations.empty()) return absl::OkStatus();
  ErrorDetails details;
  details.reason = violations.front().reason;
  std::string sentence = violations.front().description;
  if (violations.size() > 1) absl::StrAppend(&sentence, " (and ", violations.size() - 1, " more)");
  details.violations = std::move(violations);
  return Error(std::move(details), sentence);
}

std::optional<ErrorDetails> DetailsOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  google::rpc::Status wire;
  if (!payload || !wire.ParseFromString(std::string(*payload))) return std::nullopt;
  ErrorDetails details;
  bool known = false;
  for (const google::protobuf::Any& any : wire.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info)) {
      const auto reason = ReasonFromName(info.reason());
      if (!reason) continue;
      known = true;
      details.reason = *reason;
      for (const auto& [key, value] : info.metadata()) details.metadata[key] = value;
    } else if (any.UnpackTo(&bad)) {
      for (const auto& field : bad.field_violations()) {
        const absl::string_view text = field.description();
        const size_t colon = text.find(": ");
        const auto reason = ReasonFromName(text.substr(0, colon));
        details.violations.push_back({field.field(), reason.value_or(Reason::kInternal),
                                      Str(reason ? text.substr(colon + 2) : text)});
      }
    } else if (any.UnpackTo(&retry)) {
      details.retry_after = absl::Seconds(retry.retry_delay().seconds()) +
                            absl::Nanoseconds(retry.retry_delay().nanos());
    }
  }
  if (!known) return std::nullopt;
  return details;
}

std::optional<Reason> ReasonOf(const absl::Status& status) {
  const auto details = DetailsOf(status);
  if (!details) return std::nullopt;
  return details->reason;
}

}  // namespace backendd
