// The daemon's YAML file, read into scalar settings, roles and flags.
#ifndef BACKENDD_SERVER_NODE_CONFIG_FILE_H_
#define BACKENDD_SERVER_NODE_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "server/node/config.h"

namespace backendd::node {

struct FileScalar {
  std::string name;  // of a setting
  std::string text;
  int line;
};

// Adds what the file says to `scalars`, config->roles and config->flags; every fault to `faults`,
// each with FILE:LINE. Takes at most 1 MiB, 32 levels, no aliases.
void ReadConfigFile(const std::string& name, const std::string& text,
                    std::vector<FileScalar>* scalars, Config* config,
                    std::vector<std::string>* faults);

// "; did you mean 'x'?", or nothing.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& known);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_CONFIG_FILE_H_
