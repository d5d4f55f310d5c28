#include "server/worker/device/cpu/onednn.h"

#include <omp.h>

#include <array>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dnnl.hpp"
#include "shared/status/error.h"

namespace backendd::worker::onednn {
namespace {

using Md = dnnl::memory::desc;
using dnnl::memory;

const dnnl::engine& Engine() {
  static const auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& Stream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

// Version 2 has operation descriptors, version 3 none.
template <class P, class... A>
typename P::primitive_desc MakePd(const dnnl::primitive_attr& attr, A&&... a) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(Engine(), std::forward<A>(a)..., attr);
#else
  return typename P::primitive_desc(typename P::desc(std::forward<A>(a)...), attr, Engine());
#endif
}

dnnl::primitive_attr Attributes(Math math) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_fpmath_mode(math == Math::kFastBf16 ? dnnl::fpmath_mode::bf16
                                               : dnnl::fpmath_mode::strict);
  return attr;
}

void Scale(dnnl::primitive_attr* attr, float alpha, bool accumulate) {
  dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
  if (alpha != 1) after.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0);
#else
  if (alpha != 1) attr->set_output_scales(0, {alpha});
#endif
  if (accumulate) after.append_sum(1);
  attr->set_post_ops(after);
}

memory::dims Dims(const Extents& extents) { return {extents.begin(), extents.end()}; }

// Runs `f`, which calls the library. What it throws becomes a status.
template <class F>
auto Caught(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) {
      return Error(Reason::kHostOutOfMemory, absl::StrCat("oneDNN: ", error.what()));
    }
    return Error(Reason::kNoKernel, absl::StrCat("oneDNN: ", error.what()));
  } catch (const std::exception& error) {
    return Error(Reason::kInternal, absl::StrCat("oneDNN: ", error.what()));
  }
}

// An operand of a primitive: as it lies, and as the primitive wants it.
struct Leg {
  Md outer, inner;
  std::optional<dnnl::reorder> reorder;
  uint64_t offset = 0;  // in the scratch, where they differ

  void* Address(void* own, std::byte* scratch) const {
    return reorder ? static_cast<void*>(scratch + offset) : own;
  }
};

// A primitive with two inputs and one output, and the copies around it.
class Execution {
 public:
  Execution(dnnl::primitive primitive, int a, int b, int y, Md scratchpad, int threads)
      : primitive_(std::move(primitive)),
        arguments_{a, b, y},
        scratchpad_(std::move(scratchpad)),
        threads_(threads) {}

  void Bind(int leg, const Md& outer, const Md& inner, Primitive* primitive) {
    Leg& bound = legs_[leg];
    bound.outer = outer;
    bound.inner = inner;
    if (outer == inner) return;
    const bool in = leg < 2;
    bound.reorder.emplace(in ? dnnl::reorder::primitive_desc(Engine(), outer, Engine(), inner)
                             : dnnl::reorder::primitive_desc(Engine(), inner, Engine(), outer));
    bound.offset = primitive->scratch_bytes;
    primitive->scratch_bytes += (inner.get_size() + 63) / 64 * 64;
    primitive->copied_bytes += outer.get_size();
  }

  void Finish(Primitive* primitive) {
    scratchpad_offset_ = primitive->scratch_bytes;
    primitive->scratch_bytes += scratchpad_.get_size();
  }

  absl::Status Run(const void* a, const void* b, void* y, std::byte* scratch) {
    return Caught([&]() -> absl::Status {
      const Threads threads(threads_);
      dnnl::stream& stream = Stream();
      void* const own[3] = {const_cast<void*>(a), const_cast<void*>(b), y};
      std::unordered_map<int, memory> arguments;
      for (int i = 0; i < 3; ++i) {
        Leg& leg = legs_[i];
        memory inner(leg.inner, Engine(), leg.Address(own[i], scratch));
        if (leg.reorder && i < 2) {
          memory outer(leg.outer, Engine(), own[i]);
          leg.reorder->execute(stream, outer, inner);
        }
        arguments.emplace(arguments_[i], std::move(inner));
      }
      arguments.emplace(DNNL_ARG_SCRATCHPAD,
                        memory(scratchpad_, Engine(), scratch + scratchpad_offset_));
      primitive_.execute(stream, arguments);
      if (Leg& leg = legs_[2]; leg.reorder) {
        memory outer(leg.outer, Engine(), y);
        leg.reorder->execute(stream, arguments.at(arguments_[2]), outer);
      }
      stream.wait();
      return absl::OkStatus();
    });
  }

