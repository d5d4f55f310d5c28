// Processes by file descriptor: no pid is ever signalled or trusted after its process is gone.
#ifndef BACKENDD_SHARED_FD_PIDFD_H_
#define BACKENDD_SHARED_FD_PIDFD_H_

#include <sys/types.h>

#include <cstdint>

#include "shared/fd/fd.h"

namespace backendd {

enum class PidfdSource { kNone = 0, kPeer, kOpened };

struct PeerPidfd {
  Fd fd;  // becomes readable when the process dies; empty where the kernel gives none
  PidfdSource source = PidfdSource::kNone;
};

// Of the process that connected `socket`: SO_PEERPIDFD, else pidfd_open of `pid` (0: not known).
PeerPidfd OpenPeerPidfd(int socket, pid_t pid);
Fd OpenPidfd(pid_t pid);
// A number that no other living process has, from Linux 6.9 on; else 0.
uint64_t PidfdInode(int pidfd);
bool HasExited(int pidfd);
bool SendSignal(int pidfd, int signal);  // false: the process is gone

}  // namespace backendd

#endif  // BACKENDD_SHARED_FD_PIDFD_H_
