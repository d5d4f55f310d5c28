#include "server/listener/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstring>
#include <set>
#include <utility>

#include "server/listener/health.h"
#include "server/listener/peer_table.h"
#include "server/listener/reflection.h"
#include "shared/log/log.h"

namespace backendd {

Listener::Listener(Options options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Create(Options options) {
  auto listener = std::unique_ptr<Listener>(new Listener(std::move(options)));
  const Options& given = listener->options_;
  // Inherited sockets may block; the accept loop must not.
  const int flags = fcntl(given.socket.get(), F_GETFL);
  if (flags < 0 || fcntl(given.socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return absl::InvalidArgumentError("the listener was given no socket");
  listener->wake_.reset(eventfd(0, EFD_CLOEXEC));

  grpc::ServerBuilder builder;
  std::vector<std::string> names;
  for (const NamedService& service : given.services) {
    builder.RegisterService(service.service);
    names.push_back(service.name);
  }
  names.push_back(grpc::health::v1::Health::service_full_name());
  listener->health_ =
      std::make_unique<HealthService>(std::set<std::string>(names.begin(), names.end()));
  builder.RegisterService(listener->health_.get());
  if (given.reflection) {
    ReflectionServices reflection = MakeReflection(names);
    listener->reflection_v1_ = std::move(reflection.v1);
    listener->reflection_v1alpha_ = std::move(reflection.v1alpha);
    builder.RegisterService(listener->reflection_v1_.get());
    builder.RegisterService(listener->reflection_v1alpha_.get());
  }
  builder.SetMaxReceiveMessageSize(given.max_message_bytes);
  builder.SetResourceQuota(
      grpc::ResourceQuota("backendd").Resize(static_cast<size_t>(given.grpc_memory_bytes)));
  // Clients may ping once a second without a call; by default gRPC cuts them off for it. No pings
  // from here: a frozen client keeps the TTL that it asked for.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) return absl::InternalError("the gRPC server did not start");
  return listener;
}

Listener::~Listener() { Shutdown(absl::ZeroDuration()); }

void Listener::Start() {
  thread_ = std::thread([this] { AcceptLoop(); });
  SetServing(true);
}

void Listener::SetServing(bool serving) { health_->SetServing(serving); }

void Listener::Shutdown(absl::Duration grace) {
  if (thread_.joinable()) {
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  if (server_ != nullptr) {
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
    server_.reset();
  }
}

void Listener::AcceptLoop() {
  pollfd waiting[] = {{options_.socket.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  while (true) {
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) return;
    if (waiting[1].revents != 0) return;
    while (AcceptOne()) {
    }
  }
}

bool Listener::AcceptOne() {
  // gRPC needs the socket non-blocking: with a blocking one every call times out.
  Fd accepted(accept4(options_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!accepted) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      LogWarning("cannot accept a connection", {{"error", std::strerror(errno)}});
      pollfd stop{wake_.get(), POLLIN, 0};
      poll(&stop, 1, 100);  // the connection stays in the backlog: do not spin on it
      return false;
    }
    return errno == EINTR || errno == ECONNABORTED;
  }
  absl::StatusOr<Fd> numbered =
      PeerTable::Instance().Adopt(std::move(accepted), options_.max_connections_per_uid);
  if (!numbered.ok()) {
    LogWarning("connection refused", {{"error", numbered.status()}});
    return true;
  }
  grpc::AddInsecureChannelFromFd(server_.get(), numbered->release());
  return true;
}

void RouteGrpcLog() {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function([](gpr_log_func_args* args) {
    LogWarning("grpc", {{"text", args->message}, {"at", args->file}, {"line", args->line}});
  });
}

}  // namespace backendd
