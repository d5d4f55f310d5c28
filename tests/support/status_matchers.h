// Matchers for absl::Status: what tests look at is the reason, never the text.
#ifndef BACKENDD_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define BACKENDD_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shared/status/error.h"

namespace backendd {

inline absl::Status StatusOf(const absl::Status& status) { return status; }
template <class T>
absl::Status StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, "is OK") {
  const absl::Status status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.ok();
}

MATCHER_P(HasReason, reason, std::string("has reason ") + std::string(ReasonName(reason))) {
  const absl::Status status = StatusOf(arg);
  const auto found = ReasonOf(status);
  *result_listener << status.ToString();
  return found.has_value() && *found == reason && status.code() == CodeOf(reason);
}

}  // namespace backendd

#define ASSERT_OK(expression) ASSERT_THAT((expression), ::backendd::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT((expression), ::backendd::IsOk())

#endif  // BACKENDD_TESTS_SUPPORT_STATUS_MATCHERS_H_
