// Between the two string views (Debian builds Abseil with its own; newer distributions make them
// one type, so nothing may be overloaded on both), and text from strangers made safe for protobuf
// strings and terminals.
#ifndef BACKENDD_SHARED_TEXT_H_
#define BACKENDD_SHARED_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"

namespace backendd {

constexpr std::string_view Std(absl::string_view text) {
  return std::string_view(text.data(), text.size());
}
constexpr absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}
inline std::string Str(absl::string_view text) { return std::string(text.data(), text.size()); }

// `text` with every byte that is no valid UTF-8 replaced by '?': protobuf refuses to parse the
// rest.
std::string ValidUtf8(absl::string_view text);

// Up to `limit` of `names` within Damerau-Levenshtein distance 2 of `name`, nearest first ("did you
// mean").
std::vector<std::string> NearNames(absl::string_view name,
                                   const std::vector<absl::string_view>& names, int limit = 3);

}  // namespace backendd

#endif  // BACKENDD_SHARED_TEXT_H_
