// Text logs with fields, on stderr: `2026-01-02T03:04:05.678Z info worker serves device=cpu
// epoch=3`.
#ifndef BACKENDD_SHARED_LOG_LOG_H_
#define BACKENDD_SHARED_LOG_LOG_H_

#include <initializer_list>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace backendd {

enum class LogLevel { kDebug = 0, kInfo, kWarning, kError };

struct LogField {
  LogField(absl::string_view name, absl::string_view value) : name(name), value(value) {}
  LogField(absl::string_view name, const std::string& value) : name(name), value(value) {}
  LogField(absl::string_view name, const char* value) : name(name), value(value) {}
  LogField(absl::string_view name, const absl::Status& status)
      : name(name), value(status.message()) {}
  template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  LogField(absl::string_view name, Number value) : name(name), value(absl::StrCat(value)) {}

  absl::string_view name;  // a literal
  std::string value;       // quoted where it holds more than plain characters
};
using LogFields = std::initializer_list<LogField>;

// Any thread, any time; before SetUpLog the level is info.
void Log(LogLevel level, absl::string_view message, LogFields fields = {});
inline void LogInfo(absl::string_view message, LogFields fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(absl::string_view message, LogFields fields = {}) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(absl::string_view message, LogFields fields = {}) {
  Log(LogLevel::kError, message, fields);
}

void SetUpLog(LogLevel level);
bool LogLevelFromName(absl::string_view name, LogLevel* level);  // debug, info, warning, error

std::string LogLevelName(LogLevel level);

// One line of a log without its time and level; what tests look at.
std::string LogLine(absl::string_view message, LogFields fields);

}  // namespace backendd

#endif  // BACKENDD_SHARED_LOG_LOG_H_
