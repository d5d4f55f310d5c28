#include "server/worker/program/transfer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/worker/program/reply.h"
#include "shared/status/macros.h"

namespace backendd::worker {

void Transfer::Run(Shop& shop, Executor& executor, std::shared_ptr<Session> session, Range range,
                   const std::string* in, std::string* out, Done done) {
  std::unique_ptr<Transfer> transfer(new Transfer(shop, session, range, in, out, std::move(done)));
  if (const absl::Status status = transfer->Pin(); !status.ok()) return transfer->done_(status);
  std::unique_ptr<Work> work = std::move(transfer);
  if (executor.Enter(session->lane, work)) executor.RunInline(std::move(work));
}

absl::Status Transfer::Pin() {
  if (range_.length > kMaxTransferBytes)
    return Error(
        Reason::kSizeTooLarge,
        absl::StrCat("one call carries at most ", kMaxTransferBytes, " bytes, not ", range_.length),
        {{"limit", absl::StrCat(kMaxTransferBytes)}});
  MutexLock lock(&session()->mutex);
  RETURN_IF_ERROR(session()->CheckOpen());
  ASSIGN_OR_RETURN(Buffer* const buffer, session()->buffers.Find(range_.buffer));
  if (range_.offset > buffer->bytes || range_.length > buffer->bytes - range_.offset)
    return ErrorFrom(
        {{"offset", Reason::kShapeInvalid,
          absl::StrCat("offset ", range_.offset, " and ", range_.length, " bytes pass buffer ",
                       range_.buffer, ", which has ", buffer->bytes)}});
  if (in_ != nullptr && !buffer->writable)
    return Error(Reason::kArgumentInvalid, absl::StrCat("buffer ", range_.buffer, " is read only"),
                 {{"buffer", absl::StrCat(range_.buffer)}});
  RETURN_IF_ERROR(session()->Enter());
  buffer_ = buffer;
  ++buffer_->pins;
  return absl::OkStatus();
}

void Transfer::Enqueue(Device& device, Slot& slot, Address) {
  char* const at = static_cast<char*>(buffer_->slab.address) + range_.offset;
  if (out_ != nullptr) out_->resize(range_.length);
  if (range_.length == 0) return;
  status_ = in_ != nullptr ? device.Copy(slot, at, in_->data(), in_->size())
                           : device.CopyOut(slot, out_->data(), at, range_.length);
}

void Transfer::Finish() {
  {
    MutexLock lock(&session()->mutex);
    const uint64_t end = range_.offset + range_.length;
    if (status_.ok() && in_ != nullptr) {
      buffer_->Heal(range_.offset, end);
    } else if (status_.ok()) {
      if (const absl::Status* cause = buffer_->PoisonIn(range_.offset, end))
        status_ = PoisonedStatus(range_.buffer, *cause);
    }
  }
  End(status_);
}

void Transfer::Refuse(const absl::Status& why) { End(why); }

void Transfer::End(const absl::Status& status) {
  if (out_ != nullptr && !status.ok()) out_->clear();
  {
    MutexLock lock(&session()->mutex);
    session()->buffers.Unpin(buffer_);
  }
  shop_.sessions.Leave(session());
  done_(status);
}

}  // namespace backendd::worker
