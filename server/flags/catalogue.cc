#include "server/flags/catalogue.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/flags/table.h"
#include "shared/status/error.h"
#include "shared/tensor.h"
#include "shared/text.h"

namespace backendd {
namespace {

std::vector<std::string> Split(Words words) {
  return absl::StrSplit(words, ' ', absl::SkipEmpty());
}

FlagType TypeFrom(absl::string_view name) {
  for (FlagType type :
       {FlagType::kBool, FlagType::kInt, FlagType::kText, FlagType::kList, FlagType::kPair}) {
    if (TypeName(type) == name) return type;
  }
  return FlagType::kNone;
}

// The default as the table writes it, as a value of the flag's first type.
std::optional<FlagValue> DefaultOf(const FlagInfo& flag, absl::string_view text) {
  if (flag.types.empty()) return std::nullopt;
  const FlagType type = flag.types.front();
  if (type == FlagType::kList && flag.default_note.empty()) return FlagValue(Split(text));
  if (text.empty()) return std::nullopt;
  if (text == "none" && flag.HasType(FlagType::kNone)) return FlagValue(None{});
  int64_t number = 0;
  if (type == FlagType::kInt && absl::SimpleAtoi(text, &number)) return FlagValue(number);
  if (type == FlagType::kBool) return FlagValue(text == "true");
  if (type == FlagType::kList) return FlagValue(Split(text));
  return FlagValue(Str(text));
}

FlagInfo Build(const FlagRow& row, absl::string_view dsl) {
  const auto text = [&](absl::string_view from) {
    return absl::StrReplaceAll(from, {{"<dsl>", dsl}});
  };
  FlagInfo flag;
  flag.name = text(row.name);
  flag.torch_spelling = text(row.torch);
  for (const std::string& type : Split(row.types)) flag.types.push_back(TypeFrom(type));
  for (const std::string& word : Split(row.allowed)) {
    const std::pair<std::string, std::string> spelled = absl::StrSplit(word, '=');
    if (spelled.second.empty())
      flag.allowed.push_back(word);
    else
      flag.spellings.insert(spelled);
  }
  flag.min = row.min;
  flag.max = row.max;
  flag.default_note = Str(row.note);
  flag.default_value = DefaultOf(flag, text(row.standard));
  flag.environment = Split(row.environment);
  flag.access = row.access;
  const bool writable = row.access == FlagAccess::kReadWrite;
  flag.binding =
      writable || row.binding == FlagBinding::kWorkerStart ? row.binding : FlagBinding::kNone;
  if (writable) {
    flag.scopes = {FlagScope::kNode, FlagScope::kDevice};
    if (!row.shared_state) flag.scopes.push_back(FlagScope::kSession);
  }
  flag.combine = row.combine;
  flag.replaced_by = Str(row.replaced_by);
  flag.needs = Str(row.needs);
  flag.honoured_by = Str(row.honoured_by);
  flag.summary = Str(row.summary);
  flag.arguments = Split(row.arguments);
  flag.over_tensors = row.over_tensors;
  flag.live = row.live;
  flag.per_call = writable && !row.shared_state && row.binding == FlagBinding::kNextProgram;
  return flag;
}

absl::Status Refused(const FlagInfo& flag, const FlagValue& value) {
  const std::string allowed = AllowedText(flag);
  return Error(Reason::kFlagValueInvalid,
               absl::StrFormat("flag '%s' does not accept %s '%s'; allowed: %s", flag.name,
                               TypeName(TypeOf(value)), ToText(value), allowed),
               {{"flag", flag.name}, {"value", ToText(value)}, {"allowed", allowed}});
}

bool IsAllowed(const FlagInfo& flag, const std::string& word) {
  return flag.allowed.empty() ||
         std::find(flag.allowed.begin(), flag.allowed.end(), word) != flag.allowed.end();
}

// Each name once, at its first place; then the rest of `present`. A set is sorted and has no rest.
TextList OneForm(const FlagInfo& flag, const TextList& list, const FlagValue* present) {
  if (flag.combine == FlagCombine::kUnion) {
    const std::set<std::string> sorted(list.begin(), list.end());
    return TextList(sorted.begin(), sorted.end());
  }
  TextList order;
  const auto add = [&](const TextList& names) {
    for (const std::string& name : names) {
      if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
    }
  };
  add(list);
  if (present != nullptr) add(std::get<TextList>(*present));
  if (flag.default_value.has_value()) add(std::get<TextList>(*flag.default_value));
  return order;
}

}  // namespace

bool FlagInfo::HasType(FlagType type) const {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool FlagInfo::HasScope(FlagScope scope) const {
  return std::find(scopes.begin(), scopes.end(), scope) != scopes.end();
}

const Catalogue& Catalogue::Get() {
  static const Catalogue* catalogue = new Catalogue();
  return *catalogue;
}

Catalogue::Catalogue() {
  const auto add = [this](const FlagRow& row, absl::string_view dsl) {
    FlagInfo flag = Build(row, dsl);
    flag.id = size();
    by_name_.emplace(flag.name, flag.id);
    flags_.push_back(std::move(flag));
  };
  for (const FlagRow& row : kFlagTable) {
    if (!absl::StrContains(row.name, "<dsl>")) {
      add(row, "");
      continue;
    }
    for (absl::string_view dsl : kDsls) add(row, dsl);
  }
  // FNV-1a over what decides how an index and its value are read.
  hash_ = 14695981039346656037u;
  for (const FlagInfo& flag : flags_) {
    for (char c : absl::StrCat(flag.name, ":", AllowedText(flag), ";"))
      hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 1099511628211u;
  }
}

const FlagInfo* Catalogue::Find(absl::string_view name) const {
  const auto found = by_name_.find(Str(name));
  return found == by_name_.end() ? nullptr : &flags_[found->second];
}

std::vector<std::string> Catalogue::NearMatches(absl::string_view name) const {
  std::vector<absl::string_view> names;
  names.reserve(flags_.size());
  for (const FlagInfo& flag : flags_) names.push_back(flag.name);
  return NearNames(name, names);
}

absl::StatusOr<FlagId> Catalogue::Lookup(absl::string_view name) const {
  if (const FlagInfo* flag = Find(name)) return flag->id;
  const std::string near = absl::StrJoin(NearMatches(name), ", ");
  std::map<std::string, std::string> metadata = {{"flag", Str(name)}};
  if (!near.empty()) metadata["near"] = near;
  return Error(Reason::kFlagUnknown,
               absl::StrCat("no flag is named '", name, "'",
                            near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")),
               std::move(metadata));
}

FlagId FlagIdOf(absl::string_view name) {
  const FlagInfo* flag = Catalogue::Get().Find(name);
  if (flag == nullptr) std::abort();
  return flag->id;
}

std::string AllowedText(const FlagInfo& flag) {
  std::vector<std::string> kinds;
  if (flag.HasType(FlagType::kBool)) kinds.push_back("true, false");
  if (flag.HasType(FlagType::kPair)) kinds.push_back("(true, true), (false, true), (false, false)");
  if (flag.HasType(FlagType::kInt)) {
    kinds.push_back(flag.max.has_value()   ? absl::StrCat(flag.min.value_or(0), " to ", *flag.max)
                    : flag.min.has_value() ? absl::StrCat(*flag.min, " or more")
                                           : "a whole number");
  }
  if (flag.HasType(FlagType::kText) || flag.HasType(FlagType::kList)) {
    std::vector<std::string> words = flag.allowed;
    for (const auto& [word, meaning] : flag.spellings) words.push_back(word);
    const std::string any = flag.HasType(FlagType::kInt) ? ":KiB:count text" : "names";
    const std::string joined = words.empty() ? any : absl::StrJoin(words, ", ");
    kinds.push_back(flag.HasType(FlagType::kList) ? absl::StrCat("a list of ", joined) : joined);
  }
  return absl::StrJoin(kinds, ", ");
}

std::optional<int64_t> WorkspaceBytes(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, ":")) return std::nullopt;
  const std::vector<std::string> numbers = absl::StrSplit(text, ':');
  if (numbers.size() % 2 != 0) return std::nullopt;
  int64_t bytes = 0;
  for (size_t i = 0; i < numbers.size(); i += 2) {
    int64_t factors[2];
    for (int j : {0, 1}) {
      const std::string& digits = numbers[i + j];
      // SimpleAtoi alone would take blanks and signs.
      if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos ||
          !absl::SimpleAtoi(digits, &factors[j]))
        return std::nullopt;
    }
    std::optional<int64_t> group = CheckedMul(factors[0], factors[1]);
    if (group.has_value()) group = CheckedMul(*group, 1024);
    if (group.has_value()) group = CheckedAdd(bytes, *group);
    if (!group.has_value()) return std::nullopt;
    bytes = *group;
  }
  return bytes;
}