 private:
  dnnl::primitive primitive_;
  const std::array<int, 3> arguments_;
  const Md scratchpad_;
  const int threads_;
  std::array<Leg, 3> legs_;
  uint64_t scratchpad_offset_ = 0;
};

Primitive Wrap(std::shared_ptr<Execution> execution, Primitive primitive) {
  execution->Finish(&primitive);
  primitive.run = [execution = std::move(execution)](const void* a, const void* b, void* y,
                                                     std::byte* scratch) {
    return execution->Run(a, b, y, scratch);
  };
  return primitive;
}

}  // namespace

std::string Version() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

void DisableCache() { dnnl_set_primitive_cache_capacity(0); }

bool HasBf16() {
  return __builtin_cpu_supports("avx512bf16") &&
         dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
}

absl::StatusOr<Primitive> MakeMatmul(const MatmulProblem& p) {
  return Caught([&]() -> absl::StatusOr<Primitive> {
    const Threads threads(p.threads);
    const bool batched = p.batch > 1;
    auto desc = [&](int64_t rows, int64_t columns, const int64_t* steps, memory::data_type type) {
      if (batched) return Md({p.batch, rows, columns}, type, {steps[0], steps[1], steps[2]});
      return Md({rows, columns}, type, {steps[1], steps[2]});
    };
    constexpr auto kF32 = memory::data_type::f32;
    const Md a = desc(p.m, p.k, p.a, kF32), b = desc(p.k, p.n, p.b, kF32);
    const Md y = desc(p.m, p.n, p.y, kF32);
    Md a_inner = a, b_inner = b;
    if (p.math == Math::kBf16Inputs) {
      const int64_t dense_a[3] = {p.m * p.k, p.k, 1}, dense_b[3] = {p.k * p.n, p.n, 1};
      a_inner = desc(p.m, p.k, dense_a, memory::data_type::bf16);
      b_inner = desc(p.k, p.n, dense_b, memory::data_type::bf16);
    }
    dnnl::primitive_attr attr = Attributes(p.math);
    Scale(&attr, p.alpha, p.accumulate);
    const auto pd = MakePd<dnnl::matmul>(attr, a_inner, b_inner, y);
    Primitive primitive;
    primitive.implementation = pd.impl_info_str();
    auto execution = std::make_shared<Execution>(dnnl::matmul(pd), DNNL_ARG_SRC, DNNL_ARG_WEIGHTS,
                                                 DNNL_ARG_DST, pd.scratchpad_desc(), p.threads);
    execution->Bind(0, a, a_inner, &primitive);
    execution->Bind(1, b, b_inner, &primitive);
    execution->Bind(2, y, y, &primitive);
    return Wrap(std::move(execution), std::move(primitive));
  });
}

