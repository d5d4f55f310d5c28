#include "server/node/commit/commands.h"

#include "shared/convert/flag_value.h"

namespace backendd::node {
namespace {

void Put(FlagId flag, const Reading& reading, control::v1::FlagState* state) {
  state->set_flag(static_cast<uint32_t>(flag));
  if (reading.value.has_value()) *state->mutable_value() = ToProto(*reading.value);
  state->set_layer(static_cast<v1::Layer>(reading.layer));
  *state->mutable_entry() = ToProto(reading.entry);
  state->set_written(reading.written);
}

bool SameForWorker(const Reading& a, const Reading& b) {
  return &a == &b ||
         (a.value == b.value && a.layer == b.layer && a.entry == b.entry && a.written == b.written);
}

void PutSession(SessionId session, const DeviceId& device, const Snapshot& snapshot,
                control::v1::Snapshot* out) {
  control::v1::SessionFlags* flags = out->add_sessions();
  flags->set_session_id(session.value());
  for (FlagId flag : snapshot.PrivateFlags(session, device)) {
    const auto reading = snapshot.ReadFor(flag, device, session);
    if (reading.ok()) Put(flag, *reading, flags->add_flags());
  }
}

control::v1::Snapshot Head(const Snapshot& snapshot) {
  control::v1::Snapshot out;
  out.set_epoch(snapshot.epoch());
  out.set_revision(snapshot.revision());
  return out;
}

}  // namespace

control::v1::Snapshot ChangesFor(const DeviceId& device, const Snapshot& before,
                                 const Snapshot& after, const std::set<SessionId>& touched) {
  control::v1::Snapshot out = Head(after);
  const std::optional<DeviceId> place = device;
  for (FlagId flag = 0; flag < Catalogue::Get().size(); ++flag) {
    const Reading& now = after.Read(flag, place);
    if (!SameForWorker(before.Read(flag, place), now)) Put(flag, now, out.add_flags());
  }
  std::set<SessionId> sessions = touched;
  if (out.flags_size() > 0) {
    for (SessionId session : after.SessionsWithPrivateValues()) sessions.insert(session);
  }
  for (SessionId session : sessions) PutSession(session, device, after, &out);
  return out;
}

control::v1::Snapshot CompleteFor(const DeviceId& device, const Snapshot& snapshot) {
  control::v1::Snapshot out = Head(snapshot);
  out.set_complete(true);
  for (FlagId flag = 0; flag < Catalogue::Get().size(); ++flag)
    Put(flag, snapshot.Read(flag, device), out.add_flags());
  for (SessionId session : snapshot.SessionsWithPrivateValues())
    PutSession(session, device, snapshot, &out);
  return out;
}

}  // namespace backendd::node
