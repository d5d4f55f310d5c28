// How a session comes back, against a daemon that is told what to say; and programs that know their
// shapes before anybody is asked.
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>

#include "backendd/client.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "shared/sync.h"
#include "tests/support/status_matchers.h"

namespace backendd {
namespace {

// Welcomes, acknowledges and keeps what it was told; Cut() ends the stream.
class Daemon final : public v1::SessionService::Service, public v1::LeaseService::Service {
 public:
  Daemon() {
    char folder[] = "/tmp/bdXXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/s";
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path_, grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1::SessionService::Service*>(this));
    builder.RegisterService(static_cast<v1::LeaseService::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~Daemon() override {
    server_->Shutdown(std::chrono::system_clock::now());
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  grpc::Status OpenSession(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::OpenSessionResponse, v1::OpenSessionRequest>* stream) override {
    v1::OpenSessionRequest request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    v1::OpenSessionResponse frame;
    {
      MutexLock lock(&mutex_);
      hellos_.push_back(request.hello());
      context_ = context;
      const bool resumed = resumes_ && request.hello().has_session_id();
      v1::Welcome& welcome = *frame.mutable_welcome();
      welcome.set_session_id(resumed ? request.hello().session_id() : 100 + hellos_.size());
      welcome.set_resume_token("token " + std::to_string(hellos_.size()));
      *welcome.mutable_ttl() = request.hello().ttl();
      welcome.set_continuity(resumed ? v1::SESSION_CONTINUITY_RESUMED : v1::SESSION_CONTINUITY_NEW);
      changed_.SignalAll();
    }
    stream->Write(frame);
    while (stream->Read(&request)) {
      MutexLock lock(&mutex_);
      goodbye_ |= request.has_goodbye();
      ++frames_;
      changed_.SignalAll();
      if (!request.has_heartbeat()) continue;
      frame.mutable_heartbeat_ack()->set_sequence(request.heartbeat().sequence());
      stream->Write(frame);
    }
    return grpc::Status::OK;
  }

  grpc::Status AcquireLease(grpc::ServerContext*, const v1::AcquireLeaseRequest* request,
                            v1::AcquireLeaseResponse* response) override {
    MutexLock lock(&mutex_);
    acquired_.push_back(*request);
    response->mutable_lease()->set_lease_id(200 + acquired_.size());
    response->mutable_lease()->set_token(acquired_.size());
    return grpc::Status::OK;
  }
  grpc::Status ReleaseLease(grpc::ServerContext*, const v1::ReleaseLeaseRequest*,
                            v1::ReleaseLeaseResponse*) override {
    return grpc::Status::OK;
  }

  void set_resumes(bool resumes) {
    MutexLock lock(&mutex_);
    resumes_ = resumes;
  }
  void Cut() {
    MutexLock lock(&mutex_);
    context_->TryCancel();
  }
  v1::Hello WaitHello(size_t number) {
    MutexLock lock(&mutex_);
    while (hellos_.size() < number) changed_.Wait(&mutex_);
    return hellos_[number - 1];
  }
  void WaitFrame() {
    MutexLock lock(&mutex_);
    while (frames_ == 0) changed_.Wait(&mutex_);
  }
  bool goodbye() {
    MutexLock lock(&mutex_);
    return goodbye_;
  }
  std::vector<v1::AcquireLeaseRequest> acquired() {
    MutexLock lock(&mutex_);
    return acquired_;
  }
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<v1::Hello> hellos_;
  std::vector<v1::AcquireLeaseRequest> acquired_;
  grpc::ServerContext* context_ = nullptr;
  int frames_ = 0;
  bool resumes_ = true, goodbye_ = false;
};

// Events of a session, to be waited for.
class Events {
 public:
  std::function<void(const SessionEvent&)> Sink() {
    return [this](const SessionEvent& event) {
      MutexLock lock(&mutex_);
      events_.push_back(event);
      changed_.SignalAll();
    };
  }
  template <class Event>
  Event Next() {
    MutexLock lock(&mutex_);
    while (true) {
      while (events_.empty()) changed_.Wait(&mutex_);
      const SessionEvent event = events_.front();
      events_.pop_front();
      if (const auto* wanted = std::get_if<Event>(&event)) return *wanted;
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<SessionEvent> events_;
};

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    auto client = Client::Create({.address = daemon_.path()});
    ASSERT_OK(client);
    client_ = *std::move(client);
    SessionOptions options;
    options.ttl = absl::Milliseconds(600);
    options.on_event = events_.Sink();
    auto session = client_->OpenSession(std::move(options));
    ASSERT_OK(session);
    session_ = *std::move(session);
  }

  Daemon daemon_;
  Events events_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, ResumesWithTheTokenOfTheLastWelcome) {
  EXPECT_EQ(session_->id(), 101u);
  daemon_.Cut();
  EXPECT_TRUE(events_.Next<Reconnected>().same_session);
  const v1::Hello hello = daemon_.WaitHello(2);
  EXPECT_EQ(hello.session_id(), 101u);
  EXPECT_EQ(hello.resume_token(), "token 1");
  EXPECT_EQ(session_->id(), 101u);
}

TEST_F(SessionTest, TakesItsLeasesAnewWhenTheOldSessionIsGone) {
  LeaseRequest request;
  request.flags = {{"cudnn.benchmark", true}};
  request.wait = absl::Seconds(1);
  auto lease = session_->Acquire(request);
  ASSERT_OK(lease);
  EXPECT_EQ(lease->id(), 201u);
  daemon_.set_resumes(false);
  daemon_.Cut();
  const LeaseReacquired again = events_.Next<LeaseReacquired>();
  EXPECT_EQ(again.old_id, 201u);
  ASSERT_OK(again.grant);
  EXPECT_FALSE(events_.Next<Reconnected>().same_session);
  EXPECT_EQ(lease->id(), 202u);
  EXPECT_EQ(session_->id(), 102u);
  const auto acquired = daemon_.acquired();
  ASSERT_EQ(acquired.size(), 2u);
  EXPECT_EQ(acquired[1].session_id(), 102u);
  EXPECT_FALSE(acquired[1].has_wait());  // the stream is not kept waiting
  EXPECT_NE(acquired[0].request_id(), acquired[1].request_id());
}

TEST_F(SessionTest, SaysGoodbyeAtItsEndAndItsHandlesSaySo) {
  auto lease = session_->Acquire({.flags = {{"cudnn.benchmark", true}}});
  ASSERT_OK(lease);
  session_.reset();
  EXPECT_TRUE(daemon_.goodbye());
  EXPECT_THAT(lease->token(), HasReason(Reason::kSessionUnknown));
}

TEST_F(SessionTest, SendsHeartbeatsUnasked) { daemon_.WaitFrame(); }

TEST_F(SessionTest, AnswersSessionForkedInAForkedChildAndEndsSilently) {
  auto lease = session_->Acquire({.flags = {{"cudnn.benchmark", true}}});
  ASSERT_OK(lease);
  const pid_t child = fork();
  if (child == 0) {
    const bool forked = ReasonOf(lease->token().status()) == Reason::kSessionForked &&
                        ReasonOf(session_->Get("x").status()) == Reason::kSessionForked;
    session_.reset();
    client_.reset();
    _exit(forked ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_OK(lease->token());  // the parent's goes on
}

TEST_F(SessionTest, AProgramKnowsItsShapesAndPlacesItsOutputsApart) {
  Program program = session_->NewProgram("cpu");
  const Tensor a{7, 0, RowMajor(DType::kF32, {2, 3})}, b{8, 0, RowMajor(DType::kF32, {3, 4})};
  const Tensor y = program.Gemm(a, b), z = program.Gemm(a, b);
  EXPECT_EQ(y.type, RowMajor(DType::kF32, {2, 4}));
  EXPECT_EQ(y.buffer, z.buffer);
  EXPECT_EQ(z.offset, 256u);
  EXPECT_EQ(program.Reduction(y, v1::REDUCTION_KIND_ARGMAX).type, RowMajor(DType::kS64, {}));
  EXPECT_EQ(program.Fft(a, v1::FFT_KIND_R2C).type.dtype, DType::kC64);
  EXPECT_OK(program.status());
}

TEST_F(SessionTest, AProgramSaysAllThatIsWrongBeforeAnythingIsSent) {
  Program program = session_->NewProgram("cpu");
  const Tensor a{7, 0, RowMajor(DType::kF32, {2, 3})};
  EXPECT_FALSE(program.Gemm(a, a).valid());
  EXPECT_FALSE(program.Softmax(a, 5).valid());
  EXPECT_THAT(program.Submit(), HasReason(Reason::kShapeInvalid));
  EXPECT_EQ(DetailsOf(program.status())->violations.size(), 2u);
}

}  // namespace
}  // namespace backendd
