#include "client/cli/value.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "shared/convert/flag_value.h"
#include "shared/status/error.h"

namespace backendd::cli {
namespace {

std::optional<bool> ParseBool(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

// "(a, b)" with these brackets -> {"a", "b"}; "()" -> {}.
std::optional<std::vector<std::string>> Bracketed(absl::string_view text, char open, char close) {
  if (text.size() < 2 || text.front() != open || text.back() != close) return std::nullopt;
  std::vector<std::string> items;
  for (absl::string_view item :
       absl::StrSplit(text.substr(1, text.size() - 2), ',', absl::SkipWhitespace())) {
    items.emplace_back(absl::StripAsciiWhitespace(item));
  }
  return items;
}

// Writes `text` into `value` as a value of `type`; false where it cannot be written so.
bool ReadAs(absl::string_view type, absl::string_view text, v1::FlagValue* value) {
  int64_t number;
  if (type == "none" && text == "none") {
    value->mutable_none();
  } else if (const auto flag = ParseBool(text); type == "bool" && flag) {
    value->set_bool_(*flag);
  } else if (type == "int" && absl::SimpleAtoi(text, &number)) {
    value->set_int_(number);
  } else if (const auto pair = Bracketed(text, '(', ')');
             type == "pair" && pair && pair->size() == 2 && ParseBool((*pair)[0]) &&
             ParseBool((*pair)[1])) {
    value->mutable_pair()->set_first(*ParseBool((*pair)[0]));
    value->mutable_pair()->set_second(*ParseBool((*pair)[1]));
  } else if (const auto list = Bracketed(text, '[', ']'); type == "list" && list) {
    auto* items = value->mutable_list()->mutable_items();
    for (const std::string& item : *list) *items->Add() = item;
  } else if (type == "text") {
    value->set_text(std::string(text));
  } else {
    return false;
  }
  return true;
}

constexpr std::pair<absl::string_view, absl::string_view> kWritten[] = {
    {"none", "none"},          {"bool", "true, false"},       {"int", "a whole number"},
    {"pair", "(true, false)"}, {"list", "[name, name, ...]"}, {"text", "text"}};

}  // namespace

std::string ValueText(const v1::FlagValue& value) {
  const auto known = backendd::FromProto(value);
  return known ? ToText(*known) : "-";
}

absl::StatusOr<v1::FlagValue> ParseValue(absl::string_view text,
                                         const v1::FlagDescription& description) {
  std::vector<absl::string_view> allowed;
  for (const auto& [type, written] : kWritten) {
    if (std::count(description.types().begin(), description.types().end(), type) == 0) continue;
    v1::FlagValue value;
    if (ReadAs(type, text, &value)) return value;
    allowed.push_back(written);
  }
  return Error(Reason::kFlagValueInvalid,
               absl::StrCat("flag '", description.flag(), "' does not accept '", text,
                            "'; allowed: ", absl::StrJoin(allowed, " or ")),
               {{"flag", description.flag()}, {"value", std::string(text)}});
}

absl::StatusOr<std::pair<std::string, std::string>> SplitAssignment(absl::string_view text) {
  const size_t at = text.find('=');
  if (at == 0 || at == absl::string_view::npos) {
    return Error(Reason::kArgumentInvalid, absl::StrCat("'", text, "' is not FLAG=VALUE"));
  }
  return std::pair(std::string(text.substr(0, at)), std::string(text.substr(at + 1)));
}

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return Error(Reason::kArgumentInvalid,
                 absl::StrCat("'", text, "' is not a time like 250ms, 30s or 1h30m"));
  }
  return duration;
}

absl::StatusOr<uint64_t> ParseId(absl::string_view text) {
  uint64_t id = 0;
  if (text.size() != 16 || !absl::c_all_of(text, absl::ascii_isxdigit) ||
      !absl::SimpleHexAtoi(text, &id) || id == 0) {
    return Error(Reason::kIdInvalid, absl::StrCat("'", text, "' is not an id of 16 hex digits"));
  }
  return id;
}

std::string IdText(uint64_t id) { return absl::StrFormat("%016x", id); }

std::string AgeText(absl::Duration age) {
  if (age < absl::ZeroDuration()) age = absl::ZeroDuration();
  if (age < absl::Seconds(1)) return absl::StrCat(absl::ToInt64Milliseconds(age), "ms");
  const int64_t s = absl::ToInt64Seconds(age);
  if (s < 60) return absl::StrCat(s, "s");
  if (s < 3600) return absl::StrCat(s / 60, "m", s % 60, "s");
  if (s < 86400) return absl::StrCat(s / 3600, "h", s / 60 % 60, "m");
  return absl::StrCat(s / 86400, "d", s / 3600 % 24, "h");
}

std::string BytesText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", amount, kUnits[unit]);
}

}  // namespace backendd::cli
