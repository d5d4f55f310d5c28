#include "server/worker/rpc/lane.h"

#include <deque>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "server/worker/rpc/caller.h"
#include "shared/status/grpc_status.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

// Programs read and not answered; a client that does not read its answers is not read either.
constexpr size_t kWindow = 64;

void FillRefusal(const absl::Status& status, uint64_t seq, v1::LaneRefusal* refusal) {
  refusal->set_seq(seq);
  refusal->set_code(static_cast<int>(status.code()));
  refusal->set_message(ValidUtf8(status.message()));
  const ErrorDetails details = DetailsOf(status).value_or(ErrorDetails{});
  refusal->set_reason(Str(ReasonName(details.reason)));
  for (const auto& [name, value] : details.metadata) (*refusal->mutable_metadata())[name] = value;
  for (const Violation& violation : details.violations) {
    v1::FieldViolation* const message = refusal->add_violations();
    message->set_field(violation.field);
    message->set_reason(Str(ReasonName(violation.reason)));
    message->set_description(violation.description);
  }
}

class LaneReactor final : public grpc::ServerBidiReactor<v1::LaneRequest, v1::LaneResponse> {
 public:
  LaneReactor(Shop& shop, Admission& admission, grpc::CallbackServerContext* context)
      : shop_(shop), admission_(admission), context_(*context) {
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Step([this] { closed_ = true; });
    if (session_ == nullptr) return Open();
    if (!incoming_.has_submit())
      return End(Error(Reason::kFrameInvalid, "after its opening a lane takes programs only"));
    Begin();
  }

  void OnWriteDone(bool ok) override {
    Step([this, ok] {
      writing_ = false;
      outgoing_.pop_front();
      if (!ok) closed_ = true;
    });
  }

  void OnDone() override { delete this; }

 private:
  struct Call {
    v1::SubmitRequest request;
    v1::SubmitResponse response;
  };

  void Open() {
    if (!incoming_.has_open())
      return End(Error(Reason::kFrameInvalid, "a lane begins with its opening"));
    const v1::LaneOpen& open = incoming_.open();
    if (open.min_version() > kLaneVersion || open.max_version() < kLaneVersion)
      return End(Error(Reason::kAbiVersion,
                       absl::StrCat("the lane's versions ", open.min_version(), " to ",
                                    open.max_version(), " do not hold ", kLaneVersion),
                       {{"min", absl::StrCat(kLaneVersion)}, {"max", absl::StrCat(kLaneVersion)}}));
    absl::StatusOr<std::shared_ptr<Session>> session =
        SessionOf(shop_.sessions, context_, open.session_id());
    if (!session.ok()) return End(session.status());
    session_ = *std::move(session);
    v1::LaneResponse response;
    response.set_version(kLaneVersion);
    Step([&] {
      outgoing_.push_back(std::move(response));
      reading_ = false;
    });
  }

  void Begin() {
    auto call = std::make_shared<Call>();
    call->request = std::move(*incoming_.mutable_submit());
    const uint64_t seq = call->request.seq();
    const absl::StatusOr<absl::Duration> until = DeadlineOf(context_, call->request, shop_.clock);
    Step([this] {
      ++running_;
      reading_ = false;
    });
    const auto done = [this, call, seq](const absl::Status& status) {
      v1::LaneResponse response;
      if (status.ok()) {
        *response.mutable_result() = std::move(call->response);
      } else {
        FillRefusal(status, seq, response.mutable_refusal());
      }
      Step([&] {
        --running_;
        outgoing_.push_back(std::move(response));
      });
    };
    if (!until.ok()) return done(until.status());
    if (call->request.session_id() != session_->id.value())
      return done(UnknownSession(call->request.session_id()));
    admission_.Submit(session_, &call->request, &call->response, *until, done);
  }

  void End(const absl::Status& status) {
    Step([&] {
      closed_ = true;
      end_ = status;
    });
  }

  // Changes something under the lock, then starts what can be started: a write, a read, the end.
  // After the end another thread may delete this at once.
  void Step(absl::FunctionRef<void()> change) {
    bool finish = false;
    {
      MutexLock lock(&mutex_);
      change();
      finish = Move();
    }
    if (finish) Finish(ToGrpc(end_));
  }

  bool Move() {
    if (!writing_ && !outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    }
    if (!reading_ && !closed_ && running_ + outgoing_.size() < kWindow) {
      reading_ = true;
      StartRead(&incoming_);
    }
    if (!closed_ || finished_ || running_ > 0 || writing_) return false;
    finished_ = true;
    return true;
  }

  Shop& shop_;
  Admission& admission_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<Session> session_;
  v1::LaneRequest incoming_;

  Mutex mutex_;
  // All below under the lock; the analysis does not follow it into Step's lambdas.
  std::deque<v1::LaneResponse> outgoing_;
  size_t running_ = 0;
  bool reading_ = true;
  bool writing_ = false;
  bool closed_ = false;
  bool finished_ = false;
  absl::Status end_;
};

}  // namespace

grpc::ServerBidiReactor<v1::LaneRequest, v1::LaneResponse>* NewLane(
    Shop& shop, Admission& admission, grpc::CallbackServerContext* context) {
  return new LaneReactor(shop, admission, context);
}

}  // namespace backendd::worker
