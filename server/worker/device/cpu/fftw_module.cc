// The FFTW module. Links FFTW, so the whole library is under its licence (GPL-2 or later).
#include "server/worker/device/cpu/fftw_module.h"

#include <fftw3.h>

#include <cstdlib>
#include <mutex>

namespace {

// Two planners at work corrupt the heap: one lock around plan and destroy.
std::mutex& PlannerLock() {
  static auto* const lock = new std::mutex;
  return *lock;
}

struct PlanHandle {
  int kind = 0;
  fftw_plan wide = nullptr;
  fftwf_plan narrow = nullptr;
};

template <class Dim>
void Fill(const backendd_fftw_dim* from, int count, Dim* to) {
  for (int i = 0; i < count; ++i) {
    to[i].n = from[i].n;
    to[i].is = from[i].in_step;
    to[i].os = from[i].out_step;
  }
}

void* AllocateScratch(int64_t bytes) {
  return std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64));
}

fftw_plan MakeWide(const backendd_fftw_request& r, void* in, void* out, unsigned flags) {
  fftw_iodim64 dims[3], batch[8];
  Fill(r.dims, r.rank, dims);
  Fill(r.batch, r.batch_rank, batch);
  auto* const ci = static_cast<fftw_complex*>(in);
  auto* const co = static_cast<fftw_complex*>(out);
  switch (r.kind) {
    case BACKENDD_FFTW_R2C:
      return fftw_plan_guru64_dft_r2c(r.rank, dims, r.batch_rank, batch, static_cast<double*>(in),
                                      co, flags);
    case BACKENDD_FFTW_C2R:
      return fftw_plan_guru64_dft_c2r(r.rank, dims, r.batch_rank, batch, ci,
                                      static_cast<double*>(out), flags);
    default:
      return fftw_plan_guru64_dft(r.rank, dims, r.batch_rank, batch, ci, co,
                                  r.kind == BACKENDD_FFTW_FORWARD ? FFTW_FORWARD : FFTW_BACKWARD,
                                  flags);
  }
}

fftwf_plan MakeNarrow(const backendd_fftw_request& r, void* in, void* out, unsigned flags) {
  fftwf_iodim64 dims[3], batch[8];
  Fill(r.dims, r.rank, dims);
  Fill(r.batch, r.batch_rank, batch);
  auto* const ci = static_cast<fftwf_complex*>(in);
  auto* const co = static_cast<fftwf_complex*>(out);
  switch (r.kind) {
    case BACKENDD_FFTW_R2C:
      return fftwf_plan_guru64_dft_r2c(r.rank, dims, r.batch_rank, batch, static_cast<float*>(in),
                                       co, flags);
    case BACKENDD_FFTW_C2R:
      return fftwf_plan_guru64_dft_c2r(r.rank, dims, r.batch_rank, batch, ci,
                                       static_cast<float*>(out), flags);
    default:
      return fftwf_plan_guru64_dft(r.rank, dims, r.batch_rank, batch, ci, co,
                                   r.kind == BACKENDD_FFTW_FORWARD ? FFTW_FORWARD : FFTW_BACKWARD,
                                   flags);
  }
}

void* Plan(const backendd_fftw_request* r) {
  unsigned flags = r->measure ? FFTW_MEASURE : FFTW_ESTIMATE;
  if (!r->aligned) flags |= FFTW_UNALIGNED;
  flags |= r->keep_input ? FFTW_PRESERVE_INPUT : FFTW_DESTROY_INPUT;
  void* const in = AllocateScratch(r->in_bytes);
  void* const out = AllocateScratch(r->out_bytes);
  PlanHandle handle;
  handle.kind = r->kind;
  if (in != nullptr && out != nullptr) {
    const std::lock_guard<std::mutex> lock(PlannerLock());
    if (r->wide) {
      handle.wide = MakeWide(*r, in, out, flags);
    } else {
      handle.narrow = MakeNarrow(*r, in, out, flags);
    }
  }
  std::free(in);
  std::free(out);
  return handle.wide == nullptr && handle.narrow == nullptr ? nullptr : new PlanHandle(handle);
}

void Execute(const void* plan, void* in, void* out) {
  const auto& p = *static_cast<const PlanHandle*>(plan);
  auto* const wi = static_cast<fftw_complex*>(in);
  auto* const wo = static_cast<fftw_complex*>(out);
  auto* const ni = static_cast<fftwf_complex*>(in);
  auto* const no = static_cast<fftwf_complex*>(out);
  switch (p.kind) {
    case BACKENDD_FFTW_R2C:
      if (p.wide) return fftw_execute_dft_r2c(p.wide, static_cast<double*>(in), wo);
      return fftwf_execute_dft_r2c(p.narrow, static_cast<float*>(in), no);
    case BACKENDD_FFTW_C2R:
      if (p.wide) return fftw_execute_dft_c2r(p.wide, wi, static_cast<double*>(out));
      return fftwf_execute_dft_c2r(p.narrow, ni, static_cast<float*>(out));
    default:
      if (p.wide) return fftw_execute_dft(p.wide, wi, wo);
      return fftwf_execute_dft(p.narrow, ni, no);
  }
}

void Destroy(void* plan) {
  auto* const p = static_cast<PlanHandle*>(plan);
  {
    const std::lock_guard<std::mutex> lock(PlannerLock());
    if (p->wide) fftw_destroy_plan(p->wide);
    if (p->narrow) fftwf_destroy_plan(p->narrow);
  }
  delete p;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const backendd_fftw_module* backendd_fftw_open() {
  static const backendd_fftw_module module = {BACKENDD_FFTW_ABI, fftw_version, Plan, Execute,
                                              Destroy};
  return &module;
}
