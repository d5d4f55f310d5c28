#include "server/node/lease/lease_table.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace backendd::node {
namespace {

constexpr absl::Duration kRemembered = absl::Minutes(10);
constexpr size_t kMostRemembered = 4096;

bool Overlap(const LeaseKey& a, const LeaseKey& b) {
  return a.flag == b.flag && (a.device.empty() || b.device.empty() || a.device == b.device);
}

bool Overlap(const std::vector<LeaseKey>& a, const LeaseKey& key) {
  return std::any_of(a.begin(), a.end(), [&](const LeaseKey& one) { return Overlap(one, key); });
}

}  // namespace

std::optional<LeaseId> LeaseTable::BlockerBefore(const HeldLease& wanted, uint64_t before) const {
  const auto stands_in_the_way = [&](LeaseId id, const LeaseKey& key) {
    const HeldLease& other = *leases_.at(id);
    return id != wanted.id && other.session != wanted.session &&
           (other.state != LeaseState::kWaiting || other.order < before) &&
           Overlap(other.keys, key);
  };
  for (const LeaseKey& key : wanted.keys) {
    const auto uses = uses_.find(key.flag);
    if (uses == uses_.end()) continue;
    const bool exclusive = wanted.mode == LeaseMode::kExclusive;
    for (LeaseId id : exclusive ? uses->second.held : uses->second.exclusive) {
      if (stands_in_the_way(id, key)) return id;
    }
    for (LeaseId id : uses->second.waiting) {
      if ((exclusive || leases_.at(id)->mode == LeaseMode::kExclusive) &&
          stands_in_the_way(id, key))
        return id;
    }
  }
  return std::nullopt;
}

std::optional<LeaseId> LeaseTable::Blocker(SessionId session, const std::vector<LeaseKey>& keys,
                                           LeaseMode mode, LeaseId self) const {
  HeldLease wanted;
  wanted.id = self;
  wanted.session = session;
  wanted.keys = keys;
  wanted.mode = mode;
  return BlockerBefore(wanted, UINT64_MAX);
}

void LeaseTable::Index(const HeldLease& lease) {
  for (const LeaseKey& key : lease.keys) {
    Uses& uses = uses_[key.flag];
    if (lease.state == LeaseState::kWaiting) {
      uses.waiting.insert(lease.id);
    } else {
      uses.held.insert(lease.id);
      if (lease.mode == LeaseMode::kExclusive) uses.exclusive.insert(lease.id);
    }
  }
}

void LeaseTable::Unindex(const HeldLease& lease) {
  for (const LeaseKey& key : lease.keys) {
    const auto uses = uses_.find(key.flag);
    if (uses == uses_.end()) continue;  // another key of the same flag was the last use
    uses->second.held.erase(lease.id);
    uses->second.exclusive.erase(lease.id);
    uses->second.waiting.erase(lease.id);
    if (uses->second.held.empty() && uses->second.waiting.empty()) uses_.erase(uses);
  }
}

void LeaseTable::SetDeadline(HeldLease& lease, absl::Duration deadline) {
  deadlines_.erase({lease.deadline, lease.id});
  lease.deadline = deadline;
  if (deadline != absl::InfiniteDuration()) deadlines_.insert({deadline, lease.id});
}

HeldLease& LeaseTable::Insert(HeldLease lease) {
  do {
    lease.id = RandomId<LeaseId>();
  } while (leases_.contains(lease.id) || ended_.contains(lease.id));
  lease.order = ++arrivals_;
  lease.since = clock_->Steady();
  auto owned = std::make_unique<HeldLease>(std::move(lease));
  HeldLease& stored = *owned;
  leases_.emplace(stored.id, std::move(owned));
  by_session_[stored.session].insert({stored.order, stored.id});
  Index(stored);
  return stored;
}

const HeldLease& LeaseTable::Grant(SessionId session, std::vector<LeaseKey> keys, LeaseMode mode,
                                   std::optional<absl::Duration> ttl) {
  HeldLease& lease = Insert({LeaseId(), session, std::move(keys), mode, LeaseState::kActive, ttl});
  if (ttl.has_value()) SetDeadline(lease, lease.since + *ttl);
  return lease;
}

const HeldLease& LeaseTable::Enqueue(SessionId session, std::vector<LeaseKey> keys, LeaseMode mode,
                                     std::optional<absl::Duration> ttl, absl::Duration wait) {
  HeldLease& lease = Insert({LeaseId(), session, std::move(keys), mode, LeaseState::kWaiting, ttl});
  line_.insert({lease.order, lease.id});
  SetDeadline(lease, lease.since + wait);
  return lease;
}

std::optional<LeaseId> LeaseTable::GrantNext() {
  for (const auto [order, id] : line_) {  // copies: the grant takes its place out of the line
    HeldLease& lease = *leases_.at(id);
    if (BlockerBefore(lease, order).has_value()) continue;
    line_.erase({order, id});
    Unindex(lease);
    lease.state = LeaseState::kActive;
    lease.since = clock_->Steady();
    Index(lease);
    SetDeadline(lease, lease.ttl.has_value() ? lease.since + *lease.ttl : absl::InfiniteDuration());
    return id;
  }
  return std::nullopt;
}

void LeaseTable::SetToken(LeaseId id, uint64_t token) { leases_.at(id)->token = token; }

