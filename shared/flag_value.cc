#include "shared/flag_value.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace backendd {

absl::string_view TypeName(FlagType type) {
  switch (type) {
    case FlagType::kNone:
      return "none";
    case FlagType::kBool:
      return "bool";
    case FlagType::kInt:
      return "int";
    case FlagType::kText:
      return "text";
    case FlagType::kList:
      return "list";
    case FlagType::kPair:
      return "pair";
  }
  return "none";
}

std::string ToText(const FlagValue& value) {
  struct Writer {
    std::string operator()(None) const { return "none"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return absl::StrCat(v); }
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(const TextList& v) const {
      return absl::StrCat("[", absl::StrJoin(v, ", "), "]");
    }
    std::string operator()(const BoolPair& v) const {
      return absl::StrCat("(", (*this)(v.first), ", ", (*this)(v.second), ")");
    }
  };
  return std::visit(Writer{}, value);
}

}  // namespace backendd
