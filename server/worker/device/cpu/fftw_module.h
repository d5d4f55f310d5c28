/* The C interface between the CPU device and the FFTW module, which is a shared library of its own
 * because FFTW is GPL: opened at run time, optional. Planning and freeing take one lock inside the
 * module; execution is free. */
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_FFTW_MODULE_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_FFTW_MODULE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BACKENDD_FFTW_ABI 1

enum { BACKENDD_FFTW_FORWARD, BACKENDD_FFTW_BACKWARD, BACKENDD_FFTW_R2C, BACKENDD_FFTW_C2R };

/* Steps in elements of the side they belong to (real or complex numbers). */
struct backendd_fftw_dim {
  int64_t n, in_step, out_step;
};

struct backendd_fftw_request {
  int32_t kind;
  int32_t wide; /* 1: double, 0: float */
  int32_t rank, batch_rank;
  struct backendd_fftw_dim dims[3];
  struct backendd_fftw_dim batch[8];
  int32_t measure; /* 1: time candidates, on scratch arrays */
  int32_t aligned; /* 1: both sides will always be aligned to 16 bytes */
  int32_t keep_input;
  int64_t in_bytes, out_bytes; /* what the two sides span */
};

struct backendd_fftw_module {
  int32_t abi;
  const char* version;
  void* (*plan)(const struct backendd_fftw_request*); /* null: there is none */
  void (*execute)(const void* plan, void* in, void* out);
  void (*destroy)(void* plan);
};

/* The one symbol that is looked up. */
const struct backendd_fftw_module* backendd_fftw_open(void);

#ifdef __cplusplus
}
#endif

#endif /* BACKENDD_SERVER_WORKER_DEVICE_CPU_FFTW_MODULE_H_ */
