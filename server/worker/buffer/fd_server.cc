#include "server/worker/buffer/fd_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "server/listener/peer.h"
#include "shared/fd/arena.h"
#include "shared/status/macros.h"

namespace backendd::worker {
namespace {

constexpr size_t kMostClients = 1024;

absl::Status NeedsFds(size_t wanted, const Frame& frame) {
  if (frame.fds.size() == wanted) return absl::OkStatus();
  return Error(Reason::kFrameInvalid,
               wanted == 0 ? "the frame takes no fd" : "the frame takes exactly one fd");
}

// After these the channel is closed: the peer does not speak the protocol, or is a stranger.
bool Fatal(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return reason == Reason::kFrameInvalid || reason == Reason::kHandleKind ||
         reason == Reason::kSessionUnknown;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FdServer>> FdServer::Create(Fd listener, SessionTable& sessions) {
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int flags = fcntl(listener.get(), F_GETFL);
  if (!wake || flags < 0 || fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return Error(Reason::kInternal, "the fd channel's listener is no socket");
  return std::unique_ptr<FdServer>(new FdServer(std::move(listener), std::move(wake), sessions));
}

void FdServer::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void FdServer::SessionsEnded() { eventfd_write(wake_.get(), 1); }

void FdServer::Stop() {
  stop_ = true;
  SessionsEnded();
  if (thread_.joinable()) thread_.join();
}

void FdServer::Loop() {
  std::vector<pollfd> polled;
  while (!stop_) {
    polled.assign({{wake_.get(), POLLIN, 0}});
    // Full: who else comes waits in the backlog.
    const bool room = clients_.size() < kMostClients;
    polled.push_back({room ? listener_.get() : -1, POLLIN, 0});
    for (const Client& client : clients_) polled.push_back({client.channel.fd(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    size_t next = 2;
    for (auto client = clients_.begin(); client != clients_.end(); ++next) {
      const bool gone = client->session != nullptr && !sessions_.Has(client->session->id);
      const bool close = gone || (polled[next].revents != 0 && !Serve(*client));
      client = close ? clients_.erase(client) : std::next(client);
    }
    if (polled[0].revents != 0) {
      eventfd_t count;
      eventfd_read(wake_.get(), &count);
    }
    if (polled[1].revents != 0) Accept();
  }
  clients_.clear();
}

void FdServer::Accept() {
  // Non-blocking: a client that does not read its answers is dropped, not waited for.
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  const std::shared_ptr<const Peer> peer = ReadPeer(socket.get());
  absl::StatusOr<FdChannel> channel = FdChannel::Adopt(std::move(socket));
  if (!channel.ok() || peer == nullptr) return;
  clients_.emplace_back(*std::move(channel));
  clients_.back().peer = {peer->uid, peer->pid, peer->pidfd_inode};
}

bool FdServer::Serve(Client& client) {
  absl::StatusOr<Frame> frame = client.channel.Receive(absl::ZeroDuration());
  if (!frame.ok()) {
    if (ReasonOf(frame.status()) == Reason::kDeadlineExceeded) return true;
    if (ReasonOf(frame.status()).has_value())
      client.channel.Send(ErrorFrame(0, frame.status())).IgnoreError();
    return false;
  }
  const uint64_t request = frame->request;
  absl::StatusOr<Frame> answer = Answer(client, *std::move(frame));
  if (!answer.ok()) {
    const bool sent = client.channel.Send(ErrorFrame(request, answer.status())).ok();
    return sent && !Fatal(answer.status());
  }
  answer->request = request;
  return client.channel.Send(*answer).ok();
}

absl::StatusOr<Frame> FdServer::Hello(Client& client, const Frame& frame) {
  RETURN_IF_ERROR(NeedsFds(0, frame));
  if (client.session != nullptr) return Error(Reason::kFrameInvalid, "a channel says hello once");
  ASSIGN_OR_RETURN(client.session,
                   sessions_.Authenticate(SessionId(frame.session), frame.payload, client.peer));
  client.sender = frame.sender_pid;
  return Frame{};
}

absl::StatusOr<Frame> FdServer::Answer(Client& client, Frame frame) {
  if (frame.kind == FrameKind::kHello) return Hello(client, frame);
  if (client.session == nullptr)
    return Error(Reason::kFrameInvalid, "a channel begins with a hello");
  if (frame.sender_pid != client.sender) return UnknownSession(client.session->id.value());
  Session& session = *client.session;
  Frame answer;
  answer.buffer = frame.buffer;
  answer.length = frame.length;
  switch (frame.kind) {
    case FrameKind::kCreateArena: {
      RETURN_IF_ERROR(NeedsFds(0, frame));
      {  // before memory is taken
        MutexLock lock(&session.mutex);
        RETURN_IF_ERROR(session.CheckOpen());
        RETURN_IF_ERROR(session.buffers.CheckImport(frame.buffer, frame.length, session.quotas));
      }
      ASSIGN_OR_RETURN(Fd arena, CreateArena(frame.length));
      Fd copy(fcntl(arena.get(), F_DUPFD_CLOEXEC, 0));
      if (!copy) return Error(Reason::kHostOutOfMemory, "the worker has no file descriptor left");
      MutexLock lock(&session.mutex);
      RETURN_IF_ERROR(session.CheckOpen());
      RETURN_IF_ERROR(session.buffers.Import(frame.buffer, std::move(arena), 0, frame.length,
                                             /*writable=*/true, session.quotas));
      answer.kind = FrameKind::kArena;
      answer.fds.push_back(std::move(copy));
      return answer;
    }
    case FrameKind::kImport: {
      RETURN_IF_ERROR(NeedsFds(1, frame));
      ASSIGN_OR_RETURN(const Access access,
                       CheckImport(frame.fds[0].get(), frame.offset, frame.length));
      MutexLock lock(&session.mutex);
      RETURN_IF_ERROR(session.CheckOpen());
      RETURN_IF_ERROR(session.buffers.Import(frame.buffer, std::move(frame.fds[0]), frame.offset,
                                             frame.length, access == Access::kReadWrite,
                                             session.quotas));
      return answer;
    }
    case FrameKind::kExport: {
      RETURN_IF_ERROR(NeedsFds(0, frame));
      MutexLock lock(&session.mutex);
      RETURN_IF_ERROR(session.CheckOpen());
      ASSIGN_OR_RETURN(Buffer* const buffer, session.buffers.Find(frame.buffer));
      if (!buffer->memfd)
        return Error(Reason::kArgumentInvalid,
                     "only arenas and imports lie in shared memory and can be exported");
      Fd copy(fcntl(buffer->memfd.get(), F_DUPFD_CLOEXEC, 0));
      if (!copy) return Error(Reason::kHostOutOfMemory, "the worker has no file descriptor left");
      answer.kind = FrameKind::kExported;
      answer.offset = buffer->memfd_offset;
      answer.length = buffer->bytes;
      answer.fds.push_back(std::move(copy));
      return answer;
    }
    default:
      return Error(Reason::kFrameInvalid, "the frame is an answer, not a request");
  }
}

}  // namespace backendd::worker
