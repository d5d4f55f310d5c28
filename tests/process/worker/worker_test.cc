// Programs of real clients on the real CPU worker, and what its death leaves.
#include <functional>

#include "backendd/v1/lease_service.grpc.pb.h"
#include "tests/process/worker/worker_process.h"

namespace backendd {
namespace {

constexpr char kPrecision[] = "mkldnn.matmul.fp32_precision";

class WorkerTest : public WorkerProcess {
 protected:
  // A = 1 + 2^-9 and B = 1: K = 64 of them are 64.125, and 64 where A was rounded to bfloat16.
  static v1::SubmitRequest Probe(const Caller& caller, uint64_t revision) {
    v1::SubmitRequest program = caller.Program();
    program.set_min_revision(revision);
    const v1::Operand a = View(1, 0, {64, 64}), b = View(1, 16384, {64, 64}),
                      y = View(1, 32768, {64, 64});
    Fill(&program, a, 1 + 1.0 / 512);
    Fill(&program, b, 1);
    Gemm(&program, a, b, y);
    Read(&program, View(1, 32768, {2}));
    return program;
  }
  static const v1::StampFlag* Effective(const v1::OperationStamp& stamp, const std::string& flag) {
    for (const v1::StampFlag& effective : stamp.flags_effective())
      if (effective.flag() == flag) return &effective;
    return nullptr;
  }
  bool Await(const std::function<bool()>& condition) {
    for (const auto until = Soon(); std::chrono::system_clock::now() < until;) {
      if (condition()) return true;
      poll(nullptr, 0, 5);
    }
    return false;
  }
};

TEST_F(WorkerTest, TwoSessionsWithDifferentPrecisionGetEachItsOwn) {
  const auto exact = Open(), fast = Open();
  v1::FlagValue ieee, bf16;
  ieee.set_text("ieee");
  bf16.set_text("bf16");
  const uint64_t exact_at = Set(exact->id(), kPrecision, ieee);
  const uint64_t fast_at = Set(fast->id(), kPrecision, bf16);
  ASSERT_OK(exact->Allocate(1, 49152));
  ASSERT_OK(fast->Allocate(1, 49152));
  for (int turn = 0; turn < 8; ++turn) {
    v1::SubmitResponse one, other;
    ASSERT_OK(exact->Submit(Probe(*exact, exact_at), &one));
    ASSERT_OK(fast->Submit(Probe(*fast, fast_at), &other));
    EXPECT_EQ(one.reads(0).float_values(0), 64.125);
    const v1::OperationStamp& stamp = other.stamp().operations(2);
    const v1::StampFlag* const asked = Effective(stamp, kPrecision);
    ASSERT_NE(asked, nullptr);
    EXPECT_EQ(asked->value().text(), "bf16");
    EXPECT_EQ(asked->layer(), v1::LAYER_SESSION);
    EXPECT_EQ(Effective(one.stamp().operations(2), kPrecision)->value().text(), "ieee");
    EXPECT_EQ(one.stamp().operations(2).flags_unmet_size(), 0);
    std::ifstream cpuinfo("/proc/cpuinfo");
    std::ostringstream text;
    text << cpuinfo.rdbuf();
    if (text.str().find("avx512_bf16") != std::string::npos) {
      EXPECT_EQ(stamp.flags_unmet_size(), 0);
    }
    if (stamp.flags_unmet_size() == 0) {
      EXPECT_EQ(other.reads(0).float_values(0), 64.0);
    } else {
      EXPECT_EQ(stamp.flags_unmet(0).flag(), kPrecision);
      EXPECT_EQ(stamp.flags_unmet(0).reason(), "HARDWARE");
      EXPECT_EQ(other.reads(0).float_values(0), 64.125);
    }
  }
}

TEST_F(WorkerTest, TwoSessionsWithDifferentLibrariesGetEachItsOwn) {
  const auto with = Open(), without = Open();
  v1::FlagValue off;
  off.set_bool_(false);
  const uint64_t revision = Set(without->id(), "mkldnn.enabled", off);
  ASSERT_OK(with->Allocate(1, 49152));
  ASSERT_OK(without->Allocate(1, 49152));
  for (int turn = 0; turn < 4; ++turn) {
    v1::SubmitResponse one, other;
    ASSERT_OK(with->Submit(Probe(*with, 0), &one));
    ASSERT_OK(without->Submit(Probe(*without, revision), &other));
    EXPECT_NE(one.stamp().operations(2).library(), other.stamp().operations(2).library());
    EXPECT_NE(other.stamp().operations(2).library(), "onednn");
    EXPECT_EQ(one.reads(0).float_values(0), other.reads(0).float_values(0));
  }
}

TEST_F(WorkerTest, AKilledWorkerLosesItsBuffersAndNoLease) {
  const auto caller = Open();
  auto leases = v1::LeaseService::NewStub(Channel());
  v1::AcquireLeaseRequest acquire;
  acquire.set_session_id(caller->id());
  v1::LeaseEntry* const entry = acquire.add_entries();
  entry->set_flag("mkldnn.enabled");
  entry->mutable_value()->set_bool_(true);
  v1::AcquireLeaseResponse acquired;
  {
    grpc::ClientContext context;
    const grpc::Status status = leases->AcquireLease(&context, acquire, &acquired);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  ASSERT_OK(caller->Allocate(1, 49152));
  v1::SubmitRequest program = Probe(*caller, 0);
  program.set_device_epoch(cpu_.epoch());
  v1::SubmitResponse response;
  ASSERT_OK(caller->Submit(program, &response));

  ASSERT_EQ(kill(static_cast<pid_t>(cpu_.pid()), SIGKILL), 0);
  const v1::Device next = Cpu(cpu_.epoch() + 1);
  EXPECT_EQ(next.epoch(), cpu_.epoch() + 1);
  EXPECT_EQ(next.socket(), cpu_.socket());
  v1::GetLeaseRequest get;
  get.set_lease_id(acquired.lease().lease_id());
  v1::GetLeaseResponse got;
  {
    grpc::ClientContext context;
    EXPECT_TRUE(leases->GetLease(&context, get, &got).ok());
  }
  // The first call may meet the end of the old connection.
  absl::Status lost;
  EXPECT_TRUE(Await([&] {
    lost = caller->Submit(program, &response);
    return ReasonOf(lost) == Reason::kDeviceLost;
  })) << lost;
  EXPECT_EQ(DetailsOf(lost)->metadata["old_epoch"], std::to_string(cpu_.epoch()));
  EXPECT_EQ(DetailsOf(lost)->metadata["new_epoch"], std::to_string(next.epoch()));
  program.set_device_epoch(next.epoch());
  EXPECT_THAT(caller->Submit(program, &response), HasReason(Reason::kBufferUnknown));
  ASSERT_OK(caller->Allocate(1, 49152));
  ASSERT_OK(caller->Submit(program, &response));
  EXPECT_EQ(response.reads(0).float_values(0), 64.125);
  EXPECT_EQ(response.stamp().device_epoch(), next.epoch());
}

// S59, for buffers.
TEST_F(WorkerTest, AClientKilledInItsProgramLeavesNoByte) {
  const std::string ready = directory_ + "/ready";
  Child victim({BIN "/worker_victim", socket_, cpu_.socket(), ready}, log_);
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(ready); }));
  victim.Signal(SIGKILL);
  EXPECT_EQ(victim.Wait(), -SIGKILL);
  const auto watcher = Open();
  EXPECT_TRUE(Await([&] { return watcher->Ledger()["buffers"] == 0; }));
  EXPECT_TRUE(Await([&] { return Cpu().used_bytes() == 0; }));
  EXPECT_EQ(Cpu().epoch(), cpu_.epoch());
}

