// Programs over the wire: admission, poison, numbering, fences, limits.
#include <thread>

#include "tests/component/compute/worker_fixture.h"

namespace backendd::worker {
namespace {

using Programs = WorkerTest;

TEST_F(Programs, FillThenReadGivesTheNumbersAndAStamp) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  v1::SubmitRequest program = Program();
  Fill(&program, Floats(1, 4), 2.5);
  Read(&program, Floats(1, 4));
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  ASSERT_EQ(response.reads_size(), 1);
  EXPECT_THAT(response.reads(0).float_values(), testing::ElementsAre(2.5, 2.5, 2.5, 2.5));
  EXPECT_EQ(response.operations_done(), 2);
  EXPECT_EQ(response.stamp().revision(), 5);
  EXPECT_EQ(response.stamp().device_epoch(), 3);
  EXPECT_EQ(response.stamp().operations(0).library(), "fake");
  EXPECT_FALSE(response.stamp().operations(0).plan_hit());
  ASSERT_OK(Submit(program, &response));
  EXPECT_TRUE(response.stamp().operations(0).plan_hit());
}

TEST_F(Programs, AStrangersTokenAndAnUnknownSessionAreTheSame) {
  v1::SubmitRequest program = Program();
  grpc::ClientContext context;
  Authorize(&context, kOther);
  v1::SubmitResponse response;
  EXPECT_THAT(FromGrpc(stub_->Submit(&context, program, &response)),
              HasReason(Reason::kSessionUnknown));
  EXPECT_THAT(Submit(Program(0x9999), &response), HasReason(Reason::kSessionUnknown));
}

TEST_F(Programs, AGuessedIdReadsLikeAnIdThatNeverWas) {
  ASSERT_OK(Allocate(kOther, {{77, 64}}));
  v1::SubmitRequest program = Program();
  Read(&program, Floats(77, 4));
  v1::SubmitResponse response;
  const absl::Status foreign = Submit(program, &response);
  EXPECT_THAT(foreign, HasReason(Reason::kBufferUnknown));
  ASSERT_OK(Free(kOther, {77}).status());
  EXPECT_EQ(Submit(program, &response).message(), foreign.message());
}

TEST_F(Programs, ABadShapeInTheFifthOfTenRunsNothing) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  v1::SubmitRequest program = Program();
  for (int i = 0; i < 10; ++i) Fill(&program, Floats(1, i == 4 ? 17 : 16), 1 + i);
  v1::SubmitResponse response;
  const absl::Status status = Submit(program, &response);
  EXPECT_THAT(status, HasReason(Reason::kShapeInvalid));
  ASSERT_EQ(DetailsOf(status)->violations.size(), 1u);
  EXPECT_EQ(DetailsOf(status)->violations[0].field, "operations[4].fill.y");
  EXPECT_EQ(device_->runs(), 0);
  EXPECT_EQ(*ReadBytes(kSession, 1, 64), std::string(64, '\0'));
}

TEST_F(Programs, OffsetsThatOverflowAreRefused) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  for (uint64_t offset : {UINT64_MAX, UINT64_MAX - 3, uint64_t{1} << 63, uint64_t{64}}) {
    v1::SubmitRequest program = Program();
    Fill(&program, Floats(1, 1, offset & ~uint64_t{3}), 1);
    v1::SubmitResponse response;
    EXPECT_THAT(Submit(program, &response), HasReason(Reason::kShapeInvalid)) << offset;
  }
  v1::SubmitRequest program = Program();
  v1::Operand nine = Floats(1, 1);
  for (int i = 0; i < 8; ++i) nine.add_shape(1);
  Fill(&program, nine, 1);
  v1::SubmitResponse response;
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kShapeInvalid));
}

