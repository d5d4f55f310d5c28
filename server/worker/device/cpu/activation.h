// The activation functions, once, for activation, its gradient and the epilogues of gemm.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_ACTIVATION_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_ACTIVATION_H_

#include <cmath>

namespace backendd::worker {

template <class T>
inline constexpr T kSqrtHalf = T(0.70710678118654752440);
template <class T>
inline constexpr T kSqrtTwoOverPi = T(0.79788456080286535588);

// NaN stays NaN.
template <class T>
T Relu(T x) {
  return x < T(0) ? T(0) : x;
}
template <class T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}
template <class T>
T GeluErf(T x) {
  return x * (T(0.5) * (T(1) + std::erf(x * kSqrtHalf<T>)));
}
template <class T>
T GeluTanh(T x) {
  const T inner = kSqrtTwoOverPi<T> * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + std::tanh(inner));
}
template <class T>
T Silu(T x) {
  return x * Sigmoid(x);
}

template <class T>
T GeluErfGradient(T x) {
  const T density = kSqrtTwoOverPi<T> * T(0.5) * std::exp(T(-0.5) * x * x);
  return T(0.5) * (T(1) + std::erf(x * kSqrtHalf<T>)) + x * density;
}
template <class T>
T GeluTanhGradient(T x) {
  const T inner = kSqrtTwoOverPi<T> * (x + T(0.044715) * x * x * x);
  const T t = std::tanh(inner);
  const T slope = kSqrtTwoOverPi<T> * (T(1) + T(3 * 0.044715) * x * x);
  return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope;
}
template <class T>
T SiluGradient(T x) {
  const T s = Sigmoid(x);
  return s * (T(1) + x * (T(1) - s));
}

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_ACTIVATION_H_
