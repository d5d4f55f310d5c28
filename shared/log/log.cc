#include "shared/log/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "shared/text.h"

namespace backendd {
namespace {

constexpr absl::string_view kNames[] = {"debug", "info", "warning", "error"};

spdlog::logger& Logger() {
  // Never destroyed: threads may log while the process ends.
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger("backendd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc));
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(absl::Utf8SafeCEscape(text), {{"\\'", "'"}});
}

bool Plain(absl::string_view value) {
  for (unsigned char c : value)
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return false;
  return !value.empty();
}

}  // namespace

std::string LogLine(absl::string_view message, LogFields fields) {
  std::string line = Escaped(ValidUtf8(message));
  for (const LogField& field : fields) {
    const std::string value = ValidUtf8(field.value);
    absl::StrAppend(&line, " ", field.name, "=");
    if (Plain(value)) {
      line += value;
    } else {
      absl::StrAppend(&line, "\"", Escaped(value), "\"");
    }
  }
  return line;
}

void Log(LogLevel level, absl::string_view message, LogFields fields) {
  const spdlog::level::level_enum at = LevelOf(level);
  if (!Logger().should_log(at)) return;
  // The line is an argument, never a format: braces in a client's text mean nothing.
  Logger().log(at, "{}", LogLine(message, fields));
}

void SetUpLog(LogLevel level) { Logger().set_level(LevelOf(level)); }

std::string LogLevelName(LogLevel level) { return Str(kNames[static_cast<int>(level)]); }

bool LogLevelFromName(absl::string_view name, LogLevel* level) {
  for (int i = 0; i < 4; ++i) {
    if (name == kNames[i]) {
      *level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

}  // namespace backendd
