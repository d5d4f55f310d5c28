// The channel that hands file descriptors between a client and a worker: a SOCK_SEQPACKET socket,
// one frame a packet.
#ifndef BACKENDD_SHARED_FD_CHANNEL_H_
#define BACKENDD_SHARED_FD_CHANNEL_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "shared/fd/fd.h"

namespace backendd {

// Every request gets exactly one answer with its `request` number, in order.
enum class FrameKind : uint16_t {
  kHello = 1,        // session, payload: the 16-byte grant token -> kOk. First, and once.
  kCreateArena = 2,  // buffer, length -> kArena
  kImport = 3,       // buffer, offset, length, 1 fd -> kOk
  kExport = 4,       // buffer -> kExported
  kOk = 16,
  kArena = 17,     // buffer, length, 1 fd: a sealed memfd
  kExported = 18,  // buffer, offset, length, 1 fd
  kError = 19,     // payload: see ErrorFrame
};

inline constexpr size_t kMaxFrameFds = 4;
inline constexpr size_t kMaxFramePayload = 1024;
inline constexpr size_t kGrantTokenBytes = 16;

struct Frame {
  FrameKind kind = FrameKind::kOk;
  uint64_t request = 0;
  uint64_t session = 0;
  uint64_t buffer = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string payload;  // at most kMaxFramePayload
  std::vector<Fd> fds;  // at most kMaxFrameFds
  // The process that sent it, as the kernel says; only on received frames. A forked child that uses
  // an inherited channel shows here.
  pid_t sender_pid = 0;
  uid_t sender_uid = static_cast<uid_t>(-1);
};

// An answer that carries a status: its reason and text, and back.
Frame ErrorFrame(uint64_t request, const absl::Status& status);
absl::Status StatusOfFrame(const Frame& frame);  // OK for every other kind

// Owned by one thread at a time (Close alone may be called by others). After an error other than
// DEADLINE_EXCEEDED it is of no more use; fds received with a bad frame are closed.
class FdChannel {
 public:
  // Errors: DAEMON_UNREACHABLE, ARGUMENT_INVALID (a path over 107 bytes).
  static absl::StatusOr<FdChannel> Connect(absl::string_view path);
  // An accepted or inherited socket.
  static absl::StatusOr<FdChannel> Adopt(Fd socket);

  // Errors: CANCELLED (the peer is gone), ARGUMENT_INVALID (too many fds, too long a payload).
  absl::Status Send(const Frame& frame);
  // Errors: CANCELLED (closed), DEADLINE_EXCEEDED, FRAME_INVALID (bad header, truncated).
  absl::StatusOr<Frame> Receive(absl::Duration timeout = absl::InfiniteDuration());
  // Sends a request and receives its answer; an error frame becomes its status.
  absl::StatusOr<Frame> Call(const Frame& request, absl::Duration timeout);

  void Close();  // wakes a Receive in another thread
  int fd() const { return socket_.get(); }

 private:
  explicit FdChannel(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

}  // namespace backendd

#endif  // BACKENDD_SHARED_FD_CHANNEL_H_
