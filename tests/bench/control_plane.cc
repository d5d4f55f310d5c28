// Flags, leases and deaths.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "backendd/v1/device_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "shared/status/grpc_status.h"
#include "shared/sync.h"
#include "tests/bench/figures.h"
#include "tests/bench/stats.h"

namespace backendd::bench {
namespace {

constexpr const char* kFlag = "cudnn.benchmark";

v1::AcquireLeaseRequest FourFlags(uint64_t session) {
  v1::AcquireLeaseRequest request;
  request.set_session_id(session);
  for (const char* flag :
       {"cudnn.benchmark", "cudnn.deterministic", "cudnn.enabled", "mkldnn.deterministic"}) {
    v1::LeaseEntry* entry = request.add_entries();
    entry->set_flag(flag);
    entry->mutable_value()->set_bool_(true);
  }
  return request;
}

// The holder's process: forked and executed anew for each trial.
struct Holder {
  pid_t pid = -1;
  int said = -1;
};
Holder StartHolder(const Options& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t pid = vfork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl(options.self.c_str(), options.self.c_str(), "--hold", options.socket.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

// Watches one flag in a thread of its own; knows when it last became false.
class FlagWatch {
 public:
  explicit FlagWatch(const Channel& channel) : stub_(channel) {
    v1::WatchFlagsRequest request;
    request.add_prefixes(kFlag);
    request.set_initial_snapshot(true);
    stream_ = stub_.WatchFlags(&context_, request);
    reader_ = std::thread([this] { Read(); });
  }
  ~FlagWatch() {
    context_.TryCancel();
    reader_.join();
  }
  // When the flag became `value` after the call of Forget; 0 if it did not within 5 s.
  double Await(bool value) {
    MutexLock lock(&mutex_);
    for (int i = 0; i < 50 && !(changed_ && value_ == value); ++i) {
      arrived_.WaitWithTimeout(&mutex_, absl::Milliseconds(100));
    }
    return changed_ && value_ == value ? when_us_ : 0;
  }
  void Forget() {
    MutexLock lock(&mutex_);
    changed_ = false;
  }

 private:
  void Read() {
    for (v1::WatchFlagsResponse message; stream_->Read(&message);) {
      const double now = NowUs();
      for (const v1::FlagChange& change : message.batch().changes()) {
        if (change.flag() != kFlag || !change.device().empty()) continue;
        MutexLock lock(&mutex_);
        changed_ = true;
        value_ = change.new_value().bool_();
        when_us_ = now;
        arrived_.SignalAll();
      }
    }
    (void)stream_->Finish();
  }

  v1::FlagService::Stub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchFlagsResponse>> stream_;
  Mutex mutex_;
  CondVar arrived_;
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool value_ ABSL_GUARDED_BY(mutex_) = false;
  double when_us_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread reader_;
};

// One session of the storm: takes its leases so that all end at `target_us`, then listens.
class StormSession {
 public:
  static constexpr int kMostLeases = 250;  // below the quota of a session

  absl::Status Open(const Channel& channel) {
    auto session = RawSession::Open(channel, "bench storm", absl::Minutes(10));
    if (!session.ok()) return session.status();
    session_ = *std::move(session);
    return absl::OkStatus();
  }
  absl::Status Take(v1::LeaseService::Stub& stub, int count, double target_us) {
    for (int i = 0; i < count; ++i) {
      v1::AcquireLeaseRequest request;
      v1::AcquireLeaseResponse response;
      request.set_session_id(session_->id());
      v1::LeaseEntry* entry = request.add_entries();
      entry->set_flag("cudnn.benchmark_limit");
      entry->mutable_value()->set_int_(1 + i);
      grpc::ClientContext context;
      const auto left_ms = static_cast<int64_t>((target_us - NowUs()) / 1000);
      request.mutable_ttl()->set_seconds(left_ms / 1000);
      request.mutable_ttl()->set_nanos(static_cast<int>(left_ms % 1000 * 1'000'000));
      const double deadline = NowUs() + left_ms * 1e3;  // never after the daemon's
      const grpc::Status status = stub.AcquireLease(&context, request, &response);
      if (!status.ok()) return FromGrpc(status);
      deadlines_[response.lease().lease_id()] = deadline;
    }
    return absl::OkStatus();
  }
  void Listen(std::atomic<int>* left) {
    reader_ = std::thread([this, left] {
      for (v1::OpenSessionResponse event; session_->Read(&event);) {
        const double now = NowUs();
        if (event.lease_event().what_case() != v1::LeaseEvent::kLost) continue;
        const auto found = deadlines_.find(event.lease_event().lease_id());
        if (found == deadlines_.end()) continue;
        late_ms_.push_back((now - found->second) / 1e3);
        --*left;
      }
    });
  }
  void End(std::vector<double>* late_ms) {
    if (session_ == nullptr) return;
    session_->Goodbye();
    if (reader_.joinable()) reader_.join();
    late_ms->insert(late_ms->end(), late_ms_.begin(), late_ms_.end());
  }

 private:
  std::unique_ptr<RawSession> session_;
  std::map<uint64_t, double> deadlines_;
  std::vector<double> late_ms_;
  std::thread reader_;
};

}  // namespace

Row IdleMemory(const Options& options) {
  Row row{"idle daemon, resident", "", "", "", "<= 40 MB"};
  v1::DeviceService::Stub stub(ChannelTo(options.socket));
  grpc::ClientContext context;
  v1::GetNodeResponse node;
  const grpc::Status status = stub.GetNode(&context, v1::GetNodeRequest(), &node);
  if (!status.ok()) return Failed(row, FromGrpc(status));
  std::ifstream file(absl::StrCat("/proc/", node.pid(), "/status"));
  for (std::string word; file >> word;) {
    if (word != "VmRSS:") continue;
    double kib = 0;
    file >> kib;
    row.measured = absl::StrFormat("%.1f MB", kib * 1024 / 1e6);
    row.reached = kib * 1024 / 1e6 <= 40;
    return row;
  }
  row.note = absl::StrCat("no VmRSS of pid ", node.pid());
  return row;
}

Row GetFlag(const Options& options) {
  v1::FlagService::Stub stub(ChannelTo(options.socket));
  v1::GetFlagRequest request;
  request.set_flag(kFlag);
  absl::Status error;
  return AgainstEmpty({"GetFlag / empty call", "", "", "", "<= 1.3"}, 1.3, options,
                      Unary(stub, &v1::FlagService::Stub::GetFlag, request, &error), error);
}

Row AcquireLease(const Options& options) {
  Row row{"AcquireLease, 4 flags / empty call", "", "", "", "<= 2.0"};
  const Channel channel = ChannelTo(options.socket);
  auto session = RawSession::Open(channel, "bench", absl::Minutes(10));
  if (!session.ok()) return Failed(row, session.status());
  v1::LeaseService::Stub stub(channel);
  const v1::AcquireLeaseRequest request = FourFlags((*session)->id());
  absl::Status error;
  const Timed acquire = [&] {  // the release is not timed
    grpc::ClientContext context, release_context;
    v1::AcquireLeaseResponse response;
    v1::ReleaseLeaseResponse released;
    v1::ReleaseLeaseRequest release;
    const double begin = NowUs();
    grpc::Status status = stub.AcquireLease(&context, request, &response);
    const double us = NowUs() - begin;
    release.set_lease_id(response.lease().lease_id());
    release.set_session_id((*session)->id());
    if (status.ok()) status = stub.ReleaseLease(&release_context, release, &released);
    if (!status.ok()) error = FromGrpc(status);
    return status.ok() ? us : -1.0;
  };
  return AgainstEmpty(row, 2.0, options, acquire, error);
}

Row Rollback(const Options& options) {
  Row row{absl::StrCat("kill -9 to rollback seen, ", options.trials, " trials"), "", "", "",
          "p50 <= 3 ms, p99 <= 15 ms"};
  FlagWatch watch(ChannelTo(options.socket));
  std::vector<double> ms;
  for (int trial = 0; trial < options.trials; ++trial) {
    watch.Forget();
    const Holder holder = StartHolder(options);
    char ready = 0;
    const bool holds = read(holder.said, &ready, 1) == 1;
    const double taken = holds ? watch.Await(true) : 0;
    watch.Forget();
    const double killed = NowUs();
    if (holder.pid > 0) kill(holder.pid, SIGKILL);
    const double seen = taken > 0 ? watch.Await(false) : 0;
    if (holder.pid > 0) waitpid(holder.pid, nullptr, 0);
    close(holder.said);
    if (seen == 0) {
      row.note = !holds       ? "the holder got no lease"
                 : taken == 0 ? "the watch did not see the lease"
                              : "the watch did not see the rollback";
      return row;
    }
    ms.push_back((seen - killed) / 1e3);
  }
  row.measured = absl::StrFormat("p50 %.2f ms, p99 %.2f ms", Median(ms), Percentile(ms, 99));
  row.reached = Median(ms) <= 3 && Percentile(ms, 99) <= 15;
  return row;
}

Row ExpiryStorm(const Options& options) {
  Row row{absl::StrCat(options.leases, " leases expire at once, lateness"), "", "", "",
          "p99 <= 150 ms"};
  const Channel channel = ChannelTo(options.socket);
  v1::LeaseService::Stub stub(channel);
  std::vector<StormSession> sessions((options.leases + StormSession::kMostLeases - 1) /
                                     StormSession::kMostLeases);
  std::atomic<int> left = options.leases;
  // Time to take them all: far more than a millisecond each would be hopeless anyway.
  const double target_us = NowUs() + 2e6 + options.leases * 1e3;
  absl::Status status;
  int to_take = options.leases;
  for (StormSession& session : sessions) {
    const int count = std::min(to_take, StormSession::kMostLeases);
    if (status.ok()) status = session.Open(channel);
    if (status.ok()) status = session.Take(stub, count, target_us);
    if (status.ok()) session.Listen(&left);
    to_take -= count;
  }
  while (status.ok() && left > 0 && NowUs() < target_us + 20e6) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  std::vector<double> late;
  for (StormSession& session : sessions) session.End(&late);
  if (!status.ok()) return Failed(row, status);
  if (left > 0) {
    row.note = absl::StrCat(left.load(), " leases were not seen to end");
    return row;
  }
  row.measured = absl::StrFormat("p50 %.1f ms, p99 %.1f ms", Median(late), Percentile(late, 99));
  row.reached = Percentile(late, 99) <= 150;
  return row;
}

int HoldUntilKilled(const std::string& socket) {
  const Channel channel = ChannelTo(socket);
  auto session = RawSession::Open(channel, "bench holder", absl::Minutes(10));
  if (!session.ok()) return 1;
  v1::LeaseService::Stub stub(channel);
  v1::AcquireLeaseRequest request;
  v1::AcquireLeaseResponse response;
  request.set_session_id((*session)->id());
  v1::LeaseEntry* entry = request.add_entries();
  entry->set_flag(kFlag);
  entry->mutable_value()->set_bool_(true);
  grpc::ClientContext context;
  if (!stub.AcquireLease(&context, request, &response).ok()) return 1;
  if (write(STDOUT_FILENO, "h", 1) != 1) return 1;
  while (true) pause();
}

}  // namespace backendd::bench
