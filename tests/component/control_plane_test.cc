// Flags under leases through the wire: S02, S03, and control-plane scenarios 1, 3, 4, 20, 21.
#include "tests/component/control_plane.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace backendd::node {
namespace {

TEST_F(ControlPlaneTest, AFlagIsReadAndAnUnknownOneIsNamed) {
  ASSERT_OK(Get("cudnn.benchmark_limit"));
  EXPECT_THAT(Get("cudnn.benchmark_limits"), HasReason(Reason::kFlagUnknown));
}

TEST_F(ControlPlaneTest, ALeaseIsTakenAndItsReleaseBringsTheBaseBack) {
  const int64_t base = Limit();
  auto session = Open();
  ASSERT_NE(session->welcome.session_id(), 0u);
  const auto lease = Acquire(Request(*session, 3));
  ASSERT_OK(lease);
  EXPECT_EQ(Limit(), 3);
  EXPECT_EQ(lease->lease().token(), lease->lease().revision());
  ASSERT_OK(SetLimit(7));  // S03, scenario 4: the base moves below the lease
  EXPECT_EQ(Limit(), 3);
  ASSERT_OK(Release(lease->lease().lease_id()));
  EXPECT_EQ(Limit(), 7);
  EXPECT_NE(base, 3);
  EXPECT_TRUE(Release(lease->lease().lease_id())->already_released());
  EXPECT_THAT(Release(12345), HasReason(Reason::kLeaseUnknown));
  EXPECT_THAT(Release(0), HasReason(Reason::kIdInvalid));
}

TEST_F(ControlPlaneTest, LeasesReleasedInAnyOrderEndAtTheBase) {
  const int64_t base = Limit();
  auto session = Open();
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<uint64_t> ids;
    for (int i = 0; i < 4; ++i) {
      const auto lease = Acquire(Request(*session, 100 + i));
      ASSERT_OK(lease);
      ids.push_back(lease->lease().lease_id());
    }
    std::vector<bool> held(4, true);
    for (int next : order) {
      ASSERT_OK(Release(ids[next]));
      held[next] = false;
      int64_t expected = base;
      for (int i = 0; i < 4; ++i) {
        if (held[i]) expected = 100 + i;
      }
      ASSERT_EQ(Limit(), expected);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(ControlPlaneTest, AnExclusiveLeaseConflictsAndItsHoldersEndLetsTheWaiterIn) {
  auto a = Open(), b = Open();
  ASSERT_OK(Acquire(Request(*a, 3, v1::LEASE_MODE_EXCLUSIVE)));
  const auto refused = Acquire(Request(*b, 5));
  EXPECT_THAT(refused, HasReason(Reason::kLeaseConflict));
  EXPECT_EQ(DetailsOf(refused.status())->metadata["pid"], std::to_string(getpid()));
  auto waiting = Request(*b, 5);
  waiting.mutable_wait()->set_seconds(60);
  a->context.TryCancel();  // the stream ends, and with it the session
  ASSERT_OK(Acquire(waiting));
  EXPECT_EQ(Limit(), 5);
}

TEST_F(ControlPlaneTest, ARepeatedRequestGetsTheFirstAnswer) {
  auto session = Open();
  auto request = Request(*session, 3);
  request.set_request_id("once");
  const auto first = Acquire(request), second = Acquire(request);
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ(first->lease().lease_id(), second->lease().lease_id());
  request.mutable_entries(0)->mutable_value()->set_int_(4);
  EXPECT_THAT(Acquire(request), HasReason(Reason::kRequestIdReused));
}

TEST_F(ControlPlaneTest, ALeaseExpiresAtItsTtlAndNotBefore) {
  const int64_t base = Limit();
  auto session = Open();
  auto request = Request(*session, 3);
  request.mutable_ttl()->set_seconds(1);
  ASSERT_OK(Acquire(request));
  node_.clock.Advance(absl::Milliseconds(999));
  node_.node->Expire(absl::ZeroDuration());
  EXPECT_EQ(Limit(), 3);
  node_.clock.Advance(absl::Milliseconds(1));
  node_.node->Expire(absl::ZeroDuration());
  EXPECT_EQ(Limit(), base);
}

TEST_F(ControlPlaneTest, ASecondHelloEndsTheStreamAndTheSession) {
  auto session = Open();
  const auto lease = Acquire(Request(*session, 3));
  ASSERT_OK(lease);
  grpc::ClientContext context;  // a barrier: the stream may end before its rollback is published
  v1::WatchFlagsRequest request;
  request.set_epoch(session->welcome.epoch());
  request.set_from_revision(lease->lease().revision());
  auto watch = flags_->WatchFlags(&context, request);
  v1::OpenSessionRequest again;
  again.mutable_hello();
  session->io->Write(again);
  v1::OpenSessionResponse frame;
  while (session->io->Read(&frame)) {
  }
  EXPECT_THAT(FromGrpc(session->io->Finish()), HasReason(Reason::kFrameInvalid));
  v1::WatchFlagsResponse message;
  ASSERT_TRUE(watch->Read(&message));
  EXPECT_EQ(message.revision(), lease->lease().revision() + 1);
  EXPECT_EQ(Limit(), 10);
  context.TryCancel();
}

TEST_F(ControlPlaneTest, EveryViolationIsReportedAtOnceAndNothingIsChanged) {
  auto session = Open();
  auto request = Request(*session, -3);
  request.add_entries()->set_flag("no.such.flag");
  request.mutable_ttl()->set_seconds(0);
  const auto refused = Acquire(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(DetailsOf(refused.status())->violations.size(), 3u);
  request.mutable_entries(0)->mutable_scope()->set_kind(v1::SCOPE_KIND_DEVICE);
  request.mutable_entries(0)->mutable_scope()->set_device("cuda:5");
  request.clear_ttl();
  request.mutable_entries()->RemoveLast();
  EXPECT_THAT(Acquire(request), HasReason(Reason::kDeviceIndex));
}

TEST_F(ControlPlaneTest, HoldLeaseHoldsUntilItsCallIsCancelled) {
  const int64_t base = Limit();
  grpc::ClientContext context;
  v1::HoldLeaseRequest request;
  request.add_entries()->set_flag("cudnn.benchmark_limit");
  request.mutable_entries(0)->mutable_value()->set_int_(9);
  auto hold = leases_->HoldLease(&context, request);
  v1::HoldLeaseResponse event;
  ASSERT_TRUE(hold->Read(&event));
  EXPECT_TRUE(event.has_granted());
  EXPECT_EQ(Limit(), 9);
  auto session = Open();
  auto waiting = Request(*session, 5, v1::LEASE_MODE_EXCLUSIVE);
  waiting.mutable_wait()->set_seconds(60);
  context.TryCancel();
  const auto lease = Acquire(waiting);
  ASSERT_OK(lease);
  ASSERT_OK(Release(lease->lease().lease_id()));
  EXPECT_EQ(Limit(), base);
}

TEST_F(ControlPlaneTest, TheNextHolderWaitsUntilWorkersAdmitTheOldOneNoMore) {
  auto a = Open(), b = Open();
  const auto held = Acquire(Request(*a, 3, v1::LEASE_MODE_EXCLUSIVE));
  ASSERT_OK(held);
  node_.workers.Hold();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(held->lease().lease_id());
  v1::ReleaseLeaseResponse released;
  EXPECT_FALSE(leases_->ReleaseLease(&context, release, &released).ok());  // not acknowledged
  EXPECT_THAT(Acquire(Request(*b, 5)), HasReason(Reason::kLeaseConflict));
  EXPECT_EQ(Limit(), 3);  // published only when in force
  node_.workers.Release();
  ASSERT_OK(Acquire(Request(*b, 5)));
}

TEST_F(ControlPlaneTest, AWatchBeginsWithASnapshotAndBringsOneBatchARevision) {
  grpc::ClientContext context;
  v1::WatchFlagsRequest request;
  request.set_initial_snapshot(true);
  request.add_prefixes("cudnn.");
  auto watch = flags_->WatchFlags(&context, request);
  v1::WatchFlagsResponse message;
  ASSERT_TRUE(watch->Read(&message));
  EXPECT_TRUE(message.has_snapshot());
  ASSERT_TRUE(watch->Read(&message));
  EXPECT_TRUE(message.has_synced());
  const uint64_t synced = message.revision();
  ASSERT_OK(SetLimit(21));
  ASSERT_TRUE(watch->Read(&message));
  ASSERT_TRUE(message.has_batch());
  EXPECT_EQ(message.revision(), synced + 1);
  EXPECT_EQ(message.batch().changes(0).new_value().int_(), 21);
  context.TryCancel();
}

}  // namespace
}  // namespace backendd::node
