// activation, unary, binary, where, random, dropout, sgd, adam.
#include <cmath>
#include <numbers>

#include "server/worker/device/cpu/activation.h"
#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"
#include "server/worker/device/cpu/philox.h"

namespace backendd::worker {
namespace {

// y = f(operand 0), f chosen once, so that the loop over it is its own.
template <class T, class F>
Kernel Unary(const Builder& b, F f) {
  const auto nest = MakeNest<2>(std::array<const TensorType*, 2>{&b.type(0), &b.type(1)});
  return [nest, f](const Call& call) {
    Map1(nest, call.At<T>(0), call.At<T>(1), f);
    return absl::OkStatus();
  };
}
template <class T, class Y, class F>
Kernel Binary(const Builder& b, F f) {
  const auto nest =
      MakeNest<3>(std::array<const TensorType*, 3>{&b.type(0), &b.type(1), &b.type(2)});
  return [nest, f](const Call& call) {
    Map2(nest, call.At<T>(0), call.At<T>(1), call.At<Y>(2), f);
    return absl::OkStatus();
  };
}

void Note(Builder& b, absl::string_view algorithm, double flops_each) {
  const TensorType& last = b.spec.operands.back().type;
  b.plan.choice.library = "own";
  b.plan.choice.algorithm = std::string(algorithm.data(), algorithm.size());
  const double n = last.elements();
  b.Cost(n * flops_each, n * SizeOf(last.dtype) * b.spec.operands.size());
}

template <class T>
Kernel MakeActivation(const Builder& b) {
  switch (b.attributes<ActivationAttributes>().function) {
    case v1::ACTIVATION_FUNCTION_GELU_ERF:
      return Unary<T>(b, [](T x) { return GeluErf(x); });
    case v1::ACTIVATION_FUNCTION_GELU_TANH:
      return Unary<T>(b, [](T x) { return GeluTanh(x); });
    case v1::ACTIVATION_FUNCTION_SILU:
      return Unary<T>(b, [](T x) { return Silu(x); });
    case v1::ACTIVATION_FUNCTION_SIGMOID:
      return Unary<T>(b, [](T x) { return Sigmoid(x); });
    case v1::ACTIVATION_FUNCTION_TANH:
      return Unary<T>(b, [](T x) { return std::tanh(x); });
    default:
      return Unary<T>(b, [](T x) { return Relu(x); });
  }
}

template <class T>
Kernel MakeActivationGradient(const Builder& b) {
  switch (b.attributes<ActivationAttributes>().function) {
    case v1::ACTIVATION_FUNCTION_GELU_ERF:
      return Binary<T, T>(b, [](T x, T dy) { return GeluErfGradient(x) * dy; });
    case v1::ACTIVATION_FUNCTION_GELU_TANH:
      return Binary<T, T>(b, [](T x, T dy) { return GeluTanhGradient(x) * dy; });
    case v1::ACTIVATION_FUNCTION_SILU:
      return Binary<T, T>(b, [](T x, T dy) { return SiluGradient(x) * dy; });
    case v1::ACTIVATION_FUNCTION_SIGMOID:
      return Binary<T, T>(b, [](T x, T dy) {
        const T s = Sigmoid(x);
        return s * (T(1) - s) * dy;
      });
    case v1::ACTIVATION_FUNCTION_TANH:
      return Binary<T, T>(b, [](T x, T dy) {
        const T t = std::tanh(x);
        return (T(1) - t * t) * dy;
      });
    default:
      return Binary<T, T>(b, [](T x, T dy) { return x <= T(0) ? T(0) : dy; });
  }
}

template <class T>
Kernel MakeUnary(const Builder& b) {
  switch (b.attributes<UnaryAttributes>().function) {
    case v1::UNARY_FUNCTION_ABS:
      return Unary<T>(b, [](T x) { return std::fabs(x); });
    case v1::UNARY_FUNCTION_EXP:
      return Unary<T>(b, [](T x) { return std::exp(x); });
    case v1::UNARY_FUNCTION_LOG:
      return Unary<T>(b, [](T x) { return std::log(x); });
    case v1::UNARY_FUNCTION_SQRT:
      return Unary<T>(b, [](T x) { return std::sqrt(x); });
    case v1::UNARY_FUNCTION_RSQRT:
      return Unary<T>(b, [](T x) { return T(1) / std::sqrt(x); });
    case v1::UNARY_FUNCTION_SQUARE:
      return Unary<T>(b, [](T x) { return x * x; });
    default:
      return Unary<T>(b, [](T x) { return -x; });
  }
}

template <class T>
Kernel MakeBinary(const Builder& b) {
  const auto& a = b.attributes<BinaryAttributes>();
  const T alpha = static_cast<T>(a.alpha);
  switch (a.function) {
    case v1::BINARY_FUNCTION_SUB:
      return Binary<T, T>(b, [alpha](T x, T y) { return x - alpha * y; });
    case v1::BINARY_FUNCTION_MUL:
      return Binary<T, T>(b, [alpha](T x, T y) { return x * (alpha * y); });
    case v1::BINARY_FUNCTION_DIV:
      return Binary<T, T>(b, [alpha](T x, T y) { return x / (alpha * y); });
    case v1::BINARY_FUNCTION_MAX:  // NaN wins
      return Binary<T, T>(b, [alpha](T x, T y) {
        const T z = alpha * y;
        return std::isnan(x) || x > z ? x : z;
      });
    case v1::BINARY_FUNCTION_MIN:
      return Binary<T, T>(b, [alpha](T x, T y) {
        const T z = alpha * y;
        return std::isnan(x) || x < z ? x : z;
      });
    case v1::BINARY_FUNCTION_EQ:
      return Binary<T, bool>(b, [alpha](T x, T y) { return x == alpha * y; });
    case v1::BINARY_FUNCTION_LT:
      return Binary<T, bool>(b, [alpha](T x, T y) { return x < alpha * y; });
    default:
      return Binary<T, T>(b, [alpha](T x, T y) { return x + alpha * y; });
  }
}

template <class T>
Kernel MakeWhere(const Builder& b) {
  const auto nest =
      MakeNest<4>(std::array<const TensorType*, 4>{&b.type(0), &b.type(1), &b.type(2), &b.type(3)});
  return [nest](const Call& call) {
    Map3(nest, call.At<bool>(0), call.At<T>(1), call.At<T>(2), call.At<T>(3),
         [](bool condition, T x, T y) { return condition ? x : y; });
    return absl::OkStatus();
  };
}

// Four draws at a time, in the order of y's indices; the state moves by ceil(n / 4).
template <class T>
Kernel MakeRandom(const Builder& b) {
  const auto nest = MakeNest<1>(std::array<const TensorType*, 1>{&b.type(1)}, /*ordered=*/true);
  return [nest, step = b.type(0).strides[0], n = b.type(1).elements(),
          a = b.attributes<RandomAttributes>()](const Call& call) {
    uint64_t* const rng = call.At<uint64_t>(0);
    PhiloxStream draws(rng[0], rng[step]);
    rng[step] += (n + 3) / 4;
    T* const y = call.At<T>(1);
    double spare = 0;
    bool has_spare = false;
    auto next = [&]() -> double {
      if (a.distribution == v1::DISTRIBUTION_UNIFORM) {
        return a.low + (a.high - a.low) * draws.Uniform();
      }
      if (has_spare) {
        has_spare = false;
        return a.mean + a.std * spare;
      }
      // Box and Muller: two draws make two values.
      const double radius = std::sqrt(-2 * std::log(1 - draws.Uniform()));
      const double angle = 2 * std::numbers::pi * draws.Uniform();
      spare = radius * std::sin(angle);
      has_spare = true;
      return a.mean + a.std * radius * std::cos(angle);
    };
    Walk(nest, [&](const Nest<1>::Steps& at) {
      for (int64_t i = 0; i < nest.count; ++i) {
        T value = static_cast<T>(next());
        // Rounding may reach `high`, which is not in the range.
        if (a.distribution == v1::DISTRIBUTION_UNIFORM && value >= T(a.high) && a.high > a.low) {
          value = std::nextafter(T(a.high), T(a.low));
        }
        y[at[0] + i * nest.inner[0]] = value;
      }
    });
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakeDropout(const Builder& b) {
  const Extents& shape = b.type(0).shape;
  const auto nest = MakeNest<3>(shape, {b.type(0).strides, b.type(2).strides, b.type(3).strides},
                                /*ordered=*/true);
  return [nest, step = b.type(1).strides[0], n = b.type(0).elements(),
          p = b.attributes<DropoutAttributes>().p](const Call& call) {
    uint64_t* const rng = call.At<uint64_t>(1);
    PhiloxStream draws(rng[0], rng[step]);
    rng[step] += (n + 3) / 4;
    const T scale = p < 1 ? static_cast<T>(1 / (1 - p)) : T(0);
    const T* const x = call.At<T>(0);
    T* const y = call.At<T>(2);
    bool* const mask = call.At<bool>(3);
    Walk(nest, [&](const Nest<3>::Steps& at) {
      for (int64_t i = 0; i < nest.count; ++i) {
        const bool keep = draws.Uniform() >= p;
        mask[at[2] + i * nest.inner[2]] = keep;
        y[at[1] + i * nest.inner[1]] = keep ? x[at[0] + i * nest.inner[0]] * scale : T(0);
      }
    });
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakeDropoutGradient(const Builder& b) {
  const auto nest =
      MakeNest<3>(std::array<const TensorType*, 3>{&b.type(0), &b.type(1), &b.type(2)});
  const double p = b.attributes<DropoutAttributes>().p;
  const T scale = p < 1 ? static_cast<T>(1 / (1 - p)) : T(0);
  return [nest, scale](const Call& call) {
    Map2(nest, call.At<T>(0), call.At<bool>(1), call.At<T>(2),
         [scale](T dy, bool keep) { return keep ? dy * scale : T(0); });
    return absl::OkStatus();
  };
}

// The first step of a momentum buffer that is all zeros is torch's first step only without
// dampening; with it the buffer grows by (1 - dampening) grad from the start.
template <class T>
Kernel MakeSgd(const Builder& b) {
  const bool with_momentum = b.has(2);
  const auto nest = MakeNest<3>(std::array<const TensorType*, 3>{
      &b.type(1), with_momentum ? &b.type(2) : &b.type(0), &b.type(0)});
  return [nest, with_momentum, a = b.attributes<SgdAttributes>()](const Call& call) {
    T* const param = call.At<T>(0);
    const T* const grad = call.At<T>(1);
    T* const buffer = with_momentum ? call.At<T>(2) : nullptr;
    const T lr = static_cast<T>(*call.At<float>(3));
    const T momentum = T(a.momentum), fresh = T(1 - a.dampening), decay = T(a.weight_decay);
    Walk(nest, [&](const Nest<3>::Steps& at) {
      for (int64_t i = 0; i < nest.count; ++i) {
        T& value = param[at[2] + i * nest.inner[2]];
        T step = grad[at[0] + i * nest.inner[0]];
        if (decay != T(0)) step += decay * value;
        if (buffer != nullptr) {
          T& kept = buffer[at[1] + i * nest.inner[1]];
          kept = momentum * kept + fresh * step;
          step = a.nesterov ? step + momentum * kept : kept;
        }
        value -= lr * step;
      }
    });
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakeAdam(const Builder& b) {
  const auto nest =
      MakeNest<4>(std::array<const TensorType*, 4>{&b.type(1), &b.type(2), &b.type(3), &b.type(0)});
  return [nest, a = b.attributes<AdamAttributes>()](const Call& call) {
    T* const param = call.At<T>(0);
    const T* const grad = call.At<T>(1);
    T* const mean = call.At<T>(2);
    T* const square = call.At<T>(3);
    int64_t* const step = call.At<int64_t>(4);
    const double lr = *call.At<float>(5);
    ++*step;
    const double t = static_cast<double>(*step);
    const T rate = static_cast<T>(lr / (1 - std::pow(a.beta1, t)));
    const T root = static_cast<T>(1 / std::sqrt(1 - std::pow(a.beta2, t)));
    const T beta1 = T(a.beta1), beta2 = T(a.beta2), rest1 = T(1 - a.beta1), rest2 = T(1 - a.beta2),
            eps = T(a.eps), decay = T(a.weight_decay), shrink = T(1 - lr * a.weight_decay);
    Walk(nest, [&](const Nest<4>::Steps& at) {
      for (int64_t i = 0; i < nest.count; ++i) {
        T& value = param[at[3] + i * nest.inner[3]];
        T g = grad[at[0] + i * nest.inner[0]];
        if (a.decoupled) {
          value *= shrink;
        } else if (decay != T(0)) {
          g += decay * value;
        }
        T& m = mean[at[1] + i * nest.inner[1]];
        T& v = square[at[2] + i * nest.inner[2]];
        m = beta1 * m + rest1 * g;
        v = beta2 * v + rest2 * g * g;
        value -= rate * m / (std::sqrt(v) * root + eps);
      }
    });
    return absl::OkStatus();
  };
}

absl::Status BuildActivation(Builder& b) {
  Note(b, "activation", 20);
  return ByFloat(b.type(0).dtype, "activation", [&](auto type) {
    b.plan.kernel = MakeActivation<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildActivationGradient(Builder& b) {
  Note(b, "activation_gradient", 20);
  return ByFloat(b.type(0).dtype, "activation_gradient", [&](auto type) {
    b.plan.kernel = MakeActivationGradient<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildUnary(Builder& b) {
  Note(b, "unary", 10);
  return ByFloat(b.type(0).dtype, "unary", [&](auto type) {
    b.plan.kernel = MakeUnary<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildBinary(Builder& b) {
  Note(b, "binary", 1);
  return ByFloat(b.type(0).dtype, "binary", [&](auto type) {
    b.plan.kernel = MakeBinary<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildWhere(Builder& b) {
  Note(b, "where", 1);
  return ByFloat(b.type(1).dtype, "where", [&](auto type) {
    b.plan.kernel = MakeWhere<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildRandom(Builder& b) {
  Note(b, "philox4x32-10", 20);
  return ByFloat(b.type(1).dtype, "random", [&](auto type) {
    b.plan.kernel = MakeRandom<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildDropout(Builder& b) {
  Note(b, "philox4x32-10", 20);
  return ByFloat(b.type(0).dtype, "dropout", [&](auto type) {
    b.plan.kernel = MakeDropout<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildDropoutGradient(Builder& b) {
  Note(b, "dropout_gradient", 1);
  return ByFloat(b.type(0).dtype, "dropout_gradient", [&](auto type) {
    b.plan.kernel = MakeDropoutGradient<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildSgd(Builder& b) {
  Note(b, "sgd", 4);
  return ByFloat(b.type(0).dtype, "sgd", [&](auto type) {
    b.plan.kernel = MakeSgd<decltype(type)>(b);
    return absl::OkStatus();
  });
}
absl::Status BuildAdam(Builder& b) {
  Note(b, "adam", 12);
  return ByFloat(b.type(0).dtype, "adam", [&](auto type) {
    b.plan.kernel = MakeAdam<decltype(type)>(b);
    return absl::OkStatus();
  });
}

constexpr KernelRow kRows[] = {
    {OpKind::kActivation, BuildActivation},
    {OpKind::kActivationGradient, BuildActivationGradient},
    {OpKind::kUnary, BuildUnary},
    {OpKind::kBinary, BuildBinary},
    {OpKind::kWhere, BuildWhere},
    {OpKind::kRandom, BuildRandom},
    {OpKind::kDropout, BuildDropout},
    {OpKind::kDropoutGradient, BuildDropoutGradient},
    {OpKind::kSgd, BuildSgd},
    {OpKind::kAdam, BuildAdam},
};

}  // namespace

absl::Span<const KernelRow> ElementKernels() { return kRows; }

}  // namespace backendd::worker
