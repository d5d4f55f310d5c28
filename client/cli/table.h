// Tables for people: columns as wide as their widest cell, wide characters counted as two, what a
// stranger's text could do to a terminal escaped.
#ifndef BACKENDD_CLIENT_CLI_TABLE_H_
#define BACKENDD_CLIENT_CLI_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace backendd::cli {

// `text` with control characters and broken UTF-8 written as \n, \t, \xNN.
std::string Escaped(absl::string_view text);

// Terminal columns of valid UTF-8: 2 for wide characters, 0 for combining ones.
int DisplayWidth(absl::string_view text);

// `text` cut to `width` columns, the last one an ellipsis where something was cut.
std::string Cut(absl::string_view text, int width);

// Rows under a header. Not thread-safe; each command fills one and prints it.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void Add(std::vector<std::string> row);  // escaped here; missing cells are empty
  bool empty() const { return rows_.empty(); }
  // Lines that end in '\n', cut to `width` columns where it is not 0. Bold header if `bold`.
  std::string Text(int width = 0, bool bold = false) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_TABLE_H_
