// The CPU behind the device seam: oneDNN, OpenBLAS, FFTW (a module of its own) and own kernels.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_CPU_DEVICE_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_CPU_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/worker/device/device.h"

namespace backendd::worker {

struct CpuOptions {
  int threads = 0;         // of large operations; 0: as many as cores may be used
  std::string module_dir;  // where backendd-module-fftw.so lies; empty: beside the executable
};

// Sets what the libraries keep for the whole process (threads of OpenBLAS, oneDNN's cache off): one
// such device a process. A module that is not there is no error: fft is NO_KERNEL then.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(CpuOptions options);

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_CPU_DEVICE_H_
