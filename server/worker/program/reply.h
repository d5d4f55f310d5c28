// What a program's answer says: results, failure, stamps.
#ifndef BACKENDD_SERVER_WORKER_PROGRAM_REPLY_H_
#define BACKENDD_SERVER_WORKER_PROGRAM_REPLY_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/worker/program/listing.h"
#include "server/worker/session/session.h"

namespace backendd::worker {

google::protobuf::Duration ToDuration(absl::Duration duration);

absl::Status StatusOfFault(const Fault& fault);
// `status` with the operation it came from in its metadata: what later users of a poisoned buffer
// are told. One that has a name keeps it.
absl::Status NameOperation(const absl::Status& status, int operation, const std::string& tag,
                           absl::string_view kind);

// BUFFER_POISONED, with what its first cause said.
absl::Status PoisonedStatus(uint64_t buffer, const absl::Status& cause);

// The reads among the first `done` steps; takes their bytes.
void FillReads(const std::vector<Step>& steps, int done, std::vector<std::string>* bytes,
               v1::SubmitResponse* response);
void FillFailure(const Step& step, int operation, const absl::Status& cause,
                 v1::OperationFailure* failure);
void FillDevice(const DeviceInfo& info, uint64_t device_epoch, v1::Device* device);
void StampProgram(const DeviceInfo& device, uint64_t device_epoch, const std::string& epoch,
                  uint64_t revision, uint64_t hash, v1::Stamp* stamp);
void StampStep(const Step& step, int operation, const FlagSet& program_flags,
               v1::OperationStamp* stamp);

// Ends a numbered program's wait: repeats that came meanwhile, and those to come, get this.
void KeepAnswer(Session& session, Answer& answer, const absl::Status& status,
                const v1::SubmitResponse& response);

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PROGRAM_REPLY_H_
