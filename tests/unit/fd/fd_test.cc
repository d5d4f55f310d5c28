#include "shared/fd/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "shared/fd/arena.h"
#include "shared/fd/channel.h"
#include "shared/fd/pidfd.h"
#include "tests/support/status_matchers.h"

namespace backendd {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int CountFds() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += IsOpen(fd);
  return count;
}

Fd Memfd(off_t size, int seals) {
  Fd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), size), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

struct Pair {
  FdChannel a, b;
  int raw;  // of b, to send what no FdChannel sends
};
Pair MakePair() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  auto a = FdChannel::Adopt(Fd(ends[0]));
  auto b = FdChannel::Adopt(Fd(ends[1]));
  return {*std::move(a), *std::move(b), ends[1]};
}

TEST(FdOwner, ClosesAtItsEndAndIsEmptyWhenMovedFrom) {
  int number;
  {
    Fd first(dup(0));
    number = first.get();
    Fd second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(second.get(), number);
    EXPECT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(Arena, CanNeitherShrinkNorGrowAndIsZero) {
  auto fd = CreateArena(5000);
  ASSERT_OK(fd);
  EXPECT_NE(ftruncate(fd->get(), 100), 0);
  EXPECT_NE(ftruncate(fd->get(), 9000), 0);
  EXPECT_NE(fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  auto map = MapShared(fd->get(), 0, 5000);
  ASSERT_OK(map);
  for (size_t i = 0; i < map->size(); ++i) ASSERT_EQ(map->data()[i], std::byte{0});
}

TEST(Arena, TwoMapsOfOneArenaShareBytesAlsoBehindAnUnalignedOffset) {
  auto fd = CreateArena(20000);
  ASSERT_OK(fd);
  auto whole = MapShared(fd->get(), 0, 20000);
  auto part = MapShared(fd->get(), 5001, 100);
  ASSERT_OK(whole);
  ASSERT_OK(part);
  part->data()[7] = std::byte{42};
  EXPECT_EQ(whole->data()[5008], std::byte{42});
}

TEST(Arena, MoreThanAQuarterOfTheHostIsAnErrorAndNotASignal) {
  EXPECT_THAT(CreateArena(MaxArenaBytes() + 1), HasReason(Reason::kHostOutOfMemory));
  EXPECT_THAT(CreateArena(uint64_t{1} << 60), HasReason(Reason::kHostOutOfMemory));
  EXPECT_THAT(CreateArena(~uint64_t{0}), HasReason(Reason::kHostOutOfMemory));
  EXPECT_THAT(CreateArena(0), HasReason(Reason::kArgumentInvalid));
}

TEST(Import, NeedsBothSealsAndTheWholeLength) {
  constexpr int kBoth = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_OK(CheckImport(Memfd(4096, kBoth).get(), 0, 4096));
  EXPECT_THAT(CheckImport(Memfd(4096, F_SEAL_SHRINK).get(), 0, 4096),
              HasReason(Reason::kSealsMissing));
  EXPECT_THAT(CheckImport(Memfd(4096, F_SEAL_GROW).get(), 0, 4096),
              HasReason(Reason::kSealsMissing));
  EXPECT_THAT(CheckImport(Memfd(4096, kBoth).get(), 1, 4096), HasReason(Reason::kSizeTooLarge));
  EXPECT_THAT(CheckImport(Memfd(4096, kBoth).get(), ~uint64_t{0}, 2),
              HasReason(Reason::kSizeTooLarge));
}

TEST(Import, AHugeSparseMemfdIsRefusedBeforeItIsPopulated) {
  Fd fd = Memfd(off_t{1} << 50, F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_OK(CheckImport(fd.get(), 0, uint64_t{1} << 50));
  EXPECT_THAT(MapShared(fd.get(), 0, uint64_t{1} << 50), HasReason(Reason::kHostOutOfMemory));
}

TEST(Import, RefusesEveryOtherKindOfFd) {
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  Fd read_end(pipes[0]), write_end(pipes[1]);
  Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  Fd directory(open("/", O_RDONLY | O_CLOEXEC));
  for (int fd : {read_end.get(), null.get(), directory.get()})
    EXPECT_THAT(CheckImport(fd, 0, 1), HasReason(Reason::kHandleKind)) << fd;
  char name[] = "/dev/shm/backenddXXXXXX";
  Fd file(mkstemp(name));
  if (file) {
    unlink(name);
    ASSERT_EQ(ftruncate(file.get(), 4096), 0);
    EXPECT_THAT(CheckImport(file.get(), 0, 4096), HasReason(Reason::kSealsMissing));
  }
}

TEST(Import, AWriteSealMakesItReadOnlyAndPrivate) {
  Fd fd = Memfd(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  auto access = CheckImport(fd.get(), 0, 4096);
  ASSERT_OK(access);
  EXPECT_EQ(*access, Access::kReadOnly);
  EXPECT_OK(MapShared(fd.get(), 0, 4096, *access));
}

TEST(Channel, CarriesAFrameWithItsFdsAndItsSender) {
  Pair pair = MakePair();
  Frame frame;
  frame.kind = FrameKind::kImport;
  frame.request = 1;
  frame.session = 2;
  frame.buffer = 3;
  frame.offset = 4;
  frame.length = ~uint64_t{0};
  frame.payload = "token";
  auto arena = CreateArena(4096);
  ASSERT_OK(arena);
  frame.fds.push_back(*std::move(arena));
  ASSERT_OK(pair.a.Send(frame));
  auto got = pair.b.Receive(absl::Seconds(10));
  ASSERT_OK(got);
  EXPECT_EQ(got->kind, FrameKind::kImport);
  EXPECT_EQ(got->request, 1u);
  EXPECT_EQ(got->session, 2u);
  EXPECT_EQ(got->buffer, 3u);
  EXPECT_EQ(got->offset, 4u);
  EXPECT_EQ(got->length, ~uint64_t{0});
  EXPECT_EQ(got->payload, "token");
  ASSERT_EQ(got->fds.size(), 1u);
  EXPECT_NE(fcntl(got->fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(got->sender_pid, getpid());
  EXPECT_EQ(got->sender_uid, getuid());
}

TEST(Channel, AForkedChildShowsAsTheSender) {
  Pair pair = MakePair();
  const pid_t child = fork();
  if (child == 0) {
    Frame frame;
    _exit(pair.a.Send(frame).ok() ? 0 : 1);
  }
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  auto got = pair.b.Receive(absl::Seconds(10));
  ASSERT_OK(got);
  EXPECT_EQ(got->sender_pid, child);
}

TEST(Channel, AnErrorFrameBecomesItsStatus) {
  Pair pair = MakePair();
  ASSERT_OK(pair.b.Send(ErrorFrame(9, Error(Reason::kSealsMissing, "no seals"))));
  Frame request;
  request.kind = FrameKind::kExport;
  request.request = 9;
  EXPECT_THAT(pair.a.Call(request, absl::Seconds(10)), HasReason(Reason::kSealsMissing));
}

TEST(Channel, TooManyFdsAreAllClosed) {
  Pair pair = MakePair();
  const int before = CountFds();
  std::vector<int> fds(60, 0);
  char byte[64] = {};
  iovec part{byte, sizeof byte};
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* item = CMSG_FIRSTHDR(&message);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(item), fds.data(), fds.size() * sizeof(int));
  ASSERT_GT(sendmsg(pair.raw, &message, 0), 0);
  EXPECT_THAT(pair.a.Receive(absl::Seconds(10)), HasReason(Reason::kFrameInvalid));
  EXPECT_EQ(CountFds(), before);
}

TEST(Channel, BadFramesAreRefusedWithTheirFdsClosed) {
  Pair pair = MakePair();
  const int before = CountFds();
  const std::string frames[] = {std::string("short"), std::string(64, '\0'),
                                std::string(3000, 'x')};
  for (const std::string& bytes : frames) {
    ASSERT_EQ(send(pair.raw, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_THAT(pair.a.Receive(absl::Seconds(10)), HasReason(Reason::kFrameInvalid));
  }
  EXPECT_EQ(CountFds(), before);
}

TEST(Channel, TooMuchIsRefusedBeforeItIsSent) {
  Pair pair = MakePair();
  Frame frame;
  frame.payload.assign(kMaxFramePayload + 1, 'x');
  EXPECT_THAT(pair.a.Send(frame), HasReason(Reason::kArgumentInvalid));
}

TEST(Channel, AClosedPeerIsAnErrorInBothDirections) {
  Pair pair = MakePair();
  pair.b.Close();
  EXPECT_EQ(pair.a.Receive(absl::Seconds(10)).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(pair.a.Send(Frame()).code(), absl::StatusCode::kCancelled);
}

TEST(Channel, APathThatDoesNotFitIsNamedWithItsLength) {
  const std::string path = "/" + std::string(200, 'x');
  const absl::Status status = FdChannel::Connect(path).status();
  EXPECT_THAT(status, HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("201"));
  EXPECT_THAT(FdChannel::Connect("/nowhere/s"), HasReason(Reason::kDaemonUnreachable));
}

TEST(Pidfd, SeesTheDeathOfAPeerAndTellsProcessesApart) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Fd a(ends[0]), b(ends[1]);
  PeerPidfd self = OpenPeerPidfd(a.get(), getpid());
  ASSERT_TRUE(self.fd);
  EXPECT_FALSE(HasExited(self.fd.get()));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  Fd pidfd = OpenPidfd(child);
  ASSERT_TRUE(pidfd);
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(HasExited(pidfd.get()));
  EXPECT_FALSE(SendSignal(pidfd.get(), 0));
  if (PidfdInode(pidfd.get()) != 0) {
    EXPECT_NE(PidfdInode(pidfd.get()), PidfdInode(self.fd.get()));
  }
}

}  // namespace
}  // namespace backendd
