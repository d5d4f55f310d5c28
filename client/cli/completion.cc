// backendctl completion bash|zsh|fish, and the hidden __complete that the scripts ask
#include "client/cli/completion.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backendd/v1/device_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/exit_code.h"
#include "client/cli/grammar.h"
#include "client/cli/value.h"
#include "shared/text.h"

namespace backendd::cli {
namespace {

constexpr absl::Duration kDeadline = absl::Milliseconds(200);

// The candidates for the last of `words`; the daemon's names by `ask`.
struct Place {
  const Option* option = nullptr;          // whose value is written
  const Positional* positional = nullptr;  // else
  std::string first;                       // the first positional word: "leases"
};

const Option* FindOption(const Command& command, absl::string_view word) {
  for (const auto* options : {&command.options, &GlobalOptions()}) {
    for (const Option& option : *options) {
      if (absl::c_linear_search(std::vector<std::string>(absl::StrSplit(option.name, ',')),
                                Str(word))) {
        return &option;
      }
    }
  }
  return nullptr;
}

// Where the last word stands among options and positionals of `command`.
Place PlaceOf(const Command& command, const std::vector<std::string>& words, size_t own_words) {
  Place place;
  size_t bare = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const Option* option = FindOption(command, words[i]);
    if (option != nullptr && !option->value.empty()) {
      if (i + 2 == words.size()) place.option = option;
      ++i;
    } else if (!absl::StartsWith(words[i], "-")) {
      if (++bare == own_words + 1) place.first = words[i];
    }
  }
  const size_t index = bare - std::min(bare, own_words);
  const auto& all = command.positionals;
  if (index < all.size()) {
    place.positional = &all[index];
  } else if (!all.empty() && all.back().repeated) {
    place.positional = &all.back();
  }
  return place;
}

std::vector<std::string> Values(const Option& option, absl::string_view partial, const Ask& ask) {
  if (!option.words.empty()) return {option.words.begin(), option.words.end()};
  return option.names == Names::kNone ? std::vector<std::string>() : ask(option.names, partial);
}

Names NamesOf(const Place& place) {
  constexpr std::pair<absl::string_view, Names> kByFirst[] = {{"flag", Names::kFlag},
                                                              {"lease", Names::kLease},
                                                              {"session", Names::kSession},
                                                              {"device", Names::kDevice}};
  if (place.positional->names != Names::kNone) return place.positional->names;
  for (const auto& [first, names] : kByFirst) {
    if (absl::StartsWith(place.first, first)) return names;
  }
  return Names::kNone;
}

std::vector<std::string> AllCandidates(const std::vector<Command>& commands,
                                       const std::vector<std::string>& words, const Ask& ask) {
  std::vector<std::string> bare;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--") return {};
    if (absl::StartsWith(words[i], "-")) {
      const Option* option = FindOption({}, words[i]);
      i += option != nullptr && !option->value.empty();
    } else {
      bare.push_back(words[i]);
    }
  }
  const std::string& partial = words.back();
  size_t used = 0;
  const Command* command = FindCommand(commands, bare, &used);
  std::vector<std::string> result;
  if (command == nullptr) {
    if (bare.size() > 1) return {};
    for (absl::string_view word : NextWords(commands, bare.empty() ? "" : bare[0])) {
      result.emplace_back(word);
    }
    return result;
  }
  const Place place = PlaceOf(*command, words, used);
  if (place.option != nullptr) return Values(*place.option, partial, ask);
  if (absl::StartsWith(partial, "-")) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(partial, absl::MaxSplits('=', 1));
    const Option* option = FindOption(*command, parts.first);
    if (absl::StrContains(partial, "=") && option != nullptr) {
      for (const std::string& value : Values(*option, parts.second, ask)) {
        result.push_back(absl::StrCat(parts.first, "=", value));
      }
      return result;
    }
    for (const auto* options : {&command->options, &GlobalOptions()}) {
      for (const Option& o : *options) result.emplace_back(LongName(o.name));
    }
    return result;
  }
  if (place.positional == nullptr) return {};
  if (!place.positional->words.empty()) {
    return {place.positional->words.begin(), place.positional->words.end()};
  }
  const Names names = NamesOf(place);
  return names == Names::kNone ? result : ask(names, partial);
}

// true and false, and the words of an enumeration, after "flag=".
std::vector<std::string> AssignmentNames(const Connection& connection, absl::string_view partial) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(partial, absl::MaxSplits('=', 1));
  const bool has_flag = absl::StrContains(partial, "=");
  v1::DescribeFlagRequest request;
  v1::DescribeFlagResponse response;
  if (has_flag) request.set_flag(parts.first);
  (void)connection.Call<v1::FlagService>(&v1::FlagService::Stub::DescribeFlag, request, &response);
  std::vector<std::string> names;
  for (const auto& d : response.descriptions()) {
    if (!has_flag) {
      if (d.access() == v1::FLAG_ACCESS_READ_WRITE) names.push_back(absl::StrCat(d.flag(), "="));
      continue;
    }
    for (const std::string& word : d.allowed()) names.push_back(absl::StrCat(d.flag(), "=", word));
    if (absl::c_linear_search(d.types(), "bool")) {
      for (const char* word : {"true", "false"}) names.push_back(absl::StrCat(d.flag(), "=", word));
    }
  }
  return names;
}

