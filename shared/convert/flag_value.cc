#include "shared/convert/flag_value.h"

namespace backendd {

v1::FlagValue ToProto(const FlagValue& value) {
  v1::FlagValue message;
  switch (TypeOf(value)) {
    case FlagType::kNone:
      message.mutable_none();
      break;
    case FlagType::kBool:
      message.set_bool_(std::get<bool>(value));
      break;
    case FlagType::kInt:
      message.set_int_(std::get<int64_t>(value));
      break;
    case FlagType::kText:
      message.set_text(std::get<std::string>(value));
      break;
    case FlagType::kList:
      for (const std::string& item : std::get<TextList>(value))
        message.mutable_list()->add_items(item);
      message.mutable_list();
      break;
    case FlagType::kPair:
      message.mutable_pair()->set_first(std::get<BoolPair>(value).first);
      message.mutable_pair()->set_second(std::get<BoolPair>(value).second);
      break;
  }
  return message;
}

std::optional<FlagValue> FromProto(const v1::FlagValue& message) {
  switch (message.kind_case()) {
    case v1::FlagValue::kBool:
      return message.bool_();
    case v1::FlagValue::kInt:
      return message.int_();
    case v1::FlagValue::kText:
      return message.text();
    case v1::FlagValue::kList:
      return TextList(message.list().items().begin(), message.list().items().end());
    case v1::FlagValue::kPair:
      return BoolPair(message.pair().first(), message.pair().second());
    case v1::FlagValue::kNone:
      return None{};
    case v1::FlagValue::KIND_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace backendd
