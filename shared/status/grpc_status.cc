#include "shared/status/grpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "google/rpc/status.pb.h"
#include "shared/text.h"

namespace backendd {
namespace {
constexpr absl::string_view kPayload = "type.googleapis.com/google.rpc.Status";
}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto payload = status.GetPayload(kPayload);
  // The codes of both libraries are the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), ValidUtf8(status.message()),
                      payload ? std::string(*payload) : std::string());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kPayload, absl::Cord(status.error_details()));
  }
  return result;
}

}  // namespace backendd
