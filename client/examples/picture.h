// A small picture with axes, written as PNG.
#ifndef BACKENDD_CLIENT_EXAMPLES_PICTURE_H_
#define BACKENDD_CLIENT_EXAMPLES_PICTURE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace backendd::examples {

using Colour = std::array<uint8_t, 3>;
inline constexpr Colour kBlack = {0, 0, 0};

// From black over violet and orange to pale yellow for 0 to 1.
Colour Heat(double value);

// White at first; what lies outside is not drawn.
class Picture {
 public:
  Picture(int width, int height)
      : width_(width), height_(height), pixels_(width * height * 3, 255) {}

  void Dot(int x, int y, Colour colour);
  void Line(int x0, int y0, int x1, int y1, Colour colour);
  void Text(int x, int y, const std::string& text);  // digits, dots and the letters of units
  // Lines at the left of and below a plot, a tick with its number at each of `parts` + 1 places.
  void Axes(int left, int top, int width, int height, int parts, double x_end, double y_end,
            const std::string& x_unit, const std::string& y_unit);
  absl::Status Write(const std::string& path) const;

 private:
  int width_, height_;
  std::vector<uint8_t> pixels_;
};

}  // namespace backendd::examples

#endif  // BACKENDD_CLIENT_EXAMPLES_PICTURE_H_
