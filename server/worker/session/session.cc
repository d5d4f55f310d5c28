#include "server/worker/session/session.h"

#include "absl/strings/str_format.h"
#include "server/worker/program/program.h"
#include "shared/status/macros.h"

namespace backendd::worker {
namespace {

uint64_t Or(uint64_t value, uint64_t fallback) { return value == 0 ? fallback : value; }

// In the same time whether the first byte differs or the last.
bool SameToken(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size() || a.empty()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return differs == 0;
}

// A number that one side does not know says nothing.
bool Agree(uint64_t a, uint64_t b) { return a == 0 || b == 0 || a == b; }

}  // namespace

Session::Session(SessionId id, Memory& memory) : id(id), buffers(memory) {}
Session::~Session() = default;

absl::Status UnknownSession(uint64_t id) {
  return Error(Reason::kSessionUnknown,
               absl::StrFormat("this device knows no session %016x of this caller", id),
               {{"session", absl::StrFormat("%016x", id)}});
}

absl::Status Session::CheckOpen() {
  if (ended) return UnknownSession(id.value());
  if (suspended)
    return Error(Reason::kSessionUnknown, "the session is suspended until its stream is back",
                 {{"session", absl::StrFormat("%016x", id.value())}, {"state", "SUSPENDED"}});
  return absl::OkStatus();
}

absl::Status Session::Enter() {
  RETURN_IF_ERROR(CheckOpen());
  RETURN_IF_ERROR(CheckQuota("programs in flight", quotas.programs, in_flight, 1));
  ++in_flight;
  return absl::OkStatus();
}

void SessionTable::Grant(const control::v1::Grant& grant) {
  const SessionId id(grant.session_id());
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&mutex_);
    Granted& granted = sessions_[id];
    if (granted.session == nullptr) granted.session = std::make_shared<Session>(id, memory_);
    granted.token = grant.token();
    granted.peer = {grant.uid(), grant.pid(), grant.pidfd_inode()};
    session = granted.session;
  }
  const Quotas standard;
  MutexLock lock(&session->mutex);
  session->suspended = grant.suspended();
  session->quotas = {Or(grant.quotas().bytes(), standard.bytes),
                     Or(grant.quotas().buffers(), standard.buffers),
                     Or(grant.quotas().imports(), standard.imports),
                     Or(grant.quotas().programs(), standard.programs),
                     Or(grant.quotas().operations(), standard.operations)};
}

void SessionTable::End(SessionId id) {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    session = std::move(found->second.session);
    sessions_.erase(found);
  }
  {
    MutexLock lock(&session->mutex);
    session->ended = true;
    ++session->in_flight;  // the end itself, so that exactly one thread frees
  }
  hooks_.drop(*session);
  hooks_.post([this, session] { Leave(session); });
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Authenticate(SessionId id,
                                                                    absl::string_view token,
                                                                    const Caller& caller) const {
  MutexLock lock(&mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return UnknownSession(id.value());
  if (!found->second.Admits(token, caller)) return UnknownSession(id.value());
  return found->second.session;
}

bool SessionTable::Granted::Admits(absl::string_view other, const Caller& caller) const {
  return SameToken(token, other) && peer.uid == caller.uid && Agree(peer.pid, caller.pid) &&
         Agree(peer.pidfd_inode, caller.pidfd_inode);
}

std::shared_ptr<Session> SessionTable::Find(absl::string_view token, const Caller& caller) const {
  MutexLock lock(&mutex_);
  for (const auto& [id, granted] : sessions_) {
    if (granted.Admits(token, caller)) return granted.session;
  }
  return nullptr;
}

bool SessionTable::Has(SessionId id) const {
  MutexLock lock(&mutex_);
  return sessions_.contains(id);
}

void SessionTable::Leave(const std::shared_ptr<Session>& session) {
  uint64_t bytes = 0;
  {
    MutexLock lock(&session->mutex);
    if (--session->in_flight > 0 || !session->ended) return;
    bytes = session->buffers.FreeAll();
    session->answers.clear();
    session->prepared.clear();
  }
  hooks_.freed(session->id, bytes);
}

std::vector<std::pair<SessionId, uint64_t>> SessionTable::Bytes() const {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, granted] : sessions_) sessions.push_back(granted.session);
  }
  std::vector<std::pair<SessionId, uint64_t>> bytes;
  for (const std::shared_ptr<Session>& session : sessions) {
    MutexLock lock(&session->mutex);
    bytes.emplace_back(session->id, session->buffers.bytes());
  }
  return bytes;
}

}  // namespace backendd::worker
