// backendctl lease hold, lease release
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/exit_code.h"
#include "client/cli/held_lease.h"
#include "client/cli/value.h"

namespace backendd::cli {
namespace {

// Tells people what happened; programs get each event as one JSON object.
void Tell(const Arguments& arguments, const v1::HoldLeaseResponse& event) {
  if (WantsJson(arguments)) return PrintLine(JsonText(event, "HoldEvent"));
  if (event.has_queued()) {
    fprintf(stderr, "waiting, place %d in line\n", event.queued().position());
  } else if (event.has_granted()) {
    PrintLine(absl::StrCat("holding lease ", IdText(event.granted().lease().lease_id()),
                           " until Ctrl-C"));
    for (const v1::FlagChange& c : event.granted().changes()) {
      PrintLine(Escaped(absl::StrCat("  ", c.flag(), ": ", ValueText(c.old_value()), " -> ",
                                     ValueText(c.new_value()))));
    }
  } else if (event.has_lease_event() && event.lease_event().has_shadowed()) {
    fprintf(stderr, "%s\n",
            Escaped(absl::StrCat(event.lease_event().shadowed().flag(), " is covered by ",
                                 event.lease_event().shadowed().by()))
                .c_str());
  } else if (event.has_lease_event() && event.lease_event().has_unshadowed()) {
    fprintf(stderr, "%s counts again\n", Escaped(event.lease_event().unshadowed().flag()).c_str());
  }
}

int Hold(const Arguments& arguments) {
  sigset_t ends;
  sigemptyset(&ends);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  // Before gRPC starts its threads, which inherit the mask.
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC);
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  const auto request = HoldRequest(*connection, arguments, arguments.All("ASSIGNMENT"));
  if (!request.ok()) return Fail(arguments, request.status());
  HeldLease lease(*connection, *request);
  bool granted = false;
  v1::EndCause cause = v1::END_CAUSE_UNSPECIFIED;
  while (true) {
    pollfd ready[] = {{signals, POLLIN, 0}, {lease.ready_fd(), POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) continue;
    if (ready[0].revents != 0) return granted ? kExitOk : kExitDeadline;
    const auto event = lease.Next();
    if (!event) continue;
    if (const auto* status = std::get_if<absl::Status>(&*event)) {
      if (!status->ok()) return Fail(arguments, *status);
      if (cause == v1::END_CAUSE_DEADLINE) return kExitOk;  // --max-hold, as asked for
      PrintError(arguments,
                 absl::StrCat("the lease ended: ", Word(v1::EndCause_Name(cause), "END_CAUSE_")),
                 "");
      return kExitHeld;
    }
    const auto& message = std::get<v1::HoldLeaseResponse>(*event);
    granted = granted || message.has_granted();
    if (message.has_ended()) cause = message.ended().cause();
    Tell(arguments, message);
  }
}

int Release(const Arguments& arguments) {
  if (arguments.Has("LEASE") == arguments.Has("--owner")) {
    PrintError(arguments, "name one lease, or --owner", "backendctl lease release --help");
    return kExitUsage;
  }
  v1::ReleaseLeaseRequest request;
  v1::ReleaseLeaseResponse response;
  if (arguments.Has("--owner")) {
    request.set_owner(arguments.Get("--owner"));
  } else {
    const auto id = ParseId(arguments.Get("LEASE"));
    if (!id.ok()) return Fail(arguments, id.status());
    request.set_lease_id(*id);
  }
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  const absl::Status status =
      connection->Call<v1::LeaseService>(&v1::LeaseService::Stub::ReleaseLease, request, &response);
  if (!status.ok()) return Fail(arguments, status);
  if (WantsJson(arguments)) {
    PrintLine(JsonText(response, "Release"));
  } else {
    PrintLine(response.already_released() ? "already released"
                                          : absl::StrCat("released ", response.released()));
  }
  return kExitOk;
}

}  // namespace

std::vector<Command> LeaseCommands() {
  std::vector<Option> hold = HoldOptions();
  hold.push_back({"--max-hold", "TIME", "end by itself after this long"});
  hold.push_back(OutputOption());
  return {{"lease hold",
           "Holds a lease until Ctrl-C, or until this process dies.",
           {{"ASSIGNMENT", true, true, Names::kAssignment}},
           hold,
           {"backendctl lease hold cudnn.benchmark=true --exclusive",
            "backendctl lease hold cudnn.benchmark_limit=4 --wait 30s --owner slurm-job:4711"},
           Hold},
          {"lease release",
           "Ends a lease by its id, or all of an owner's name. Twice is no error.",
           {{"LEASE", false, false, Names::kLease}},
           {{"--owner", "NAME", "all leases of this owner"}, OutputOption()},
           {"backendctl lease release 7f3a52c09b1d4e60",
            "backendctl lease release --owner slurm-job:4711"},
           Release}};
}

}  // namespace backendd::cli
