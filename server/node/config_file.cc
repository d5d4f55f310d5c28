#include "server/node/config_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/flags/catalogue.h"
#include "server/flags/precision.h"
#include "shared/text.h"

namespace backendd::node {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 32;

// What must not reach the document's builder: nesting deeper than any configuration, and aliases,
// of which a few lines make gigabytes.
class Gate final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YAML::ParserException(mark, "aliases are not allowed");
  }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Enter(mark);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Enter(mark);
  }
  void OnMapEnd() override { --depth_; }

 private:
  void Enter(const YAML::Mark& mark) {
    if (++depth_ > kMaxDepth)
      throw YAML::ParserException(mark, absl::StrCat("more than ", kMaxDepth, " levels"));
  }
  int depth_ = 0;
};

class Reader {
 public:
  Reader(const std::string& name, std::vector<FileScalar>* scalars, Config* config,
         std::vector<std::string>* faults)
      : name_(name), scalars_(scalars), config_(config), faults_(faults) {}

  void Document(const YAML::Node& root) {
    if (!root.IsMap()) return Fault(root, "the file is no map of settings");
    bool version = false, kind = false;
    std::vector<std::string> known = {"apiVersion", "kind", "roles", "flags", "devices"};
    for (const Setting& setting : Settings())
      known.push_back(setting.name.substr(0, setting.name.find('.')));
    Map(root, known, [&](const std::string& key, const YAML::Node& value, int line) {
      if (key == "apiVersion") {
        version = true;
        Exactly(value, "backendd.dev/v1", key);
      } else if (key == "kind") {
        kind = true;
        Exactly(value, "DaemonConfig", key);
      } else if (key == "roles") {
        Roles(value);
      } else if (key == "flags") {
        Flags(value, std::nullopt);
      } else if (key == "devices") {
        Devices(value);
      } else if (key == "quotas" || key == "limits") {
        Group(key, value);
      } else {
        Scalar(key, value, line);
      }
    });
    if (!version) Fault(root, "'apiVersion: backendd.dev/v1' is missing");
    if (!kind) Fault(root, "'kind: DaemonConfig' is missing");
  }

 private:
  void Fault(const YAML::Node& at, const std::string& what) { Fault(at.Mark().line + 1, what); }
  void Fault(int line, const std::string& what) {
    faults_->push_back(absl::StrCat(name_, ":", line, ": ", ValidUtf8(what)));
  }

  // Calls `take` for each key once; unknown (`known` empty: all are) and repeated ones are faults.
  void Map(const YAML::Node& map, const std::vector<std::string>& known,
           const std::function<void(const std::string&, const YAML::Node&, int)>& take) {
    if (map.IsNull()) return;
    if (!map.IsMap()) return Fault(map, "a map of names and values is expected here");
    std::set<std::string> seen;
    for (const auto& item : map) {
      const int line = item.first.Mark().line + 1;
      if (!item.first.IsScalar()) {
        Fault(line, "a key must be a word");
        continue;
      }
      const std::string& key = item.first.Scalar();
      if (!seen.insert(key).second) {
        Fault(line, absl::StrCat("the key '", key, "' is there twice"));
      } else if (!known.empty() && std::find(known.begin(), known.end(), key) == known.end()) {
        Fault(line, absl::StrCat("unknown key '", key, "'", DidYouMean(key, known)));
      } else {
        take(key, item.second, line);
      }
    }
  }

  void Exactly(const YAML::Node& value, const std::string& expected, const std::string& key) {
    if (!value.IsScalar() || value.Scalar() != expected)
      Fault(value, absl::StrCat("'", key, "' must be '", expected, "'"));
  }
  void Scalar(const std::string& name, const YAML::Node& value, int line) {
    if (value.IsNull()) {
      scalars_->push_back({name, "", line});
    } else if (value.IsScalar()) {
      scalars_->push_back({name, value.Scalar(), line});
    } else {
      Fault(value, absl::StrCat("'", name, "' takes one value"));
    }
  }
  void Group(const std::string& group, const YAML::Node& map) {
    std::vector<std::string> known;
    for (const Setting& setting : Settings())
      if (setting.name.rfind(group + ".", 0) == 0)
        known.push_back(setting.name.substr(group.size() + 1));
    Map(map, known, [&](const std::string& key, const YAML::Node& value, int line) {
      Scalar(absl::StrCat(group, ".", key), value, line);
    });
  }

