// copy, fill, write, read, barrier.
#include <cstring>

#include "shared/operation/family.h"

namespace backendd {
namespace {

constexpr int64_t kMaxInlineBytes = 64 << 10;

void DecodeCopy(const v1::Operation& operation, Reader& r) {
  const v1::Copy& m = operation.copy();
  r.In("x", m.has_x(), m.x());
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes = CopyAttributes{};
}

void InferCopy(Check& check) {
  const DType to = check.dtype(1) == DType::kUnspecified ? check.dtype(0) : check.dtype(1);
  check.Output(1, to, check.shape(0));
  if (IsComplex(check.dtype(0)) != IsComplex(to)) {
    check.Bad(1, Reason::kDtypeInvalid, "is not converted between real and complex");
  }
}

void DecodeFill(const v1::Operation& operation, Reader& r) {
  const v1::Fill& m = operation.fill();
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes =
      FillAttributes{{m.value().real(), m.value().imaginary()}, m.value().integer()};
}

// An output that nothing else tells the type of.
void Typed(Check& check, int place) {
  if (check.dtype(place) == DType::kUnspecified) {
    check.Bad(place, Reason::kDtypeInvalid, "needs a dtype");
  }
}

template <class T>
void AppendNumber(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// float_values for f32, f64 and complex (pairs), int_values for integers and bool.
void DecodeWrite(const v1::Operation& operation, Reader& r) {
  const v1::Write& m = operation.write();
  r.Out("y", m.has_y(), m.y());
  WriteAttributes w;
  const DType dtype = r.type(0).dtype;
  const int forms = !m.bytes().empty() + !m.float_values().empty() + !m.int_values().empty();
  if (forms > 1) r.Bad("bytes", "and float_values and int_values exclude each other");
  if (m.float_values_size() > 0) {
    for (double value : m.float_values()) {
      if (dtype == DType::kF32 || dtype == DType::kC64) {
        AppendNumber(&w.bytes, static_cast<float>(value));
      } else if (dtype == DType::kF64 || dtype == DType::kC128) {
        AppendNumber(&w.bytes, value);
      } else {
        r.Bad("float_values", absl::StrCat("do not become ", Name(dtype)), Reason::kDtypeInvalid);
        break;
      }
    }
  } else if (m.int_values_size() > 0) {
    for (int64_t value : m.int_values()) {
      if (!IsInteger(dtype) && dtype != DType::kBool) {
        r.Bad("int_values", absl::StrCat("do not become ", Name(dtype)), Reason::kDtypeInvalid);
        break;
      }
      if (dtype == DType::kBool) value = value != 0;
      w.bytes.append(reinterpret_cast<const char*>(&value), SizeOf(dtype));  // little-endian
    }
  } else {
    w.bytes = m.bytes();
  }
  r.out().spec.attributes = std::move(w);
}

// The bytes of a dense operand of a message.
void Inline(Check& check, int place) {
  if (!check.type(place).row_major()) {
    check.Bad(place, Reason::kShapeInvalid, "must be dense in row-major order");
  }
  const int64_t bytes = SpanBytes(check.type(place)).value_or(INT64_MAX);
  if (bytes > kMaxInlineBytes) {
    check.Bad(place, Reason::kSizeTooLarge,
              absl::StrCat("has ", bytes, " bytes; a message carries at most ", kMaxInlineBytes));
  }
}

void InferWrite(Check& check) {
  Typed(check, 0);
  if (!check.ok()) return;
  Inline(check, 0);
  const size_t wanted = SpanBytes(check.type(0)).value_or(0);
  const size_t given = check.attributes<WriteAttributes>().bytes.size();
  if (check.ok() && given != wanted) {
    check.BadAttribute("bytes", absl::StrCat("are ", given, "; y has ", wanted));
  }
}

void DecodeRead(const v1::Operation& operation, Reader& r) {
  r.In("x", operation.read().has_x(), operation.read().x());
  r.out().spec.attributes = ReadAttributes{};
}

void DecodeBarrier(const v1::Operation&, Reader& r) {
  r.out().spec.attributes = BarrierAttributes{};
}

constexpr Family kFamilies[] = {
    {OpKind::kCopy, "copy", DecodeCopy, InferCopy},
    {OpKind::kFill, "fill", DecodeFill, [](Check& check) { Typed(check, 0); }},
    {OpKind::kWrite, "write", DecodeWrite, InferWrite},
    {OpKind::kRead, "read", DecodeRead, [](Check& check) { Inline(check, 0); }},
    {OpKind::kBarrier, "barrier", DecodeBarrier, [](Check&) {}},
};

}  // namespace

absl::Span<const Family> BytesFamilies() { return kFamilies; }

}  // namespace backendd
