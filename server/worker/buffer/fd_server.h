// The worker's end of the fd channels: arenas go out, clients' memfds come in.
#ifndef BACKENDD_SERVER_WORKER_BUFFER_FD_SERVER_H_
#define BACKENDD_SERVER_WORKER_BUFFER_FD_SERVER_H_

#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "server/worker/session/session.h"
#include "shared/fd/channel.h"
#include "shared/fd/fd.h"

namespace backendd::worker {

// Owned by the worker. One thread polls all channels. A frame that is malformed, carries a wrong fd
// or comes from another process than the hello closes its channel, and all fds that came with it.
// Ends with Stop.
class FdServer {
 public:
  static absl::StatusOr<std::unique_ptr<FdServer>> Create(Fd listener, SessionTable& sessions);
  ~FdServer() { Stop(); }
  void Start();
  void SessionsEnded();  // any thread: closes the channels of sessions that are gone
  void Stop();

 private:
  struct Client {
    explicit Client(FdChannel channel) : channel(std::move(channel)) {}
    FdChannel channel;
    Caller peer;                       // who connected
    std::shared_ptr<Session> session;  // from its hello on
    pid_t sender = 0;
  };
  FdServer(Fd listener, Fd wake, SessionTable& sessions)
      : listener_(std::move(listener)), wake_(std::move(wake)), sessions_(sessions) {}
  void Loop();
  void Accept();
  bool Serve(Client& client);  // false: close it
  absl::StatusOr<Frame> Answer(Client& client, Frame frame);
  absl::StatusOr<Frame> Hello(Client& client, const Frame& frame);

  Fd listener_;
  Fd wake_;
  SessionTable& sessions_;
  std::list<Client> clients_;  // the thread's
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_BUFFER_FD_SERVER_H_
