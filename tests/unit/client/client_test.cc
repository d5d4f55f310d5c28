// What the SDK does before anybody answers: addresses, forks, views, programs that know their
// shapes.
#include "backendd/client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "shared/fd/fd.h"
#include "tests/support/status_matchers.h"

namespace backendd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A socket that is listened at, and says nothing.
class Listener {
 public:
  Listener() {
    char folder[] = "/tmp/bdXXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/s";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    fd_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(fd_.get(), 16) != 0)
      std::abort();
  }
  ~Listener() {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
  Fd fd_;
};

Tensor View(DType dtype, absl::Span<const int64_t> shape) { return {1, 0, RowMajor(dtype, shape)}; }

TEST(Client, NamesEverySocketThatItTriedWithItsErrno) {
  unsetenv("BACKENDD_ADDRESS");
  setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
  EXPECT_THAT(Client::Addresses(""),
              ElementsAre("/nowhere/backendd/backendd.sock", "/run/backendd/backendd.sock"));
  const auto client = Client::Create({.address = "/nowhere/s"});
  EXPECT_THAT(client, HasReason(Reason::kDaemonUnreachable));
  EXPECT_THAT(std::string(client.status().message()),
              HasSubstr("/nowhere/s (No such file or directory)"));
}

TEST(Client, TakesItsAddressFromOptionsThenFromTheEnvironment) {
  setenv("BACKENDD_ADDRESS", "unix:///tmp/a", 1);
  EXPECT_THAT(Client::Addresses(""), ElementsAre("/tmp/a"));
  EXPECT_THAT(Client::Addresses("unix:/tmp/b"), ElementsAre("/tmp/b"));
  unsetenv("BACKENDD_ADDRESS");
}

TEST(Client, RefusesASocketPathOver107Bytes) {
  EXPECT_THAT(Client::Create({.address = "/" + std::string(120, 'a')}),
              HasReason(Reason::kDaemonUnreachable));
}

TEST(Client, GivesUpAtItsDeadlineWhenTheDaemonSaysNothing) {
  const Listener listener;
  const auto client =
      Client::Create({.address = listener.path(), .deadline = absl::Milliseconds(50)});
  ASSERT_OK(client);
  EXPECT_THAT((*client)->Get("cudnn.benchmark"), HasReason(Reason::kDeadlineExceeded));
}

TEST(Client, AnswersSessionForkedInAForkedChildAndEndsSilently) {
  const Listener listener;
  auto client = Client::Create({.address = listener.path(), .deadline = absl::Milliseconds(50)});
  ASSERT_OK(client);
  const pid_t child = fork();
  if (child == 0) {
    const bool forked =
        ReasonOf((*client)->Get("cudnn.benchmark").status()) == Reason::kSessionForked &&
        ReasonOf((*client)->OpenSession().status()) == Reason::kSessionForked;
    client->reset();
    _exit(forked ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Tensor, ReshapesTransposesAndSlicesWithoutCopies) {
  const Tensor tensor = View(DType::kF32, {2, 3, 4});
  EXPECT_EQ(tensor.Reshape({6, 4}).type, RowMajor(DType::kF32, {6, 4}));
  EXPECT_FALSE(tensor.Reshape({5, 5}).valid());
  const Tensor transposed = tensor.Transpose(0, 2);
  EXPECT_THAT(transposed.type.shape, ElementsAre(4, 3, 2));
  EXPECT_THAT(transposed.type.strides, ElementsAre(1, 4, 12));
  EXPECT_FALSE(transposed.Reshape({24}).valid());
  const Tensor slice = tensor.Slice(1, 1, 3);
  EXPECT_EQ(slice.offset, 4u * sizeof(float));
  EXPECT_THAT(slice.type.shape, ElementsAre(2, 2, 4));
  EXPECT_FALSE(tensor.Slice(1, 2, 4).valid());
  EXPECT_FALSE(tensor.Transpose(0, 3).valid());
}

TEST(Tensor, CarriesStridesOnTheWireOnlyWhereTheyAreNotRowMajor) {
  const Tensor tensor = View(DType::kF64, {2, 3});
  EXPECT_EQ(tensor.operand().strides_size(), 0);
  EXPECT_EQ(tensor.operand().dtype(), v1::DTYPE_F64);
  EXPECT_THAT(tensor.Transpose(0, 1).operand().strides(), ElementsAre(1, 3));
}

TEST(Result, PrintsItsStampOnOneLineWithWhatWasAskedForAndNotHonoured) {
  Result result;
  v1::Stamp& stamp = *result.response.mutable_stamp();
  stamp.set_device("cpu");
  stamp.set_revision(7);
  for (int i = 0; i < 2; ++i) {
    v1::OperationStamp& step = *stamp.add_operations();
    step.set_kind("gemm");
    step.set_library("onednn");
    step.set_algorithm("brg");
    step.set_threads(2);
    v1::StampFlag& flag = *step.add_flags_effective();
    flag.set_flag("mkldnn.deterministic");
    flag.mutable_value()->set_bool_(true);
    flag.set_layer(v1::LAYER_SESSION);
    v1::UnmetFlag& unmet = *step.add_flags_unmet();
    unmet.set_flag("mkldnn.matmul.fp32_precision");
    unmet.set_reason("HARDWARE");
  }
  const std::string line = result.stamp();
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_THAT(line, HasSubstr("revision=7"));
  EXPECT_THAT(line, HasSubstr("flags=[mkldnn.deterministic=true]"));
  EXPECT_THAT(line, HasSubstr("unmet=[mkldnn.matmul.fp32_precision (HARDWARE)]"));
  EXPECT_THAT(line, HasSubstr("ran=[gemm:onednn/brg*2]"));
}

TEST(Result, TurnsAFailedOperationIntoItsReason) {
  Result result;
  EXPECT_OK(result.status());
  result.response.mutable_failure()->set_reason("MATRIX_SINGULAR");
  result.response.mutable_failure()->set_operation(3);
  EXPECT_THAT(result.status(), HasReason(Reason::kMatrixSingular));
  EXPECT_EQ(DetailsOf(result.status())->metadata.at("operation"), "3");
}

}  // namespace
}  // namespace backendd
