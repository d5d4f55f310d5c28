// Three client processes of one daemon: one trains, one draws, one is killed. Shows with times that
// what the killed one held is gone while the others went on.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "backendd/client.h"
#include "client/examples/arguments.h"
#include "shared/clock.h"
#include "shared/convert/flag_value.h"
#include "shared/fd/fd.h"
#include "shared/status/macros.h"

extern char** environ;

namespace backendd::examples {
namespace {

constexpr char kFlag[] = "cudnn.benchmark_limit";
const absl::Duration kStart = SystemClock().Steady();
absl::Duration Elapsed() { return SystemClock().Steady() - kStart; }

// One line of the screen: when, who, what; what is too long goes on below. How far a child is stays
// on a terminal's last line as a bar, and is printed as any other line elsewhere.
void Show(absl::string_view who, absl::string_view what) {
  static const bool terminal = isatty(STDOUT_FILENO) == 1;
  static std::string bar;
  constexpr size_t kWide = 100, kIndent = 24;
  std::string text = absl::StrFormat("[%6.2f s] %-12s ", absl::ToDoubleSeconds(Elapsed()), who);
  int done = 0, all = 0;
  const bool is_bar = terminal &&
                      std::sscanf(std::string(what).c_str(), "epoch %d/%d", &done, &all) == 2 &&
                      all > 0;
  if (is_bar) {
    const int filled = 20 * done / all;
    absl::StrAppend(&text, "[", std::string(filled, '#'), std::string(20 - filled, '.'), "] ");
  }
  size_t column = kIndent;
  for (absl::string_view word : absl::StrSplit(what, ' ')) {
    if (!is_bar && column > kIndent && column + word.size() > kWide) {
      text.back() = '\n';
      text.append(kIndent, ' ');
      column = kIndent;
    }
    absl::StrAppend(&text, word, " ");
    column += word.size() + 1;
  }
  text.pop_back();
  if (terminal) std::fputs("\r\x1b[K", stdout);
  if (!is_bar) Say(text);
  bar = !is_bar ? bar : done == all ? "" : text;
  if (is_bar && done == all) Say(text);
  std::fputs(bar.c_str(), stdout);
  std::fflush(stdout);
}

// A child whose output comes through a pipe, line by line.
struct Child {
  std::string name;
  pid_t pid = 0;
  Fd output;
  std::string rest;
  bool said_ready = false;  // its first line has come
  int exit = -1;

  absl::Status Start(const std::string& folder, const Arguments& arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError("no pipe can be made");
    output.reset(ends[0]);
    const Fd input(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, input.get(), 2);
    std::string path = absl::StrCat(folder, "/", name);
    std::array<std::string, 7> words = {path,           "--socket", arguments.socket, "--data",
                                        arguments.data, "--out",    arguments.out};
    std::array<char*, 8> argv{};
    std::transform(words.begin(), words.end(), argv.begin(),
                   [](auto& word) { return word.data(); });
    const int error = posix_spawn(&pid, path.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return absl::OkStatus();
    pid = 0;
    return absl::InternalError(absl::StrCat("cannot start ", path, ": ", strerror(error)));
  }

  // Shows whole lines; at the end of the output waits for the process.
  void Read() {
    char part[4096];
    const ssize_t size = read(output.get(), part, sizeof part);
    if (size > 0) rest.append(part, size);
    for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
      Show(name, rest.substr(0, end));
      said_ready = true;
    }
    if (size > 0) return;
    output.reset();
    int status = 0;
    waitpid(pid, &status, 0);
    exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    pid = 0;
  }

