#include "server/worker/program/program.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/worker/program/reply.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

constexpr double kCopyBytesPerUs = 5000;  // a guess
constexpr uint64_t kMaxProgramBytes = 1 << 20;

bool MovesBytes(OpKind kind) {
  return kind == OpKind::kRead || kind == OpKind::kWrite || kind == OpKind::kBarrier;
}

uint8_t AlignmentOf(Address address) {
  if (address == nullptr) return 6;
  return static_cast<uint8_t>(std::min(std::countr_zero(reinterpret_cast<uintptr_t>(address)), 6));
}

uint64_t EndOf(const Step& step, size_t k) {
  return step.offsets[k] + *SpanBytes(step.spec().operands[k].type);
}

bool Writes(const Step& step, size_t k) {
  return step.spec().operands[k].use != Use::kIn && step.addresses[k] != nullptr;
}

// The first poisoned thing that a step reads: its cause and buffer; nullptr: none.
const absl::Status* PoisonOf(const Step& step, const Buffer** buffer) {
  for (size_t k = 0; k < step.buffers.size(); ++k) {
    if (step.addresses[k] == nullptr || step.spec().operands[k].use == Use::kOut) continue;
    if (!step.buffers[k]->poisoned()) continue;
    *buffer = step.buffers[k];
    if (const auto* cause = step.buffers[k]->PoisonIn(step.offsets[k], EndOf(step, k)))
      return cause;
  }
  return nullptr;
}

}  // namespace

Program::Program(Shop& shop, std::shared_ptr<Session> session, const v1::SubmitRequest* request,
                 v1::SubmitResponse* response, absl::Duration until, Done done)
    : Work(std::move(session)),
      shop_(shop),
      request_(request),
      response_(response),
      done_(std::move(done)),
      seq_(request->seq()),
      mode_(request->mode()),
      detail_(request->stamp_detail()),
      min_revision_(request->min_revision()),
      strict_(request->strict_flags()),
      arrived_(shop.clock.Steady()),
      until_(until) {}

absl::Status Program::FindListing() {
  std::shared_ptr<const Prepared> prepared;
  uint64_t most_operations = 0;
  const uint64_t id = request_->program_id();
  {
    MutexLock lock(&session()->mutex);
    most_operations = session()->quotas.operations;
    const auto found = session()->prepared.find(id);
    if (found != session()->prepared.end()) prepared = found->second;
  }
  if (id == 0) {
    RETURN_IF_ERROR(CheckQuota("program bytes", kMaxProgramBytes, 0, request_->ByteSizeLong()));
    if (request_->bindings_size() > 0)
      return Error(Reason::kArgumentInvalid, "bindings need a program_id");
    ASSIGN_OR_RETURN(listing_, MakeListing(request_->operations(), most_operations));
    return absl::OkStatus();
  }
  if (prepared == nullptr)
    return Error(Reason::kProgramUnknown, absl::StrCat("the session has prepared no program ", id),
                 {{"program", absl::StrCat(id)}});
  if (request_->operations_size() > 0)
    return Error(Reason::kArgumentInvalid, "operations and program_id exclude each other");
  for (const v1::Binding& binding : request_->bindings()) {
    const auto& known = prepared->parameters;
    if (std::find(known.begin(), known.end(), binding.parameter()) == known.end())
      return Error(Reason::kArgumentInvalid,
                   absl::StrCat("the program has no parameter ", binding.parameter()),
                   {{"parameter", absl::StrCat(binding.parameter())}});
  }
  listing_ = prepared->listing;
  return absl::OkStatus();
}

absl::Status Program::PinBuffers() {
  std::vector<Violation> violations;
  MutexLock lock(&session()->mutex);
  RETURN_IF_ERROR(session()->CheckOpen());
  Resolve(*listing_, session()->buffers, request_->bindings(), &steps_, &violations);
  RETURN_IF_ERROR(ErrorFrom(std::move(violations)));
  // What the program itself writes first may be whole by the time it is read: judged at the end.
  std::vector<const Buffer*> written;
  for (const Step& step : steps_) {
    const Buffer* buffer = nullptr;
    const absl::Status* cause = PoisonOf(step, &buffer);
    if (cause != nullptr && std::find(written.begin(), written.end(), buffer) == written.end())
      return PoisonedStatus(buffer->id, *cause);
    for (size_t k = 0; k < step.buffers.size(); ++k) {
      if (Writes(step, k) && step.buffers[k]->poisoned()) written.push_back(step.buffers[k]);
    }
  }
  for (const Step& step : steps_) {
    for (Buffer* buffer : step.buffers) {
      if (buffer != nullptr) ++buffer->pins;
    }
  }
  pinned_ = true;
  return absl::OkStatus();
}

