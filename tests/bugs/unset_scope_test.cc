// UnsetFlags with the scope SESSION and no session took the node's base values back: it looked at
// the scope only for a device. Who meant his own value changed everybody's. SetFlags had refused
// the like from the start.
#include "tests/component/control_plane.h"

namespace backendd::node {
namespace {

using UnsetScope = ControlPlaneTest;

TEST_F(UnsetScope, OfASessionWithoutASessionIsRefusedAndTheBaseStays) {
  ASSERT_OK(SetLimit(7));
  v1::UnsetFlagsRequest request;
  request.add_flags("cudnn.benchmark_limit");
  request.mutable_scope()->set_kind(v1::SCOPE_KIND_SESSION);
  EXPECT_THAT(Call(flags_, &v1::FlagService::Stub::UnsetFlags, request),
              HasReason(Reason::kScopeInvalid));
  EXPECT_EQ(Limit(), 7);
}

}  // namespace
}  // namespace backendd::node
