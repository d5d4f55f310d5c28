#include "server/node/session/roles.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "shared/status/error.h"
#include "shared/text.h"

namespace backendd::node {
namespace {

constexpr uid_t kOverflowUid = 65534;  // somebody of another user namespace: could be anybody

constexpr unsigned Bit(Role role) { return 1u << static_cast<int>(role); }
constexpr unsigned kAdmins = Bit(Role::kAdmin);
constexpr unsigned kOperators = kAdmins | Bit(Role::kOperator);
constexpr unsigned kSharers = kOperators | Bit(Role::kScheduler);
constexpr unsigned kClients = kSharers | Bit(Role::kWorker);
constexpr unsigned kReaders = kClients | Bit(Role::kObserver);

struct ActRow {
  Act act;
  unsigned roles;
  absl::string_view words;
};
constexpr ActRow kActs[] = {
    {Act::kRead, kReaders, "read flags, leases and devices"},
    {Act::kSession, kClients, "open sessions and set private values"},
    {Act::kSharedLease, kSharers, "take leases at node or device scope"},
    {Act::kBase, kOperators, "write base values"},
    {Act::kForeign, kAdmins, "end sessions and leases of others"},
};

struct RoleRow {
  Role role;
  absl::string_view name;
  int priority_cap;
};
constexpr RoleRow kRoles[] = {
    {Role::kNone, "none", 0},
    {Role::kObserver, "observer", 0},
    {Role::kWorker, "worker", 99},
    {Role::kOperator, "operator", 199},
    {Role::kScheduler, "scheduler", 299},
    {Role::kAdmin, "admin", 1000},
};

}  // namespace

absl::string_view RoleName(Role role) { return kRoles[static_cast<int>(role)].name; }

std::optional<Role> RoleFromName(absl::string_view name) {
  for (const RoleRow& row : kRoles) {
    if (row.name == name) return row.role;
  }
  return std::nullopt;
}

int PriorityCap(Role role) { return kRoles[static_cast<int>(role)].priority_cap; }

Role RoleOf(const Peer& peer, const RoleRules& rules) {
  if (peer.uid == 0 || peer.uid == geteuid()) return Role::kAdmin;
  if (peer.uid == kOverflowUid || peer.uid == static_cast<uid_t>(-1)) return Role::kNone;
  for (const RoleRules::Rule& rule : rules.rules) {
    if (rule.uid.has_value() && *rule.uid == peer.uid) return rule.role;
    if (rule.gid.has_value() && (*rule.gid == peer.gid || peer.InGroup(*rule.gid)))
      return rule.role;
  }
  return rules.default_role;
}

absl::Status Admit(const Caller& caller, Act act) {
  const ActRow& row = kActs[static_cast<int>(act)];
  if ((row.roles & Bit(caller.role)) != 0) return absl::OkStatus();
  const std::string role = Str(RoleName(caller.role));
  return Error(Reason::kPeerNotAllowed, absl::StrCat("role '", role, "' may not ", row.words),
               {{"role", role}, {"lacks", Str(row.words)}});
}

}  // namespace backendd::node
