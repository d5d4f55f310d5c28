#include "server/worker/plan/plan_cache.h"

#include <utility>
#include <vector>

namespace backendd::worker {
namespace {

constexpr absl::string_view kNames[kPlanKinds] = {"fft", "convolution", "gemm", "other"};
constexpr size_t kMostNegatives = 256;

uint64_t BytesOf(const Plan& plan) { return plan.host_bytes + plan.device_bytes; }

}  // namespace

absl::string_view PlanKindName(PlanKind kind) { return kNames[static_cast<int>(kind)]; }

PlanKind PlanKindOf(OpKind kind) {
  switch (kind) {
    case OpKind::kFft:
      return PlanKind::kFft;
    case OpKind::kConvolutionForward:
    case OpKind::kConvolutionInputGradient:
    case OpKind::kConvolutionWeightGradient:
      return PlanKind::kConvolution;
    case OpKind::kGemm:
    case OpKind::kGroupedGemm:
      return PlanKind::kGemm;
    default:
      return PlanKind::kOther;
  }
}

std::shared_ptr<const Plan> PlanCache::FindLocked(Kind& kind, absl::string_view key) {
  const auto found = kind.by_key.find(key);
  if (found == kind.by_key.end()) return nullptr;
  kind.entries.splice(kind.entries.begin(), kind.entries, found->second);
  found->second->used = ++tick_;
  ++kind.stats.hits;
  return found->second->plan;
}

std::shared_ptr<const Plan> PlanCache::Find(PlanKind kind, absl::string_view key) {
  MutexLock lock(&mutex_);
  return FindLocked(kinds_[static_cast<int>(kind)], key);
}

absl::StatusOr<PlanLookup> PlanCache::Get(PlanKind which, absl::string_view key, Build build) {
  std::shared_ptr<Flight> flight;
  uint64_t generation = 0;
  {
    MutexLock lock(&mutex_);
    Kind& kind = kinds_[static_cast<int>(which)];
    if (auto plan = FindLocked(kind, key)) return PlanLookup{std::move(plan), true};
    if (const auto failed = kind.negatives.find(key); failed != kind.negatives.end()) {
      if (clock_.Steady() < failed->second.until) return failed->second.status;
      kind.negatives.erase(failed);
    }
    if (const auto flying = kind.flights.find(key); flying != kind.flights.end()) {
      flight = flying->second;
      ++kind.stats.hits;
      while (!flight->finished) flight->done.Wait(&mutex_);
      if (!flight->result.ok()) return flight->result.status();
      return PlanLookup{*flight->result, true};
    }
    ++kind.stats.misses;
    generation = kind.generation;
    flight = std::make_shared<Flight>();
    kind.flights.emplace(std::string(key), flight);
  }

  absl::StatusOr<std::unique_ptr<Plan>> built = build();
  const auto no_memory = [&built] {
    return !built.ok() && ReasonOf(built.status()) == Reason::kDeviceOutOfMemory;
  };
  if (no_memory()) {
    DropUnpinned();
    built = build();
  }

  absl::StatusOr<PlanLookup> answer;
  std::vector<std::shared_ptr<const Plan>> dropped;  // freed without the lock
  {
    MutexLock lock(&mutex_);
    Kind& kind = kinds_[static_cast<int>(which)];
    if (built.ok()) {
      std::shared_ptr<const Plan> plan = *std::move(built);
      flight->result = plan;
      if (limits_[static_cast<int>(which)] > 0 && generation == kind.generation) {
        bytes_ += BytesOf(*plan);
        kind.entries.push_front({std::string(key), plan, ++tick_});
        kind.by_key.emplace(std::string(key), kind.entries.begin());
        Evict(&dropped);
      }
      answer = PlanLookup{std::move(plan), false};
    } else {
      flight->result = built.status();
      answer = built.status();
      // Memory may be there in a moment; what a library refuses stays refused.
      if (!no_memory()) {
        if (kind.negatives.size() >= kMostNegatives) kind.negatives.clear();
        kind.negatives[std::string(key)] = {built.status(), clock_.Steady() + options_.negative};
      }
    }
    flight->finished = true;
    flight->done.SignalAll();
    kind.flights.erase(key);
  }
  return answer;
}

void PlanCache::Drop(Kind& kind, std::list<Entry>::iterator entry,
                     std::vector<std::shared_ptr<const Plan>>* dropped) {
  bytes_ -= BytesOf(*entry->plan);
  kind.by_key.erase(entry->key);
  dropped->push_back(std::move(entry->plan));
  kind.entries.erase(entry);
}

void PlanCache::Evict(std::vector<std::shared_ptr<const Plan>>* dropped) {
  bool over = false;
  const auto oldest = [this](Kind& kind) {
    mutex_.AssertHeld();
    for (auto entry = kind.entries.end(); entry != kind.entries.begin();) {
      if (!Pinned(*--entry)) return entry;
    }
    return kind.entries.end();
  };
  for (int i = 0; i < kPlanKinds; ++i) {
    Kind& kind = kinds_[i];
    while (kind.entries.size() > limits_[i]) {
      const auto entry = oldest(kind);
      if (entry == kind.entries.end()) break;
      ++kind.stats.evictions;
      Drop(kind, entry, dropped);
    }
    over = over || kind.entries.size() > limits_[i];
  }
  while (bytes_ > options_.bytes) {
    Kind* victim = nullptr;
    std::list<Entry>::iterator entry;
    for (Kind& kind : kinds_) {
      const auto candidate = oldest(kind);
      if (candidate == kind.entries.end()) continue;
      if (victim == nullptr || candidate->used < entry->used) {
        victim = &kind;
        entry = candidate;
      }
    }
    if (victim == nullptr) break;
    ++victim->stats.evictions;
    Drop(*victim, entry, dropped);
  }
  over_.store(over || bytes_ > options_.bytes, std::memory_order_relaxed);
}

void PlanCache::SetLimit(PlanKind kind, uint64_t entries) {
  std::vector<std::shared_ptr<const Plan>> dropped;
  MutexLock lock(&mutex_);
  limits_[static_cast<int>(kind)] = entries;
  if (entries == 0) ++kinds_[static_cast<int>(kind)].generation;
  Evict(&dropped);
}

uint64_t PlanCache::Clear(PlanKind which) {
  std::vector<std::shared_ptr<const Plan>> dropped;
  MutexLock lock(&mutex_);
  Kind& kind = kinds_[static_cast<int>(which)];
  ++kind.generation;
  kind.negatives.clear();
  const uint64_t count = kind.entries.size();
  while (!kind.entries.empty()) Drop(kind, kind.entries.begin(), &dropped);
  return count;
}

void PlanCache::DropUnpinned() {
  std::vector<std::shared_ptr<const Plan>> dropped;
  MutexLock lock(&mutex_);
  for (Kind& kind : kinds_) {
    for (auto entry = kind.entries.begin(); entry != kind.entries.end();) {
      const auto next = std::next(entry);
      if (!Pinned(*entry)) Drop(kind, entry, &dropped);
      entry = next;
    }
  }
}

void PlanCache::Trim() {
  if (!over_.load(std::memory_order_relaxed)) return;
  std::vector<std::shared_ptr<const Plan>> dropped;
  MutexLock lock(&mutex_);
  Evict(&dropped);
}

PlanCacheStats PlanCache::Describe(PlanKind which) const {
  MutexLock lock(&mutex_);
  const Kind& kind = kinds_[static_cast<int>(which)];
  PlanCacheStats stats = kind.stats;
  stats.size = kind.entries.size();
  stats.max_size = limits_[static_cast<int>(which)];
  for (const Entry& entry : kind.entries) {
    stats.bytes += BytesOf(*entry.plan);
    stats.pinned += Pinned(entry);
  }
  return stats;
}

uint64_t PlanCache::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace backendd::worker
