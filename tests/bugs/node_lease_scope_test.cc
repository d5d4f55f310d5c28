// ExplainFlag told that a node lease's value was private to a session: it asked whether the line
// had a session, and the owner of every lease has one. Whoever looked for the cause of a flag on
// the whole node was sent to one process. The scope of a line is its layer's.
#include <gtest/gtest.h>

#include "tests/support/in_process_node.h"

namespace backendd::node {
namespace {

class SilentSink final : public SessionSink {
 public:
  void Send(const v1::OpenSessionResponse&) override {}
  void End(v1::EndCause, const absl::Status&) override {}
};

TEST(NodeLeaseScope, IsExplainedAsTheNodes) {
  HeldWorkers workers;
  Node::Options options;
  options.timer = false;
  SilentSink sink;
  auto node = std::move(Node::Create(std::move(options), &workers)).value();
  Peer self;
  self.uid = getuid();
  self.pid = getpid();
  const Caller caller{std::make_shared<const Peer>(std::move(self)), Role::kAdmin};
  v1::HoldLeaseRequest hold;
  hold.add_entries()->set_flag("cudnn.benchmark");
  hold.mutable_entries(0)->mutable_value()->set_bool_(true);
  absl::Status granted = absl::UnknownError("no answer");
  ASSERT_TRUE(node->HoldLease(
                      caller, hold, &sink, [](int) {},
                      [&](absl::StatusOr<v1::AcquireLeaseResponse> response) {
                        granted = response.status();
                      })
                  .ok());
  ASSERT_TRUE(granted.ok()) << granted;
  v1::ExplainFlagRequest request;
  request.set_flag("cudnn.benchmark");
  const auto explained = node->ExplainFlag(caller, request);
  ASSERT_TRUE(explained.ok()) << explained.status();
  ASSERT_GT(explained->layers_size(), 0);
  EXPECT_EQ(explained->layers(0).layer(), v1::LAYER_LEASE);
  EXPECT_EQ(explained->layers(0).scope().kind(), v1::SCOPE_KIND_NODE);
  node->EndAll(v1::END_CAUSE_DRAINED);
}

}  // namespace
}  // namespace backendd::node
