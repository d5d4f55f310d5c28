// Every flag and query of the panel, with all that is known of it before a node is looked at.
#ifndef BACKENDD_SERVER_FLAGS_CATALOGUE_H_
#define BACKENDD_SERVER_FLAGS_CATALOGUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "shared/flag_value.h"

namespace backendd {

using FlagId = int;  // 0 .. Catalogue::size() - 1, in the table's order; the same in both processes

// Numbers equal those of the wire's FlagAccess, FlagBinding and ScopeKind.
enum class FlagAccess { kReadWrite = 1, kReadOnly = 2, kConstant = 3, kAction = 4 };
enum class FlagBinding { kNone = 0, kAtOnce = 1, kNextProgram = 2, kWorkerStart = 3 };
enum class FlagScope { kNode = 1, kDevice = 2, kSession = 3 };

// How the entries of several layers come to one value.
enum class FlagCombine {
  kHighest,  // the highest layer's
  kUnion,    // a set: all names of all entries
  kAllTrue,  // a bool: true while no entry says false
};

struct FlagInfo {
  FlagId id = -1;
  std::string name;            // its path under torch.backends
  std::string torch_spelling;  // where it differs
  std::vector<FlagType> types;
  std::vector<std::string> allowed;              // words, in words; empty: any text
  std::map<std::string, std::string> spellings;  // other words for allowed ones
  std::optional<int64_t> min, max;
  std::optional<FlagValue> default_value;  // nullopt: depends on the node or device
  std::string default_note;                // on what it depends
  std::vector<std::string> environment;    // variables that set it
  std::vector<FlagScope> scopes;           // where it may be written; empty: nowhere
  FlagAccess access = FlagAccess::kReadWrite;
  FlagBinding binding = FlagBinding::kNone;
  FlagCombine combine = FlagCombine::kHighest;
  std::string replaced_by;  // deprecated names only
  std::string needs;        // what a node needs to have it
  std::string honoured_by;
  std::string summary;
  std::vector<std::string> arguments;  // of a query
  bool over_tensors = false;           // a query over tensors: its operation answers, not the store
  bool live = false;                   // a number that only the worker knows
  bool per_call = false;               // may stand at one operation of a program

  bool HasType(FlagType type) const;
  bool HasScope(FlagScope scope) const;
  bool writable() const { return access == FlagAccess::kReadWrite; }
};

// Built once from the table; immutable, any thread.
class Catalogue {
 public:
  static const Catalogue& Get();

  const FlagInfo* Find(absl::string_view name) const;  // nullptr: unknown
  const FlagInfo& info(FlagId id) const { return flags_[id]; }
  int size() const { return static_cast<int>(flags_.size()); }
  const std::vector<FlagInfo>& flags() const { return flags_; }
  std::vector<std::string> NearMatches(absl::string_view name) const;
  // FLAG_UNKNOWN with near matches.
  absl::StatusOr<FlagId> Lookup(absl::string_view name) const;
  // Of all that both processes must agree on; they compare it when a worker says hello.
  uint64_t Hash() const { return hash_; }

 private:
  Catalogue();
  std::vector<FlagInfo> flags_;
  std::map<std::string, FlagId> by_name_;
  uint64_t hash_ = 0;
};

// The id of a flag that the table is known to have; aborts on any other name.
FlagId FlagIdOf(absl::string_view name);

// `value` in its one form (words that are spelled in several ways, sorted sets, the completed SDPA
// order), or FLAG_VALUE_INVALID naming the flag, the value and what is allowed. Looks at the value
// alone: who may write, and what this node has, is asked elsewhere. `present`: what the flag reads
// now, for cuda.sdp_priority_order, whose missing kernels follow in their present order; nullptr:
// the default.
absl::StatusOr<FlagValue> Normalise(const FlagInfo& flag, FlagValue value,
                                    const FlagValue* present = nullptr);

// "highest, high, medium", "0 or more": what Normalise accepts, in words.
std::string AllowedText(const FlagInfo& flag);

// Bytes of a workspace text: one or more ":KiB:count" and nothing else; nullopt for any other text.
std::optional<int64_t> WorkspaceBytes(absl::string_view text);

// Every flag as a Markdown table.
std::string FlagTableMarkdown();

}  // namespace backendd

#endif  // BACKENDD_SERVER_FLAGS_CATALOGUE_H_