void LeaseTable::Replace(LeaseId id, std::vector<LeaseKey> keys, LeaseMode mode) {
  HeldLease& lease = *leases_.at(id);
  Unindex(lease);
  lease.keys = std::move(keys);
  lease.mode = mode;
  Index(lease);
}

void LeaseTable::SetTtl(LeaseId id, absl::Duration ttl) {
  HeldLease& lease = *leases_.at(id);
  lease.ttl = ttl;
  SetDeadline(lease, clock_->Steady() + ttl);
}

bool LeaseTable::Renew(LeaseId id) {
  const auto found = leases_.find(id);
  if (found == leases_.end() || found->second->state != LeaseState::kActive) return false;
  HeldLease& lease = *found->second;
  if (lease.ttl.has_value()) SetDeadline(lease, clock_->Steady() + *lease.ttl);
  return true;
}

void LeaseTable::BeginEnd(LeaseId id) {
  HeldLease& lease = *leases_.at(id);
  if (lease.state == LeaseState::kWaiting) {
    line_.erase({lease.order, id});
    Unindex(lease);
    lease.keys.clear();  // it never had them
  }
  lease.state = LeaseState::kEnding;
  SetDeadline(lease, absl::InfiniteDuration());
}

void LeaseTable::Forget(LeaseId id, SessionId session, int cause) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  HeldLease& lease = *found->second;
  SetDeadline(lease, absl::InfiniteDuration());
  Unindex(lease);
  line_.erase({lease.order, id});
  const auto of_session = by_session_.find(lease.session);
  of_session->second.erase({lease.order, id});
  if (of_session->second.empty()) by_session_.erase(of_session);
  leases_.erase(found);
  ended_order_.push_back(id);
  ended_[id] = {id, session, cause, clock_->Steady()};
  TrimEnded();
}

void LeaseTable::TrimEnded() {
  while (!ended_order_.empty() &&
         (ended_order_.size() > kMostRemembered ||
          ended_.at(ended_order_.front()).at + kRemembered < clock_->Steady())) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
}

const HeldLease* LeaseTable::Find(LeaseId id) const {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : found->second.get();
}

const LeaseTable::Ended* LeaseTable::FindEnded(LeaseId id) const {
  const auto found = ended_.find(id);
  if (found == ended_.end() || found->second.at + kRemembered < clock_->Steady()) return nullptr;
  return &found->second;
}

std::vector<LeaseTable::Ended> LeaseTable::EndedOf(SessionId session) const {
  std::vector<Ended> ended;
  for (LeaseId id : ended_order_) {
    const Ended& one = ended_.at(id);
    if (one.session == session) ended.push_back(one);
  }
  return ended;
}

std::vector<LeaseId> LeaseTable::OfSession(SessionId session) const {
  std::vector<LeaseId> ids;
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return ids;
  for (const auto& [order, id] : found->second) ids.push_back(id);
  return ids;
}

std::vector<LeaseId> LeaseTable::All() const {
  std::vector<std::pair<uint64_t, LeaseId>> ordered;
  ordered.reserve(leases_.size());
  for (const auto& [id, lease] : leases_) ordered.push_back({lease->order, id});
  std::sort(ordered.begin(), ordered.end());
  std::vector<LeaseId> ids;
  ids.reserve(ordered.size());
  for (const auto& [order, id] : ordered) ids.push_back(id);
  return ids;
}

int LeaseTable::PositionOf(LeaseId waiter) const {
  const HeldLease& lease = *leases_.at(waiter);
  int before = 0;
  for (const auto& [order, id] : line_) {
    if (order >= lease.order) break;
    const HeldLease& other = *leases_.at(id);
    if (std::any_of(lease.keys.begin(), lease.keys.end(),
                    [&](const LeaseKey& key) { return Overlap(other.keys, key); }))
      ++before;
  }
  return before + 1;
}

int LeaseTable::WaitersOn(const std::vector<LeaseKey>& keys,
                          absl::FunctionRef<bool(LeaseId)> counts) const {
  int longest = 0;
  for (const LeaseKey& key : keys) {
    const auto uses = uses_.find(key.flag);
    if (uses == uses_.end()) continue;
    const std::set<LeaseId>& waiting = uses->second.waiting;
    longest = std::max(longest, static_cast<int>(absl::c_count_if(waiting, counts)));
  }
  return longest;
}

std::vector<LeaseId> LeaseTable::Due() const {
  std::vector<LeaseId> due;
  const absl::Duration now = clock_->Steady();
  for (const auto& [deadline, id] : deadlines_) {
    if (deadline > now) break;
    due.push_back(id);
  }
  return due;
}

absl::Duration LeaseTable::NextDeadline() const {
  return deadlines_.empty() ? absl::InfiniteDuration() : deadlines_.begin()->first;
}

void LeaseTable::CreditStall(absl::Duration stall) {
  const absl::Duration now = clock_->Steady();
  for (auto& [id, lease] : leases_) {
    if (lease->deadline == absl::InfiniteDuration()) continue;
    absl::Duration deadline = lease->deadline + stall;
    if (lease->state == LeaseState::kActive) deadline = std::max(deadline, now + *lease->ttl / 3);
    SetDeadline(*lease, deadline);
  }
}

}  // namespace backendd::node
