// The only macros of the project.
#ifndef BACKENDD_SHARED_STATUS_MACROS_H_
#define BACKENDD_SHARED_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define BACKENDD_CONCAT_(a, b) a##b
#define BACKENDD_CONCAT(a, b) BACKENDD_CONCAT_(a, b)
#define ASSIGN_OR_RETURN(left, expression) \
  ASSIGN_OR_RETURN_(BACKENDD_CONCAT(statusor_, __LINE__), left, expression)
#define ASSIGN_OR_RETURN_(statusor, left, expression)      \
  auto statusor = (expression);                            \
  if (!statusor.ok()) return std::move(statusor).status(); \
  left = *std::move(statusor)

#endif  // BACKENDD_SHARED_STATUS_MACROS_H_
