// What a node owes those who come back, ask again, leaf through lists or ask too much; and what it
// learns from its workers.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/support/in_process_node.h"

namespace backendd::node {
namespace {

// One device that acknowledges at once and has three plans.
class OneDevice final : public Workers {
 public:
  void Send(absl::FunctionRef<control::v1::Command(const DeviceId&)> make,
            std::function<void()> acknowledged) override {
    make("cpu");
    acknowledged();
  }
  void Attach(const DeviceId&, control::v1::Command) override {}
  std::vector<v1::Device> Devices() const override { return {}; }
  std::map<DeviceId, uint64_t> SessionBytes(uint64_t) const override { return {}; }
  std::optional<uint64_t> FftPlans(const DeviceId& device) const override {
    return device == "cpu" ? std::optional<uint64_t>(3) : std::nullopt;
  }
};

class NodeTest : public testing::Test {
 protected:
  explicit NodeTest(NodeQuotas quotas = {}) {
    Node::Options options;
    options.clock = &clock_;
    options.timer = false;
    options.quotas = quotas;
    node_ = std::move(Node::Create(std::move(options), &workers_)).value();
    Peer self;
    self.uid = getuid();
    self.pid = getpid();
    caller_ = {std::make_shared<const Peer>(std::move(self)), Role::kAdmin};
  }
  absl::StatusOr<v1::GetFlagResponse> Get(const std::string& flag, const std::string& device = "") {
    v1::GetFlagRequest request;
    request.set_flag(flag);
    if (!device.empty()) request.set_device(device);
    return node_->GetFlag(caller_, request);
  }
  absl::Status SetLimit(int64_t limit) {
    v1::SetFlagsRequest request;
    request.add_assignments()->set_flag("cudnn.benchmark_limit");
    request.mutable_assignments(0)->mutable_value()->set_int_(limit);
    absl::Status answer = absl::UnknownError("no answer");
    node_->SetFlags(caller_, request, [&](absl::StatusOr<v1::SetFlagsResponse> response) {
      answer = response.status();
    });
    return answer;
  }

  FakeClock clock_;
  OneDevice workers_;
  std::unique_ptr<Node> node_;
  Caller caller_;
};

TEST_F(NodeTest, AWorkersHelloSaysWhatTheNodeCanDo) {
  EXPECT_FALSE(Get("mkldnn.is_available")->reading().value().bool_());
  v1::Device cpu;
  cpu.set_device("cpu");
  cpu.set_isa("AVX2");
  (*cpu.mutable_libraries())["onednn"] = "2.7.3";
  node_->OnWorkerReady(cpu);
  const auto available = Get("mkldnn.is_available");
  EXPECT_TRUE(available->reading().value().bool_());
  EXPECT_EQ(available->reading().since_revision(), available->revision());
  EXPECT_EQ(Get("cpu.get_cpu_capability")->reading().value().text(), "AVX2");
  EXPECT_EQ(node_->GetNode(caller_, {})->libraries().at("onednn"), "2.7.3");
  node_->OnWorkerReady(cpu);  // it came back the same
  EXPECT_EQ(Get("mkldnn.is_available")->revision(), available->revision());
}

TEST_F(NodeTest, ALiveNumberIsTheDevicesOwn) {
  EXPECT_EQ(Get("cuda.cufft_plan_cache.size", "cpu")->reading().value().int_(), 3);
  EXPECT_TRUE(Get("cuda.cufft_plan_cache.size")->reading().has_unavailable());
}

TEST_F(NodeTest, PagesOfAListAreOfOneRevision) {
  v1::ListFlagsRequest request;
  request.set_prefix("cudnn.");
  request.set_page_size(1);
  auto page = node_->ListFlags(caller_, request);
  const uint64_t first = page->revision();
  ASSERT_OK(SetLimit(77));
  bool seen = false;
  while (!page->next_page_token().empty()) {
    request.set_page_token(page->next_page_token());
    page = node_->ListFlags(caller_, request);
    ASSERT_OK(page);
    EXPECT_EQ(page->revision(), first);
    for (const v1::FlagReading& reading : page->readings()) {
      if (reading.flag() != "cudnn.benchmark_limit") continue;
      seen = true;
      EXPECT_NE(reading.value().int_(), 77);
    }
  }
  EXPECT_TRUE(seen);
  request.set_page_token("1000000.3");
  EXPECT_THAT(node_->ListFlags(caller_, request), HasReason(Reason::kRevisionStale));
}

NodeQuotas Small() {
  NodeQuotas quotas;
  quotas.mutations_per_second = 10;
  quotas.mutation_burst = 2;
  quotas.watches_per_session = 1;
  return quotas;
}
class SmallNodeTest : public NodeTest {
 protected:
  SmallNodeTest() : NodeTest(Small()) {}
};

TEST_F(SmallNodeTest, WritesBeyondTheBurstWaitForTheirTurn) {
  ASSERT_OK(SetLimit(1));
  ASSERT_OK(SetLimit(2));
  const absl::Status refused = SetLimit(3);
  ASSERT_THAT(refused, HasReason(Reason::kQuotaExceeded));
  EXPECT_EQ(DetailsOf(refused)->metadata.at("quota"), "mutations_per_second");
  EXPECT_EQ(DetailsOf(refused)->retry_after, absl::Milliseconds(100));
  EXPECT_EQ(Get("cudnn.benchmark_limit")->reading().value().int_(), 2);
  clock_.Advance(absl::Milliseconds(100));
  ASSERT_OK(SetLimit(3));
  EXPECT_THAT(SetLimit(4), HasReason(Reason::kQuotaExceeded));
}

struct Watch final : WatchSink {
  bool Send(const v1::WatchFlagsResponse&) override { return true; }
  void End(const absl::Status& why) override { ended = why; }
  absl::Status ended;
};

TEST_F(SmallNodeTest, AProcessHasSoManyWatches) {
  Watch first, second;
  const uint64_t watch = node_->WatchFlags(caller_, {}, &first);
  EXPECT_NE(watch, 0u);
  EXPECT_EQ(node_->WatchFlags(caller_, {}, &second), 0u);
  EXPECT_THAT(second.ended, HasReason(Reason::kQuotaExceeded));
  node_->StopWatch(watch);
  EXPECT_NE(node_->WatchFlags(caller_, {}, &second), 0u);
}

class WireTest : public testing::Test {
 protected:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::OpenSessionRequest, v1::OpenSessionResponse>> io;
    v1::Welcome welcome;
  };
  std::unique_ptr<Stream> Open(uint64_t returning = 0, const std::string& token = "") {
    auto stream = std::make_unique<Stream>();
    stream->io = sessions_->OpenSession(&stream->context);
    v1::OpenSessionRequest hello;
    hello.mutable_hello()->set_name("test");
    if (returning != 0) hello.mutable_hello()->set_session_id(returning);
    hello.mutable_hello()->set_resume_token(token);
    stream->io->Write(hello);
    v1::OpenSessionResponse frame;
    if (stream->io->Read(&frame)) stream->welcome = frame.welcome();
    return stream;
  }
  absl::StatusOr<v1::AcquireLeaseResponse> Exclusive(const Stream& session,
                                                     const std::string& request_id = "") {
    v1::AcquireLeaseRequest request;
    request.set_session_id(session.welcome.session_id());
    request.set_mode(v1::LEASE_MODE_EXCLUSIVE);
    request.set_request_id(request_id);
    request.add_entries()->set_flag("cudnn.benchmark_limit");
    request.mutable_entries(0)->mutable_value()->set_int_(3);
    return Call(leases_, &v1::LeaseService::Stub::AcquireLease, request);
  }

