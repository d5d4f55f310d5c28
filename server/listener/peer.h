// Who is at the other end of a connection, as the kernel says.
#ifndef BACKENDD_SERVER_LISTENER_PEER_H_
#define BACKENDD_SERVER_LISTENER_PEER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shared/fd/pidfd.h"

namespace grpc {
class ServerContextBase;
}

namespace backendd {

// Of the process that called connect(); a socket that is handed on keeps it. Immutable.
struct Peer {
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
  std::vector<gid_t> groups;  // supplementary ones
  pid_t pid = 0;              // 0: unknown (another PID namespace)
  PeerPidfd pidfd;            // lives as long as this record
  uint64_t pidfd_inode = 0;   // from Linux 6.9 on; else 0
  std::string comm;           // the program's name at connect, for people; valid UTF-8

  bool InGroup(gid_t group) const;
};

// Reads the peer of a connected Unix socket. Fields that the kernel will not say stay unknown.
std::shared_ptr<const Peer> ReadPeer(int socket);

// The peer of a call that came through a Listener of this process. Read it first thing in a call
// and keep it: once its connection is closed the number may come to mean another. nullptr: no such
// connection (an in-process channel, or already closed).
std::shared_ptr<const Peer> PeerOf(const grpc::ServerContextBase& context);

}  // namespace backendd

#endif  // BACKENDD_SERVER_LISTENER_PEER_H_
