#include "server/listener/listener.h"

#include <fcntl.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "grpc/health/v1/health.grpc.pb.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/listener/peer.h"
#include "server/listener/peer_table.h"
#include "server/listener/socket.h"
#include "tests/support/status_matchers.h"

namespace backendd {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using testing::Contains;
using testing::HasSubstr;

class Listening : public testing::Test {
 protected:
  Listening() { directory_ = mkdtemp(template_), path_ = directory_ + "/s"; }
  ~Listening() override {
    listener_.reset();
    for (const char* name : {"/s", "/s.lock"}) unlink((directory_ + name).c_str());
    rmdir(directory_.c_str());
  }
  void Start(bool reflection = true) {
    auto socket = BindSocket(path_, SOCK_STREAM, std::nullopt);
    ASSERT_OK(socket);
    Listener::Options options;
    options.socket = *std::move(socket);
    options.reflection = reflection;
    auto listener = Listener::Create(std::move(options));
    ASSERT_OK(listener);
    listener_ = *std::move(listener);
    listener_->Start();
  }
  std::shared_ptr<grpc::Channel> Channel() {
    return grpc::CreateCustomChannel("unix:" + path_, grpc::InsecureChannelCredentials(), [] {
      grpc::ChannelArguments own;
      own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      return own;
    }());
  }
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }

