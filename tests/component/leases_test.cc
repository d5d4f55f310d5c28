// Leases that change, belong to others, or expire against a renewal: scenarios 14, 16, 19, 22; S05,
// S06, S08, S51.
#include "tests/component/control_plane.h"

namespace backendd::node {
namespace {

class LeasesTest : public ControlPlaneTest {
 protected:
  absl::StatusOr<v1::UpdateLeaseResponse> Update(const Stream& session, const v1::Lease& lease,
                                                 const std::string& flag, int64_t value) {
    v1::UpdateLeaseRequest request;
    request.set_session_id(session.welcome.session_id());
    request.set_lease_id(lease.lease_id());
    v1::LeaseEntry* entry = request.add_set_entries();
    entry->set_flag(flag);
    if (flag == "cudnn.benchmark_limit") {
      entry->mutable_value()->set_int_(value);
    } else {
      entry->mutable_value()->set_bool_(value != 0);
    }
    return Call(leases_, &v1::LeaseService::Stub::UpdateLease, request);
  }
};

TEST_F(LeasesTest, NewValuesKeepTheTokenAndNewKeysTakeANewOne) {
  auto session = Open();
  const auto lease = Acquire(Request(*session, 3));
  ASSERT_OK(lease);
  const auto value = Update(*session, lease->lease(), "cudnn.benchmark_limit", 5);
  ASSERT_OK(value);
  EXPECT_EQ(value->lease().token(), lease->lease().token());
  EXPECT_EQ(Limit(), 5);
  const auto key = Update(*session, lease->lease(), "cudnn.deterministic", 1);
  ASSERT_OK(key);
  EXPECT_GT(key->lease().token(), lease->lease().token());
  EXPECT_TRUE(Get("cudnn.deterministic")->value().bool_());
  EXPECT_EQ(Limit(), 5);                               // S05: what an update does not name stays
  EXPECT_TRUE(Get("cudnn.enabled")->value().bool_());  // and so does what no lease holds
  ASSERT_OK(Release(lease->lease().lease_id()));
  EXPECT_FALSE(Get("cudnn.deterministic")->value().bool_());
}

TEST_F(LeasesTest, AnUpdateThatMeetsAnotherHolderIsRefusedAndChangesNothing) {
  auto a = Open(), b = Open();
  auto exclusive = Request(*a, 3, v1::LEASE_MODE_EXCLUSIVE);
  ASSERT_OK(Acquire(exclusive));
  v1::AcquireLeaseRequest other = Request(*b, 1);
  other.mutable_entries(0)->set_flag("cudnn.deterministic");
  other.mutable_entries(0)->mutable_value()->set_bool_(true);
  const auto lease = Acquire(other);
  ASSERT_OK(lease);
  EXPECT_THAT(Update(*b, lease->lease(), "cudnn.benchmark_limit", 7),
              HasReason(Reason::kLeaseConflict));
  EXPECT_EQ(Limit(), 3);
  EXPECT_TRUE(Get("cudnn.deterministic")->value().bool_());
}

TEST_F(LeasesTest, AMultiFlagRequestThatFailsHalfWayLeavesNothing) {  // S08
  auto session = Open();
  auto request = Request(*session, 3);
  request.add_entries()->set_flag("cudnn.benchmark");
  request.mutable_entries(1)->mutable_value()->set_bool_(true);
  request.add_entries()->set_flag("quantized.engine");
  request.mutable_entries(2)->mutable_value()->set_text("no-such-engine");
  const uint64_t before = Call(flags_, &v1::FlagService::Stub::ListFlags, {})->revision();
  const auto answer = Acquire(request);
  EXPECT_THAT(answer, HasReason(Reason::kFlagValueInvalid));
  const auto details = DetailsOf(answer.status());
  ASSERT_EQ(details->violations.size(), 1u);
  EXPECT_EQ(details->violations[0].field, "entries[2].value");
  EXPECT_EQ(Call(flags_, &v1::FlagService::Stub::ListFlags, {})->revision(), before);
  EXPECT_FALSE(Get("cudnn.benchmark")->value().bool_());
  EXPECT_EQ(Limit(), 10);
}

TEST_F(LeasesTest, ARenewalAfterTheEndIsRefusedAndOneBeforeItCounts) {  // S51, scenario 14
  auto session = Open();
  auto request = Request(*session, 3);
  request.mutable_ttl()->set_seconds(1);
  const auto lease = Acquire(request);
  ASSERT_OK(lease);
  v1::RenewLeaseRequest renew;
  renew.set_session_id(session->welcome.session_id());
  renew.set_lease_id(lease->lease().lease_id());
  node_.clock.Advance(absl::Milliseconds(900));
  ASSERT_OK(Call(leases_, &v1::LeaseService::Stub::RenewLease, renew));
  node_.clock.Advance(absl::Milliseconds(900));
  node_.node->Expire(absl::ZeroDuration());
  EXPECT_EQ(Limit(), 3);
  node_.clock.Advance(absl::Milliseconds(200));
  node_.node->Expire(absl::ZeroDuration());
  EXPECT_EQ(Limit(), 10);
  EXPECT_THAT(Call(leases_, &v1::LeaseService::Stub::RenewLease, renew),
              HasReason(Reason::kLeaseUnknown));
}

TEST_F(LeasesTest, TheNodeOverlapsEveryDeviceForAnExclusiveLease) {  // scenario 16
  auto a = Open(), b = Open();
  auto device = Request(*a, 3, v1::LEASE_MODE_EXCLUSIVE);
  device.mutable_entries(0)->mutable_scope()->set_kind(v1::SCOPE_KIND_DEVICE);
  device.mutable_entries(0)->mutable_scope()->set_device("cpu");
  ASSERT_OK(Acquire(device));
  const auto refused = Acquire(Request(*b, 4));
  EXPECT_THAT(refused, HasReason(Reason::kLeaseConflict));
  EXPECT_FALSE(DetailsOf(refused.status())->metadata.empty());
}

TEST_F(LeasesTest, BadInputIsNamedAndMovesNoRevision) {  // scenario 22 among them
  auto session = Open();
  const uint64_t before = Call(flags_, &v1::FlagService::Stub::ListFlags, {})->revision();
  const auto changed = [&](auto change) {
    auto request = Request(*session, 3);
    change(request);
    return Acquire(request).status();
  };
  using R = v1::AcquireLeaseRequest;
  EXPECT_THAT(changed([](R& r) { r.clear_entries(); }), HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(changed([](R& r) { r.mutable_ttl(); }), HasReason(Reason::kTtlOutOfRange));
  EXPECT_THAT(changed([](R& r) { r.mutable_ttl()->set_nanos(199'000'000); }),
              HasReason(Reason::kTtlOutOfRange));
  EXPECT_THAT(changed([](R& r) { r.mutable_ttl()->set_seconds(86'401); }),
              HasReason(Reason::kTtlOutOfRange));
  EXPECT_THAT(changed([](R& r) { r.mutable_entries(0)->mutable_value()->set_text("ten"); }),
              HasReason(Reason::kFlagValueInvalid));
  EXPECT_THAT(changed([](R& r) { r.mutable_entries(0)->mutable_value()->set_int_(-3); }),
              HasReason(Reason::kFlagValueInvalid));
  EXPECT_THAT(changed([](R& r) { r.mutable_entries(0)->clear_value(); }),
              HasReason(Reason::kFlagValueInvalid));
  EXPECT_THAT(changed([](R& r) { r.set_session_id(4711); }), HasReason(Reason::kSessionUnknown));
  EXPECT_THAT(changed([](R& r) { r.set_session_id(0); }), HasReason(Reason::kIdInvalid));
  const absl::Status unknown =
      changed([](R& r) { r.mutable_entries(0)->set_flag("cudnn.benchmrk"); });
  EXPECT_THAT(unknown, HasReason(Reason::kFlagUnknown));
  EXPECT_EQ(Call(flags_, &v1::FlagService::Stub::ListFlags, {})->revision(), before);
  v1::SetFlagsRequest big;
  big.set_reason(std::string(5 << 20, 'x'));  // S68: refused by gRPC, the connection goes on
  EXPECT_EQ(Call(flags_, &v1::FlagService::Stub::SetFlags, big).status().code(),
            absl::StatusCode::kResourceExhausted);
  v1::UnsetFlagsRequest unset;
  EXPECT_THAT(Call(flags_, &v1::FlagService::Stub::UnsetFlags, unset),
              HasReason(Reason::kArgumentInvalid));
  EXPECT_EQ(Call(flags_, &v1::FlagService::Stub::ListFlags, {})->revision(), before);
}

TEST_F(LeasesTest, AWatchResumesWithExactlyWhatItMissed) {  // scenario 30
  const auto start = Call(flags_, &v1::FlagService::Stub::ListFlags, {});
  for (int i = 0; i < 20; ++i) ASSERT_OK(SetLimit(100 + i));
  grpc::ClientContext context;
  v1::WatchFlagsRequest request;
  request.set_epoch(start->epoch());
  request.set_from_revision(start->revision());
  auto watch = flags_->WatchFlags(&context, request);
  for (int i = 0; i < 20; ++i) {
    v1::WatchFlagsResponse message;
    ASSERT_TRUE(watch->Read(&message));
    ASSERT_TRUE(message.has_batch());
    EXPECT_EQ(message.revision(), start->revision() + 1 + i);
    EXPECT_EQ(message.batch().changes(0).new_value().int_(), 100 + i);
  }
  context.TryCancel();
  grpc::ClientContext other;
  request.set_epoch("another boot");
  auto refused = flags_->WatchFlags(&other, request);
  v1::WatchFlagsResponse message;
  EXPECT_FALSE(refused->Read(&message));
  EXPECT_THAT(FromGrpc(refused->Finish()), HasReason(Reason::kRevisionCompacted));
}

}  // namespace
}  // namespace backendd::node
