#include "shared/fd/channel.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "shared/status/error.h"
#include "shared/text.h"

namespace backendd {
namespace {

struct Header {
  uint32_t magic;
  uint16_t abi;
  uint16_t kind;
  uint64_t request;
  uint64_t session;
  uint64_t buffer;
  uint64_t offset;
  uint64_t length;
  uint32_t fds;
  uint32_t payload;
  uint64_t reserved;
};
static_assert(sizeof(Header) == 64);
constexpr uint32_t kMagic = 0x64646b62;  // "bkdd"
constexpr uint16_t kAbi = 1;

absl::Status Closed() { return absl::CancelledError("the fd channel was closed by its peer"); }
absl::Status BadFrame(absl::string_view why) {
  return Error(Reason::kFrameInvalid, absl::StrCat("a frame of the fd channel ", why));
}
bool Known(uint16_t kind) {
  return (kind >= 1 && kind <= 4) ||
         (kind >= 16 && kind <= static_cast<uint16_t>(FrameKind::kError));
}

}  // namespace

Frame ErrorFrame(uint64_t request, const absl::Status& status) {
  Frame frame;
  frame.kind = FrameKind::kError;
  frame.request = request;
  const Reason reason = ReasonOf(status).value_or(Reason::kInternal);
  frame.payload = absl::StrCat(ReasonName(reason), "\n", status.message());
  frame.payload.resize(std::min(frame.payload.size(), kMaxFramePayload));
  return frame;
}

absl::Status StatusOfFrame(const Frame& frame) {
  if (frame.kind != FrameKind::kError) return absl::OkStatus();
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(frame.payload, absl::MaxSplits('\n', 1));
  return Error(ReasonFromName(parts.first).value_or(Reason::kInternal), parts.second);
}

absl::StatusOr<FdChannel> FdChannel::Connect(absl::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return Error(Reason::kArgumentInvalid,
                 absl::StrCat("the socket path '", path, "' has ", path.size(),
                              " bytes; 1 to 107 are allowed"));
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_fd ||
      connect(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return Error(Reason::kDaemonUnreachable,
                 absl::StrCat("nobody answers on '", path, "': ", std::strerror(errno)),
                 {{"socket", Str(path)}});
  return Adopt(std::move(socket_fd));
}

absl::StatusOr<FdChannel> FdChannel::Adopt(Fd socket) {
  // On the sender's side too: else what is sent before the receiver has set it carries no pid.
  const int on = 1;
  if (setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return Error(Reason::kHandleKind,
                 absl::StrCat("no Unix socket for an fd channel: ", std::strerror(errno)));
  return FdChannel(std::move(socket));
}

absl::Status FdChannel::Send(const Frame& frame) {
  if (frame.fds.size() > kMaxFrameFds || frame.payload.size() > kMaxFramePayload)
    return Error(Reason::kArgumentInvalid, "a frame carries at most 4 fds and 1024 bytes");
  Header header{kMagic,
                kAbi,
                static_cast<uint16_t>(frame.kind),
                frame.request,
                frame.session,
                frame.buffer,
                frame.offset,
                frame.length,
                static_cast<uint32_t>(frame.fds.size()),
                static_cast<uint32_t>(frame.payload.size()),
                0};
  iovec parts[] = {{&header, sizeof header},
                   {const_cast<char*>(frame.payload.data()), frame.payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFrameFds * sizeof(int))] = {};
  if (!frame.fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(frame.fds.size() * sizeof(int));
    cmsghdr* item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(frame.fds.size() * sizeof(int));
    for (size_t i = 0; i < frame.fds.size(); ++i) {
      const int fd = frame.fds[i].get();
      std::memcpy(CMSG_DATA(item) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  while (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return Closed();
  }
  return absl::OkStatus();
}

absl::StatusOr<Frame> FdChannel::Receive(absl::Duration timeout) {
  pollfd waiting{socket_.get(), POLLIN, 0};
  const int milliseconds =
      timeout == absl::InfiniteDuration()
          ? -1
          : static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1))));
  int ready;
  do {
    ready = poll(&waiting, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return Error(Reason::kDeadlineExceeded, "no frame came on the fd channel");
  if (ready < 0) return Closed();

  Header header;
  char payload[kMaxFramePayload];
  iovec parts[] = {{&header, sizeof header}, {payload, sizeof payload}};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFrameFds * sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size;
  do {
    size = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return Closed();

  Frame frame;
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET) continue;
    if (item->cmsg_type == SCM_RIGHTS) {  // space for 4 may hold 5: all are taken, then counted
      const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(item) + i * sizeof fd, sizeof fd);
        frame.fds.emplace_back(fd);
      }
    } else if (item->cmsg_type == SCM_CREDENTIALS) {
      ucred sender;
      std::memcpy(&sender, CMSG_DATA(item), sizeof sender);
      frame.sender_pid = sender.pid;
      frame.sender_uid = sender.uid;
    }
  }
  if (message.msg_flags & MSG_CTRUNC) return BadFrame("carried more fds than are allowed");
  if (message.msg_flags & MSG_TRUNC) return BadFrame("is too long");
  if (static_cast<size_t>(size) < sizeof header) return BadFrame("is shorter than its header");
  if (header.magic != kMagic || header.abi != kAbi || !Known(header.kind) || header.reserved != 0)
    return BadFrame("has no known header");
  if (header.fds != frame.fds.size() || header.fds > kMaxFrameFds ||
      header.payload != static_cast<size_t>(size) - sizeof header)
    return BadFrame("does not carry what its header says");
  frame.kind = static_cast<FrameKind>(header.kind);
  frame.request = header.request;
  frame.session = header.session;
  frame.buffer = header.buffer;
  frame.offset = header.offset;
  frame.length = header.length;
  frame.payload.assign(payload, header.payload);
  return frame;
}

absl::StatusOr<Frame> FdChannel::Call(const Frame& request, absl::Duration timeout) {
  if (absl::Status sent = Send(request); !sent.ok()) return sent;
  absl::StatusOr<Frame> answer = Receive(timeout);
  if (!answer.ok()) return answer;
  if (answer->request != request.request) return BadFrame("answers another request");
  if (absl::Status status = StatusOfFrame(*answer); !status.ok()) return status;
  return answer;
}

void FdChannel::Close() { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace backendd
