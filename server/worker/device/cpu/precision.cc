#include "server/worker/device/cpu/precision.h"

namespace backendd::worker {

onednn::Math ChooseMath(Builder& b, FlagId precision, bool by_onednn) {
  const std::string asked = b.Text(precision);
  const std::string strict = "ieee";
  if (asked == "tf32") {
    b.Unmet(precision, strict, "LIBRARY_VERSION", "oneDNN has no tf32 on this CPU");
  } else if (asked == "bf16" && !by_onednn) {
    b.Unmet(precision, strict, "NOT_USED_BY_LIBRARY", "only oneDNN computes f32 in bf16");
  } else if (asked == "bf16" && !b.cpu.bf16_instructions) {
    b.Unmet(precision, strict, "HARDWARE", "the CPU has no bf16 instructions");
  } else if (asked == "bf16") {
    return onednn::FastBf16IsHonoured() ? onednn::Math::kFastBf16 : onednn::Math::kBf16Inputs;
  }
  return onednn::Math::kStrict;
}

}  // namespace backendd::worker
