// What the exit codes say; one table for all commands.
#ifndef BACKENDD_CLIENT_CLI_EXIT_CODE_H_
#define BACKENDD_CLIENT_CLI_EXIT_CODE_H_

#include "absl/status/status.h"

namespace backendd::cli {

enum ExitCode {
  kExitOk = 0,
  kExitNo = 1,  // the answer is no: not serving
  kExitUsage = 2,
  kExitNotFound = 3,
  kExitHeld = 4,  // held by another, or lost a race
  kExitRefused = 5,
  kExitNobodyServes = 6,
  kExitDeadline = 7,
  kExitBadInput = 8,
  kExitStateForbids = 9,
  kExitQuota = 10,
  kExitOther = 11,
  kExitWaitRanOut = 124,
  kExitRunFailed = 125,
  kExitCannotExecute = 126,
  kExitCommandNotFound = 127,
};

inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
      return kExitHeld;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitRefused;
    case absl::StatusCode::kUnavailable:
      return kExitNobodyServes;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return kExitDeadline;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return kExitBadInput;
    case absl::StatusCode::kFailedPrecondition:
      return kExitStateForbids;
    case absl::StatusCode::kResourceExhausted:
      return kExitQuota;
    default:
      return kExitOther;
  }
}

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_EXIT_CODE_H_
