// Measures the project's figures and prints them beside their floors. Exit 0: the table is whole
// (whatever the times); 1: a figure could not be measured; 2: usage.
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backendd/v1/device_service.grpc.pb.h"
#include "client/cli/table.h"
#include "shared/status/grpc_status.h"
#include "tests/bench/figures.h"

namespace backendd::bench {

Channel ChannelTo(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket),
                                   grpc::InsecureChannelCredentials(), arguments);
}

absl::StatusOr<std::unique_ptr<RawSession>> RawSession::Open(const Channel& channel,
                                                             const std::string& name,
                                                             absl::Duration ttl) {
  std::unique_ptr<RawSession> session(new RawSession);
  session->stub_ = v1::SessionService::NewStub(channel);
  session->stream_ = session->stub_->OpenSession(&session->context_);
  v1::OpenSessionRequest hello;
  hello.mutable_hello()->set_name(name);
  hello.mutable_hello()->mutable_ttl()->set_seconds(absl::ToInt64Seconds(ttl));
  v1::OpenSessionResponse welcome;
  if (!session->stream_->Write(hello) || !session->stream_->Read(&welcome)) {
    return FromGrpc(session->stream_->Finish());
  }
  session->welcome_ = welcome.welcome();
  return session;
}

RawSession::~RawSession() {
  if (welcome_.session_id() == 0) return;
  Goodbye();
  v1::OpenSessionResponse event;
  while (stream_->Read(&event)) continue;  // nobody else reads any more
  (void)stream_->Finish();
}

void RawSession::Goodbye() {
  if (std::exchange(said_goodbye_, true)) return;
  v1::OpenSessionRequest goodbye;
  goodbye.mutable_goodbye();
  stream_->Write(goodbye, grpc::WriteOptions().set_last_message());
}

Row Failed(Row row, const absl::Status& status) {
  row.note = status.message().empty() ? status.ToString() : std::string(status.message());
  return row;
}

Row AgainstEmpty(Row row, double goal, const Options& options, const Timed& call,
                 const absl::Status& error) {
  v1::DeviceService::Stub empty(ChannelTo(options.empty_socket));
  absl::Status empty_error;
  const Timed floor =
      Unary(empty, &v1::DeviceService::Stub::GetNode, v1::GetNodeRequest(), &empty_error);
  for (int i = 0; i < 2 * options.calls; ++i) {  // both warm
    if (call() < 0 || floor() < 0) break;
  }
  Ratio r;
  if (!error.ok() || !empty_error.ok() || !Abba(options.blocks, options.calls, call, floor, &r)) {
    return Failed(row, error.ok() ? empty_error : error);
  }
  row.measured = absl::StrFormat("%.1f us", r.a_us);
  row.floor = absl::StrFormat("%.1f us", r.b_us);
  row.ratio = absl::StrFormat("%.2f [%.2f, %.2f]", r.ratio, r.low, r.high);
  row.reached = r.ratio <= goal;
  return row;
}

namespace {

std::string FirstLineAfter(const char* file, absl::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (absl::StartsWith(line, key)) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(line, absl::MaxSplits(':', 1));
      return std::string(absl::StripLeadingAsciiWhitespace(parts.second));
    }
  }
  return "unknown";
}

// What every reader of the numbers must know first.
void PrintMachine() {
  utsname system;
  uname(&system);
  const char* core = getenv("OPENBLAS_CORETYPE");
  double load = -1;
  getloadavg(&load, 1);
  std::cout << "cpu:     " << FirstLineAfter("/proc/cpuinfo", "model name") << ", "
            << sysconf(_SC_NPROCESSORS_ONLN) << " cores, OpenBLAS kernels "
            << (core == nullptr ? "of its own choice" : core) << "\nkernel:  " << system.release
            << "\nload:    " << load << " at the start"
            << (load < 0.5 ? "" : " (others ran: tails mean little)") << std::endl;
}

int Measure(const Options& options) {
  PrintMachine();
  std::cout << "method:  A B B A, " << options.blocks << " blocks, median of their ratios with its "
            << "95 % bootstrap interval\n"
            << std::endl;
  cli::Table table({"FIGURE", "MEASURED", "FLOOR", "RATIO", "GOAL", "REACHED"});
  bool whole = true;
  for (const auto figure : {IdleMemory, GetFlag, AcquireLease, NullProgram, Rollback, ExpiryStorm,
                            ArenaHandOver, Sgemm}) {
    Row row = figure(options);
    whole = whole && row.note.empty();
    std::cerr << row.name << ": " << (row.note.empty() ? "done" : row.note) << std::endl;
    table.Add({row.name, row.note.empty() ? row.measured : "not measured: " + row.note, row.floor,
               row.ratio, row.goal,
               !row.note.empty() ? "-"
               : row.reached     ? "yes"
                                 : "no"});
  }
  double load = -1;
  getloadavg(&load, 1);
  std::cout << table.Text() << "\nload:    " << load << " at the end" << std::endl;
  return whole ? 0 : 1;
}

}  // namespace
}  // namespace backendd::bench

int main(int argc, char** argv) {
  using namespace backendd::bench;
  Options options;
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof(self));
  options.self = std::string(self, size > 0 ? size : 0);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "--hold") return HoldUntilKilled(words[1]);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--smoke") {
      options.blocks = 2;
      options.calls = 3;
      options.trials = 3;
      options.leases = 300;
      options.products = 1;
    } else if (words[i] == "--socket" && i + 1 < words.size()) {
      options.socket = words[++i];
    } else if (words[i] == "--empty" && i + 1 < words.size()) {
      options.empty_socket = words[++i];
    } else {
      options.socket.clear();
      break;
    }
  }
  if (options.socket.empty() || options.empty_socket.empty()) {
    std::cerr << "usage: bench_figures --socket SOCKET --empty SOCKET [--smoke]; tests/bench/run "
                 "starts what it needs\n";
    return 2;
  }
  return Measure(options);
}
