#include "client/cli/table.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace backendd::cli {
namespace {

struct Range {
  char32_t first, last;
};
// Unicode's East Asian Wide and Fullwidth blocks, and the emoji that terminals draw in two columns.
constexpr Range kWide[] = {
    {0x1100, 0x115f}, {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},  {0x4e00, 0x9fff},
    {0xa000, 0xa4cf}, {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},  {0xff00, 0xff60},
    {0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
constexpr Range kCombining[] = {
    {0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}};
// Drawn as nothing or as a change of direction: a name could hide behind them.
constexpr Range kHidden[] = {{0x00, 0x1f}, {0x7f, 0x9f}, {0x202a, 0x202e}, {0x2066, 0x2069}};

template <size_t n>
bool In(const Range (&ranges)[n], char32_t c) {
  return std::any_of(ranges, ranges + n, [c](Range r) { return r.first <= c && c <= r.last; });
}

// The character at `text[at]` and its bytes; 0 bytes where the UTF-8 is broken.
std::pair<char32_t, int> Decode(absl::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return {lead, 1};
  const int size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (size == 0 || lead > 0xf4 || at + size > text.size()) return {0, 0};
  char32_t c = lead & (0x7f >> size);
  for (int i = 1; i < size; ++i) {
    const auto next = static_cast<uint8_t>(text[at + i]);
    if ((next & 0xc0) != 0x80) return {0, 0};
    c = c << 6 | (next & 0x3f);
  }
  constexpr char32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = 0xd800 <= c && c <= 0xdfff;
  return c < kLowest[size] || surrogate || c > 0x10ffff ? std::pair<char32_t, int>{0, 0}
                                                        : std::pair{c, size};
}

int Width(char32_t c) { return In(kCombining, c) ? 0 : In(kWide, c) ? 2 : 1; }

}  // namespace

std::string Escaped(absl::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto [c, size] = Decode(text, at);
    if (size > 0 && !In(kHidden, c)) {
      absl::StrAppend(&result, text.substr(at, size));
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (size > 1) {
      absl::StrAppendFormat(&result, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      absl::StrAppendFormat(&result, "\\x%02x", static_cast<uint8_t>(text[at]));
    }
    at += std::max(size, 1);
  }
  return result;
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [c, size] = Decode(text, at);
    width += Width(c);
    at += std::max(size, 1);
  }
  return width;
}

std::string Cut(absl::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  size_t end = 0;
  for (int used = 0; end < text.size();) {
    const auto [c, size] = Decode(text, end);
    used += Width(c);
    if (used > width - 1) break;
    end += std::max(size, 1);
  }
  return width > 0 ? absl::StrCat(text.substr(0, end), "…") : "";
}

void Table::Add(std::vector<std::string> row) {
  row.resize(header_.size());
  for (std::string& cell : row) cell = Escaped(cell);
  rows_.push_back(std::move(row));
}

std::string Table::Text(int width, bool bold) const {
  std::vector<int> widths;
  for (size_t i = 0; i < header_.size(); ++i) {
    int widest = DisplayWidth(header_[i]);
    for (const auto& row : rows_) widest = std::max(widest, DisplayWidth(row[i]));
    widths.push_back(widest);
  }
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&text, row[i]);
      if (i + 1 < row.size()) text.append(widths[i] - DisplayWidth(row[i]) + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return width > 0 ? Cut(text, width) : text;
  };
  std::string result = bold ? absl::StrCat("\x1b[1m", line(header_), "\x1b[0m\n")
                            : absl::StrCat(line(header_), "\n");
  for (const auto& row : rows_) absl::StrAppend(&result, line(row), "\n");
  return result;
}

}  // namespace backendd::cli
