// Buffers, arenas and the end of sessions, over the wire.
#include <fcntl.h>
#include <sys/mman.h>

#include <thread>

#include "shared/fd/arena.h"
#include "tests/component/compute/worker_fixture.h"

namespace backendd::worker {
namespace {

class Buffers : public WorkerTest {
 protected:
  FdChannel Channel(uint64_t session) {
    FdChannel channel = *FdChannel::Connect(Path("f"));
    Frame hello;
    hello.kind = FrameKind::kHello;
    hello.session = session;
    hello.payload = TokenOf(session);
    EXPECT_OK(channel.Call(hello, absl::Seconds(10)).status());
    return channel;
  }
  static Frame Request(FrameKind kind, uint64_t buffer, uint64_t length, Fd fd = Fd()) {
    Frame frame;
    frame.kind = kind;
    frame.request = 1;
    frame.buffer = buffer;
    frame.length = length;
    if (fd) frame.fds.push_back(std::move(fd));
    return frame;
  }
};

TEST_F(Buffers, WhatAnotherSessionWroteIsNeverRead) {
  ASSERT_OK(Allocate(kSession, {{1, 4096}}));
  v1::SubmitRequest program = Program();
  Fill(&program, Floats(1, 1024), 3.25);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  ASSERT_OK(Free(kSession, {1}).status());
  ASSERT_OK(Allocate(kOther, {{1, 4096}}));
  EXPECT_EQ(*ReadBytes(kOther, 1, 4096), std::string(4096, '\0'));
}

// S60, for one caller.
TEST_F(Buffers, IdsAreUniqueAndComeBackAfterFree) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  EXPECT_THAT(Allocate(kSession, {{2, 64}, {1, 64}}), HasReason(Reason::kBufferExists));
  EXPECT_THAT(Allocate(kSession, {{3, 0}}), HasReason(Reason::kShapeInvalid));
  EXPECT_THAT(Allocate(kSession, {{4, uint64_t{1} << 63}}), HasReason(Reason::kShapeInvalid));
  EXPECT_EQ(Ping().used_bytes(), 64u);
  ASSERT_OK(Free(kSession, {1}).status());
  EXPECT_THAT(Free(kSession, {1}).status(), HasReason(Reason::kBufferUnknown));
  EXPECT_OK(Allocate(kSession, {{1, 32}}));
}

TEST_F(Buffers, OneByteOverTheQuotaFailsAndTheLastByteHasOneWinner) {
  control::v1::Command command;
  *command.add_grants() = GrantOf(kSession);
  command.mutable_grants(0)->mutable_quotas()->set_bytes(1024);
  Command(command);
  ASSERT_OK(Allocate(kSession, {{1, 1023}}));
  const absl::Status refused = Allocate(kSession, {{2, 2}});
  EXPECT_THAT(refused, HasReason(Reason::kQuotaExceeded));
  EXPECT_EQ(DetailsOf(refused)->metadata["limit"], "1024");
  EXPECT_EQ(DetailsOf(refused)->metadata["used"], "1023");
  std::atomic<int> winners = 0;
  std::vector<std::thread> racers;
  for (uint64_t id = 10; id < 14; ++id)
    racers.emplace_back([&, id] { winners += Allocate(kSession, {{id, 1}}).ok(); });
  for (std::thread& racer : racers) racer.join();
  EXPECT_EQ(winners, 1);
  EXPECT_EQ(device_->mapped(), 1024u);
}

// S57.
TEST_F(Buffers, FreeInFlightIsDeferredToCompletion) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  device_->Hold();
  v1::SubmitRequest program = Program();
  Fill(&program, Floats(1, 4), 1);
  program.set_mode(v1::SUBMIT_MODE_ACCEPTED);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  const auto freed = Free(kSession, {1});
  ASSERT_OK(freed.status());
  EXPECT_THAT(freed->deferred(), testing::ElementsAre(1));
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kBufferReleasing));
  device_->Release();
  v1::SubmitRequest barrier = Program();
  barrier.add_operations()->mutable_barrier();
  ASSERT_OK(Submit(barrier, &response));
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kBufferUnknown));
  EXPECT_EQ(device_->mapped(), 0u);
}

