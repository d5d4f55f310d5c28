// A flag's value between the wire and the domain.
#ifndef BACKENDD_SHARED_CONVERT_FLAG_VALUE_H_
#define BACKENDD_SHARED_CONVERT_FLAG_VALUE_H_

#include <optional>

#include "backendd/v1/flag.pb.h"
#include "shared/flag_value.h"

namespace backendd {

v1::FlagValue ToProto(const FlagValue& value);
// nullopt: the message says no kind.
std::optional<FlagValue> FromProto(const v1::FlagValue& message);

}  // namespace backendd

#endif  // BACKENDD_SHARED_CONVERT_FLAG_VALUE_H_