absl::StatusOr<Primitive> MakeConvolution(const ConvolutionProblem& p) {
  return Caught([&]() -> absl::StatusOr<Primitive> {
    const Threads threads(p.threads);
    const memory::dims x_dims = Dims(p.x.shape), y_dims = Dims(p.y.shape);
    memory::dims w_dims = Dims(p.w.shape), w_strides = Dims(p.w.strides);
    if (p.groups > 1) {
      const int64_t each = w_dims[0] / p.groups;
      w_dims[0] = each;
      w_dims.insert(w_dims.begin(), p.groups);
      w_strides.insert(w_strides.begin(), each * w_strides[0]);
    }
    constexpr auto kF32 = memory::data_type::f32;
    const Md x(x_dims, kF32, Dims(p.x.strides)), y(y_dims, kF32, Dims(p.y.strides));
    const Md w(w_dims, kF32, w_strides);
    const auto input = p.math == Math::kBf16Inputs ? memory::data_type::bf16 : kF32;
    auto any = [](const memory::dims& dims, memory::data_type type) {
      return Md(dims, type, memory::format_tag::any);
    };
    const memory::dims stride = Dims(p.stride), padding = Dims(p.padding);
    memory::dims dilation = Dims(p.dilation), right = padding;
    for (size_t i = 0; i < dilation.size(); ++i) {
      const int64_t kernel = p.w.shape[i + 2];
      // What the last window leaves unread is no padding.
      right[i] = (p.y.shape[i + 2] - 1) * p.stride[i] + (kernel - 1) * p.dilation[i] + 1 -
                 p.x.shape[i + 2] - p.padding[i];
      --dilation[i];  // the library counts the holes
    }
    const dnnl::primitive_attr attr = Attributes(p.math);
    constexpr auto kDirect = dnnl::algorithm::convolution_direct;
    const bool forward = p.direction == Direction::kForward;
    const bool by_data = p.direction == Direction::kInputGradient;
    // Gradients take their hint from the forward, whose types may differ only in the output.
    const auto hint = MakePd<dnnl::convolution_forward>(
        attr, forward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training,
        kDirect, any(x_dims, input), any(w_dims, input), any(y_dims, forward ? kF32 : input),
        stride, dilation, padding, right);
    Primitive primitive;
    std::shared_ptr<Execution> execution;
    if (forward) {
      primitive.implementation = hint.impl_info_str();
      execution = std::make_shared<Execution>(dnnl::convolution_forward(hint), DNNL_ARG_SRC,
                                              DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                              hint.scratchpad_desc(), p.threads);
      execution->Bind(0, x, hint.src_desc(), &primitive);
      execution->Bind(1, w, hint.weights_desc(), &primitive);
      execution->Bind(2, y, hint.dst_desc(), &primitive);
    } else if (by_data) {
      using P = dnnl::convolution_backward_data;
#if DNNL_VERSION_MAJOR >= 3
      const P::primitive_desc pd(Engine(), kDirect, any(x_dims, kF32), any(w_dims, input),
                                 any(y_dims, input), stride, dilation, padding, right, hint, attr);
#else
      const P::primitive_desc pd(P::desc(kDirect, any(x_dims, kF32), any(w_dims, input),
                                         any(y_dims, input), stride, dilation, padding, right),
                                 attr, Engine(), hint);
#endif
      primitive.implementation = pd.impl_info_str();
      execution = std::make_shared<Execution>(P(pd), DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS,
                                              DNNL_ARG_DIFF_SRC, pd.scratchpad_desc(), p.threads);
      execution->Bind(0, y, pd.diff_dst_desc(), &primitive);
      execution->Bind(1, w, pd.weights_desc(), &primitive);
      execution->Bind(2, x, pd.diff_src_desc(), &primitive);
    } else {
      using P = dnnl::convolution_backward_weights;
#if DNNL_VERSION_MAJOR >= 3
      const P::primitive_desc pd(Engine(), kDirect, any(x_dims, input), any(w_dims, kF32),
                                 any(y_dims, input), stride, dilation, padding, right, hint, attr);
#else
      const P::primitive_desc pd(P::desc(kDirect, any(x_dims, input), any(w_dims, kF32),
                                         any(y_dims, input), stride, dilation, padding, right),
                                 attr, Engine(), hint);
#endif
      primitive.implementation = pd.impl_info_str();
      execution =
          std::make_shared<Execution>(P(pd), DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                      pd.scratchpad_desc(), p.threads);
      execution->Bind(0, x, pd.src_desc(), &primitive);
      execution->Bind(1, y, pd.diff_dst_desc(), &primitive);
      execution->Bind(2, w, pd.diff_weights_desc(), &primitive);
    }
    return Wrap(std::move(execution), std::move(primitive));
  });
}

bool FastBf16IsHonoured() {
  // 64 products of 1 + 2^-9 and 1: 64.125 in f32, 64 where the inputs are taken in bf16.
  static const bool honoured = [] {
    constexpr int64_t kSize = 64;
    MatmulProblem p;
    p.m = p.n = p.k = kSize;
    for (int64_t* steps : {p.a, p.b, p.y}) {
      steps[0] = kSize * kSize;
      steps[1] = kSize;
      steps[2] = 1;
    }
    p.math = Math::kFastBf16;
    const absl::StatusOr<Primitive> fast = MakeMatmul(p);
    if (!fast.ok()) return false;
    std::vector<float> a(kSize * kSize, 1 + 1.0f / 512), b(kSize * kSize, 1), y(kSize * kSize, 0);
    std::vector<std::byte> scratch(fast->scratch_bytes + 64);
    auto address = reinterpret_cast<uintptr_t>(scratch.data());
    std::byte* const aligned = scratch.data() + (64 - address % 64) % 64;
    return fast->run(a.data(), b.data(), y.data(), aligned).ok() && y[0] == 64.0f;
  }();
  return honoured;
}

Threads::Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
Threads::~Threads() { omp_set_num_threads(before_); }

}  // namespace backendd::worker::onednn
