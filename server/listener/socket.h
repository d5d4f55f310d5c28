// Listening Unix sockets with the right mode, taken over from a dead daemon but never from a live
// one.
#ifndef BACKENDD_SERVER_LISTENER_SOCKET_H_
#define BACKENDD_SERVER_LISTENER_SOCKET_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "shared/fd/fd.h"

namespace backendd {

// The kernel's limit: 107 bytes and a terminating zero.
inline constexpr size_t kMaxSocketPath = 107;
absl::Status CheckSocketPath(absl::string_view path);  // ARGUMENT_INVALID, with length and path

// The lock beside an API socket, held for the life of the daemon. Errors: ALREADY_EXISTS (a live
// process holds it, or answers on the socket), or what the file system says.
absl::StatusOr<Fd> LockSocket(const std::string& path);

// Binds and listens, mode 0660, group as given. Whatever socket lies at `path` is replaced: call it
// under the lock of the API socket in the same directory.
// `type`: SOCK_STREAM or SOCK_SEQPACKET.
absl::StatusOr<Fd> BindSocket(const std::string& path, int type, std::optional<gid_t> group);

// The group's id; nullopt where the node has none of that name.
std::optional<gid_t> GroupByName(const std::string& name);

}  // namespace backendd

#endif  // BACKENDD_SERVER_LISTENER_SOCKET_H_
