// Who may do what: roles from the peer's user and groups, acts from one table.
#ifndef BACKENDD_SERVER_NODE_SESSION_ROLES_H_
#define BACKENDD_SERVER_NODE_SESSION_ROLES_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/listener/peer.h"

namespace backendd::node {

enum class Role { kNone, kObserver, kWorker, kOperator, kScheduler, kAdmin };
absl::string_view RoleName(Role role);
std::optional<Role> RoleFromName(absl::string_view name);

// The configured part; root and the daemon's own user are admin whatever it says.
struct RoleRules {
  struct Rule {
    std::optional<uid_t> uid;
    std::optional<gid_t> gid;  // also supplementary
    Role role = Role::kNone;
  };
  std::vector<Rule> rules;  // the first that fits counts
  Role default_role = Role::kNone;
};
Role RoleOf(const Peer& peer, const RoleRules& rules);

// Who calls; read once at the start of a call.
struct Caller {
  std::shared_ptr<const Peer> peer;
  Role role = Role::kNone;
};

enum class Act { kRead, kSession, kSharedLease, kBase, kForeign };
// PEER_NOT_ALLOWED naming the role and what it lacks.
absl::Status Admit(const Caller& caller, Act act);
int PriorityCap(Role role);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_SESSION_ROLES_H_
