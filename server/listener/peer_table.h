// Which connection is whose. gRPC says only "fd:N" of a connection it was given; N is ours to
// choose.
#ifndef BACKENDD_SERVER_LISTENER_PEER_TABLE_H_
#define BACKENDD_SERVER_LISTENER_PEER_TABLE_H_

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "server/listener/peer.h"
#include "shared/fd/fd.h"
#include "shared/sync.h"

namespace backendd {

// One per process, as fd numbers are. Called by accept threads and by handlers.
class PeerTable {
 public:
  static PeerTable& Instance();

  // Gives the accepted connection a number that no recent one had, and remembers its peer. The
  // kernel hands out the lowest free number, so without this a new connection would take that of
  // one whose last call still runs. Errors: RESOURCE_EXHAUSTED (no fd free, or the peer's user has
  // `max_per_uid` connections).
  absl::StatusOr<Fd> Adopt(Fd accepted, int max_per_uid);
  std::shared_ptr<const Peer> Find(int number) const;
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<const Peer> peer;
    unsigned long inode;  // of the socket: whether the number still means this connection
  };
  PeerTable();
  bool AliveLocked(int number, const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SweepLocked(size_t steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  int first_;  // numbers below it are left to everything else
  int next_ ABSL_GUARDED_BY(mutex_);
  int swept_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<uid_t, int> connections_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace backendd

#endif  // BACKENDD_SERVER_LISTENER_PEER_TABLE_H_
