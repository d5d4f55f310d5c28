// The one owner of a file descriptor.
#ifndef BACKENDD_SHARED_FD_FD_H_
#define BACKENDD_SHARED_FD_FD_H_

#include <unistd.h>

#include <utility>

namespace backendd {

// Move-only; empty (-1) when moved from; closes at its end.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);  // EINTR too has closed it on Linux
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace backendd

#endif  // BACKENDD_SHARED_FD_FD_H_
