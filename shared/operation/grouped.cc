// grouped_gemm: a list of products, or rows of one a that are shared out by offsets.
#include "shared/operation/gemm.h"

namespace backendd {
namespace {

constexpr int kMaxGroups = 1024;

void DecodeGrouped(const v1::Operation& operation, Reader& r) {
  const v1::GroupedGemm& m = operation.grouped_gemm();
  const bool ragged = m.has_offsets();
  auto list = [&r](absl::string_view name, const auto& operands, Use use) {
    for (int i = 0; i < operands.size(); ++i) {
      r.Add(name, true, operands[i], use, true, i, operands.size() > 1);
    }
  };
  list("a", m.a(), Use::kIn);
  list("b", m.b(), Use::kIn);
  list("c", m.c(), Use::kIn);
  r.MaybeIn("offsets", ragged, m.offsets());
  list("y", m.y(), Use::kOut);
  const int groups = m.a_size();
  if (groups > kMaxGroups)
    r.Bad("a", absl::StrCat("has ", groups, " groups; at most ", kMaxGroups));
  auto count = [&](absl::string_view name, int has, bool may_be_none) {
    if (has == groups || (may_be_none && has == 0)) return true;
    r.Bad(name, absl::StrCat("has ", has, " operands for ", groups, " groups"));
    return false;
  };
  bool good = count("b", m.b_size(), false);
  good &= count("c", m.c_size(), true);
  good &= count("y", m.y_size(), false);
  if (ragged && (groups != 1 || m.c_size() != 0)) {
    r.Bad("offsets", "go with one a, one b, one y and no c");
    good = false;
  }
  GroupedGemmAttributes a;
  a.ragged_rows = ragged;
  const bool integers = groups > 0 && IsInteger(r.type(0).dtype);
  a.gemm = ReadGemm(m, r, integers);
  if (good) r.out().spec.attributes = a;
}

// a [rows, k], b [groups, k, n], offsets [groups]: the end of each group's rows.
void InferRagged(Check& check) {
  enum { kA, kB, kOffsets, kY };
  const auto& g = check.attributes<GroupedGemmAttributes>().gemm;
  check.Floating(kA);
  check.Dtype(kB, check.dtype(kA));
  check.Dtype(kOffsets, DType::kS32);
  check.Rank(kA, 2, 2);
  check.Rank(kB, 3, 3);
  if (g.trans_a != v1::TRANSPOSE_N) check.BadAttribute("trans_a", "does not go with ragged rows");
  if (g.beta != 0.0) check.BadAttribute("beta", "does not go with ragged rows");
  if (g.alpha.imag() != 0) check.BadAttribute("alpha", "is complex where the operands are not");
  if (!check.ok()) return;
  const Extents &a = check.shape(kA), &b = check.shape(kB);
  const bool transposed = g.trans_b != v1::TRANSPOSE_N;
  const int64_t k = b[transposed ? 2 : 1], n = b[transposed ? 1 : 2];
  if (a[1] != k) {
    check.Bad(kB, Reason::kShapeInvalid,
              absl::StrCat("has an inner extent of ", k, "; a has ", a[1]));
  }
  check.Shape(kOffsets, {b[0]});
  check.Output(kY, check.dtype(kA), {a[0], n});
}

void InferGrouped(Check& check) {
  if (check.attributes<GroupedGemmAttributes>().ragged_rows) return InferRagged(check);
  const GroupedPlaces places = PlacesOfGroups(check.spec());
  for (int i = 0; i < places.groups; ++i) {
    OperationSpec gemm = GemmOfGroup(check.spec(), places, i);
    check.Part(gemm, absl::StrCat("[", i, "]"));
    if (check.ok())
      check.Output(places.y(i), gemm.operands[4].type.dtype, gemm.operands[4].type.shape);
  }
}

constexpr Family kFamilies[] = {
    {OpKind::kGroupedGemm, "grouped_gemm", DecodeGrouped, InferGrouped}};

}  // namespace

GroupedPlaces PlacesOfGroups(const OperationSpec& spec) {
  GroupedPlaces places{0, 0};
  for (const OperandSpec& operand : spec.operands) {
    if (operand.name == "offsets") break;
    places.groups += operand.name == "a";
    ++places.offsets;
  }
  return places;
}

OperationSpec GemmOfGroup(const OperationSpec& spec, const GroupedPlaces& places, int group) {
  OperationSpec gemm;
  gemm.kind = OpKind::kGemm;
  gemm.attributes = std::get<GroupedGemmAttributes>(spec.attributes).gemm;
  auto absent = [](absl::string_view name) {
    OperandSpec operand;
    operand.name = name;
    operand.present = operand.required = false;
    return operand;
  };
  gemm.operands.push_back(spec.operands[places.a(group)]);
  gemm.operands.push_back(spec.operands[places.b(group)]);
  gemm.operands.push_back(places.has_c() ? spec.operands[places.c(group)] : absent("c"));
  gemm.operands.push_back(absent("bias"));
  gemm.operands.push_back(spec.operands[places.y(group)]);
  return gemm;
}

absl::Span<const Family> GroupedFamilies() { return kFamilies; }

}  // namespace backendd