  void Roles(const YAML::Node& list) {
    if (!list.IsSequence()) return Fault(list, "'roles' is a list of {uid or gid, role}");
    for (const YAML::Node& item : list) {
      RoleRules::Rule rule;
      bool has_role = false;
      const size_t before = faults_->size();
      Map(item, {"uid", "gid", "role"},
          [&](const std::string& key, const YAML::Node& value, int line) {
            uint32_t id = 0;
            const std::string text = value.IsScalar() ? value.Scalar() : "";
            if (key == "role") {
              const std::optional<Role> role = RoleFromName(text);
              has_role = role.has_value();
              rule.role = role.value_or(Role::kNone);
              if (!has_role)
                Fault(line, absl::StrCat("unknown role '", text,
                                         "'; observer, worker, operator, scheduler, admin"));
            } else if (!absl::SimpleAtoi(text, &id)) {
              Fault(line, absl::StrCat("'", key, "' takes a number, not '", text, "'"));
            } else {
              (key == "uid" ? rule.uid : rule.gid) = id;
            }
          });
      if (faults_->size() != before) continue;
      if (rule.uid.has_value() == rule.gid.has_value() || !has_role)
        Fault(item, "a role rule has a role, and either a uid or a gid");
      else
        config_->roles.rules.push_back(rule);
    }
  }

  void Devices(const YAML::Node& map) {
    Map(map, {}, [&](const std::string& device, const YAML::Node& value, int) {
      Map(value, {"flags"},
          [&](const std::string&, const YAML::Node& flags, int) { Flags(flags, device); });
    });
  }

  void Flags(const YAML::Node& map, const std::optional<DeviceId>& device) {
    Map(map, {}, [&](const std::string& name, const YAML::Node& value, int line) {
      absl::StatusOr<FlagId> id = Catalogue::Get().Lookup(name);
      if (!id.ok()) return Fault(line, Str(id.status().message()));
      const FlagInfo& flag = Catalogue::Get().info(*id);
      if (!flag.writable()) return Fault(line, absl::StrCat("flag '", name, "' is read-only"));
      const FlagScope scope = device ? FlagScope::kDevice : FlagScope::kNode;
      if (!flag.HasScope(scope))
        return Fault(
            line, absl::StrCat("flag '", name, "' has no ", device ? "device" : "node", " value"));
      absl::StatusOr<FlagValue> normal = Normalise(flag, ValueOf(flag, value));
      if (!normal.ok()) return Fault(line, Str(normal.status().message()));
      LayerEntry entry;
      entry.flag = *id;
      entry.layer = Layer::kFile;
      entry.device = device;
      entry.value = *normal;
      entry.source = absl::StrCat("file:", line);
      if (!IsAlias(*id)) return config_->flags.push_back(entry);
      entry.via = *id;
      for (auto& [target, written] : ExpandAlias(*id, *normal)) {
        entry.flag = target;
        entry.value = std::move(written);
        config_->flags.push_back(entry);
      }
    });
  }

  // What the YAML says, as the type that the flag takes; a word where nothing else fits.
  static FlagValue ValueOf(const FlagInfo& flag, const YAML::Node& node) {
    const auto truth = [](const YAML::Node& item) -> std::optional<bool> {
      if (!item.IsScalar() || item.Tag() == "!") return std::nullopt;  // quoted: a word
      if (item.Scalar() == "true") return true;
      if (item.Scalar() == "false") return false;
      return std::nullopt;
    };
    if (node.IsSequence()) {
      if (flag.HasType(FlagType::kPair) && node.size() == 2 && truth(node[0]) && truth(node[1]))
        return BoolPair(*truth(node[0]), *truth(node[1]));
      TextList list;
      for (const YAML::Node& item : node) list.push_back(item.IsScalar() ? item.Scalar() : "");
      return list;
    }
    if (node.IsNull()) return None{};
    if (!node.IsScalar()) return std::string("{...}");
    const std::string& text = node.Scalar();
    int64_t number;
    if (const auto value = truth(node)) return *value;
    if (node.Tag() != "!" && absl::SimpleAtoi(text, &number)) return number;
    if (text == "none" && flag.HasType(FlagType::kNone)) return None{};
    return text;
  }

  const std::string& name_;
  std::vector<FileScalar>* scalars_;
  Config* config_;
  std::vector<std::string>* faults_;
};

}  // namespace

std::string DidYouMean(const std::string& name, const std::vector<std::string>& known) {
  std::vector<absl::string_view> views(known.begin(), known.end());
  const std::vector<std::string> near = NearNames(name, views, 1);
  return near.empty() ? "" : absl::StrCat("; did you mean '", near[0], "'?");
}

void ReadConfigFile(const std::string& name, const std::string& text,
                    std::vector<FileScalar>* scalars, Config* config,
                    std::vector<std::string>* faults) {
  if (text.size() > kMaxBytes) {
    faults->push_back(absl::StrCat(name, ": ", text.size(), " bytes; at most ", kMaxBytes));
    return;
  }
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Gate gate;
    parser.HandleNextDocument(gate);
    if (parser.HandleNextDocument(gate)) {
      faults->push_back(absl::StrCat(name, ": more than one document"));
      return;
    }
    Reader(name, scalars, config, faults).Document(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    faults->push_back(absl::StrCat(name, ":", error.mark.line + 1, ": ", ValidUtf8(error.msg)));
  } catch (const std::exception& error) {
    faults->push_back(absl::StrCat(name, ": ", error.what()));
  }
}

}  // namespace backendd::node
