// Flags of programs over the wire: what governs them, whose they are, what was not honoured.
#include <thread>

#include "tests/component/compute/worker_fixture.h"

namespace backendd::worker {
namespace {

class Flags : public WorkerTest {
 protected:
  const FlagId precision_ = FlagIdOf("mkldnn.matmul.fp32_precision");

  void SetUp() override { ASSERT_OK(Allocate(kSession, {{1, 64}})); }
  static v1::FlagValue Text(const std::string& text) {
    v1::FlagValue value;
    value.set_text(text);
    return value;
  }
  // A commit of the next revision, with the fp32 flag as the node's or as a session's own.
  void Commit(const std::string& value, uint64_t session = 0) {
    control::v1::Command command;
    control::v1::Snapshot& snapshot = *command.mutable_snapshot();
    snapshot.set_epoch("boot");
    snapshot.set_revision(++revision_);
    control::v1::FlagState* state = nullptr;
    if (session == 0) {
      state = snapshot.add_flags();
      state->set_layer(v1::LAYER_LEASE);
    } else {
      snapshot.add_sessions()->set_session_id(session);
      state = snapshot.mutable_sessions(0)->add_flags();
      state->set_layer(v1::LAYER_SESSION);
    }
    state->set_flag(precision_);
    *state->mutable_value() = Text(value);
    *state->mutable_entry() = Text(value);
    state->set_written(true);
    Command(command);
  }
  v1::SubmitRequest OneFill(uint64_t session = kSession) {
    v1::SubmitRequest program = Program(session);
    Fill(&program, Floats(1, 4), 2);
    return program;
  }
  // Every plan asks for more than it does.
  void NeverHonour() {
    device_->build = [this](const OperationSpec&, const FlagValues& flags) {
      auto plan = std::make_unique<Plan>();
      plan->choice.library = "fake";
      plan->choice.unmet = {
          {precision_, flags.Get(precision_).value, std::string("ieee"), "HARDWARE", "no bf16"}};
      return absl::StatusOr<std::unique_ptr<Plan>>(std::move(plan));
    };
  }

  uint64_t revision_ = 5;
};

TEST_F(Flags, WhatIsNotHonouredStandsInTheStamp) {
  NeverHonour();
  Commit("bf16");
  v1::SubmitResponse response;
  ASSERT_OK(Submit(OneFill(), &response));
  ASSERT_EQ(response.stamp().operations(0).flags_unmet_size(), 1);
  const v1::UnmetFlag& unmet = response.stamp().operations(0).flags_unmet(0);
  EXPECT_EQ(unmet.flag(), "mkldnn.matmul.fp32_precision");
  EXPECT_EQ(unmet.requested().text(), "bf16");
  EXPECT_EQ(unmet.effective().text(), "ieee");
  EXPECT_EQ(unmet.reason(), "HARDWARE");
}

TEST_F(Flags, StrictFlagsRefuseInsteadOfFallingBackAndNothingRuns) {
  NeverHonour();
  Commit("bf16");
  v1::SubmitRequest program = OneFill();
  program.set_strict_flags(true);
  v1::SubmitResponse response;
  const absl::Status refused = Submit(program, &response);
  EXPECT_THAT(refused, HasReason(Reason::kFlagUnmet));
  EXPECT_EQ(DetailsOf(refused)->metadata["flag"], "mkldnn.matmul.fp32_precision");
  EXPECT_EQ(DetailsOf(refused)->metadata["operation"], "0");
  EXPECT_EQ(device_->runs(), 0);
}

TEST_F(Flags, ASessionsOwnValueIsItsAloneAndHasAPlanOfItsOwn) {
  device_->governing = {precision_};
  ASSERT_OK(Allocate(kOther, {{1, 64}}));
  Commit("bf16", kOther);
  v1::SubmitResponse mine, others;
  ASSERT_OK(Submit(OneFill(), &mine));
  ASSERT_OK(Submit(OneFill(kOther), &others));
  EXPECT_EQ(mine.stamp().operations(0).flags_effective(0).layer(), v1::LAYER_BUILT_IN);
  EXPECT_EQ(others.stamp().operations(0).flags_effective(0).layer(), v1::LAYER_SESSION);
  EXPECT_EQ(others.stamp().operations(0).flags_effective(0).value().text(), "bf16");
  EXPECT_FALSE(others.stamp().operations(0).plan_hit());
  EXPECT_EQ(device_->builds(), 2);
}

TEST_F(Flags, AFlagThatDoesNotGovernSharesThePlan) {
  ASSERT_OK(Allocate(kOther, {{1, 64}}));
  Commit("bf16", kOther);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(OneFill(), &response));
  ASSERT_OK(Submit(OneFill(kOther), &response));
  EXPECT_TRUE(response.stamp().operations(0).plan_hit());
}

TEST_F(Flags, AnOperationsOwnFlagsHoldForItAlone) {
  device_->governing = {precision_};
  v1::SubmitRequest program = OneFill();
  Fill(&program, Floats(1, 4), 2);
  v1::CallFlag* const flag = program.mutable_operations(1)->add_flags();
  flag->set_flag("mkldnn.matmul.fp32_precision");
  *flag->mutable_value() = Text("bf16");
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  const auto& stamps = response.stamp().operations();
  EXPECT_EQ(stamps[0].flags_effective(0).layer(), v1::LAYER_BUILT_IN);
  EXPECT_EQ(stamps[1].flags_effective(0).layer(), v1::LAYER_CALL);
  EXPECT_EQ(stamps[1].flags_effective(0).value().text(), "bf16");

  flag->mutable_value()->set_text("bf17");
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kFlagValueInvalid));
  flag->set_flag("no.such.flag");
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kFlagUnknown));
  flag->set_flag("cuda.cufft_plan_cache.max_size");
  flag->mutable_value()->set_int_(3);
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kScopeInvalid));
  EXPECT_EQ(device_->runs(), 2);
}

