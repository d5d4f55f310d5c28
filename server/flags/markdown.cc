#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/flags/catalogue.h"
#include "shared/text.h"

namespace backendd {
namespace {

absl::string_view AccessText(FlagAccess access) {
  switch (access) {
    case FlagAccess::kReadWrite:
      return "rw";
    case FlagAccess::kReadOnly:
      return "r";
    case FlagAccess::kConstant:
      return "const";
    case FlagAccess::kAction:
      return "act";
  }
  return "";
}

absl::string_view BindingText(FlagBinding binding) {
  switch (binding) {
    case FlagBinding::kNone:
      return "";
    case FlagBinding::kAtOnce:
      return "at once";
    case FlagBinding::kNextProgram:
      return "next program";
    case FlagBinding::kWorkerStart:
      return "worker start";
  }
  return "";
}

std::string Types(const FlagInfo& flag) {
  if (!flag.allowed.empty()) {
    const std::string words = absl::StrJoin(flag.allowed, ", ");
    return flag.HasType(FlagType::kList) ? absl::StrCat("list of ", words) : words;
  }
  return absl::StrJoin(flag.types, ", ", [](std::string* out, FlagType type) {
    absl::StrAppend(out, TypeName(type));
  });
}

std::string Default(const FlagInfo& flag) {
  std::string text = flag.default_value.has_value() ? ToText(*flag.default_value) : "";
  if (text.empty()) return flag.default_note;
  return flag.default_note.empty() ? text : absl::StrCat(text, "; ", flag.default_note);
}

std::string Cell(absl::string_view text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

}  // namespace

std::string FlagTableMarkdown() {
  std::string table =
      "| flag | type or words | default | access | environment | binds | meaning | honoured by |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const FlagInfo& flag : Catalogue::Get().flags()) {
    std::string meaning = flag.summary;
    if (!flag.replaced_by.empty())
      absl::StrAppend(&meaning, " Replaced by ", flag.replaced_by, ".");
    if (!flag.needs.empty()) absl::StrAppend(&meaning, " Needs ", flag.needs, ".");
    if (!flag.arguments.empty())
      absl::StrAppend(&meaning, " Arguments: ", absl::StrJoin(flag.arguments, ", "), ".");
    absl::StrAppend(&table, "| `", flag.name, "` | ", Cell(Types(flag)), " | ", Cell(Default(flag)),
                    " | ", AccessText(flag.access), " | ", absl::StrJoin(flag.environment, ", "),
                    " | ", BindingText(flag.binding), " | ", Cell(meaning), " | ",
                    Cell(flag.honoured_by), " |\n");
  }
  return table;
}

}  // namespace backendd
