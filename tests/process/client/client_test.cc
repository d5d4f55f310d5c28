// What the SDK promises, kept by a real daemon that is killed, stopped and started again.
#include <thread>

#include "tests/process/client/client_process.h"

namespace backendd {
namespace {

using ::testing::ElementsAre;

TEST_F(ClientProcess, OverlaysEndInAnyOrderAndFromAnyThread) {
  Open();
  auto first = session_->Flags({{"cudnn.benchmark", true}});
  auto second = session_->Flags({{"cudnn.benchmark", false}});
  auto third = session_->Flags({{"cudnn.benchmark", true}});
  ASSERT_OK(first);
  ASSERT_OK(second);
  ASSERT_OK(third);
  EXPECT_TRUE(Own("cudnn.benchmark"));
  EXPECT_FALSE(Node("cudnn.benchmark"));  // private
  EXPECT_OK(first->End());
  EXPECT_TRUE(Own("cudnn.benchmark"));
  std::thread([&] { EXPECT_OK(third->End()); }).join();
  EXPECT_FALSE(Own("cudnn.benchmark"));  // the second's
  std::thread([overlay = *std::move(second)] {}).join();
  EXPECT_FALSE(Own("cudnn.benchmark"));
  EXPECT_OK(first->End());  // a second end is no error
}

TEST_F(ClientProcess, LeasesPrivateFlagsAndArenasComeBackAfterTheDaemonWasKilled) {
  Open();
  auto lease = session_->Acquire({.flags = {{"cudnn.benchmark", true}}});
  ASSERT_OK(lease);
  ASSERT_OK(session_->Set({{"mkldnn.deterministic", true}}));
  auto arena = session_->AllocateArena("cpu", 64);
  ASSERT_OK(arena);
  arena->as<float>()[0] = 21;
  const Tensor x = arena->View(DType::kF32, {1});
  Program program = session_->NewProgram("cpu");
  program.Read(program.Binary(x, x, v1::BINARY_FUNCTION_ADD));
  ASSERT_OK(program.Prepare());
  const uint64_t old_session = session_->id(), old_lease = lease->id();

  daemon_->Signal(SIGKILL);
  ASSERT_EQ(daemon_->Wait(), -SIGKILL);
  ASSERT_TRUE(events_.Next<Disconnected>());
  Start();
  const auto again = events_.Next<LeaseReacquired>();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->old_id, old_lease);
  ASSERT_OK(again->grant);
  const auto reconnected = events_.Next<Reconnected>();
  ASSERT_TRUE(reconnected);
  EXPECT_FALSE(reconnected->same_session);
  EXPECT_NE(session_->id(), old_session);
  EXPECT_EQ(lease->id(), again->grant->lease_id());
  EXPECT_OK(lease->token());
  EXPECT_TRUE(Node("cudnn.benchmark"));
  EXPECT_TRUE(Own("mkldnn.deterministic"));

