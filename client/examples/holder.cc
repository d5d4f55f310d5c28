// Takes a lease and 64 MiB, says so, and never gives them back: the main job kills it.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "backendd/client.h"
#include "client/examples/arguments.h"
#include "shared/status/macros.h"

namespace backendd::examples {
namespace {

absl::Status Hold(const Arguments& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // whoever started it would have ended it
  ASSIGN_OR_RETURN(const auto client, Client::Create({.address = arguments.socket}));
  SessionOptions options;
  options.name = "holder";
  ASSIGN_OR_RETURN(const auto session, client->OpenSession(std::move(options)));
  RETURN_IF_ERROR(session->WaitServing("cpu", absl::Seconds(30)));
  LeaseRequest request;
  request.flags = {{"cudnn.benchmark_limit", int64_t{4}}, {"cudnn.deterministic", true}};
  request.exclusive = true;
  request.reason = "will be killed";
  ASSIGN_OR_RETURN(const Lease lease, session->Acquire(request));
  ASSIGN_OR_RETURN(const Buffer arena, session->AllocateArena("cpu", 32 << 20));
  ASSIGN_OR_RETURN(const Buffer memory, session->Allocate("cpu", 32 << 20));
  Say("holds cudnn.benchmark_limit=4 and cudnn.deterministic=true for all, and 64 MiB");
  while (true) pause();
}

}  // namespace
}  // namespace backendd::examples

int main(int argc, char** argv) {
  using namespace backendd::examples;
  return Exit(Hold(ReadArguments(argc, argv)));
}