TEST_F(Buffers, TheEndOfASessionFreesEverythingAfterWhatRuns) {
  ASSERT_OK(Allocate(kSession, {{1, 4096}, {2, 100}}));
  device_->Hold();
  v1::SubmitRequest program = Program();
  Fill(&program, Floats(1, 4), 1);
  program.set_mode(v1::SUBMIT_MODE_ACCEPTED);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  while (device_->runs() == 0) std::this_thread::yield();  // what is still queued would be dropped
  control::v1::Command end;
  end.add_ends()->set_session_id(kSession);
  Command(end);
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kSessionUnknown));
  EXPECT_EQ(device_->mapped(), 4196u);
  device_->Release();
  EXPECT_EQ(AwaitFreed(kSession), 4196u);
  EXPECT_EQ(device_->mapped(), 0u);
  EXPECT_EQ(Ping().used_bytes(), 0u);
}

TEST_F(Buffers, AnArenaIsSharedBothWaysAndSealed) {
  FdChannel channel = Channel(kSession);
  absl::StatusOr<Frame> arena =
      channel.Call(Request(FrameKind::kCreateArena, 5, 8192), absl::Seconds(10));
  ASSERT_OK(arena.status());
  ASSERT_EQ(arena->fds.size(), 1u);
  EXPECT_EQ(ftruncate(arena->fds[0].get(), 1), -1);
  const absl::StatusOr<Mapping> mapping = MapShared(arena->fds[0].get(), 0, 8192);
  ASSERT_OK(mapping.status());
  v1::SubmitRequest program = Program();
  Fill(&program, Floats(5, 2048), 1.5);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  EXPECT_EQ(reinterpret_cast<const float*>(mapping->data())[2047], 1.5f);
  EXPECT_THAT(Allocate(kSession, {{5, 1}}), HasReason(Reason::kBufferExists));
}

TEST_F(Buffers, AnUnsealedMemfdIsRefusedAndAReadOnlyOneIsNoOutput) {
  FdChannel channel = Channel(kSession);
  Fd open(memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open.get(), 4096), 0);
  Fd copy(dup(open.get()));
  EXPECT_THAT(channel.Call(Request(FrameKind::kImport, 6, 4096, std::move(copy)), absl::Seconds(10))
                  .status(),
              HasReason(Reason::kSealsMissing));
  ASSERT_EQ(fcntl(open.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  ASSERT_OK(channel.Call(Request(FrameKind::kImport, 6, 4096, std::move(open)), absl::Seconds(10))
                .status());
  v1::SubmitRequest program = Program();
  Fill(&program, Floats(6, 4), 1);
  v1::SubmitResponse response;
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kArgumentInvalid));
}

TEST_F(Buffers, AWrongKindOfFdClosesTheChannelAndTheWorkerGoesOn) {
  for (const char* path : {"/dev/null", "/tmp", "/proc/self/exe"}) {
    FdChannel channel = Channel(kSession);
    Fd wrong(open(path, O_RDONLY | O_CLOEXEC));
    EXPECT_THAT(channel.Call(Request(FrameKind::kImport, 6, 1, std::move(wrong)), absl::Seconds(10))
                    .status(),
                HasReason(Reason::kHandleKind))
        << path;
    EXPECT_EQ(channel.Receive(absl::Seconds(10)).status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_OK(Allocate(kSession, {{1, 64}}));
}

TEST_F(Buffers, TruncatedFramesAndStrangersAreRefused) {
  FdChannel channel = Channel(kSession);
  ASSERT_EQ(send(channel.fd(), "short", 5, MSG_NOSIGNAL), 5);
  EXPECT_THAT(StatusOfFrame(*channel.Receive(absl::Seconds(10))), HasReason(Reason::kFrameInvalid));
  FdChannel stranger = *FdChannel::Connect(Path("f"));
  Frame hello;
  hello.kind = FrameKind::kHello;
  hello.session = kSession;
  hello.payload = TokenOf(kOther);
  EXPECT_THAT(stranger.Call(hello, absl::Seconds(10)).status(), HasReason(Reason::kSessionUnknown));
  FdChannel early = *FdChannel::Connect(Path("f"));
  EXPECT_THAT(early.Call(Request(FrameKind::kCreateArena, 1, 64), absl::Seconds(10)).status(),
              HasReason(Reason::kFrameInvalid));
}

TEST_F(Buffers, AnArenaBeyondTheHostIsRefusedBeforeAnyMemoryIsTaken) {
  FdChannel channel = Channel(kSession);
  EXPECT_THAT(
      channel.Call(Request(FrameKind::kCreateArena, 1, uint64_t{1} << 50), absl::Seconds(10))
          .status(),
      HasReason(Reason::kHostOutOfMemory));
  EXPECT_EQ(device_->mapped(), 0u);
}

}  // namespace
}  // namespace backendd::worker