  ASSERT_OK(session_->WaitServing("cpu", absl::Seconds(20)));
  const auto result = program.Submit({.lease = &*lease});
  ASSERT_OK(result);
  ASSERT_OK(result->status());
  EXPECT_THAT(result->Read<float>(0), ElementsAre(42));
}

TEST_F(ClientProcess, KilledWorkerCostsBytesOfTheDeviceButNoLeaseAndNoArena) {
  Open();
  auto lease = session_->Acquire({.flags = {{"cudnn.benchmark", true}}});
  auto arena = session_->AllocateArena("cpu", 64);
  auto memory = session_->Allocate("cpu", 64);
  ASSERT_OK(lease);
  ASSERT_OK(arena);
  ASSERT_OK(memory);
  arena->as<float>()[0] = 3;
  const Tensor x = arena->View(DType::kF32, {1}), kept = memory->View(DType::kF32, {1});
  Program write = session_->NewProgram("cpu");
  write.Copy(x, kept);
  Program sum = session_->NewProgram("cpu");
  sum.Read(sum.Binary(x, kept, v1::BINARY_FUNCTION_ADD));
  ASSERT_OK(sum.Prepare());
  ASSERT_OK(write.Submit());
  auto result = sum.Submit();
  ASSERT_OK(result);
  EXPECT_THAT(result->Read<float>(0), ElementsAre(6));

  KillWorker();
  // Whoever asks before the news has come is told the same: lost, or not there yet.
  result = sum.Submit();
  for (int i = 0; i < 100 && !result.ok(); ++i) {
    const auto reason = ReasonOf(result.status());
    ASSERT_TRUE(reason == Reason::kDeviceLost || reason == Reason::kWorkerStarting)
        << result.status();
    ASSERT_OK(session_->WaitServing("cpu", absl::Seconds(20)));
    result = sum.Submit();
  }
  ASSERT_OK(result);
  EXPECT_THAT(result->Read<float>(0), ElementsAre(3));  // the arena's bytes, and zeros
  EXPECT_GE(result->response.stamp().device_epoch(), 2u);
  EXPECT_OK(lease->token());
  EXPECT_TRUE(Node("cudnn.benchmark"));
  ASSERT_OK(write.Submit());
  result = sum.Submit();
  ASSERT_OK(result);
  EXPECT_THAT(result->Read<float>(0), ElementsAre(6));
}

TEST_F(ClientProcess, PoisonedBufferIsRefusedUntilItIsWrittenAnew) {
  Open();
  auto arena = session_->AllocateArena("cpu", 1024);
  auto output = session_->Allocate("cpu", 64);
  ASSERT_OK(arena);
  ASSERT_OK(output);
  const Tensor y = output->View(DType::kF32, {});
  arena->as<int64_t>()[0] = 7;  // there are 2 classes
  Program failing = session_->NewProgram("cpu");
  v1::CrossEntropy op;
  *op.mutable_y() = y.operand();
  failing.CrossEntropy(arena->View(DType::kF32, {1, 2}, 256), arena->View(DType::kS64, {1}), op);
  auto result = failing.Submit();
  ASSERT_OK(result);
  EXPECT_THAT(result->status(), HasReason(Reason::kIndexInvalid));
  Program read = session_->NewProgram("cpu");
  read.Read(y);
  EXPECT_THAT(read.Submit(), HasReason(Reason::kBufferPoisoned));
  arena->as<int64_t>()[0] = 1;
  result = failing.Submit();
  ASSERT_OK(result);
  EXPECT_OK(result->status());
  EXPECT_OK(read.Submit());
}

TEST_F(ClientProcess, PreparedProgramRunsWithOtherBuffersInPlaceOfItsParameters) {
  Open();
  auto arena = session_->AllocateArena("cpu", 1024);
  ASSERT_OK(arena);
  arena->as<float>()[0] = 1;
  arena->as<float>()[64] = 5;
  const Tensor x = arena->View(DType::kF32, {1});
  Program program = session_->NewProgram("cpu");
  program.Read(program.Binary(x, x, v1::BINARY_FUNCTION_ADD));
  ASSERT_OK(program.Prepare({x}));
  EXPECT_THAT(program.Prepare({x}), HasReason(Reason::kArgumentInvalid));
  auto result = program.Submit();
  ASSERT_OK(result);
  EXPECT_THAT(result->Read<float>(0), ElementsAre(2));
  result = program.Submit({.bindings = {{x, arena->View(DType::kF32, {1}, 256)}}});
  ASSERT_OK(result);
  EXPECT_THAT(result->Read<float>(0), ElementsAre(10));
  EXPECT_THAT(program.Submit({.bindings = {{x, arena->View(DType::kF32, {2})}}}),
              HasReason(Reason::kArgumentInvalid));
  program.Fill(x, 0);
  EXPECT_THAT(program.Submit(), HasReason(Reason::kArgumentInvalid));
}

TEST_F(ClientProcess, LeaseIsStaleOnceTheDaemonIsSilentForOneTtlAndCountsAgainLater) {
  Open(absl::Milliseconds(500), absl::Milliseconds(300));
  auto lease = session_->Acquire({.flags = {{"cudnn.benchmark", true}}});
  ASSERT_OK(lease);
  StopDaemon();
  EXPECT_TRUE(Becomes([&] { return ReasonOf(lease->token().status()) == Reason::kLeaseStale; }));
  Program program = session_->NewProgram("cpu");
  EXPECT_THAT(program.Submit({.lease = &*lease}), HasReason(Reason::kLeaseStale));
  EXPECT_THAT(client_->Get("cudnn.benchmark"), HasReason(Reason::kDeadlineExceeded));
  EXPECT_THAT(session_->Get("cudnn.benchmark"), HasReason(Reason::kDeadlineExceeded));
  daemon_->Signal(SIGCONT);
  EXPECT_TRUE(Becomes([&] { return lease->token().ok() && Node("cudnn.benchmark"); }));
}

TEST_F(ClientProcess, SilentDaemonIsGivenUpAtTheDeadline) {
  StopDaemon();
  auto client = Client::Create({socket_, absl::Milliseconds(300)});  // the kernel accepts for it
  ASSERT_OK(client);
  EXPECT_THAT((*client)->Get("cudnn.benchmark"), HasReason(Reason::kDeadlineExceeded));
  EXPECT_THAT((*client)->OpenSession(), HasReason(Reason::kDeadlineExceeded));
  daemon_->Signal(SIGCONT);
  EXPECT_TRUE(Becomes([&] { return (*client)->OpenSession().ok(); }));
}

TEST_F(ClientProcess, ForkedChildIsRefusedAndCostsTheParentNothing) {
  Open();
  auto lease = session_->Acquire({.flags = {{"cudnn.benchmark", true}}});
  auto arena = session_->AllocateArena("cpu", 64);
  ASSERT_OK(lease);
  ASSERT_OK(arena);
  const pid_t child = fork();
  if (child == 0) {
    Program program = session_->NewProgram("cpu");
    const bool refused = ReasonOf(lease->token().status()) == Reason::kSessionForked &&
                         ReasonOf(session_->Get("x").status()) == Reason::kSessionForked &&
                         ReasonOf(client_->Get("x").status()) == Reason::kSessionForked &&
                         ReasonOf(program.Submit().status()) == Reason::kSessionForked;
    { Lease gone = *std::move(lease); }
    { Buffer gone = *std::move(arena); }
    session_.reset();
    client_.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_OK(lease->token());
  EXPECT_TRUE(Node("cudnn.benchmark"));
  Program program = session_->NewProgram("cpu");
  program.Read(arena->View(DType::kF32, {1}));
  EXPECT_OK(program.Submit());
}

}  // namespace
}  // namespace backendd
