#include "shared/convert/request.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backendd/v1/flag.pb.h"
#include "google/protobuf/descriptor.h"
#include "shared/status/error.h"

namespace backendd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void Walk(const Message& message, const std::string& path, std::vector<Violation>* violations) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      std::string place = absl::StrCat(path, path.empty() ? "" : ".", field->name());
      if (field->is_repeated()) absl::StrAppend(&place, "[", i, "]");
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Walk(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                  : reflection->GetMessage(message, field),
             place, violations);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
        const int number = field->is_repeated()
                               ? reflection->GetRepeatedEnumValue(message, field, i)
                               : reflection->GetEnumValue(message, field);
        if (field->enum_type()->FindValueByNumber(number) == nullptr)
          violations->push_back({place, Reason::kArgumentInvalid,
                                 absl::StrCat("there is no ", field->enum_type()->name(),
                                              " with the number ", number)});
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        std::string scratch;
        const std::string& text =
            field->is_repeated()
                ? reflection->GetRepeatedStringReference(message, field, i, &scratch)
                : reflection->GetStringReference(message, field, &scratch);
        if (text.size() > kMostText)
          violations->push_back(
              {place, Reason::kArgumentInvalid,
               absl::StrCat("has ", text.size(), " bytes; allowed: ", kMostText)});
      }
    }
  }
  if (message.GetDescriptor() == v1::Scope::descriptor()) {
    const auto& scope = static_cast<const v1::Scope&>(message);
    if (!scope.device().empty() && scope.kind() != v1::SCOPE_KIND_DEVICE)
      violations->push_back({path + ".device", Reason::kScopeInvalid,
                             "a device is named with the scope DEVICE only"});
  }
}

}  // namespace

absl::Status CheckRequest(const Message& request) {
  std::vector<Violation> violations;
  Walk(request, "", &violations);
  return ErrorFrom(std::move(violations));
}

}  // namespace backendd