absl::Status Program::Admit() {
  const uint64_t epoch = request_->device_epoch();
  if (epoch != 0 && epoch != shop_.device_epoch)
    return Error(
        Reason::kDeviceLost, "the device was started again; its buffers are gone",
        {{"old_epoch", absl::StrCat(epoch)}, {"new_epoch", absl::StrCat(shop_.device_epoch)}});
  if (request_->lease_id() != 0)
    RETURN_IF_ERROR(
        shop_.flags.CheckFence(session()->id, LeaseId(request_->lease_id()), request_->token()));
  RETURN_IF_ERROR(FindListing());
  flags_ = shop_.flags.Pin(session()->id);
  RETURN_IF_ERROR(PinBuffers());
  for (Step& step : steps_) {
    if (step.operation->flags.empty()) continue;
    ASSIGN_OR_RETURN(step.flags, shop_.flags.WithCall(*flags_.flags, step.operation->flags));
  }
  admitted_ = shop_.clock.Steady();
  return absl::OkStatus();
}

absl::Status Program::PlanStep(Step& step, bool build, bool* missing) {
  const OperationSpec& spec = step.spec();
  if (MovesBytes(spec.kind)) {
    if (!spec.operands.empty() && step.addresses[0] != nullptr)
      cost_us_ += *SpanBytes(spec.operands[0].type) / kCopyBytesPerUs;
    return absl::OkStatus();
  }
  const FlagSet& flags = step.flags != nullptr ? *step.flags : *flags_.flags;
  absl::InlinedVector<uint8_t, 8> alignment;
  for (Address address : step.addresses) alignment.push_back(AlignmentOf(address));
  thread_local std::string key;
  key.clear();
  AppendKey(spec, &key);
  key.append(reinterpret_cast<const char*>(alignment.data()), alignment.size());
  for (FlagId flag : shop_.device.Governing(spec)) {
    const uint32_t number = flags.Number(flag);
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  const PlanKind kind = PlanKindOf(spec.kind);
  if (!build) {
    step.plan = shop_.plans.Find(kind, key);
    step.plan_hit = step.plan != nullptr;
    *missing = step.plan == nullptr;
    if (*missing) return absl::OkStatus();
  } else {
    absl::StatusOr<PlanLookup> found =
        shop_.plans.Get(kind, key, [&] { return shop_.device.BuildPlan(spec, flags, alignment); });
    if (!found.ok())
      return NameOperation(found.status(), static_cast<int>(&step - steps_.data()),
                           step.operation->tag, KindName(spec.kind));
    step.plan = std::move(found->plan);
    step.plan_hit = found->hit;
  }
  cost_us_ += step.plan->cost_us;
  workspace_bytes_ = std::max(workspace_bytes_, step.plan->workspace_bytes);
  return absl::OkStatus();
}

absl::StatusOr<bool> Program::Plans(bool build) {
  for (Step& step : steps_) {
    // Found, and counted as a hit, by the attempt before.
    if (step.plan != nullptr) continue;
    bool missing = false;
    RETURN_IF_ERROR(PlanStep(step, build, &missing));
    if (missing) return false;  // gone on with by a thread that may wait
  }
  return true;
}

absl::Status Program::Settle() {
  plan_time_ = shop_.clock.Steady() - admitted_;
  if (workspace_bytes_ > shop_.workspace_cap)
    return Error(
        Reason::kWorkspaceTooSmall,
        absl::StrCat("the program needs ", workspace_bytes_, " bytes of workspace; at most ",
                     shop_.workspace_cap),
        {{"needed", absl::StrCat(workspace_bytes_)}, {"cap", absl::StrCat(shop_.workspace_cap)}});
  for (size_t i = 0; strict_ && i < steps_.size(); ++i) {
    if (steps_[i].plan == nullptr || steps_[i].plan->choice.unmet.empty()) continue;
    const Unmet& unmet = steps_[i].plan->choice.unmet.front();
    const std::string& flag = Catalogue::Get().info(unmet.flag).name;
    return Error(Reason::kFlagUnmet,
                 absl::StrCat("flag '", flag, "' asks for ", ToText(unmet.requested),
                              "; operation ", i, " would run with ", ToText(unmet.effective)),
                 {{"flag", flag},
                  {"requested", ToText(unmet.requested)},
                  {"effective", ToText(unmet.effective)},
                  {"why", Str(unmet.reason)},
                  {"operation", absl::StrCat(i)}});
  }
  return Start();
}

absl::Status Program::Start() {
  {
    MutexLock lock(&session()->mutex);
    if (session()->ended) return UnknownSession(session()->id.value());
  }
  started_ = shop_.clock.Steady();
  if (started_ <= until_) return absl::OkStatus();
  return Error(Reason::kDeadlineBeforeStart, "the deadline passed before the program could start");
}

void Program::Enqueue(Device& device, Slot& slot, Address workspace) {
  const bool timed = detail_ == v1::STAMP_DETAIL_FULL || detail_ == v1::STAMP_DETAIL_UNSPECIFIED;
  for (Step& step : steps_) {
    const OperationSpec& spec = step.spec();
    const absl::Duration before = timed ? shop_.clock.Steady() : absl::Duration();
    if (spec.kind == OpKind::kRead) {
      std::string& bytes = read_bytes_.emplace_back(*SpanBytes(spec.operands[0].type), '\0');
      if (!bytes.empty())
        step.status = device.CopyOut(slot, bytes.data(), step.addresses[0], bytes.size());
    } else if (spec.kind == OpKind::kWrite) {
      const std::string& bytes = std::get<WriteAttributes>(spec.attributes).bytes;
      if (!bytes.empty())
        step.status = device.Copy(slot, step.addresses[0], bytes.data(), bytes.size());
    } else if (step.plan != nullptr) {
      step.status = device.Run(slot, *step.plan, step.addresses, workspace, &step.fault);
    }
    if (timed) step.device_time = shop_.clock.Steady() - before;
    // The rest would run on nothing.
    if (!step.status.ok() || step.fault.reason.has_value()) return;
  }
}

int Program::Judge(absl::Status* cause) {
  MutexLock lock(&session()->mutex);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const Buffer* buffer = nullptr;
    if (const absl::Status* poison = PoisonOf(step, &buffer)) {
      *cause = PoisonedStatus(buffer->id, *poison);
    } else if (!step.status.ok()) {
      *cause = step.status;
    } else if (step.fault.reason.has_value()) {
      *cause = StatusOfFault(step.fault);
    } else {
      for (size_t k = 0; k < step.buffers.size(); ++k) {
        if (!Writes(step, k) || !step.buffers[k]->poisoned()) continue;
        if (step.spec().operands[k].type.row_major())
          step.buffers[k]->Heal(step.offsets[k], EndOf(step, k));
      }
      continue;
    }
    const auto named = std::make_shared<const absl::Status>(NameOperation(
        *cause, static_cast<int>(i), step.operation->tag, KindName(step.spec().kind)));
    for (size_t rest = i; rest < steps_.size(); ++rest) {
      for (size_t k = 0; k < steps_[rest].buffers.size(); ++k) {
        if (Writes(steps_[rest], k))
          steps_[rest].buffers[k]->Poison(steps_[rest].offsets[k], EndOf(steps_[rest], k), named);
      }
    }
    return static_cast<int>(i);
  }
  return -1;
}