TEST_F(Programs, AFailureAtRunTimePoisonsWhatFollowsAndNamesItself) {
  ASSERT_OK(Allocate(kSession, {{1, 160}}));
  v1::SubmitRequest program = Program();
  for (uint64_t i = 0; i < 10; ++i) Fill(&program, Floats(1, 4, 16 * i), 1 + i);
  program.mutable_operations(4)->set_tag("fifth");
  device_->FailRun(5, Reason::kIndexInvalid, /*as_fault=*/true);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  EXPECT_EQ(response.operations_done(), 4);
  EXPECT_EQ(response.failure().operation(), 4);
  EXPECT_EQ(response.failure().tag(), "fifth");
  EXPECT_EQ(response.failure().reason(), "INDEX_INVALID");

  v1::SubmitRequest first = Program();
  Read(&first, Floats(1, 16));
  ASSERT_OK(Submit(first, &response));
  EXPECT_EQ(response.reads(0).float_values(15), 4);

  v1::SubmitRequest next = Program();
  Read(&next, Floats(1, 4, 16 * 9));
  const absl::Status refused = Submit(next, &response);
  EXPECT_THAT(refused, HasReason(Reason::kBufferPoisoned));
  EXPECT_EQ(DetailsOf(refused)->metadata["tag"], "fifth");
  EXPECT_EQ(DetailsOf(refused)->metadata["cause"], "INDEX_INVALID");
  EXPECT_THAT(ReadBytes(kSession, 1, 160).status(), HasReason(Reason::kBufferPoisoned));

  v1::SubmitRequest again = Program();
  Fill(&again, Floats(1, 4, 16 * 9), 3);
  Read(&again, Floats(1, 4, 16 * 9));
  ASSERT_OK(Submit(again, &response));
  EXPECT_EQ(response.reads(0).float_values(0), 3);
}

TEST_F(Programs, ARepeatedNumberGetsTheSameAnswerAndRunsOnce) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  v1::SubmitRequest program = Program();
  program.set_seq(1);
  Fill(&program, Floats(1, 4), 1);
  Read(&program, Floats(1, 4));
  v1::SubmitResponse first, second;
  ASSERT_OK(Submit(program, &first));
  ASSERT_OK(Submit(program, &second));
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_EQ(device_->runs(), 1);
  program.set_seq(3);
  EXPECT_THAT(Submit(program, &second), HasReason(Reason::kSequenceGap));
}

TEST_F(Programs, WaitForARevisionAndReadYourWrites) {
  v1::SubmitRequest program = Program();
  program.set_min_revision(6);
  v1::SubmitResponse response;
  std::thread client([&] { EXPECT_OK(Submit(program, &response)); });
  control::v1::Command commit;
  commit.mutable_snapshot()->set_epoch("boot");
  commit.mutable_snapshot()->set_revision(6);
  Command(commit);
  client.join();
  EXPECT_EQ(response.stamp().revision(), 6);
  program.set_min_revision(9);
  program.mutable_deadline()->set_nanos(1000000);
  const absl::Status behind = Submit(program, &response);
  EXPECT_THAT(behind, HasReason(Reason::kSnapshotBehind));
  EXPECT_EQ(DetailsOf(behind)->metadata["have"], "6");
  EXPECT_EQ(DetailsOf(behind)->metadata["want"], "9");
}

TEST_F(Programs, AFencedProgramIsRefusedOnceItsLeaseEnded) {
  control::v1::Command commit;
  commit.mutable_snapshot()->set_revision(6);
  control::v1::LeaseToken* const lease = commit.mutable_snapshot()->add_leases();
  lease->set_lease_id(40);
  lease->set_session_id(kSession);
  lease->set_token(9);
  Command(commit);
  v1::SubmitRequest program = Program();
  program.set_lease_id(40);
  program.set_token(9);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  program.set_token(8);
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kLeaseStale));
  program.set_token(9);
  control::v1::Command ended;
  ended.mutable_snapshot()->set_revision(7);
  ended.mutable_snapshot()->add_ended_leases(40);
  Command(ended);
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kLeaseStale));
}

