// Random operations on a flag store, and the same on a model that knows no cells, no sharing and no
// dependants: a list of who said what, looked through anew for every read.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "tests/unit/flags/store_fixture.h"

namespace backendd::node {
namespace {

struct Said {
  std::string flag;
  std::optional<std::string> device;
  FlagValue value;
  int layer = 0;  // 2 environment, 5 base, 6 lease, 7 bare, 8 overlay
  int session = 0, lease = 0, priority = 0, order = 0;
};

class Model {
 public:
  std::vector<Said> said;

  FlagValue Read(const std::string& flag, const std::optional<std::string>& device,
                 int session) const {
    if (flag == "python_native.triton.enabled") {
      bool on = true;
      for (const Said& one : said) {
        if (one.flag == flag && Counts(one, device, session) && one.value == FlagValue(false))
          on = false;
      }
      return on;
    }
    if (flag == "cudnn.benchmark") return Own(flag, device, session).value_or(false);
    if (flag == "cudnn.benchmark_limit") return Own(flag, device, session).value_or(int64_t{10});
    const auto precision = [&](const std::string& leaf) { return Tree(leaf, device, session); };
    const FlagValue tf32("tf32"), bf16("bf16");
    const FlagValue matmul = precision("cuda.matmul.fp32_precision");
    const FlagValue onednn = precision("mkldnn.matmul.fp32_precision");
    if (flag == "cuda.matmul.allow_tf32") return matmul == tf32;
    if (flag == "cudnn.allow_tf32")
      return precision("cudnn.conv.fp32_precision") == tf32 ||
             precision("cudnn.rnn.fp32_precision") == tf32;
    if (flag == "float32_matmul_precision")
      return FlagValue(onednn == bf16                     ? "medium"
                       : matmul == tf32 || onednn == tf32 ? "high"
                                                          : "highest");
    return precision(flag);
  }

 private:
  static bool Counts(const Said& one, const std::optional<std::string>& device, int session) {
    if (one.device && one.device != device) return false;
    return one.layer < 7 || one.session == session;
  }
  static std::tuple<int, bool, int, int> Rank(const Said& one) {
    return {one.layer, one.device.has_value(), one.priority, one.order};
  }

  std::optional<FlagValue> Own(const std::string& flag, const std::optional<std::string>& device,
                               int session) const {
    const Said* best = nullptr;
    for (const Said& one : said) {
      if (one.flag != flag || !Counts(one, device, session)) continue;
      if (best == nullptr || Rank(one) > Rank(*best)) best = &one;
    }
    return best == nullptr ? std::nullopt : std::optional(best->value);
  }

  FlagValue Tree(const std::string& leaf, const std::optional<std::string>& device,
                 int session) const {
    const bool cuda = leaf.rfind("cu", 0) == 0;
    const std::string parent = cuda ? "cudnn.fp32_precision" : "mkldnn.fp32_precision";
    std::vector<std::string> path = {leaf};
    if (leaf != "fp32_precision" && leaf != parent) path.push_back(parent);
    if (leaf != "fp32_precision") path.push_back("fp32_precision");
    FlagValue found = None{};
    for (const std::string& step : path) {
      found = Own(step, device, session).value_or(None{});
      if (found != FlagValue(None{})) break;
    }
    const bool has_default =
        leaf == "cudnn.conv.fp32_precision" || leaf == "cudnn.rnn.fp32_precision";
    if (found == FlagValue(None{}) && has_default && !Own(leaf, device, session)) return "tf32";
    if (cuda && found == FlagValue("bf16")) return None{};
    return found;
  }
};

class ModelTest : public StoreTest, public ::testing::WithParamInterface<int> {
 protected:
  int Pick(int count) { return static_cast<int>(random_() % count); }

  const std::vector<std::string> kTree = {"fp32_precision",
                                          "cudnn.fp32_precision",
                                          "cudnn.conv.fp32_precision",
                                          "cudnn.rnn.fp32_precision",
                                          "mkldnn.fp32_precision",
                                          "mkldnn.matmul.fp32_precision",
                                          "cuda.matmul.fp32_precision"};

  std::pair<std::string, FlagValue> RandomWrite() {
    switch (Pick(8)) {
      case 0:
        return {"cudnn.benchmark", Pick(2) == 0};
      case 1:
        return {"cudnn.benchmark_limit", int64_t{Pick(4)}};
      case 2:
        return {"python_native.triton.enabled", Pick(2) == 0};
      case 3:
        return {Pick(2) == 0 ? "cuda.matmul.allow_tf32" : "cudnn.allow_tf32", Pick(2) == 0};
      case 4:
        return {"float32_matmul_precision",
                std::vector<const char*>{"highest", "high", "medium"}[Pick(3)]};
      default: {
        const std::string flag = kTree[Pick(static_cast<int>(kTree.size()))];
        const FlagValue kWords[] = {None{}, "ieee", "tf32", "bf16"};
        return {flag, kWords[Pick(flag.rfind("cu", 0) == 0 ? 3 : 4)]};
      }
    }
  }