  ~Child() {
    if (pid == 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
};

class MainJob {
 public:
  explicit MainJob(const Arguments& arguments) : arguments_(arguments) {}

  absl::Status Run(const std::string& folder) {
    ASSIGN_OR_RETURN(client_, Client::Create({.address = arguments_.socket}));
    RETURN_IF_ERROR(WaitForWorker());
    ASSIGN_OR_RETURN(const v1::FlagReading before, client_->Get(kFlag));
    SessionOptions options;
    options.name = "main job";
    ASSIGN_OR_RETURN(session_, client_->OpenSession(std::move(options)));
    RETURN_IF_ERROR(session_->WaitServing("cpu", absl::Seconds(10)));
    ASSIGN_OR_RETURN(const uint64_t free_bytes, UsedBytes());
    Show("main job", absl::StrCat(kFlag, " is ", Text(before), " (", before.source(), ")"));
    RETURN_IF_ERROR(digits_.Start(folder, arguments_));
    RETURN_IF_ERROR(holder_.Start(folder, arguments_));
    RETURN_IF_ERROR(Pump([this] { return holder_.said_ready && digits_.said_ready; }));
    RETURN_IF_ERROR(spectrogram_.Start(folder, arguments_));
    RETURN_IF_ERROR(KillHolder(before, free_bytes));
    RETURN_IF_ERROR(Pump([] { return false; }));
    Show("main job", "all is done: trained, drawn, rolled back");
    return absl::OkStatus();
  }

 private:
  static std::string Text(const v1::FlagReading& reading) {
    const std::optional<FlagValue> value = FromProto(reading.value());
    return value ? ToText(*value) : reading.unavailable().reason();
  }

  // What the sessions' buffers have, from the worker's own ledger.
  absl::StatusOr<uint64_t> UsedBytes() {
    ASSIGN_OR_RETURN(const v1::DescribeDeviceResponse device, session_->DescribeDevice("cpu"));
    return device.device().used_bytes();
  }

  absl::Status WaitForWorker() {
    std::string state = "nothing";
    while (Elapsed() < absl::Seconds(30)) {
      ASSIGN_OR_RETURN(const auto devices, client_->Devices());
      for (const v1::Device& device : devices) {
        if (device.device() != "cpu") continue;
        state = absl::StrCat(v1::DeviceState_Name(device.state()), " ", device.detail());
        if (device.state() == v1::DEVICE_STATE_SERVING) {
          Show("main job",
               absl::StrCat("the worker of ", device.name(), " serves, ", device.isa()));
          return absl::OkStatus();
        }
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    return absl::UnavailableError(absl::StrCat("the CPU's worker does not serve: ", state));
  }

  // Shows what the children say until `done`, or all have ended. A child that failed ends it.
  absl::Status Pump(const std::function<bool()>& done) {
    while (!done() && (digits_.output || spectrogram_.output || holder_.output)) {
      ASSIGN_OR_RETURN(const bool said, Listen(60000));
      if (!said) return absl::DeadlineExceededError("nobody said anything for a minute");
    }
    return absl::OkStatus();
  }

  // Shows what comes within `milliseconds`; whether anything came.
  absl::StatusOr<bool> Listen(int milliseconds) {
    std::vector<pollfd> polls;
    std::vector<Child*> open;
    for (Child* child : {&digits_, &spectrogram_, &holder_}) {
      if (!child->output) continue;
      polls.push_back({child->output.get(), POLLIN, 0});
      open.push_back(child);
    }
    if (poll(polls.data(), polls.size(), milliseconds) <= 0) return false;
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents == 0) continue;
      open[i]->Read();
      if (open[i]->exit > 0 && open[i] != &holder_)
        return absl::InternalError(absl::StrCat(open[i]->name, " ended with ", open[i]->exit));
      if (open[i] == &holder_ && !open[i]->output && !killed_)
        return absl::InternalError("the holder ended before it was killed");
    }
    return true;
  }

  absl::Status KillHolder(const v1::FlagReading& before, uint64_t free_bytes) {
    ASSIGN_OR_RETURN(const v1::FlagReading held, client_->Get(kFlag));
    RETURN_IF_ERROR(Until(absl::Seconds(10), [&]() -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const uint64_t used, UsedBytes());
      used_ = used;
      return used >= free_bytes + (64 << 20);
    }));
    Show("main job", absl::StrCat(kFlag, " is ", Text(held), " (", held.source(),
                                  "), buffers have ", used_ >> 20, " MiB"));
    if (Text(held) == Text(before)) return absl::InternalError("the holder's lease shows nowhere");
    const pid_t pid = holder_.pid;
    killed_ = true;
    const absl::Duration at = Elapsed();
    kill(pid, SIGKILL);
    Show("main job", absl::StrCat("kill -9 ", pid, " (holder)"));
    const auto after = [&] {
      return absl::StrFormat("%.1f ms after", absl::ToDoubleMilliseconds(Elapsed() - at));
    };
    RETURN_IF_ERROR(Until(absl::Seconds(10), [&]() -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const v1::FlagReading reading, client_->Get(kFlag));
      return Text(reading) == Text(before);
    }));
    Show("main job",
         absl::StrCat(after(), ": ", kFlag, " is ", Text(before), " again, rolled back"));
    RETURN_IF_ERROR(Until(absl::Seconds(10), [&]() -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const auto sessions, client_->Sessions());
      return std::none_of(sessions.begin(), sessions.end(),
                          [pid](const v1::Session& session) { return session.pid() == pid; });
    }));
    Show("main job", absl::StrCat(after(), ": its session is gone"));
    const uint64_t held_bytes = used_;
    RETURN_IF_ERROR(Until(absl::Seconds(10), [&]() -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(used_, UsedBytes());
      return used_ + (32 << 20) < held_bytes;  // what the others took meanwhile is less
    }));
    Show("main job", absl::StrCat(after(), ": its 64 MiB are free, buffers have ", used_ >> 20,
                                  " MiB; the others go on"));
    return absl::OkStatus();
  }

  absl::Status Until(absl::Duration limit, const std::function<absl::StatusOr<bool>()>& seen) {
    for (const absl::Duration begin = Elapsed(); Elapsed() - begin < limit;) {
      ASSIGN_OR_RETURN(const bool yes, seen());
      if (yes) return absl::OkStatus();
      RETURN_IF_ERROR(Listen(1).status());
    }
    return absl::DeadlineExceededError(
        "the rollback of the killed holder was not seen within 10 s");
  }

  const Arguments arguments_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
  Child digits_{"digits"}, spectrogram_{"spectrogram"}, holder_{"holder"};
  uint64_t used_ = 0;
  bool killed_ = false;
};

absl::Status Main(const Arguments& arguments) {
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof self);
  if (size <= 0) return absl::InternalError("/proc/self/exe cannot be read");
  const std::string path(self, size);
  return MainJob(arguments).Run(path.substr(0, path.rfind('/')));
}

}  // namespace
}  // namespace backendd::examples

int main(int argc, char** argv) {
  using namespace backendd::examples;
  const absl::Status status = Main(ReadArguments(argc, argv));
  if (!status.ok()) Show("main job", absl::StrCat("failed: ", status.message()));
  return status.ok() ? 0 : 1;
}
