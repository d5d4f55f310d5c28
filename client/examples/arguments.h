// What the programs of the main job are started with, and how they fail.
#ifndef BACKENDD_CLIENT_EXAMPLES_ARGUMENTS_H_
#define BACKENDD_CLIENT_EXAMPLES_ARGUMENTS_H_

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/status/status.h"

namespace backendd::examples {

struct Arguments {
  std::string socket;  // empty: the default addresses
  std::string data = "deploy/data";
  std::string out = ".";
};

// --socket PATH --data DIR --out DIR; anything else ends the program with 2.
inline Arguments ReadArguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    std::string* value = std::strcmp(argv[i], "--socket") == 0 ? &arguments.socket
                         : std::strcmp(argv[i], "--data") == 0 ? &arguments.data
                         : std::strcmp(argv[i], "--out") == 0  ? &arguments.out
                                                               : nullptr;
    if (value == nullptr || i + 1 == argc) {
      std::fprintf(stderr, "usage: %s [--socket PATH] [--data DIR] [--out DIR]\n", argv[0]);
      std::exit(2);
    }
    *value = argv[i + 1];
  }
  return arguments;
}

// One line, out at once: the main job reads them as they come.
template <class... Values>
void Say(const char* format, Values... values) {
  std::printf(format, values...);
  std::putchar('\n');
  std::fflush(stdout);
}
inline void Say(const std::string& line) { Say("%s", line.c_str()); }

inline int Exit(const absl::Status& status) {
  if (status.ok()) return 0;
  Say("failed: %s", std::string(status.message()).c_str());
  return 1;
}

}  // namespace backendd::examples

#endif  // BACKENDD_CLIENT_EXAMPLES_ARGUMENTS_H_
