#include "server/control/worker_start.h"

#include "absl/strings/str_cat.h"
#include "server/flags/catalogue.h"

namespace backendd {

std::string ControlAbi() {
  return absl::StrCat("1/", absl::Hex(Catalogue::Get().Hash(), absl::kZeroPad16));
}

}  // namespace backendd
