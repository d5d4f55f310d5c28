#include "server/listener/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <grpcpp/server_context.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/listener/peer_table.h"
#include "shared/status/error.h"
#include "shared/text.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

namespace backendd {
namespace {

std::string CommOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
  std::string comm;
  std::getline(file, comm);
  return ValidUtf8(comm);
}

unsigned long InodeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

}  // namespace

bool Peer::InGroup(gid_t group) const {
  return gid == group || std::find(groups.begin(), groups.end(), group) != groups.end();
}

std::shared_ptr<const Peer> ReadPeer(int socket) {
  auto peer = std::make_shared<Peer>();
  ucred credentials;
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
    peer->uid = credentials.uid;
    peer->gid = credentials.gid;
    peer->pid = credentials.pid;
  }
  size = 0;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, nullptr, &size) != 0 && errno == ERANGE) {
    peer->groups.resize(size / sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer->groups.data(), &size) != 0)
      peer->groups.clear();
  }
  peer->pidfd = OpenPeerPidfd(socket, peer->pid);
  peer->pidfd_inode = PidfdInode(peer->pidfd.fd.get());
  if (peer->pid > 0) peer->comm = CommOf(peer->pid);
  return peer;
}

std::shared_ptr<const Peer> PeerOf(const grpc::ServerContextBase& context) {
  const std::string name = context.peer();
  absl::string_view number(name);
  int fd;
  if (!absl::ConsumePrefix(&number, "fd:") || !absl::SimpleAtoi(number, &fd)) return nullptr;
  return PeerTable::Instance().Find(fd);
}

PeerTable& PeerTable::Instance() {
  static PeerTable* table = new PeerTable;
  return *table;
}

PeerTable::PeerTable() {
  rlimit limit{1024, 1024};
  getrlimit(RLIMIT_NOFILE, &limit);
  first_ = static_cast<int>(std::min<rlim_t>(1024, limit.rlim_cur / 2));
  next_ = first_;
}

absl::StatusOr<Fd> PeerTable::Adopt(Fd accepted, int max_per_uid) {
  std::shared_ptr<const Peer> peer = ReadPeer(accepted.get());
  const unsigned long inode = InodeOf(accepted.get());
  MutexLock lock(&mutex_);
  SweepLocked(4);  // more than one: the table shrinks back to the living
  if (const auto held = connections_.find(peer->uid);
      held != connections_.end() && held->second >= max_per_uid) {
    SweepLocked(entries_.size());
    if (connections_[peer->uid] >= max_per_uid)
      return Error(Reason::kQuotaExceeded, absl::StrCat("user ", peer->uid, " has ", max_per_uid,
                                                        " connections, as many as allowed"));
  }
  int number = fcntl(accepted.get(), F_DUPFD_CLOEXEC, next_);
  if (number < 0) number = fcntl(accepted.get(), F_DUPFD_CLOEXEC, first_);  // past RLIMIT_NOFILE
  if (number < 0) {
    SweepLocked(entries_.size());  // closes the pidfds of connections that are gone
    number = fcntl(accepted.get(), F_DUPFD_CLOEXEC, first_);
  }
  if (number < 0) return absl::ResourceExhaustedError("no file descriptor is free");
  next_ = number + 1;
  if (const auto old = entries_.find(number); old != entries_.end())
    --connections_[old->second.peer->uid];
  ++connections_[peer->uid];
  entries_[number] = Entry{std::move(peer), inode};
  return Fd(number);
}

std::shared_ptr<const Peer> PeerTable::Find(int number) const {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : found->second.peer;
}

size_t PeerTable::size() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

bool PeerTable::AliveLocked(int number, const Entry& entry) const {
  return InodeOf(number) == entry.inode;
}

void PeerTable::SweepLocked(size_t steps) {
  for (; steps > 0 && !entries_.empty(); --steps) {
    auto at = entries_.upper_bound(swept_);
    if (at == entries_.end()) at = entries_.begin();
    swept_ = at->first;
    if (AliveLocked(at->first, at->second)) continue;
    if (--connections_[at->second.peer->uid] == 0) connections_.erase(at->second.peer->uid);
    entries_.erase(at);
  }
}

}  // namespace backendd
