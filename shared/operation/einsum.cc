#include "shared/operation/einsum.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "shared/operation/family.h"

namespace backendd {
namespace {

int Label(char letter) {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A';
  if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
  return -1;
}

// One operand's part: its letters, and where the ellipsis stands (-1: nowhere).
struct Term {
  std::vector<int> letters;
  int ellipsis = -1;
};

std::string ReadTerm(absl::string_view text, Term* term) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text[i] == '.') {
      if (text.substr(i, 3) != "...") return "has a dot that is no ellipsis";
      if (term->ellipsis >= 0) return "has two ellipses in one operand";
      term->ellipsis = static_cast<int>(term->letters.size());
      i += 2;
      continue;
    }
    const int label = Label(text[i]);
    if (label < 0) return absl::StrCat("has the character '", text.substr(i, 1), "'");
    term->letters.push_back(label);
  }
  return "";
}

}  // namespace

std::string ReadEinsum(const std::string& equation, absl::Span<const Extents> shapes,
                       EinsumLabels* labels, Reason* reason) {
  *reason = Reason::kArgumentInvalid;
  *labels = {};
  std::fill(std::begin(labels->extents), std::end(labels->extents), int64_t{1});
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  if (sides.size() > 2) return "has two arrows";
  const std::vector<std::string> parts = absl::StrSplit(sides[0], ',');
  if (parts.size() != shapes.size()) {
    return absl::StrCat("names ", parts.size(), " operands; there are ", shapes.size());
  }
  std::vector<Term> terms(parts.size());
  int used[kEinsumLabels] = {};
  int widest = 0;  // dimensions of the longest ellipsis
  for (size_t i = 0; i < parts.size(); ++i) {
    if (std::string fault = ReadTerm(parts[i], &terms[i]); !fault.empty()) return fault;
    for (int label : terms[i].letters) ++used[label];
    const int rest = static_cast<int>(shapes[i].size() - terms[i].letters.size());
    if (rest < 0 || (rest > 0 && terms[i].ellipsis < 0)) {
      *reason = Reason::kShapeInvalid;
      return absl::StrCat("names ", terms[i].letters.size(), " dimensions of operand ", i,
                          ", which has ", shapes[i].size());
    }
    widest = std::max(widest, rest);
  }
  auto ellipsis = [widest](int count) {  // the labels of the last `count` dimensions
    std::vector<int> at(count);
    for (int i = 0; i < count; ++i) at[i] = kEinsumLetters + widest - count + i;
    return at;
  };
  bool seen[kEinsumLabels] = {};
  for (size_t i = 0; i < terms.size(); ++i) {
    std::vector<int> input = terms[i].letters;
    if (terms[i].ellipsis >= 0) {
      const auto dots = ellipsis(static_cast<int>(shapes[i].size() - input.size()));
      input.insert(input.begin() + terms[i].ellipsis, dots.begin(), dots.end());
    }
    int64_t own[kEinsumLabels];
    std::fill(std::begin(own), std::end(own), int64_t{-1});
    for (size_t d = 0; d < input.size(); ++d) {
      const int label = input[d];
      const int64_t extent = shapes[i][d];
      int64_t& all = labels->extents[label];
      const bool fits = own[label] < 0 ? extent == 1 || !seen[label] || all == 1 || all == extent
                                       : own[label] == extent;
      if (!fits) {
        *reason = Reason::kShapeInvalid;
        return absl::StrCat("gives one label extents of ", own[label] < 0 ? all : own[label],
                            " and ", extent);
      }
      own[label] = extent;
      if (extent != 1) all = extent;
      seen[label] = true;
    }
    labels->inputs.push_back(std::move(input));
  }
  if (sides.size() == 2) {
    Term out;
    if (std::string fault = ReadTerm(sides[1], &out); !fault.empty()) return fault;
    bool written[kEinsumLabels] = {};
    for (int label : out.letters) {
      if (used[label] == 0) return "has an output label that no operand has";
      if (written[label]) return "has an output label twice";
      written[label] = true;
    }
    labels->output = out.letters;
    if (out.ellipsis >= 0) {
      const auto dots = ellipsis(widest);
      labels->output.insert(labels->output.begin() + out.ellipsis, dots.begin(), dots.end());
    }
  } else {
    labels->output = ellipsis(widest);
    for (int label = 0; label < kEinsumLetters; ++label) {
      if (used[label] == 1) labels->output.push_back(label);
    }
  }
  if (labels->output.size() > kMaxRank) {
    *reason = Reason::kShapeInvalid;
    return absl::StrCat("gives a result of rank ", labels->output.size(), "; at most ", kMaxRank);
  }
  return "";
}

namespace {

constexpr int kMaxOperands = 64;

void DecodeEinsum(const v1::Operation& operation, Reader& r) {
  const v1::Einsum& m = operation.einsum();
  for (int i = 0; i < m.x_size(); ++i) r.Add("x", true, m.x(i), Use::kIn, true, i, true);
  r.Out("y", m.has_y(), m.y());
  if (m.x_size() < 1 || m.x_size() > kMaxOperands) {
    r.Bad("x", absl::StrCat("has ", m.x_size(), " operands; allowed: 1 to ", kMaxOperands));
    return;
  }
  r.out().spec.attributes = EinsumAttributes{m.equation()};
}

void InferEinsum(Check& check) {
  const int count = check.operands() - 1;
  const DType dtype = check.dtype(0);
  if (!IsComplex(dtype) && !(dtype >= DType::kF64 && dtype <= DType::kBf16)) {
    check.Bad(0, Reason::kDtypeInvalid,
              absl::StrCat("is ", Name(dtype), "; allowed: f64, f32, f16, bf16, c128, c64"));
  }
  std::vector<Extents> shapes;
  for (int i = 0; i < count; ++i) {
    check.Dtype(i, dtype);
    shapes.push_back(check.shape(i));
  }
  EinsumLabels labels;
  Reason reason;
  const std::string fault =
      ReadEinsum(check.attributes<EinsumAttributes>().equation, shapes, &labels, &reason);
  if (!fault.empty()) {
    check.BadAttribute("equation", fault, reason);
    return;
  }
  Extents y;
  for (int label : labels.output) y.push_back(labels.extents[label]);
  check.Output(count, dtype, y);
}

constexpr Family kFamilies[] = {{OpKind::kEinsum, "einsum", DecodeEinsum, InferEinsum}};

}  // namespace

absl::Span<const Family> EinsumFamilies() { return kFamilies; }

}  // namespace backendd
