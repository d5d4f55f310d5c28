#include <backendd/client.h>

#include <iostream>

int main(int argc, char** argv) {
  auto client = backendd::Client::Create({.address = argc > 1 ? argv[1] : ""});
  const absl::Status status =
      client.ok() ? (*client)->Get("cudnn.benchmark").status() : client.status();
  const auto reason = backendd::ReasonOf(status);
  std::cout << (reason ? backendd::ReasonName(*reason) : "OK") << "\n";
  return status.ok() ? 0 : 1;
}