void Program::Finish() {
  const absl::Duration finished = shop_.clock.Steady();
  absl::Status cause;
  const int failed = Judge(&cause);
  const int done = failed < 0 ? static_cast<int>(steps_.size()) : failed;
  response_->set_operations_done(done);
  response_->set_late(finished > until_);
  FillReads(steps_, done, &read_bytes_, response_);
  if (failed >= 0) FillFailure(steps_[failed], failed, cause, response_->mutable_failure());
  FillStamp();
  if (detail_ != v1::STAMP_DETAIL_NONE) {
    v1::Stamp* const stamp = response_->mutable_stamp();
    *stamp->mutable_queue_time() = ToDuration(started_ - admitted_ - plan_time_);
    *stamp->mutable_device_time() = ToDuration(finished - started_);
  }
  ++(failed < 0 ? shop_.succeeded : shop_.failed);
  Reply(absl::OkStatus());
}

void Program::FillStamp() {
  if (detail_ == v1::STAMP_DETAIL_NONE) return;
  v1::Stamp* const stamp = response_->mutable_stamp();
  StampProgram(shop_.device.info(), shop_.device_epoch, shop_.flags.epoch(), flags_.revision,
               listing_->hash, stamp);
  *stamp->mutable_plan_time() = ToDuration(plan_time_);
  if (detail_ == v1::STAMP_DETAIL_PROGRAM) return;
  for (size_t i = 0; i < steps_.size(); ++i)
    StampStep(steps_[i], static_cast<int>(i), *flags_.flags, stamp->add_operations());
}

void Program::Accept() {
  response_->set_seq(seq_);
  if (answer_ != nullptr) KeepAnswer(*session(), *answer_, absl::OkStatus(), *response_);
  answer_ = nullptr;
  request_ = nullptr;
  response_ = &own_response_;
  std::exchange(done_, nullptr)(absl::OkStatus());
}

void Program::Explain() {
  FillStamp();
  Reply(absl::OkStatus());
}

void Program::Repeat(const Answer& answer) {
  if (answer.status.ok()) *response_ = answer.response;
  std::exchange(done_, nullptr)(answer.status);
}

void Program::Refuse(const absl::Status& why) {
  ++shop_.refused;
  Reply(why);
}

void Program::Unpin() {
  if (!std::exchange(pinned_, false)) return;
  MutexLock lock(&session()->mutex);
  for (const Step& step : steps_) {
    for (Buffer* buffer : step.buffers) {
      if (buffer != nullptr) session()->buffers.Unpin(buffer);
    }
  }
}

void Program::Reply(const absl::Status& status) {
  // Plans and buffers are let go before the client can know: what it asks next finds them free.
  Unpin();
  steps_.clear();
  shop_.plans.Trim();
  response_->set_seq(seq_);
  if (answer_ != nullptr) KeepAnswer(*session(), *answer_, status, *response_);
  shop_.sessions.Leave(session());
  if (done_) std::exchange(done_, nullptr)(status);
}

}  // namespace backendd::worker