TEST_F(Programs, LimitsAreNamedAndNothingRuns) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  v1::SubmitRequest program = Program();
  for (int i = 0; i < 4097; ++i) program.add_operations()->mutable_barrier();
  v1::SubmitResponse response;
  const absl::Status many = Submit(program, &response);
  EXPECT_THAT(many, HasReason(Reason::kQuotaExceeded));
  EXPECT_EQ(DetailsOf(many)->metadata["quota"], "operations");
  EXPECT_EQ(DetailsOf(many)->metadata["limit"], "4096");
  v1::SubmitRequest bytes = Program();
  v1::Write* const write = bytes.add_operations()->mutable_write();
  *write->mutable_y() = Floats(1, 16);
  write->set_bytes(std::string(2 << 20, 'x'));
  EXPECT_THAT(Submit(bytes, &response), HasReason(Reason::kQuotaExceeded));
  v1::SubmitRequest none = Program();
  none.add_operations();
  EXPECT_THAT(Submit(none, &response), HasReason(Reason::kArgumentInvalid));
  v1::SubmitRequest unsupported = Program();
  Fill(&unsupported, Floats(1, 2), 1);
  device_->build = [](const OperationSpec&, const FlagValues&) {
    return Error(Reason::kOpUnsupported, "this device does not");
  };
  EXPECT_THAT(Submit(unsupported, &response), HasReason(Reason::kOpUnsupported));
  v1::SubmitRequest stale = Program();
  stale.set_device_epoch(2);
  EXPECT_THAT(Submit(stale, &response), HasReason(Reason::kDeviceLost));
}

TEST_F(Programs, AnOutputMayNotOverlapAnotherOperandButMayBeItsInput) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  const auto negate = [&](uint64_t offset) {
    v1::SubmitRequest program = Program();
    v1::Unary* const unary = program.add_operations()->mutable_unary();
    unary->set_function(v1::UNARY_FUNCTION_NEG);
    *unary->mutable_x() = Floats(1, 8);
    *unary->mutable_y() = Floats(1, 8, offset);
    v1::SubmitResponse response;
    return Submit(program, &response);
  };
  EXPECT_OK(negate(0));
  EXPECT_OK(negate(32));
  EXPECT_THAT(negate(4), HasReason(Reason::kOverlap));
}

TEST_F(Programs, ALaneCarriesProgramsInOrderAndGoesOnAfterARefusal) {
  ASSERT_OK(Allocate(kSession, {{1, 64}}));
  grpc::ClientContext context;
  Authorize(&context, kSession);
  auto lane = stub_->Lane(&context);
  v1::LaneRequest request;
  request.mutable_open()->set_session_id(kSession);
  request.mutable_open()->set_min_version(1);
  request.mutable_open()->set_max_version(4);
  ASSERT_TRUE(lane->Write(request));
  for (int i = 1; i <= 3; ++i) {
    v1::SubmitRequest program = Program();
    program.set_seq(i);
    Read(&program, Floats(i == 2 ? 99 : 1, 4));
    *request.mutable_submit() = program;
    ASSERT_TRUE(lane->Write(request));
  }
  lane->WritesDone();
  v1::LaneResponse response;
  int results = 0, refusals = 0;
  while (lane->Read(&response)) {
    results += response.has_result();
    refusals += response.has_refusal();
    if (response.has_refusal()) {
      EXPECT_EQ(response.refusal().reason(), "BUFFER_UNKNOWN");
    }
  }
  EXPECT_TRUE(lane->Finish().ok());
  EXPECT_EQ(results, 2);
  EXPECT_EQ(refusals, 1);
}

TEST_F(Programs, ALaneOfAnotherVersionIsToldTheRange) {
  grpc::ClientContext context;
  Authorize(&context, kSession);
  auto lane = stub_->Lane(&context);
  v1::LaneRequest request;
  request.mutable_open()->set_session_id(kSession);
  request.mutable_open()->set_min_version(7);
  request.mutable_open()->set_max_version(9);
  ASSERT_TRUE(lane->Write(request));
  v1::LaneResponse response;
  EXPECT_FALSE(lane->Read(&response));
  EXPECT_THAT(FromGrpc(lane->Finish()), HasReason(Reason::kAbiVersion));
}

}  // namespace
}  // namespace backendd::worker
