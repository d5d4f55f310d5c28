#include "server/control/control_link.h"

#include <errno.h>
#include <fcntl.h>
#include <google/protobuf/message_lite.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd {
namespace {

constexpr size_t kMaxMessage = size_t{64} << 20;
constexpr size_t kMaxQueued = size_t{256} << 20;
constexpr size_t kLengthBytes = 4;

uint32_t LengthAt(const char* at) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(at);
  return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}

absl::Status Ended(absl::string_view why) {
  return absl::CancelledError(absl::StrCat("the control link ended: ", why));
}

}  // namespace

ControlLink::ControlLink(Fd socket)
    : socket_(std::move(socket)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

absl::StatusOr<std::pair<Fd, Fd>> ControlLink::MakeSockets() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", std::strerror(errno)));
  return std::pair<Fd, Fd>(Fd(ends[0]), Fd(ends[1]));
}

absl::Status ControlLink::Send(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxMessage)
    return absl::ResourceExhaustedError(absl::StrCat("a control message of ", size, " bytes"));
  MutexLock lock(&mutex_);
  if (out_.size() > kMaxQueued) return absl::ResourceExhaustedError("the peer does not read");
  const bool was_empty = out_.empty();
  for (int shift = 0; shift < 32; shift += 8)
    out_.push_back(static_cast<char>(static_cast<uint32_t>(size) >> shift));
  message.AppendToString(&out_);
  if (!was_empty) return absl::OkStatus();  // the poller is at it
  RETURN_IF_ERROR(FlushLocked());
  if (!out_.empty()) eventfd_write(wake_.get(), 1);
  return absl::OkStatus();
}

absl::Status ControlLink::FlushLocked() {
  size_t sent = 0;
  while (sent < out_.size()) {
    const ssize_t n =
        send(socket_.get(), out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return Ended(std::strerror(errno));
    }
  }
  out_.erase(0, sent);
  return absl::OkStatus();
}

short ControlLink::Events() {
  MutexLock lock(&mutex_);
  return static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT);
}

absl::Status ControlLink::Serve(absl::FunctionRef<void(absl::string_view)> message) {
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(FlushLocked());
  }
  char buffer[65536];
  while (true) {
    const ssize_t n = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
      in_.append(buffer, static_cast<size_t>(n));
    } else if (n == 0) {
      return Ended(in_.empty() ? "its peer closed it" : "its peer left in the middle of a message");
    } else if (errno == EAGAIN) {
      return absl::OkStatus();
    } else if (errno != EINTR) {
      return Ended(std::strerror(errno));
    }
    size_t at = 0;
    while (in_.size() - at >= kLengthBytes) {
      const size_t size = LengthAt(in_.data() + at);
      if (size > kMaxMessage) return Ended(absl::StrCat("a message of ", size, " bytes"));
      if (in_.size() - at - kLengthBytes < size) break;
      message(absl::string_view(in_.data() + at + kLengthBytes, size));
      at += kLengthBytes + size;
    }
    in_.erase(0, at);
  }
}

absl::Status ControlLink::Run(absl::FunctionRef<void(absl::string_view)> message) {
  while (true) {
    pollfd waiting[] = {{fd(), Events(), 0}, {wake_fd(), POLLIN, 0}};
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) return Ended(std::strerror(errno));
    RETURN_IF_ERROR(Serve(message));
  }
}

void ControlLink::Close() { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace backendd