// The daemon's names of one sort; none where nobody answers in time.
std::vector<std::string> NamesFromDaemon(const Arguments& arguments, Names sort,
                                         absl::string_view partial) {
  const auto connection = Connection::Open(arguments, kDeadline);
  std::vector<std::string> names;
  if (!connection.ok()) return names;
  if (sort == Names::kAssignment) return AssignmentNames(*connection, partial);
  if (sort == Names::kFlag) {
    v1::DescribeFlagResponse response;
    (void)connection->Call<v1::FlagService>(&v1::FlagService::Stub::DescribeFlag,
                                            v1::DescribeFlagRequest(), &response);
    for (const auto& d : response.descriptions()) names.push_back(d.flag());
  } else if (sort == Names::kDevice) {
    v1::ListDevicesResponse response;
    (void)connection->Call<v1::DeviceService>(&v1::DeviceService::Stub::ListDevices,
                                              v1::ListDevicesRequest(), &response);
    for (const auto& d : response.devices()) names.push_back(d.device());
  } else if (sort == Names::kLease) {
    v1::ListLeasesResponse response;
    (void)connection->Call<v1::LeaseService>(&v1::LeaseService::Stub::ListLeases,
                                             v1::ListLeasesRequest(), &response);
    for (const auto& l : response.leases()) names.push_back(IdText(l.lease_id()));
  } else if (sort == Names::kSession) {
    v1::ListSessionsResponse response;
    (void)connection->Call<v1::SessionService>(&v1::SessionService::Stub::ListSessions,
                                               v1::ListSessionsRequest(), &response);
    for (const auto& s : response.sessions()) names.push_back(IdText(s.session_id()));
  }
  return names;
}

int Complete(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.All("WORD");
  const Ask ask = [&](Names sort, absl::string_view partial) {
    return NamesFromDaemon(arguments, sort, partial);
  };
  for (const std::string& candidate : Candidates(Commands(), words, ask)) {
    PrintLine(Escaped(candidate));
  }
  return kExitOk;
}

// bash splits words at '=' and ':', so the line is split anew by blanks and what stands before the
// '=' is taken off the answers.
constexpr absl::string_view kBash = R"sh(_backendctl() {
  local line=${COMP_LINE:0:COMP_POINT} words last
  read -ra words <<<"$line"
  [[ $line == *' ' ]] && words+=('')
  last=${words[-1]}
  mapfile -t COMPREPLY < <(backendctl __complete -- "${words[@]:1}" 2>/dev/null)
  if [[ $last == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#"${last%%=*}="}"); fi
  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _backendctl backendctl
)sh";

constexpr absl::string_view kZsh = R"sh(#compdef backendctl
_backendctl() {
  local -a found
  found=("${(@f)$(backendctl __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -z ${found[1]} ]]; then _files; else compadd -S '' -- "${found[@]}"; fi
}
compdef _backendctl backendctl
)sh";

constexpr absl::string_view kFish = R"sh(function __backendctl_complete
  set -l words (commandline -opc) (commandline -ct)
  backendctl __complete -- $words[2..] 2>/dev/null
end
complete -c backendctl -a '(__backendctl_complete)'
)sh";

int Completion(const Arguments& arguments) {
  const std::string shell = arguments.Get("SHELL");
  const absl::string_view script = shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
  fwrite(script.data(), 1, script.size(), stdout);
  return kExitOk;
}

}  // namespace

std::vector<std::string> Candidates(const std::vector<Command>& commands,
                                    const std::vector<std::string>& words, const Ask& ask) {
  if (words.empty()) return {};
  std::vector<std::string> result = AllCandidates(commands, words, ask);
  result.erase(
      std::remove_if(result.begin(), result.end(),
                     [&](const std::string& c) { return !absl::StartsWith(c, words.back()); }),
      result.end());
  return result;
}

std::vector<Command> CompletionCommands() {
  Command complete{"__complete",
                   "Candidates for the last word.",
                   {{"WORD", false, true, Names::kCommandLine}},
                   {},
                   {},
                   Complete};
  complete.hidden = true;
  return {{"completion",
           "Prints a completion script: it knows commands, options and the daemon's names.",
           {{"SHELL", true, false, Names::kNone, {"bash", "zsh", "fish"}}},
           {},
           {"backendctl completion bash", "backendctl completion fish"},
           Completion},
          complete};
}

}  // namespace backendd::cli