TEST_F(WorkerTest, AnEndedSessionLeavesNoByteAndItsBytesAreNotTheNextOnes) {
  {
    const auto caller = Open();
    ASSERT_OK(caller->Allocate(1, 1 << 20));
    ASSERT_OK(caller->Write(1, std::string(1 << 20, '\xAB')));
    v1::SubmitRequest program = caller->Program();
    program.set_mode(v1::SUBMIT_MODE_ACCEPTED);
    for (int i = 0; i < 64; ++i) Fill(&program, View(1, 0, {1 << 18}), 3);
    v1::SubmitResponse response;
    ASSERT_OK(caller->Submit(program, &response));
  }
  const auto next = Open();
  ASSERT_OK(next->Allocate(1, 1 << 20));
  EXPECT_EQ(*next->Read(1, 1 << 20), std::string(1 << 20, '\0'));
  EXPECT_TRUE(Await([&] { return next->Ledger()["buffers"] == 1 << 20; }));
}

TEST_F(WorkerTest, TheFirstLargeProgramOfAWorkerIsAnswered) {
  const auto caller = Open();
  ASSERT_OK(caller->Allocate(1, 12 << 20));
  v1::SubmitRequest program = caller->Program();
  const v1::Operand a = View(1, 0, {1024, 1024}), b = View(1, 4 << 20, {1024, 1024}),
                    y = View(1, 8 << 20, {1024, 1024});
  Fill(&program, a, 1);
  Fill(&program, b, 0.5);
  Gemm(&program, a, b, y);
  Read(&program, View(1, 8 << 20, {1}));
  v1::SubmitResponse response;
  ASSERT_OK(caller->Submit(program, &response));
  EXPECT_EQ(response.reads(0).float_values(0), 512);
  EXPECT_EQ(Cpu().epoch(), cpu_.epoch());
}

}  // namespace
}  // namespace backendd