  InProcessNode node_;
  std::unique_ptr<v1::FlagService::Stub> flags_ = v1::FlagService::NewStub(node_.channel);
  std::unique_ptr<v1::LeaseService::Stub> leases_ = v1::LeaseService::NewStub(node_.channel);
  std::unique_ptr<v1::SessionService::Stub> sessions_ = v1::SessionService::NewStub(node_.channel);
};

TEST_F(WireTest, AReleaseByOwnerEndsTheCallThatHolds) {
  grpc::ClientContext context;
  v1::HoldLeaseRequest hold;
  hold.set_owner("job:1");
  hold.add_entries()->set_flag("cudnn.benchmark_limit");
  hold.mutable_entries(0)->mutable_value()->set_int_(3);
  auto stream = leases_->HoldLease(&context, hold);
  v1::HoldLeaseResponse event;
  ASSERT_TRUE(stream->Read(&event));
  ASSERT_TRUE(event.has_granted());
  v1::GetFlagRequest get;
  get.set_flag("cudnn.benchmark_limit");
  const auto held = Call(flags_, &v1::FlagService::Stub::GetFlag, get);
  EXPECT_TRUE(absl::StartsWith(held->reading().source(),
                               "lease " + event.granted().lease().prefix() + " of uid "))
      << held->reading().source();
  v1::ReleaseLeaseRequest release;
  release.set_owner("job:1");
  EXPECT_EQ(Call(leases_, &v1::LeaseService::Stub::ReleaseLease, release)->released(), 1);
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.ended().cause(), v1::END_CAUSE_RELEASED);
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_NE(Call(flags_, &v1::FlagService::Stub::GetFlag, get)->reading().value().int_(), 3);
}

TEST_F(WireTest, WhatWasLostIsToldToWhoHasTheToken) {
  auto session = Open();
  const v1::Welcome old = session->welcome;
  ASSERT_OK(Exclusive(*session));
  session->context.TryCancel();
  v1::OpenSessionResponse frame;
  while (session->io->Read(&frame)) continue;
  auto waiting = Open();
  v1::AcquireLeaseRequest request;  // granted when the old lease has ended
  request.set_session_id(waiting->welcome.session_id());
  request.mutable_wait()->set_seconds(60);
  request.add_entries()->set_flag("cudnn.benchmark_limit");
  request.mutable_entries(0)->mutable_value()->set_int_(5);
  ASSERT_OK(Call(leases_, &v1::LeaseService::Stub::AcquireLease, request));
  EXPECT_EQ(Open(old.session_id(), std::string(16, 'x'))->welcome.lost_size(), 0);
  const v1::Welcome welcome = Open(old.session_id(), old.resume_token())->welcome;
  EXPECT_EQ(welcome.continuity(), v1::SESSION_CONTINUITY_NEW);
  ASSERT_EQ(welcome.lost_size(), 1);
  EXPECT_EQ(welcome.lost(0).cause(), v1::END_CAUSE_STREAM_BROKEN);
}

TEST_F(WireTest, ARequestThatFailedMayBeMadeAgain) {
  auto a = Open(), b = Open();
  const auto first = Exclusive(*a);
  ASSERT_OK(first);
  EXPECT_THAT(Exclusive(*b, "again"), HasReason(Reason::kLeaseConflict));
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(first->lease().lease_id());
  ASSERT_OK(Call(leases_, &v1::LeaseService::Stub::ReleaseLease, release));
  const auto granted = Exclusive(*b, "again");
  ASSERT_OK(granted);
  EXPECT_EQ(Exclusive(*b, "again")->lease().lease_id(), granted->lease().lease_id());
}

}  // namespace
}  // namespace backendd::node
