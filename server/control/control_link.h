// The link between the daemon and one worker: messages of control.proto, each behind its length, on
// a stream socket pair (a complete snapshot may pass what a packet holds).
#ifndef BACKENDD_SERVER_CONTROL_CONTROL_LINK_H_
#define BACKENDD_SERVER_CONTROL_CONTROL_LINK_H_

#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "shared/fd/fd.h"
#include "shared/sync.h"

namespace google::protobuf {
class MessageLite;
}

namespace backendd {

// Any thread sends; one thread, the poller, does all the rest. Ends at the first error, for good: a
// frame that is cut off or too long is one.
class ControlLink {
 public:
  explicit ControlLink(Fd socket);  // made non-blocking
  static absl::StatusOr<std::pair<Fd, Fd>> MakeSockets();

  // Never blocks: what the socket does not take now, the poller sends. In call order.
  // Errors: CANCELLED (ended), RESOURCE_EXHAUSTED (the peer has long stopped reading).
  absl::Status Send(const google::protobuf::MessageLite& message);

  // The poller's whole loop: `message` for each whole message, until the link ends; says why it
  // did.
  absl::Status Run(absl::FunctionRef<void(absl::string_view bytes)> message);

  // For a poller with a loop of its own: polls fd() for Events() and wake_fd() for POLLIN, and
  // calls Serve when anything is up.
  int fd() const { return socket_.get(); }
  int wake_fd() const { return wake_.get(); }
  short Events();
  absl::Status Serve(absl::FunctionRef<void(absl::string_view bytes)> message);

  void Close();  // any thread: ends Run

 private:
  absl::Status FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Fd socket_;
  Fd wake_;  // an eventfd: something waits to be sent
  Mutex mutex_;
  std::string out_ ABSL_GUARDED_BY(mutex_);
  std::string in_;  // the poller's
};

}  // namespace backendd

#endif  // BACKENDD_SERVER_CONTROL_CONTROL_LINK_H_
