// A client that is killed while its program runs: victim DAEMON_SOCKET WORKER_SOCKET READY_FILE.
#include <unistd.h>

#include <fstream>

#include "tests/process/worker/worker_process.h"

int main(int argc, char** argv) {
  using namespace backendd;
  if (argc != 4) return 2;
  const auto channel = [](const char* socket) {
    return grpc::CreateChannel(std::string("unix:") + socket, grpc::InsecureChannelCredentials());
  };
  const Caller caller(channel(argv[1]), channel(argv[2]));
  if (!caller.Allocate(1, 12 << 20).ok()) return 1;
  v1::SubmitRequest program = caller.Program();
  program.set_mode(v1::SUBMIT_MODE_ACCEPTED);
  for (int i = 0; i < 8; ++i) {
    v1::Gemm* const gemm = program.add_operations()->mutable_gemm();
    uint64_t offset = 0;
    for (v1::Operand* operand : {gemm->mutable_a(), gemm->mutable_b(), gemm->mutable_y()}) {
      operand->set_buffer(1);
      operand->set_offset(offset);
      operand->set_dtype(v1::DTYPE_F32);
      operand->add_shape(1024);
      operand->add_shape(1024);
      offset += 4 << 20;
    }
  }
  v1::SubmitResponse response;
  for (int i = 0; i < 8; ++i)
    if (!caller.Submit(program, &response).ok()) return 1;
  std::ofstream ready(argv[3]);
  ready.close();
  while (true) pause();
}
