// A daemon that was stopped (SIGSTOP, a debugger) still has its socket, and the kernel accepts for
// it. A client's stream was opened under the lock that its own watchdog needed to cancel it, so
// OpenSession waited without a limit; and one attempt to connect was given 100 ms, so a loaded
// machine's daemon, which greets later than that, was said to be absent.
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "backendd/client.h"
#include "shared/fd/fd.h"
#include "tests/support/status_matchers.h"

namespace backendd {
namespace {

class SilentDaemon : public testing::Test {
 protected:
  SilentDaemon() : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    char folder[] = "/tmp/bdXXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/s";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(socket_.get(), 8), 0);  // and nobody ever accepts
  }
  ~SilentDaemon() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  Fd socket_;
  std::string folder_, path_;
};

TEST_F(SilentDaemon, IsGivenUpAtTheDeadlineAndNotSaidToBeAbsent) {
  auto client = Client::Create({path_, absl::Milliseconds(400)});
  ASSERT_OK(client);
  EXPECT_THAT((*client)->Get("cudnn.benchmark"), HasReason(Reason::kDeadlineExceeded));
  EXPECT_THAT((*client)->OpenSession(), HasReason(Reason::kDeadlineExceeded));
}

}  // namespace
}  // namespace backendd
