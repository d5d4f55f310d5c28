#include "server/node/session/death_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <utility>

#include "absl/status/status.h"

namespace backendd::node {

absl::StatusOr<std::unique_ptr<DeathWatch>> DeathWatch::Create(Died died) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !stop) return absl::ErrnoToStatus(errno, "death watch");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, stop.get(), &event) != 0)
    return absl::ErrnoToStatus(errno, "death watch");
  return std::unique_ptr<DeathWatch>(
      new DeathWatch(std::move(died), std::move(epoll), std::move(stop)));
}

DeathWatch::DeathWatch(Died died, Fd epoll, Fd stop)
    : died_(std::move(died)), epoll_(std::move(epoll)), stop_(std::move(stop)) {
  thread_ = std::thread([this] { Run(); });
}

DeathWatch::~DeathWatch() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

bool DeathWatch::Add(SessionId session, std::shared_ptr<const Peer> peer) {
  if (peer == nullptr || !peer->pidfd.fd) return false;
  Fd own(fcntl(peer->pidfd.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!own) return false;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u64 = session.value();
  MutexLock lock(&mutex_);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, own.get(), &event) != 0) return false;
  watched_[session] = std::move(own);
  return true;
}

void DeathWatch::Remove(SessionId session) {
  MutexLock lock(&mutex_);
  const auto found = watched_.find(session);
  if (found == watched_.end()) return;
  // The peer's own descriptor keeps the file open, so closing ours is not enough.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.get(), nullptr);
  watched_.erase(found);
}

void DeathWatch::Run() {
  for (;;) {
    epoll_event events[64];
    const int count = epoll_wait(epoll_.get(), events, 64, -1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) return;
      died_(SessionId(events[i].data.u64));
    }
  }
}

}  // namespace backendd::node