TEST_F(Flags, AProgramRunsUnderTheRevisionThatItWasAdmittedAt) {
  device_->governing = {precision_};
  device_->Hold();
  v1::SubmitRequest first = OneFill();
  first.set_mode(v1::SUBMIT_MODE_ACCEPTED);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(first, &response));
  v1::SubmitRequest second = OneFill();
  Fill(&second, Floats(1, 8), 2);
  second.set_seq(1);
  std::thread client([&] { EXPECT_OK(Submit(second, &response)); });
  // Two plans: the second program is past its admission.
  while (device_->builds() < 2) std::this_thread::yield();
  Commit("bf16");
  EXPECT_EQ(Ping().revision(), 6u);
  device_->Release();
  client.join();
  EXPECT_EQ(response.stamp().revision(), 5u);
  for (const v1::OperationStamp& stamp : response.stamp().operations())
    EXPECT_EQ(stamp.flags_effective(0).layer(), v1::LAYER_BUILT_IN);
}

TEST_F(Flags, ExplainTellsWhatWouldRunAndRunsNothing) {
  device_->governing = {precision_};
  v1::SubmitRequest program = OneFill();
  program.set_mode(v1::SUBMIT_MODE_EXPLAIN);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(program, &response));
  EXPECT_EQ(response.stamp().operations(0).library(), "fake");
  EXPECT_EQ(response.stamp().operations(0).flags_effective(0).flag(),
            "mkldnn.matmul.fp32_precision");
  EXPECT_EQ(response.operations_done(), 0);
  EXPECT_EQ(device_->runs(), 0);
  EXPECT_EQ(*ReadBytes(kSession, 1, 64), std::string(64, '\0'));
}

TEST_F(Flags, StampsAreAsDetailedAsAskedFor) {
  v1::SubmitRequest program = OneFill();
  v1::SubmitResponse response;
  program.set_stamp_detail(v1::STAMP_DETAIL_NONE);
  ASSERT_OK(Submit(program, &response));
  EXPECT_FALSE(response.has_stamp());
  program.set_stamp_detail(v1::STAMP_DETAIL_PROGRAM);
  ASSERT_OK(Submit(program, &response));
  EXPECT_EQ(response.stamp().revision(), 5u);
  EXPECT_EQ(response.stamp().operations_size(), 0);
}

TEST_F(Flags, ADeadlineInThePastRunsNothing) {
  v1::SubmitRequest program = OneFill();
  program.mutable_deadline();  // zero
  v1::SubmitResponse response;
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kDeadlineBeforeStart));
  EXPECT_EQ(device_->runs(), 0);
  program.mutable_deadline()->set_seconds(-1);
  EXPECT_THAT(Submit(program, &response), HasReason(Reason::kArgumentInvalid));
}

