// Sees processes die, by pidfd.
#ifndef BACKENDD_SERVER_NODE_SESSION_DEATH_WATCH_H_
#define BACKENDD_SERVER_NODE_SESSION_DEATH_WATCH_H_

#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "server/listener/peer.h"
#include "shared/fd/fd.h"
#include "shared/ids.h"
#include "shared/sync.h"

namespace backendd::node {

// Owned by the Node. One thread sleeps in epoll and calls `died` without a lock. Ends with its
// destructor.
class DeathWatch {
 public:
  using Died = std::function<void(SessionId)>;
  static absl::StatusOr<std::unique_ptr<DeathWatch>> Create(Died died);
  ~DeathWatch();
  // False: the peer has no pidfd, so only its stream and TTL tell. A process already gone is
  // reported at once.
  bool Add(SessionId session, std::shared_ptr<const Peer> peer);
  void Remove(SessionId session);

 private:
  DeathWatch(Died died, Fd epoll, Fd stop);
  void Run();

  const Died died_;
  const Fd epoll_, stop_;
  Mutex mutex_;
  // A descriptor of our own for each: epoll takes one descriptor once.
  std::map<SessionId, Fd> watched_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_SESSION_DEATH_WATCH_H_
