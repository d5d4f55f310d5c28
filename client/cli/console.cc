#include "client/cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/exit_code.h"
#include "google/protobuf/util/json_util.h"
#include "shared/status/error.h"

namespace backendd::cli {
namespace {

// What helps after an error, by its reason.
struct Advice {
  Reason reason;
  absl::string_view next;
};
constexpr Advice kAdvice[] = {
    {Reason::kFlagUnknown, "backendctl get flags"},
    {Reason::kFlagValueInvalid, "backendctl describe flag NAME"},
    {Reason::kFlagReadOnly, "backendctl describe flag NAME"},
    {Reason::kFlagUnavailable, "backendctl explain NAME"},
    {Reason::kDeviceUnknown, "backendctl get devices"},
    {Reason::kDeviceIndex, "backendctl get devices"},
    {Reason::kLeaseUnknown, "backendctl get leases"},
    {Reason::kIdInvalid, "backendctl get leases, or backendctl get sessions"},
    {Reason::kSessionUnknown, "backendctl get sessions"},
    {Reason::kLeaseConflict, "--wait 30s to wait in line, or backendctl get leases"},
    {Reason::kLeaseNotYours, "end its holder: backendctl get leases -o wide"},
    {Reason::kPeerNotAllowed, "backendctl status, which names your role"},
    {Reason::kQuotaExceeded, "backendctl get leases, or backendctl get sessions"},
    {Reason::kScopeInvalid, "backendctl describe flag NAME, which lists its scopes"},
    {Reason::kDaemonUnreachable, "start backendd, or --address SOCKET"},
    {Reason::kDraining, "backendctl wait --for=ready"},
    {Reason::kWorkerStarting, "backendctl get devices --watch"},
    {Reason::kDeviceLost, "backendctl get devices --watch"},
    {Reason::kDeviceDown, "backendctl describe device DEVICE"},
};

std::string Next(const absl::Status& status) {
  const auto details = DetailsOf(status);
  if (!details) {
    return absl::IsUnavailable(status) ? "backendctl wait --for=ready" : "";
  }
  const auto found = std::find_if(std::begin(kAdvice), std::end(kAdvice),
                                  [&](const Advice& a) { return a.reason == details->reason; });
  if (found == std::end(kAdvice)) return "";
  std::string next(found->next);
  const auto flag = details->metadata.find("flag");
  const size_t name = next.find("NAME");
  if (flag != details->metadata.end() && name != std::string::npos) {
    next.replace(name, 4, flag->second);
  }
  return next;
}

}  // namespace

bool Coloured(const Arguments& arguments, int fd) {
  const std::string when = arguments.Get("--color", "auto");
  if (when != "auto") return when == "always";
  const char* no_color = getenv("NO_COLOR");
  const char* term = getenv("TERM");
  return isatty(fd) && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || absl::string_view(term) != "dumb");
}

void Print(const Arguments& arguments, const Table& table) {
  winsize size{};
  const bool terminal = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  const std::string text =
      table.Text(terminal ? size.ws_col : 0, Coloured(arguments, STDOUT_FILENO));
  fwrite(text.data(), 1, text.size(), stdout);
  fflush(stdout);
}

void Print(const Fields& fields) {
  size_t widest = 0;
  for (const auto& [name, value] : fields) {
    if (!value.empty()) widest = std::max(widest, name.size());
  }
  for (const auto& [name, value] : fields) {
    if (value.empty()) continue;
    PrintLine(absl::StrCat(name, ":", std::string(widest - name.size() + 2, ' '), Escaped(value)));
  }
}

std::string JsonText(const google::protobuf::Message& message, absl::string_view kind) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) json = "{}";
  if (kind.empty()) return json;
  const std::string head = absl::StrCat(R"({"apiVersion":"backendd.dev/v1","kind":")", kind, "\"");
  return json == "{}" ? absl::StrCat(head, "}") : absl::StrCat(head, ",", json.substr(1));
}

std::string JsonList(absl::string_view kind, const std::vector<std::string>& items) {
  return absl::StrCat(R"({"apiVersion":"backendd.dev/v1","kind":")", kind, R"(List","items":[)",
                      absl::StrJoin(items, ","), "]}");
}

void PrintLine(absl::string_view line) {
  fwrite(line.data(), 1, line.size(), stdout);
  fputc('\n', stdout);
  fflush(stdout);
}

bool WantsJson(const Arguments& arguments) { return arguments.Get("--output") == "json"; }

std::string Word(const std::string& name, absl::string_view prefix) {
  return std::string(absl::StripPrefix(name, prefix));
}

void PrintError(const Arguments& arguments, absl::string_view what, absl::string_view next) {
  const bool coloured = Coloured(arguments, STDERR_FILENO);
  const std::string text =
      absl::StrCat(coloured ? "\x1b[31merror:\x1b[0m " : "error: ", Escaped(what), "\n",
                   next.empty() ? "" : absl::StrCat("try: ", Escaped(next), "\n"));
  fwrite(text.data(), 1, text.size(), stderr);
}

int Fail(const Arguments& arguments, const absl::Status& status) {
  const auto details = DetailsOf(status);
  std::string what(status.message());
  if (what.empty()) what = absl::StatusCodeToString(status.code());
  PrintError(arguments, what, "");
  if (details && details->violations.size() > 1) {
    for (const Violation& v : details->violations) {
      fprintf(stderr, "  %s: %s\n", Escaped(v.field).c_str(), Escaped(v.description).c_str());
    }
  }
  const std::string next = Next(status);
  if (!next.empty()) fprintf(stderr, "try: %s\n", Escaped(next).c_str());
  return ExitCodeOf(status);
}

}  // namespace backendd::cli
