#include "client/cli/grammar.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "shared/text.h"

namespace backendd::cli {
namespace {

std::string Shape(const Command& command) {
  std::string shape = absl::StrCat("backendctl ", command.path);
  for (const Positional& p : command.positionals) {
    const std::string name = !p.words.empty()                ? absl::StrJoin(p.words, "|")
                             : p.names == Names::kAssignment ? "FLAG=VALUE"
                                                             : Str(p.name);
    const std::string dots = absl::StrCat(name, p.repeated ? "..." : "");
    absl::StrAppend(&shape, p.names == Names::kCommandLine ? " -- " : " ",
                    p.required ? dots : absl::StrCat("[", dots, "]"));
  }
  return absl::StrCat(shape, command.options.empty() ? "" : " [OPTION...]");
}

std::string OptionLines(const std::vector<Option>& options) {
  std::string text;
  for (const Option& o : options) {
    const std::string head = absl::StrCat(absl::StrReplaceAll(o.name, {{",", ", "}}),
                                          o.value.empty() ? "" : " ", o.value);
    const std::string words =
        o.words.empty() ? "" : absl::StrCat(": ", absl::StrJoin(o.words, ", "));
    absl::StrAppendFormat(&text, "  %-26s %s%s\n", head, o.help, words);
  }
  return text;
}

// Opens with examples: people copy before they read.
std::string CommandHelp(const Command& command, const std::vector<Option>& globals) {
  return absl::StrCat("  ", absl::StrJoin(command.examples, "\n  "), "\n\n", Shape(command), "\n\n",
                      command.summary, "\n\n", OptionLines(command.options), OptionLines(globals));
}

std::string Overview(const std::vector<Command>& commands, const std::vector<Option>& globals,
                     absl::string_view group) {
  std::string text;
  int examples = 0;
  std::string lines;
  for (const Command& c : commands) {
    if (c.hidden || !(group.empty() || absl::StartsWith(c.path, absl::StrCat(group, " ")))) {
      continue;
    }
    if (examples < 2 && (!group.empty() || c.path == "explain" || c.path == "run")) {
      absl::StrAppend(&text, "  ", c.examples[0], "\n");
      ++examples;
    }
    // Up to the first pause; a dot inside a name is none.
    const size_t pause =
        std::min({c.summary.find(". "), c.summary.find(": "), c.summary.find("; ")});
    const absl::string_view first = c.summary.substr(0, pause);
    absl::StrAppendFormat(&lines, "  %-18s %s\n", c.path, absl::StripSuffix(first, "."));
  }
  return absl::StrCat(text, "\nbackendctl ",
                      group.empty() ? "COMMAND" : absl::StrCat(group, " COMMAND"), " ...\n\n",
                      lines, "\n", OptionLines(globals),
                      "\nbackendctl COMMAND --help tells more of one.\n");
}

bool IsGlobalWithValue(const std::vector<Option>& globals, const std::string& word) {
  return std::any_of(globals.begin(), globals.end(), [&](const Option& o) {
    return !o.value.empty() &&
           absl::c_linear_search(std::vector<std::string>(absl::StrSplit(o.name, ',')), word);
  });
}

// Options may stand before the command; CLI11 wants those of all commands there, the walk does not.
std::vector<std::string> BareWords(const std::vector<Option>& globals,
                                   const std::vector<std::string>& words) {
  std::vector<std::string> bare;
  for (size_t i = 0; i < words.size(); ++i) {
    if (IsGlobalWithValue(globals, words[i])) {
      ++i;
    } else if (!absl::StartsWith(words[i], "-")) {
      bare.push_back(words[i]);
    }
  }
  return bare;
}

Parsed Wrong(std::string text, std::string next) {
  return {nullptr, {}, std::move(text), std::move(next), true};
}

Parsed Unknown(const std::vector<Command>& commands, const std::vector<std::string>& bare) {
  const bool grouped = !NextWords(commands, bare[0]).empty();
  const std::string group = grouped ? bare[0] : "";
  if (grouped && bare.size() == 1) {
    return Wrong(absl::StrCat("'", group,
                              "' wants one of: ", absl::StrJoin(NextWords(commands, group), ", ")),
                 absl::StrCat("backendctl ", group, " --help"));
  }
  const std::string& word = grouped ? bare[1] : bare[0];
  const auto near = NearNames(word, NextWords(commands, group));
  std::vector<std::string> lines;
  for (const std::string& name : near) {
    lines.push_back(absl::StrCat("backendctl ", group, grouped ? " " : "", name));
  }
  return Wrong(
      absl::StrCat(
          "there is no command '", group, grouped ? " " : "", word, "'",
          near.empty() ? "" : absl::StrCat("; did you mean ", absl::StrJoin(near, ", "), "?")),
      lines.empty() ? "backendctl --help" : absl::StrJoin(lines, ", or "));
}

// CLI11's check: nothing, or what is wrong.
std::string OneOf(const std::vector<absl::string_view>& words, const std::string& word) {
  if (absl::c_linear_search(words, word)) return "";
  const auto near = NearNames(word, words);
  return absl::StrCat(
      "'", word, "' is not one of ", absl::StrJoin(words, ", "),
      near.empty() ? "" : absl::StrCat("; did you mean ", absl::StrJoin(near, ", "), "?"));
}

void AddOptions(CLI::App& app, const std::vector<Option>& options,
                std::map<std::string, std::vector<std::string>>& into) {
  for (const Option& o : options) {
    const std::string name(LongName(o.name));
    if (o.value.empty()) {
      app.add_flag_callback(Str(o.name), [&into, name] { into[name] = {"true"}; });
      continue;
    }
    CLI::Option* option = app.add_option(Str(o.name), into[name]);
    option->expected(1)->allow_extra_args(false);
    option->multi_option_policy(o.repeated ? CLI::MultiOptionPolicy::TakeAll
                                           : CLI::MultiOptionPolicy::TakeLast);
    if (!o.words.empty()) {
      option->check([&o](const std::string& word) { return OneOf(o.words, word); });
    }
  }
}

}  // namespace

absl::string_view LongName(absl::string_view option) {
  const size_t comma = option.rfind(',');
  return comma == absl::string_view::npos ? option : option.substr(comma + 1);
}

const Command* FindCommand(const std::vector<Command>& commands,
                           const std::vector<std::string>& words, size_t* used) {
  for (size_t count : {size_t{2}, size_t{1}}) {
    if (words.size() < count) continue;
    const std::string path = absl::StrJoin(words.begin(), words.begin() + count, " ");
    for (const Command& command : commands) {
      if (command.path == path) {
        *used = count;
        return &command;
      }
    }
  }
  return nullptr;
}

std::vector<absl::string_view> NextWords(const std::vector<Command>& commands,
                                         absl::string_view group) {
  std::vector<absl::string_view> words;
  for (const Command& command : commands) {
    std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(command.path, absl::MaxSplits(' ', 1));
    const absl::string_view word = group.empty() ? parts.first : parts.second;
    const bool inside = group.empty() || parts.first == group;
    if (!command.hidden && inside && !word.empty() && !absl::c_linear_search(words, word)) {
      words.push_back(word);
    }
  }
  return words;
}

Parsed Parse(const std::vector<Command>& commands, const std::vector<Option>& globals,
             const std::vector<std::string>& all_words) {
  // What follows "--" is somebody else's command line and is not looked at.
  const auto marker = std::find(all_words.begin(), all_words.end(), "--");
  std::vector<std::string> words;
  for (auto word = all_words.begin(); word != marker; ++word) {
    // -v=6 as people write it; CLI11 would take "=6".
    if (word->size() > 2 && (*word)[0] == '-' && (*word)[1] != '-' && (*word)[2] == '=') {
      words.push_back(word->substr(0, 2));
      words.push_back(word->substr(3));
    } else {
      words.push_back(*word);
    }
  }
  const bool help = std::any_of(words.begin(), words.end(),
                                [](const std::string& w) { return w == "--help" || w == "-h"; });
  const std::vector<std::string> bare = BareWords(globals, words);
  size_t used = 0;
  const Command* command = FindCommand(commands, bare, &used);
  if (help) {
    if (command != nullptr) return {nullptr, {}, CommandHelp(*command, globals)};
    const bool group = !bare.empty() && !NextWords(commands, bare[0]).empty();
    return {nullptr, {}, Overview(commands, globals, group ? bare[0] : "")};
  }
  if (bare.empty() && words == std::vector<std::string>{"--version"}) words = {"version"};
  if (words == std::vector<std::string>{"version"}) command = FindCommand(commands, words, &used);
  if (command == nullptr) {
    return bare.empty() ? Wrong("no command", "backendctl --help") : Unknown(commands, bare);
  }

  // The command's own words leave the line; the rest is options and positionals, in any order.
  for (size_t left = used, i = 0; left > 0 && i < words.size();) {
    if (IsGlobalWithValue(globals, words[i])) {
      i += 2;
    } else if (absl::StartsWith(words[i], "-")) {
      ++i;
    } else {
      words.erase(words.begin() + i);
      --left;
    }
  }
  const std::string usage =
      absl::StrCat(Shape(*command), "   (backendctl ", command->path, " --help)");
  std::map<std::string, std::vector<std::string>> values;
  CLI::App app;
  app.set_help_flag();
  AddOptions(app, globals, values);
  AddOptions(app, command->options, values);
  bool takes_line = false;
  for (const Positional& p : command->positionals) {
    if (p.names == Names::kCommandLine) {
      takes_line = true;
      values[Str(p.name)] = marker == all_words.end()
                                ? std::vector<std::string>{}
                                : std::vector<std::string>(marker + 1, all_words.end());
      if (p.required && values[Str(p.name)].empty()) {
        return Wrong(absl::StrCat("no ", p.name, " after --"), usage);
      }
      continue;
    }
    CLI::Option* option = app.add_option(Str(p.name), values[Str(p.name)]);
    option->required(p.required)->expected(1, p.repeated ? 1000 : 1);
    option->allow_extra_args(p.repeated);
    if (!p.words.empty()) {
      option->check([&p](const std::string& word) { return OneOf(p.words, word); });
    }
  }
  if (marker != all_words.end() && !takes_line) return Wrong("'--' has no meaning here", usage);
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(std::move(words));
  } catch (const CLI::Error& error) {
    return Wrong(error.what(), usage);
  }
  Parsed parsed;
  parsed.command = command;
  for (auto& [name, list] : values) {
    if (!list.empty()) parsed.arguments.Put(name, std::move(list));
  }
  return parsed;
}

}  // namespace backendd::cli
