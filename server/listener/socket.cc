#include "server/listener/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd {
namespace {

absl::Status Failed(absl::string_view what, absl::string_view path, int error) {
  return absl::InternalError(absl::StrCat(what, " '", path, "': ", std::strerror(error)));
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool SomebodyAnswers(const std::string& path) {
  const sockaddr_un address = AddressOf(path);
  Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int result =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return result == 0 || errno == EAGAIN;  // EAGAIN: alive, with a full backlog
}

}  // namespace

absl::Status CheckSocketPath(absl::string_view path) {
  if (path.empty() || path.front() != '/')
    return Error(Reason::kArgumentInvalid,
                 absl::StrCat("the socket path '", path, "' is not absolute"));
  if (path.size() > kMaxSocketPath)
    return Error(Reason::kArgumentInvalid,
                 absl::StrCat("the socket path has ", path.size(), " bytes, at most ",
                              kMaxSocketPath, " are allowed: '", path, "'"));
  return absl::OkStatus();
}

absl::StatusOr<Fd> LockSocket(const std::string& path) {
  RETURN_IF_ERROR(CheckSocketPath(path));
  const std::string lock_path = absl::StrCat(path, ".lock");
  Fd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return Failed("cannot open the lock file", lock_path, errno);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failed("cannot lock", lock_path, errno);
    char pid[16] = {};
    const ssize_t size = pread(lock.get(), pid, sizeof pid - 1, 0);
    return absl::AlreadyExistsError(absl::StrCat("the socket '", path,
                                                 "' is in use by a live process (pid ",
                                                 size > 0 ? pid : "unknown", ")"));
  }
  struct stat info;
  if (lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode))
      return absl::AlreadyExistsError(absl::StrCat("'", path, "' exists and is no socket"));
    if (SomebodyAnswers(path))
      return absl::AlreadyExistsError(
          absl::StrCat("the socket '", path, "' is in use by a live process"));
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(lock.get(), 0) != 0 || pwrite(lock.get(), pid.data(), pid.size(), 0) < 0)
    return Failed("cannot write", lock_path, errno);
  return lock;
}

absl::StatusOr<Fd> BindSocket(const std::string& path, int type, std::optional<gid_t> group) {
  RETURN_IF_ERROR(CheckSocketPath(path));
  Fd socket_fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_fd) return Failed("cannot make a socket for", path, errno);
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
  const sockaddr_un address = AddressOf(path);
  // Nobody connects before mode and group are right: without listen() there is nobody to answer.
  if (bind(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Failed("cannot bind", path, errno);
  if (chmod(path.c_str(), 0660) != 0) return Failed("cannot set the mode of", path, errno);
  if (group.has_value() && chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0 &&
      errno != EPERM)  // not a member: the daemon's own group stays
    return Failed("cannot set the group of", path, errno);
  if (listen(socket_fd.get(), 1024) != 0) return Failed("cannot listen on", path, errno);
  return socket_fd;
}

std::optional<gid_t> GroupByName(const std::string& name) {
  char buffer[16384];
  group entry;
  group* found = nullptr;
  if (getgrnam_r(name.c_str(), &entry, buffer, sizeof buffer, &found) != 0 || found == nullptr)
    return std::nullopt;
  return entry.gr_gid;
}

}  // namespace backendd