  char template_[32] = "/tmp/blXXXXXX";
  std::string directory_, path_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(Listening, HealthAnswersForTheWholeAndForItself) {
  Start();
  auto stub = Health::NewStub(Channel());
  for (const char* name : {"", "grpc.health.v1.Health"}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    HealthCheckRequest request;
    request.set_service(name);
    HealthCheckResponse response;
    ASSERT_TRUE(stub->Check(&context, request, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  }
  grpc::ClientContext context;
  SetDeadline(&context);
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  HealthCheckResponse response;
  EXPECT_EQ(stub->Check(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(Listening, AHealthWatchTellsEachChange) {
  Start();
  auto stub = Health::NewStub(Channel());
  grpc::ClientContext context;
  SetDeadline(&context);
  auto stream = stub->Watch(&context, {});
  HealthCheckResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  listener_->SetServing(false);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

template <class Service, class Request, class Response>
void DescribesEverything(const std::shared_ptr<grpc::Channel>& channel) {
  auto stub = Service::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  auto stream = stub->ServerReflectionInfo(&context);
  const auto ask = [&](const Request& request) {
    Response response;
    EXPECT_TRUE(stream->Write(request));
    EXPECT_TRUE(stream->Read(&response));
    return response;
  };
  Request list;
  list.set_list_services("");
  std::vector<std::string> names;
  const Response listed = ask(list);
  for (const auto& service : listed.list_services_response().service())
    names.push_back(service.name());
  for (const char* name : {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                           "grpc.reflection.v1alpha.ServerReflection"})
    EXPECT_THAT(names, Contains(name));

  for (const std::string& name :
       {std::string("grpc.health.v1.Health"), std::string("backendd.v1.FlagService"),
        std::string("backendd.v1.FlagService.GetFlag")}) {
    Request by_symbol;
    by_symbol.set_file_containing_symbol(name);
    const Response answer = ask(by_symbol);
    const auto& files = answer.file_descriptor_response().file_descriptor_proto();
    ASSERT_GT(files.size(), 0) << name;
    // With every import, comments and json names: what a tool needs, once and whole.
    std::set<std::string> have, need;
    bool comments = false, json = false;
    for (const std::string& bytes : files) {
      google::protobuf::FileDescriptorProto file;
      ASSERT_TRUE(file.ParseFromString(bytes));
      have.insert(file.name());
      need.insert(file.dependency().begin(), file.dependency().end());
      for (const auto& location : file.source_code_info().location())
        comments = comments || !location.leading_comments().empty();
      for (const auto& message : file.message_type())
        for (const auto& field : message.field()) json = json || field.has_json_name();
    }
    EXPECT_TRUE(std::includes(have.begin(), have.end(), need.begin(), need.end())) << name;
    EXPECT_TRUE(comments) << name;
    EXPECT_TRUE(json) << name;
  }
  Request unknown;
  unknown.set_file_containing_symbol("no.such.Symbol");
  EXPECT_EQ(ask(unknown).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ask(Request()).error_response().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(Listening, ReflectionV1DescribesEverything) {
  Start();
  using namespace grpc::reflection::v1;
  DescribesEverything<ServerReflection, ServerReflectionRequest, ServerReflectionResponse>(
      Channel());
}

TEST_F(Listening, ReflectionV1AlphaDescribesEverything) {
  Start();
  using namespace grpc::reflection::v1alpha;
  DescribesEverything<ServerReflection, ServerReflectionRequest, ServerReflectionResponse>(
      Channel());
}

TEST_F(Listening, WithReflectionOffNobodyAnswersIt) {
  Start(false);
  auto stub = grpc::reflection::v1::ServerReflection::NewStub(Channel());
  grpc::ClientContext context;
  SetDeadline(&context);
  EXPECT_EQ(stub->ServerReflectionInfo(&context)->Finish().error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(Listening, AShutDownListenerRefuses) {
  Start();
  listener_->Shutdown(absl::ZeroDuration());
  listener_->Shutdown(absl::ZeroDuration());
  auto stub = Health::NewStub(Channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  HealthCheckResponse response;
  EXPECT_FALSE(stub->Check(&context, {}, &response).ok());
}

TEST_F(Listening, TheLockAndTheSocketAreOurs) {
  auto lock = LockSocket(path_);
  ASSERT_OK(lock);
  Start();
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  const absl::Status second = LockSocket(path_).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.message()), HasSubstr("in use by a live process"));
  // Somebody answers, though nobody holds the lock.
  lock->reset();
  EXPECT_EQ(LockSocket(path_).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(Listening, AStaleSocketIsReplacedAndAFileIsNot) {
  { ASSERT_OK(BindSocket(path_, SOCK_STREAM, std::nullopt)); }  // closed: nobody answers
  EXPECT_OK(LockSocket(path_));
  Start();
  listener_.reset();
  unlink(path_.c_str());
  std::ofstream(path_) << "precious";
  EXPECT_EQ(LockSocket(path_).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(SocketPath, OneHundredAndSevenBytesFit) {
  EXPECT_OK(CheckSocketPath("/" + std::string(106, 'x')));
  const absl::Status status = CheckSocketPath("/" + std::string(107, 'x'));
  EXPECT_THAT(status, HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(std::string(status.message()), HasSubstr("108 bytes"));
}

// What the table says of a number is always the connection that has it now: 4,000 connections of
// two processes in turn, each closed at once, so that the kernel would hand out the same number.
TEST(PeerTable, ReconnectsAreNeverAttributedToAnother) {
  char name[] = "/tmp/bpXXXXXX";
  const std::string directory = mkdtemp(name), path = directory + "/s";
  auto listening = BindSocket(path, SOCK_STREAM, std::nullopt);
  ASSERT_OK(listening);
  fcntl(listening->get(), F_SETFL, 0);  // accept waits here
  constexpr int kEach = 2000;
  const auto connect_all = [&] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    const pid_t self = getpid();
    for (int i = 0; i < kEach; ++i) {
      Fd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      char byte;
      if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
          write(client.get(), &self, sizeof self) != sizeof self ||
          read(client.get(), &byte, 1) != 0)  // until the server has closed
        _exit(1);
    }
    _exit(0);
  };
  pid_t children[2];
  for (pid_t& child : children) {
    child = fork();
    if (child == 0) connect_all();
  }
  int last = -1;
  for (int i = 0; i < 2 * kEach; ++i) {
    Fd accepted(accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(accepted);
    auto numbered = PeerTable::Instance().Adopt(std::move(accepted), 1 << 20);
    ASSERT_OK(numbered);
    EXPECT_NE(numbered->get(), last);
    last = numbered->get();
    pid_t claimed = 0;
    ASSERT_EQ(read(numbered->get(), &claimed, sizeof claimed),
              static_cast<ssize_t>(sizeof claimed));
    ASSERT_EQ(PeerTable::Instance().Find(numbered->get())->pid, claimed);
  }
  for (pid_t child : children) {
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LT(PeerTable::Instance().size(), 16u);  // the dead are forgotten
  unlink(path.c_str());
  rmdir(directory.c_str());
}

TEST(PeerTable, AUserHasAsManyConnectionsAsAllowed) {
  int a[2], b[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b), 0);
  Fd a1(a[1]), b1(b[1]);
  PeerTable& table = PeerTable::Instance();
  const int before = static_cast<int>(table.size());
  auto first = table.Adopt(Fd(a[0]), before + 1);
  ASSERT_OK(first);
  EXPECT_EQ(table.Find(first->get())->pid, getpid());
  EXPECT_EQ(table.Find(first->get())->uid, getuid());
  EXPECT_THAT(table.Adopt(Fd(dup(b[0])), 1), HasReason(Reason::kQuotaExceeded));
  first->reset();  // its place is free again
  EXPECT_OK(table.Adopt(Fd(b[0]), 1));
}

}  // namespace
}  // namespace backendd
