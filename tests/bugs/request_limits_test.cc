// Requests were read as far as they made sense. A mode without a name turned an EXCLUSIVE lease
// into a SHARED one, a scope without a name or a NODE scope that named a device wrote the whole
// node, an empty owner released everybody's leases that have none, and texts of megabytes were kept
// and listed until lists no longer fitted a message. Whatever a request asks for, what it cannot
// mean is refused before anything is looked at.
#include "tests/component/control_plane.h"

namespace backendd::node {
namespace {

class RequestLimits : public ControlPlaneTest {
 protected:
  template <class Change>
  absl::Status Asked(const Stream& session, Change change) {
    v1::AcquireLeaseRequest request = Request(session, 3);
    change(request);
    return Acquire(request).status();
  }
};
using R = v1::AcquireLeaseRequest;

TEST_F(RequestLimits, WhatHasNoNameIsRefused) {
  auto session = Open();
  EXPECT_THAT(Asked(*session, [](R& r) { r.set_mode(static_cast<v1::LeaseMode>(9)); }),
              HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(
      Asked(*session, [](R& r) { r.mutable_entries(0)->set_op(static_cast<v1::EntryOp>(99)); }),
      HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(
      Asked(*session,
            [](R& r) {
              r.mutable_entries(0)->mutable_scope()->set_kind(static_cast<v1::ScopeKind>(77));
            }),
      HasReason(Reason::kArgumentInvalid));
  auto exclusive = Request(*session, 3, v1::LEASE_MODE_EXCLUSIVE);
  const auto lease = Acquire(exclusive);
  ASSERT_OK(lease);
  v1::UpdateLeaseRequest update;
  update.set_session_id(session->welcome.session_id());
  update.set_lease_id(lease->lease().lease_id());
  update.set_mode(static_cast<v1::LeaseMode>(9));
  EXPECT_THAT(Call(leases_, &v1::LeaseService::Stub::UpdateLease, update),
              HasReason(Reason::kArgumentInvalid));
  auto other = Open();
  EXPECT_THAT(Acquire(Request(*other, 4)), HasReason(Reason::kLeaseConflict));
}

TEST_F(RequestLimits, ADeviceBelongsToTheScopeDevice) {
  auto session = Open();
  EXPECT_THAT(Asked(*session,
                    [](R& r) {
                      r.mutable_entries(0)->mutable_scope()->set_kind(v1::SCOPE_KIND_NODE);
                      r.mutable_entries(0)->mutable_scope()->set_device("cuda:5");
                    }),
              HasReason(Reason::kScopeInvalid));
}

TEST_F(RequestLimits, TextsThatAreKeptHaveALimit) {
  auto session = Open();
  EXPECT_THAT(Asked(*session, [](R& r) { r.set_owner(std::string(1025, 'x')); }),
              HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(Asked(*session, [](R& r) { r.set_request_id(std::string(1025, 'x')); }),
              HasReason(Reason::kArgumentInvalid));
  EXPECT_OK(Asked(*session, [](R& r) { r.set_reason(std::string(1024, 'x')); }));
}

TEST_F(RequestLimits, AnEmptyOwnerReleasesNobody) {
  auto session = Open();
  ASSERT_OK(Acquire(Request(*session, 3)));
  v1::ReleaseLeaseRequest request;
  request.set_owner("");
  EXPECT_THAT(Call(leases_, &v1::LeaseService::Stub::ReleaseLease, request),
              HasReason(Reason::kArgumentInvalid));
  EXPECT_EQ(Limit(), 3);
}

}  // namespace
}  // namespace backendd::node
