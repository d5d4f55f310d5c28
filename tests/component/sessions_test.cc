// Sessions that come back, move and end: control-plane scenarios 9 (one revision) and 32, S52.
#include "tests/component/control_plane.h"

namespace backendd::node {
namespace {

class SessionsTest : public ControlPlaneTest {
 protected:
  static v1::Hello Graceful() {
    v1::Hello hello;
    hello.mutable_resume_grace()->set_seconds(20);
    return hello;
  }
  static v1::Hello Back(const v1::Welcome& welcome) {
    v1::Hello hello = Graceful();
    hello.set_session_id(welcome.session_id());
    hello.set_resume_token(welcome.resume_token());
    return hello;
  }
};

TEST_F(SessionsTest, AReturnInTheGraceHasItsLeasesAndANewToken) {
  auto first = Open(Graceful());
  const int64_t base = Limit();
  ASSERT_OK(Acquire(Request(*first, 3)));
  first->context.TryCancel();
  auto second = Open(Back(first->welcome));
  EXPECT_EQ(second->welcome.continuity(), v1::SESSION_CONTINUITY_RESUMED);
  EXPECT_EQ(second->welcome.session_id(), first->welcome.session_id());
  EXPECT_NE(second->welcome.resume_token(), first->welcome.resume_token());
  EXPECT_EQ(Limit(), 3);
  EXPECT_NE(base, 3);
}

TEST_F(SessionsTest, AWrongTokenOpensANewSessionAndTouchesNothingOfTheOld) {
  auto first = Open(Graceful());
  ASSERT_OK(Acquire(Request(*first, 3)));
  v1::Hello guess = Back(first->welcome);
  guess.set_resume_token(std::string(16, 'x'));
  auto second = Open(guess);
  EXPECT_EQ(second->welcome.continuity(), v1::SESSION_CONTINUITY_NEW);
  EXPECT_NE(second->welcome.session_id(), first->welcome.session_id());
  EXPECT_EQ(second->welcome.lost_size(), 0);
  EXPECT_EQ(Limit(), 3);
}

TEST_F(SessionsTest, ASecondStreamEndsTheFirstWithSessionMoved) {
  auto first = Open(Graceful());
  ASSERT_OK(Acquire(Request(*first, 3)));
  auto second = Open(Back(first->welcome));
  ASSERT_EQ(second->welcome.continuity(), v1::SESSION_CONTINUITY_RESUMED);
  v1::OpenSessionResponse frame;
  while (first->io->Read(&frame)) {
  }
  EXPECT_THAT(FromGrpc(first->io->Finish()), HasReason(Reason::kSessionMoved));
  EXPECT_EQ(Limit(), 3);  // S52: the old stream's end ends nothing of the new one
}

TEST_F(SessionsTest, WhatASessionHadGoesInOneRevision) {
  auto session = Open();
  ASSERT_OK(Acquire(Request(*session, 3)));
  ASSERT_OK(Acquire(Request(*session, 4)));
  v1::SetFlagsRequest own;
  own.set_session_id(session->welcome.session_id());
  own.add_assignments()->set_flag("cudnn.deterministic");
  own.mutable_assignments(0)->mutable_value()->set_bool_(true);
  const auto set = Call(flags_, &v1::FlagService::Stub::SetFlags, own);
  ASSERT_OK(set);
  grpc::ClientContext context;
  v1::WatchFlagsRequest request;
  request.set_epoch(session->welcome.epoch());
  request.set_from_revision(set->revision());
  auto watch = flags_->WatchFlags(&context, request);
  v1::OpenSessionRequest goodbye;
  goodbye.mutable_goodbye();
  ASSERT_TRUE(session->io->Write(goodbye));
  session->io->WritesDone();
  v1::WatchFlagsResponse message;
  ASSERT_TRUE(watch->Read(&message));
  ASSERT_TRUE(message.has_batch());
  EXPECT_EQ(message.revision(), set->revision() + 1);
  EXPECT_EQ(Limit(), 10);
  ASSERT_OK(SetLimit(11));
  ASSERT_TRUE(watch->Read(&message));
  EXPECT_EQ(message.revision(), set->revision() + 2);  // nothing between them
  context.TryCancel();
}

}  // namespace
}  // namespace backendd::node
