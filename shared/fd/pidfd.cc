#include "shared/fd/pidfd.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace backendd {

PeerPidfd OpenPeerPidfd(int socket, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0 && fd >= 0)
    return {Fd(fd), PidfdSource::kPeer};
  Fd opened = pid > 0 ? OpenPidfd(pid) : Fd();
  const PidfdSource source = opened ? PidfdSource::kOpened : PidfdSource::kNone;
  return {std::move(opened), source};
}

Fd OpenPidfd(pid_t pid) { return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

uint64_t PidfdInode(int pidfd) {
  constexpr long kPidfsMagic = 0x50494446;  // without pidfs all pidfds share one inode
  struct statfs filesystem;
  struct stat info;
  if (pidfd < 0 || fstatfs(pidfd, &filesystem) != 0 || filesystem.f_type != kPidfsMagic ||
      fstat(pidfd, &info) != 0)
    return 0;
  return info.st_ino;
}

bool HasExited(int pidfd) {
  pollfd waiting{pidfd, POLLIN, 0};
  return poll(&waiting, 1, 0) > 0;
}

bool SendSignal(int pidfd, int signal) {
  return syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
}

}  // namespace backendd
