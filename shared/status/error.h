// An error is a code, a reason, metadata and one sentence. Reasons are what programs and tests look
// at.
#ifndef BACKENDD_SHARED_STATUS_ERROR_H_
#define BACKENDD_SHARED_STATUS_ERROR_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace backendd {

// Every reason of the API, each with its one code (the table in error.cc; proto/README.md lists
// them).
enum class Reason {
  // INVALID_ARGUMENT
  kFlagValueInvalid,
  kShapeInvalid,
  kTtlOutOfRange,
  kScopeInvalid,
  kIdInvalid,
  kFrameInvalid,
  kRequestIdReused,
  kPolicyInvalid,
  kSealsMissing,
  kDeviceMismatch,
  kHandleKind,
  kOverlap,
  kDtypeInvalid,
  kArgumentInvalid,
  kIndexInvalid,
  kMatrixSingular,
  kNotPositiveDefinite,
  kNotConverged,
  // NOT_FOUND
  kFlagUnknown,
  kDeviceUnknown,
  kLeaseUnknown,
  kBufferUnknown,
  kSessionUnknown,
  kPolicyUnknown,
  kProgramUnknown,
  // ALREADY_EXISTS
  kBufferExists,
  // FAILED_PRECONDITION
  kFlagsFrozen,
  kFlagReadOnly,
  kFlagUnavailable,
  kLeaseStale,
  kScopeQuarantined,
  kPrecisionMixed,
  kBufferPoisoned,
  kBufferReleasing,
  kNoKernel,
  kFlagUnmet,
  kSignatureQuarantined,
  kReplayMismatch,
  kAbiVersion,
  kSessionForked,
  // ABORTED
  kLeaseConflict,
  kRevisionStale,
  kSessionMoved,
  kGenerationStale,
  // PERMISSION_DENIED
  kPolicyDenies,
  kPeerNotAllowed,
  kLeaseNotYours,
  // RESOURCE_EXHAUSTED
  kQuotaExceeded,
  kDeviceOutOfMemory,
  kQueueFull,
  kStoreFull,
  kWatchLagged,
  kWorkspaceTooSmall,
  kHostOutOfMemory,
  // OUT_OF_RANGE
  kDeviceIndex,
  kSequenceGap,
  kRevisionCompacted,
  kSizeTooLarge,
  // UNAVAILABLE
  kDraining,
  kWorkerStarting,
  kDeviceLost,
  kSnapshotBehind,
  kDeviceDown,
  kDaemonUnreachable,
  // DEADLINE_EXCEEDED
  kDeadlineBeforeStart,
  kDeadlineExceeded,
  // UNIMPLEMENTED
  kOpUnsupported,
  // INTERNAL: a fault of ours
  kInternal,
};

absl::string_view ReasonName(Reason reason);  // "FLAG_VALUE_INVALID"
std::optional<Reason> ReasonFromName(absl::string_view name);
absl::StatusCode CodeOf(Reason reason);

// One fault of one field of a request; becomes a BadRequest.FieldViolation on the wire.
struct Violation {
  std::string field;  // path in the request: "entries[2].value"
  Reason reason;
  std::string description;  // one sentence
};

struct ErrorDetails {
  Reason reason = Reason::kInternal;
  std::map<std::string, std::string> metadata;  // ErrorInfo.metadata
  std::vector<Violation> violations;            // BadRequest
  std::optional<absl::Duration> retry_after;    // RetryInfo, where waiting helps
};

// A status that carries `reason` (its code follows from it), one sentence, and what programs want
// to know. Text that came from a client, a file or a vendor is made valid UTF-8 and cut (1 KiB of
// text, 4 KiB of details: gRPC replaces an error whose metadata passes 8 KiB).
absl::Status Error(Reason reason, absl::string_view sentence,
                   std::map<std::string, std::string> metadata = {});
absl::Status Error(ErrorDetails details, absl::string_view sentence);

// Every violation at once. The code and reason are those of the first; OK where there is none.
absl::Status ErrorFrom(std::vector<Violation> violations);

// The details of a status made by Error(), or those that came over the wire; nullopt for any other
// status.
std::optional<ErrorDetails> DetailsOf(const absl::Status& status);
std::optional<Reason> ReasonOf(const absl::Status& status);

}  // namespace backendd

#endif  // BACKENDD_SHARED_STATUS_ERROR_H_
