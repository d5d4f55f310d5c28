// A private daemon for each test, and backendctl to talk to it.
#ifndef BACKENDD_TESTS_PROCESS_CLI_DAEMON_FIXTURE_H_
#define BACKENDD_TESTS_PROCESS_CLI_DAEMON_FIXTURE_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/process/cli/programs.h"

namespace backendd {

class BackendctlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/bcXXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    socket_ = directory_ + "/s";
    daemon_ =
        std::make_unique<Program>(std::vector<std::string>{BIN "/backendd", "--socket", socket_});
    const Outcome ready = Ctl({"wait", "--for=ready", "--timeout", "20s"});
    ASSERT_EQ(ready.code, 0) << ready.err;
  }
  void TearDown() override {
    if (daemon_) {
      daemon_->Signal(SIGTERM);
      EXPECT_EQ(daemon_->Wait(), 0) << daemon_->err();
    }
    std::filesystem::remove_all(directory_);
  }

  std::vector<std::string> CtlWords(std::vector<std::string> words) const {
    words.insert(words.begin(), {BIN "/backendctl", "--address", socket_});
    return words;
  }
  Outcome Ctl(std::vector<std::string> words, std::vector<std::string> environment = {}) const {
    return RunToEnd(CtlWords(std::move(words)), environment);
  }
  nlohmann::json Json(std::vector<std::string> words) const {
    words.insert(words.end(), {"-o", "json"});
    const Outcome outcome = Ctl(std::move(words));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << outcome.out;
    if (!json.is_object()) return nlohmann::json::object();
    EXPECT_EQ(json.value("apiVersion", ""), "backendd.dev/v1");
    return json;
  }
  // The node's value of a flag, as JSON: {"bool": true}.
  nlohmann::json Flag(const std::string& name) const {
    return Json({"get", "flags", name}).value("value", nlohmann::json());
  }
  // Until the flag has the value, by the daemon's word.
  bool Becomes(const std::string& flag, const std::string& value) const {
    return Ctl({"wait", "--for=flag=" + flag + ":" + value, "--timeout", "20s"}).code == 0;
  }

  std::string directory_, socket_;
  std::unique_ptr<Program> daemon_;
};

}  // namespace backendd

#endif  // BACKENDD_TESTS_PROCESS_CLI_DAEMON_FIXTURE_H_
