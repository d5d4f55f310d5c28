// A flag store with short words for what tests do to it.
#ifndef BACKENDD_TESTS_UNIT_FLAGS_STORE_FIXTURE_H_
#define BACKENDD_TESTS_UNIT_FLAGS_STORE_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/node/flags/environment.h"
#include "server/node/flags/flag_store.h"
#include "tests/support/status_matchers.h"

namespace backendd::node {

using Values = std::vector<std::pair<std::string, FlagValue>>;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() { Start(); }

  void Start(NodeFacts facts = {}, const std::map<std::string, std::string>& variables = {}) {
    FlagStore::Options options;
    options.epoch = "test";
    Environment environment = ParseEnvironment(variables, facts);
    warnings_ = environment.warnings;
    options.environment = std::move(environment.entries);
    options.facts = std::move(facts);
    auto store = FlagStore::Create(std::move(options));
    ASSERT_OK(store);
    store_ = *std::move(store);
  }

  static std::vector<RequestedEntry> Requested(const Values& values,
                                               std::optional<DeviceId> device = {}) {
    std::vector<RequestedEntry> requested;
    for (const auto& [flag, value] : values) {
      RequestedEntry entry;
      entry.flag = flag;
      entry.device = device;
      entry.value = value;
      entry.field = "entries[" + std::to_string(requested.size()) + "]";
      requested.push_back(std::move(entry));
    }
    return requested;
  }

  // The violations of writing `values`; nothing is written.
  std::vector<Violation> Refusals(const Values& values, std::optional<SessionId> session = {},
                                  std::optional<DeviceId> device = {}) {
    std::vector<Violation> violations;
    store_->Check(Requested(values, device), session, true, &violations);
    return violations;
  }
  std::optional<Reason> Refusal(const std::string& flag, FlagValue value) {
    const auto violations = Refusals({{flag, std::move(value)}});
    if (violations.empty()) return std::nullopt;
    return violations.front().reason;
  }

  std::vector<Entry> Checked(const Values& values, std::optional<SessionId> session,
                             std::optional<DeviceId> device = {}, bool writing = true) {
    std::vector<Violation> violations;
    auto entries = store_->Check(Requested(values, device), session, writing, &violations);
    EXPECT_TRUE(violations.empty()) << violations.front().description;
    return entries;
  }

  Change Done() {
    auto change = store_->Apply("test", true);
    EXPECT_TRUE(change.has_value());
    return *std::move(change);
  }

  Change Set(const Values& values, std::optional<DeviceId> device = {}) {
    store_->SetBase(Checked(values, {}, device), {"uid 0", ""});
    return Done();
  }
  Change Set(SessionId session, const Values& values) {
    store_->SetBare(session, Checked(values, session), {"uid 1", ""});
    return Done();
  }
  Change Unset(const std::string& flag) {
    store_->UnsetBase(Checked({{flag, None{}}}, {}, {}, false));
    return Done();
  }
  Change Lease(int lease, const Values& values, int32_t priority = 0,
               std::optional<DeviceId> device = {}) {
    LeaseOwner owner;
    owner.lease = LeaseId(lease);
    owner.session = SessionId(100 + lease);
    owner.priority = priority;
    owner.writer.source = "uid 1";
    store_->PutLease(owner, Checked(values, {}, device));
    return Done();
  }
  Change Overlay(int lease, SessionId session, const Values& values) {
    LeaseOwner owner;
    owner.lease = LeaseId(lease);
    owner.session = session;
    owner.is_private = true;
    store_->PutLease(owner, Checked(values, session));
    return Done();
  }
  Change Release(int lease) {
    store_->DropLease(LeaseId(lease));
    return Done();
  }

  Reading Read(const std::string& flag, std::optional<DeviceId> device = {}) {
    return store_->latest()->Read(FlagIdOf(flag), device);
  }
  FlagValue Get(const std::string& flag, std::optional<DeviceId> device = {}) {
    return Read(flag, device).value.value_or(FlagValue("unavailable"));
  }
  FlagValue GetFor(SessionId session, const std::string& flag) {
    const auto reading = store_->latest()->ReadFor(FlagIdOf(flag), {}, session);
    if (!reading.ok()) return FlagValue(std::string(ReasonName(*ReasonOf(reading.status()))));
    return *reading->value;
  }
  // The reading as text, with a mark where it is inconsistent.
  std::string Legacy(const std::string& flag) {
    const Reading reading = Read(flag);
    return ToText(*reading.value) + (*reading.consistent ? "" : " (inconsistent)");
  }
  static std::vector<std::string> Names(const std::vector<FlagId>& flags) {
    std::vector<std::string> names;
    for (FlagId flag : flags) names.push_back(Catalogue::Get().info(flag).name);
    return names;
  }
  static std::vector<std::string> Moved(const std::vector<ValueChange>& changes) {
    std::vector<std::string> names;
    for (const ValueChange& change : changes)
      names.push_back(Catalogue::Get().info(change.flag).name);
    return names;
  }

  std::unique_ptr<FlagStore> store_;
  std::vector<std::string> warnings_;
};

}  // namespace backendd::node

#endif  // BACKENDD_TESTS_UNIT_FLAGS_STORE_FIXTURE_H_