TEST_F(Flags, WhatEndsAfterItsDeadlineSaysSo) {
  device_->Hold();
  v1::SubmitRequest program = OneFill();
  program.mutable_deadline()->set_nanos(200'000'000);
  v1::SubmitResponse response;
  std::thread client([&] { EXPECT_OK(Submit(program, &response)); });
  const absl::Duration from = clock_.Steady();
  while (device_->runs() < 1) std::this_thread::yield();
  while (clock_.Steady() - from < absl::Milliseconds(250)) std::this_thread::yield();
  device_->Release();
  client.join();
  EXPECT_TRUE(response.late());
  EXPECT_EQ(response.operations_done(), 1);
}

TEST_F(Flags, APreparedProgramRunsOnTheBuffersThatAreBound) {
  ASSERT_OK(Allocate(kSession, {{2, 64}}));
  v1::PrepareProgramRequest prepare;
  prepare.set_session_id(kSession);
  prepare.set_program_id(7);
  const v1::SubmitRequest one_fill = OneFill();
  *prepare.mutable_operations() = one_fill.operations();
  prepare.add_parameters(1);
  v1::PrepareProgramResponse prepared;
  {
    grpc::ClientContext context;
    Authorize(&context, kSession);
    ASSERT_OK(FromGrpc(stub_->PrepareProgram(&context, prepare, &prepared)));
  }
  v1::SubmitRequest run = Program();
  run.set_program_id(7);
  v1::Binding* const binding = run.add_bindings();
  binding->set_parameter(1);
  binding->set_buffer(2);
  binding->set_offset(48);
  v1::SubmitResponse response;
  ASSERT_OK(Submit(run, &response));
  EXPECT_EQ(response.stamp().program_hash(), prepared.program_hash());
  EXPECT_EQ(*ReadBytes(kSession, 1, 64), std::string(64, '\0'));
  EXPECT_NE(ReadBytes(kSession, 2, 64)->substr(48), std::string(16, '\0'));
  binding->set_offset(52);
  EXPECT_THAT(Submit(run, &response), HasReason(Reason::kShapeInvalid));
  binding->set_parameter(2);
  EXPECT_THAT(Submit(run, &response), HasReason(Reason::kArgumentInvalid));
  v1::ReleaseProgramRequest release;
  release.set_session_id(kSession);
  release.set_program_id(7);
  v1::ReleaseProgramResponse released;
  {
    grpc::ClientContext context;
    Authorize(&context, kSession);
    ASSERT_OK(FromGrpc(stub_->ReleaseProgram(&context, release, &released)));
  }
  EXPECT_THAT(Submit(run, &response), HasReason(Reason::kProgramUnknown));
}

TEST_F(Flags, TheFftPlanLimitOfTheFlagHoldsFromItsCommit) {
  control::v1::Command command;
  command.mutable_snapshot()->set_revision(++revision_);
  control::v1::FlagState* const state = command.mutable_snapshot()->add_flags();
  state->set_flag(FlagIdOf("cuda.cufft_plan_cache.max_size"));
  state->mutable_value()->set_int_(3);
  state->set_layer(v1::LAYER_LEASE);
  Command(command);
  grpc::ClientContext context;
  v1::DescribePlanCacheRequest request;
  request.set_kind("fft");
  v1::DescribePlanCacheResponse response;
  ASSERT_OK(FromGrpc(stub_->DescribePlanCache(&context, request, &response)));
  EXPECT_EQ(response.caches(0).max_size(), 3);
}

TEST_F(Flags, ASuspendedSessionAdmitsNothingAndKeepsAll) {
  ASSERT_OK(Submit(OneFill(), std::make_unique<v1::SubmitResponse>().get()));
  control::v1::Command command;
  *command.add_grants() = GrantOf(kSession);
  command.mutable_grants(0)->set_suspended(true);
  Command(command);
  v1::SubmitResponse response;
  const absl::Status refused = Submit(OneFill(), &response);
  EXPECT_THAT(refused, HasReason(Reason::kSessionUnknown));
  EXPECT_EQ(DetailsOf(refused)->metadata["state"], "SUSPENDED");
  EXPECT_EQ(Ping().used_bytes(), 64u);
  command.mutable_grants(0)->set_suspended(false);
  Command(command);
  EXPECT_NE(*ReadBytes(kSession, 1, 64), std::string(64, '\0'));
}

}  // namespace
}  // namespace backendd::worker
