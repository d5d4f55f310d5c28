#include "client/examples/picture.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"

namespace backendd::examples {
namespace {

// 3 by 5 dots a sign, one octal digit a row.
const char* Sign(char sign) {
  static const auto* const signs = new std::map<char, const char*>{
      {'0', "75557"}, {'1', "26227"}, {'2', "71747"}, {'3', "71717"}, {'4', "55711"},
      {'5', "74717"}, {'6', "74757"}, {'7', "71111"}, {'8', "75757"}, {'9', "75717"},
      {'.', "00002"}, {'k', "45655"}, {'H', "55755"}, {'z', "07247"}, {'s', "03627"},
      {'/', "11244"}, {'y', "05712"}, {'a', "03553"}, {'r', "03444"}, {'%', "51245"}};
  const auto found = signs->find(sign);
  return found == signs->end() ? "00000" : found->second;
}

}  // namespace

Colour Heat(double value) {
  constexpr Colour kStops[] = {
      {0, 0, 4}, {87, 16, 110}, {188, 55, 84}, {249, 142, 9}, {252, 255, 164}};
  const double place = std::clamp(value, 0.0, 1.0) * 4;
  const int stop = std::min(static_cast<int>(place), 3);
  Colour colour;
  for (int i = 0; i < 3; ++i)
    colour[i] = kStops[stop][i] + (place - stop) * (kStops[stop + 1][i] - kStops[stop][i]);
  return colour;
}

void Picture::Dot(int x, int y, Colour colour) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  std::copy(colour.begin(), colour.end(), pixels_.begin() + (y * width_ + x) * 3);
}

void Picture::Line(int x0, int y0, int x1, int y1, Colour colour) {
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int i = 0; i <= steps; ++i)
    Dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, colour);
}

void Picture::Text(int x, int y, const std::string& text) {
  for (char sign : text) {
    const char* rows = Sign(sign);
    for (int row = 0; row < 5; ++row)
      for (int column = 0; column < 3; ++column)
        if ((rows[row] - '0') >> (2 - column) & 1)
          for (int dot = 0; dot < 4; ++dot)  // two by two
            Dot(x + 2 * column + dot % 2, y + 2 * row + dot / 2, kBlack);
    x += 8;
  }
}

void Picture::Axes(int left, int top, int width, int height, int parts, double x_end, double y_end,
                   const std::string& x_unit, const std::string& y_unit) {
  const int bottom = top + height;
  Line(left - 1, top, left - 1, bottom, kBlack);
  Line(left - 1, bottom, left + width, bottom, kBlack);
  const auto label = [&](double end, int part, const std::string& unit) {
    const double value = std::round(end * part / parts * 100) / 100;
    return absl::StrCat(value, part == parts ? unit : "");
  };
  for (int part = 0; part <= parts; ++part) {
    const int x = left + width * part / parts, y = bottom - height * part / parts;
    Line(x, bottom, x, bottom + 4, kBlack);
    const std::string below = label(x_end, part, x_unit), beside = label(y_end, part, y_unit);
    Text(x - 4 * static_cast<int>(below.size()), bottom + 8, below);
    Line(left - 5, y, left - 1, y, kBlack);
    Text(left - 9 - 8 * static_cast<int>(beside.size()), y - 5, beside);
  }
}

absl::Status Picture::Write(const std::string& path) const {
  png_image image;
  std::memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.width = width_;
  image.height = height_;
  image.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&image, path.c_str(), 0, pixels_.data(), 0, nullptr) == 0)
    return absl::InternalError(absl::StrCat("cannot write ", path, ": ", image.message));
  return absl::OkStatus();
}

}  // namespace backendd::examples