absl::StatusOr<FlagValue> Normalise(const FlagInfo& flag, FlagValue value,
                                    const FlagValue* present) {
  // The word none is the value none where there is one.
  if (const auto* word = std::get_if<std::string>(&value);
      word != nullptr && *word == "none" && flag.HasType(FlagType::kNone))
    value = None{};
  if (!flag.HasType(TypeOf(value))) return Refused(flag, value);
  switch (TypeOf(value)) {
    case FlagType::kNone:
    case FlagType::kBool:
      return value;
    case FlagType::kInt: {
      const int64_t number = std::get<int64_t>(value);
      if (number < flag.min.value_or(number) || number > flag.max.value_or(number))
        return Refused(flag, value);
      return value;
    }
    case FlagType::kPair: {
      // Split-K cannot be forbidden where reduced precision is allowed; only (false, false) is more
      // than a bool.
      const BoolPair pair = std::get<BoolPair>(value);
      if (pair.first && !pair.second) return Refused(flag, value);
      if (pair.second) return FlagValue(pair.first);
      return value;
    }
    case FlagType::kText: {
      const std::string& word = std::get<std::string>(value);
      if (const auto spelled = flag.spellings.find(word); spelled != flag.spellings.end())
        return FlagValue(spelled->second);
      if (!IsAllowed(flag, word)) return Refused(flag, value);
      if (!flag.HasType(FlagType::kInt)) return value;
      // Flags of numbers and text: a list of words stands for its indices, free text for bytes.
      if (flag.allowed.empty()) {
        if (!WorkspaceBytes(word).has_value()) return Refused(flag, value);
        return value;
      }
      const auto at = std::find(flag.allowed.begin(), flag.allowed.end(), word);
      return FlagValue(static_cast<int64_t>(at - flag.allowed.begin()));
    }
    case FlagType::kList: {
      const TextList& list = std::get<TextList>(value);
      for (const std::string& name : list) {
        if (name.empty() || !IsAllowed(flag, name)) return Refused(flag, value);
      }
      return FlagValue(OneForm(flag, list, present));
    }
  }
  return Refused(flag, value);
}

}  // namespace backendd