  // The leaves that a legacy name stands for, once more by hand.
  static Values Leaves(const std::string& flag, const FlagValue& value) {
    const FlagValue tf32("tf32"), ieee("ieee");
    const bool on = value == FlagValue(true);
    if (flag == "cuda.matmul.allow_tf32") return {{"cuda.matmul.fp32_precision", on ? tf32 : ieee}};
    if (flag == "cudnn.allow_tf32") {
      const FlagValue leaf = on ? tf32 : FlagValue(None{});
      return {{"cudnn.conv.fp32_precision", leaf}, {"cudnn.rnn.fp32_precision", leaf}};
    }
    if (flag == "float32_matmul_precision") {
      const FlagValue cuda = value == FlagValue("highest") ? ieee : tf32;
      const FlagValue onednn = value == FlagValue("medium") ? FlagValue("bf16") : cuda;
      return {{"cuda.matmul.fp32_precision", cuda}, {"mkldnn.matmul.fp32_precision", onednn}};
    }
    return {{flag, value}};
  }

  void Say(Said one, const std::string& flag, const FlagValue& value) {
    for (const auto& [leaf, written] : Leaves(flag, value)) {
      one.flag = leaf;
      one.value = written;
      Forget([&](const Said& other) {
        return other.flag == one.flag && other.device == one.device && other.layer == one.layer &&
               other.session == one.session && other.lease == one.lease;
      });
      model_.said.push_back(one);
    }
  }
  template <class Which>
  void Forget(Which which) {
    auto& said = model_.said;
    said.erase(std::remove_if(said.begin(), said.end(), which), said.end());
  }

  void Compare() {
    std::vector<std::string> flags = kTree;
    for (const char* more :
         {"cudnn.benchmark", "cudnn.benchmark_limit", "python_native.triton.enabled",
          "cuda.matmul.allow_tf32", "cudnn.allow_tf32", "float32_matmul_precision"})
      flags.push_back(more);
    const std::optional<DeviceId> kPlaces[] = {std::nullopt, DeviceId("cpu")};
    for (const std::string& flag : flags) {
      for (const auto& device : kPlaces) {
        SCOPED_TRACE(flag + " on " + device.value_or("the node"));
        ASSERT_EQ(ToText(Get(flag, device)), ToText(model_.Read(flag, device, 0)));
        for (int session : {1, 2, 3}) {
          const auto reading =
              store_->latest()->ReadFor(FlagIdOf(flag), device, SessionId(session));
          ASSERT_OK(reading);
          ASSERT_EQ(ToText(*reading->value), ToText(model_.Read(flag, device, session)))
              << "for session " << session;
        }
      }
    }
  }

  void Step() {
    const auto [flag, value] = RandomWrite();
    const std::optional<DeviceId> device =
        Pick(3) == 0 ? std::optional<DeviceId>("cpu") : std::nullopt;
    const int session = 1 + Pick(3);
    const int operation = Pick(9);
    SCOPED_TRACE("operation " + std::to_string(operation) + ": " + flag + "=" + ToText(value));
    Said one;
    one.session = operation == 2 || operation == 6 ? session : 0;
    one.device = one.session == 0 ? device : std::nullopt;
    if (operation <= 1) {
      Set({{flag, value}}, device);
      one.layer = 5;
      Say(one, flag, value);
    } else if (operation == 2) {
      Set(SessionId(session), {{flag, value}});
      one.layer = 7;
      Say(one, flag, value);
    } else if (operation == 3) {
      Unset(flag);
      for (const auto& leaf : Leaves(flag, value))
        Forget([&](const Said& said) {
          return said.layer == 5 && said.flag == leaf.first && !said.device;
        });
    } else if (operation <= 6) {
      one.layer = operation == 6 ? 8 : 6;
      one.priority = operation == 6 ? 0 : Pick(3);
      one.lease = one.order = next_lease_++;
      if (operation == 6)
        Overlay(one.lease, SessionId(session), {{flag, value}});
      else
        Lease(one.lease, {{flag, value}}, one.priority, device);
      Say(one, flag, value);
      leases_.push_back(one.lease);
    } else if (operation == 7 && !leases_.empty()) {
      const int lease = leases_[Pick(static_cast<int>(leases_.size()))];
      Release(lease);
      Forget([lease](const Said& said) { return said.lease == lease; });
    } else if (operation == 8 && Pick(3) == 0) {
      store_->DropSession(SessionId(session));
      Done();
      Forget([session](const Said& said) { return said.session == session; });
    }
    Compare();
  }

  std::mt19937 random_;
  Model model_;
  std::vector<int> leases_;  // some of them released: releasing again does nothing
  int next_lease_ = 1;
};

TEST_P(ModelTest, ReadsAreThoseOfTheModelAfterEveryOperation) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  random_.seed(GetParam());
  if (Pick(2) == 0) {
    Start({}, {{"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"}});
    Said one;
    one.layer = 2;
    Say(one, "cuda.matmul.fp32_precision", "tf32");
  }
  for (int step = 0; step < 60; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    ASSERT_NO_FATAL_FAILURE(Step());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, ::testing::Range(1, 26));

}  // namespace
}  // namespace backendd::node
