// The value of a flag: exactly what the wire's FlagValue can carry.
#ifndef BACKENDD_SHARED_FLAG_VALUE_H_
#define BACKENDD_SHARED_FLAG_VALUE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace backendd {

// `none` is a value (an fp32 precision that asks its parent, an absent version), not the absence of
// one.
struct None {
  friend constexpr auto operator<=>(None, None) = default;
};
using BoolPair = std::pair<bool, bool>;
using TextList = std::vector<std::string>;  // a set is kept sorted, each name once
using FlagValue = std::variant<None, bool, int64_t, std::string, TextList, BoolPair>;

enum class FlagType { kNone = 0, kBool, kInt, kText, kList, kPair };  // indices of FlagValue

inline FlagType TypeOf(const FlagValue& value) { return static_cast<FlagType>(value.index()); }
absl::string_view TypeName(FlagType type);  // "none", "bool", "int", "text", "list", "pair"

// As people and command lines write it: true, 10, tf32, [flash, math], (true, false), none.
std::string ToText(const FlagValue& value);

}  // namespace backendd

#endif  // BACKENDD_SHARED_FLAG_VALUE_H_
