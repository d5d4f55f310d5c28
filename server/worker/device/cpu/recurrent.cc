// rnn and its gradient: own gates, products by gemm. Inside, sequences lie as [step, item,
// feature]. Past an item's length its state stands still, so both directions need no packing.
#include "shared/operation/recurrent.h"

#include <algorithm>
#include <cmath>

#include "server/worker/device/cpu/activation.h"
#include "server/worker/device/cpu/part.h"

namespace backendd::worker {
namespace {

// An operand of up to three dimensions, seen as [step or set, item, feature].
struct View {
  int place = -1;
  bool present = false;
  int64_t first = 0, item = 0, feature = 0;  // strides

  template <class T>
  T& at(const Call& call, int64_t i, int64_t n, int64_t j) const {
    return call.At<T>(place)[i * first + n * item + j * feature];
  }
};

// A weight, the other way round, as gemm wants it on the right.
TensorType Transposed(const TensorType& type) {
  TensorType turned = type;
  std::swap(turned.shape[0], turned.shape[1]);
  std::swap(turned.strides[0], turned.strides[1]);
  return turned;
}

// What one layer in one direction keeps between its steps, and for the way back. Offsets.
struct Memory {
  uint64_t gates = 0;        // [step, item, gates x hidden], after their functions
  uint64_t before = 0;       // h before each step
  uint64_t cell = 0;         // LSTM: c after each step
  uint64_t cell_before = 0;  // LSTM: c before each step
  uint64_t inner = 0;        // LSTM with projection: o tanh(c); GRU: the product that r scales
  uint64_t output = 0;       // [step, item, directions x out], shared by the directions
};

template <class T>
class Rnn {
 public:
  Rnn(Builder& b, bool gradient)
      : a_(b.attributes<RnnAttributes>()),
        s_(ShapeOfRnn(a_, b.type(0).shape, b.type(3).shape[0] / RnnGates(a_.mode))),
        dtype_(b.type(0).dtype),
        gradient_(gradient),
        lstm_(a_.mode == v1::RNN_MODE_LSTM),
        gru_(a_.mode == v1::RNN_MODE_GRU),
        projects_(a_.proj_size > 0) {}

  absl::Status Build(Builder& b) {
    const int after = RnnWeightPlace(s_.sets);
    x_ = Sequence(b, 0);
    h_0_ = State(b, 1);
    c_0_ = State(b, 2);
    rows_ = s_.steps * s_.batch;
    width_ = s_.gates * s_.hidden;
    input_ = Floats(b, rows_ * s_.input);
    h_ = Floats(b, s_.batch * s_.out);
    c_ = Floats(b, s_.batch * s_.hidden);
    step_ = Floats(b, s_.batch * width_);
    cell_out_ = Floats(b, s_.batch * s_.hidden);
    for (int64_t set = 0; set < s_.sets; ++set) RETURN_IF_ERROR(BuildSet(b, set));
    if (gradient_) {
      dy_ = Sequence(b, after);
      dh_n_ = State(b, after + 1);
      dc_n_ = State(b, after + 2);
      dx_ = Sequence(b, after + 3);
      dh_0_ = State(b, after + 4);
      dc_0_ = State(b, after + 5);
      weights_out_ = after + 6;
      const int64_t widest = std::max(s_.input, s_.directions * s_.out);
      d_output_ = Floats(b, rows_ * s_.directions * s_.out);
      d_input_ = Floats(b, rows_ * widest);
      d_gates_ = Floats(b, rows_ * width_);
      d_state_gates_ = gru_ ? Floats(b, rows_ * width_) : d_gates_;
      d_projected_ = projects_ ? Floats(b, rows_ * s_.out) : 0;
    } else {
      y_ = Sequence(b, after);
      h_n_ = State(b, after + 1);
      c_n_ = State(b, after + 2);
    }
    b.plan.choice.algorithm = "gates on gemm";
    b.Cost(2.0 * (gradient_ ? 3 : 1) * rows_ * width_ * s_.sets * (s_.out + s_.input), 0);
    return absl::OkStatus();
  }

  absl::Status Run(const Call& call) const {
    if (s_.batch == 0) return gradient_ ? Nothing(call) : absl::OkStatus();
    RETURN_IF_ERROR(Forward(call));
    return gradient_ ? Backward(call) : absl::OkStatus();
  }

 private:
  struct Set {
    Memory memory;
    Part by_input, by_state, by_projection;
    // Of the gradient: to the input, to the state before, to the cell; of the weights.
    Part to_input, to_state, to_cell, weight_ih, weight_hh, weight_hr;
  };

  uint64_t Floats(Builder& b, int64_t count) { return b.Reserve(count * sizeof(T)); }

  View Sequence(Builder& b, int place) const {
    View view{place, b.has(place)};
    if (!view.present) return view;
    const Extents& strides = b.type(place).strides;
    view.first = strides[s_.batch_first ? 1 : 0];
    view.item = s_.batched ? strides[s_.batch_first ? 0 : 1] : 0;
    view.feature = strides.back();
    return view;
  }
  View State(Builder& b, int place) const {
    View view{place, b.has(place)};
    if (!view.present) return view;
    const Extents& strides = b.type(place).strides;
    view.first = strides[0];
    view.item = s_.batched ? strides[1] : 0;
    view.feature = strides.back();
    return view;
  }
  TensorType Dense(std::initializer_list<int64_t> shape) const {
    return RowMajor(dtype_, std::vector<int64_t>(shape));
  }

  absl::Status BuildSet(Builder& b, int64_t number) {
    Set set;
    const int64_t layer = number / s_.directions, direction = number % s_.directions;
    // Without a way back the layers take turns in two outputs, and share all else.
    const bool fresh = gradient_ || number == 0;
    if (fresh) {
      set.memory.gates = Floats(b, rows_ * width_);
      set.memory.before = gradient_ ? Floats(b, rows_ * s_.out) : 0;
      set.memory.cell = gradient_ && lstm_ ? Floats(b, rows_ * s_.hidden) : 0;
      set.memory.cell_before = gradient_ && lstm_ ? Floats(b, rows_ * s_.hidden) : 0;
      set.memory.inner = gradient_ && (projects_ || gru_) ? Floats(b, rows_ * s_.hidden) : 0;
    } else {
      set.memory = sets_[0].memory;
    }
    if (direction > 0) {
      set.memory.output = sets_.back().memory.output;
    } else if (!gradient_ && layer >= 2) {
      set.memory.output = sets_[(layer - 2) * s_.directions].memory.output;
    } else {
      set.memory.output = Floats(b, rows_ * s_.directions * s_.out);
    }
    const int at = RnnWeightPlace(number);
    const int64_t in = s_.InputOf(number), n = s_.batch, h = s_.hidden, o = s_.out;
    const TensorType& ih = b.type(at);
    const TensorType& hh = b.type(at + 1);
    auto part = [&](Part* to, const TensorType& left, const TensorType& right, const TensorType& y,
                    bool accumulate) -> absl::Status {
      ASSIGN_OR_RETURN(*to, Part::Build(b, GemmSpec(left, right, y, accumulate)));
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(
        part(&set.by_input, Dense({rows_, in}), Transposed(ih), Dense({rows_, width_}), true));
    RETURN_IF_ERROR(part(&set.by_state, Dense({n, o}), Transposed(hh), Dense({n, width_}), true));
    if (projects_) {
      RETURN_IF_ERROR(part(&set.by_projection, Dense({n, h}), Transposed(b.type(at + 4)),
                           Dense({n, o}), false));
    }
    if (gradient_) {
      const int out = RnnWeightPlace(s_.sets) + 6 + kRnnWeights * static_cast<int>(number);
      auto wanted = [&](int which) {
        return out + which < static_cast<int>(b.spec.operands.size()) && b.has(out + which);
      };
      const TensorType turned = Transposed(Dense({rows_, width_}));
      RETURN_IF_ERROR(part(&set.to_input, Dense({rows_, width_}), ih, Dense({rows_, in}), true));
      RETURN_IF_ERROR(part(&set.to_state, Dense({n, width_}), hh, Dense({n, o}), true));
      if (projects_) {
        RETURN_IF_ERROR(part(&set.to_cell, Dense({n, o}), b.type(at + 4), Dense({n, h}), false));
      }
      if (wanted(0)) {
        RETURN_IF_ERROR(part(&set.weight_ih, turned, Dense({rows_, in}), b.type(out), false));
      }
      if (wanted(1)) {
        RETURN_IF_ERROR(part(&set.weight_hh, turned, Dense({rows_, o}), b.type(out + 1), false));
      }
      if (wanted(4)) {
        RETURN_IF_ERROR(part(&set.weight_hr, Transposed(Dense({rows_, o})), Dense({rows_, h}),
                             b.type(out + 4), false));
      }
    }
    for (int i = 0; i < kRnnWeights; ++i) {
      weights_present_.push_back(b.has(at + i));
      const int out = RnnWeightPlace(s_.sets) + 6 + kRnnWeights * static_cast<int>(number) + i;
      const bool asked = gradient_ && out < static_cast<int>(b.spec.operands.size()) && b.has(out);
      gradients_present_.push_back(asked);
      vector_step_.push_back(b.has(at + i) ? b.type(at + i).strides[0] : 0);
      gradient_step_.push_back(asked ? b.type(out).strides[0] : 0);
      if (asked) gradient_types_.push_back({out, b.type(out)});
    }
    sets_.push_back(std::move(set));
    return absl::OkStatus();
  }

  bool Active(int64_t step, int64_t item) const {
    return a_.lengths.empty() || step < a_.lengths[item];
  }
  bool Reverse(int64_t set) const { return set % s_.directions == 1; }

  absl::Status Forward(const Call& call) const {
    T* const input = call.Work<T>(input_);
    for (int64_t t = 0; t < s_.steps; ++t) {
      for (int64_t n = 0; n < s_.batch; ++n) {
        for (int64_t j = 0; j < s_.input; ++j) {
          input[(t * s_.batch + n) * s_.input + j] = x_.at<T>(call, t, n, j);
        }
      }
    }
    for (int64_t set = 0; set < s_.sets; ++set) RETURN_IF_ERROR(Layer(call, set));
    if (gradient_) return absl::OkStatus();
    const T* const output = call.Work<T>(sets_.back().memory.output);
    const int64_t wide = s_.directions * s_.out;
    for (int64_t t = 0; t < s_.steps; ++t) {
      for (int64_t n = 0; n < s_.batch; ++n) {
        for (int64_t j = 0; j < wide; ++j) {
          y_.at<T>(call, t, n, j) = output[(t * s_.batch + n) * wide + j];
        }
      }
    }
    return absl::OkStatus();
  }

  const T* InputOf(const Call& call, int64_t set) const {
    return set < s_.directions
               ? call.Work<T>(input_)
               : call.Work<T>(sets_[(set / s_.directions - 1) * s_.directions].memory.output);
  }

  // rows of `to` = the sum of the two biases that are there.
  void Biases(const Call& call, int64_t set, bool input, bool state, int64_t rows, T* to) const {
    const int64_t at = set * kRnnWeights;
    for (int64_t j = 0; j < width_; ++j) {
      T bias = 0;
      if (input && weights_present_[at + 2]) {
        bias += call.At<T>(RnnWeightPlace(set) + 2)[j * vector_step_[at + 2]];
      }
      if (state && weights_present_[at + 3]) {
        bias += call.At<T>(RnnWeightPlace(set) + 3)[j * vector_step_[at + 3]];
      }
      for (int64_t r = 0; r < rows; ++r) to[r * width_ + j] = bias;
    }
  }

  // One layer in one direction over all steps.
  absl::Status Layer(const Call& call, int64_t set) const {
    const Memory& m = sets_[set].memory;
    const int at = RnnWeightPlace(set);
    const int64_t batch = s_.batch, wide = s_.directions * s_.out;
    T *const gates = call.Work<T>(m.gates), *const h = call.Work<T>(h_),
             *const c = call.Work<T>(c_);
    T* const cell_out = call.Work<T>(cell_out_);
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t j = 0; j < s_.out; ++j) {
        h[n * s_.out + j] = h_0_.present ? h_0_.at<T>(call, set, n, j) : T(0);
      }
      for (int64_t j = 0; lstm_ && j < s_.hidden; ++j) {
        c[n * s_.hidden + j] = c_0_.present ? c_0_.at<T>(call, set, n, j) : T(0);
      }
    }
    Biases(call, set, true, !gru_, rows_, gates);
    RETURN_IF_ERROR(
        sets_[set].by_input.Multiply(call, InputOf(call, set), call.operands[at], gates));
    for (int64_t i = 0; i < s_.steps; ++i) {
      const int64_t t = Reverse(set) ? s_.steps - 1 - i : i;
      T* const now = gates + t * batch * width_;
      T* const step = gru_ ? call.Work<T>(step_) : now;
      if (gru_) Biases(call, set, false, true, batch, step);
      RETURN_IF_ERROR(sets_[set].by_state.Multiply(call, h, call.operands[at + 1], step));
      if (gradient_) {
        std::copy(h, h + batch * s_.out, call.Work<T>(m.before) + t * batch * s_.out);
        if (lstm_) {
          std::copy(c, c + batch * s_.hidden, call.Work<T>(m.cell_before) + t * batch * s_.hidden);
        }
      }
      // New h where nothing is projected, else what the projection takes, beside the old h.
      T* const to = projects_ ? cell_out : h;
      for (int64_t n = 0; n < batch; ++n) {
        if (Active(t, n)) {
          Cell(call, m, t, n, now + n * width_, step + n * width_, c + n * s_.hidden,
               to + n * s_.hidden);
        } else if (projects_) {
          std::fill(cell_out + n * s_.hidden, cell_out + (n + 1) * s_.hidden, T(0));
        }
      }
      T* projected = h;
      if (projects_) {
        projected = call.Work<T>(step_);
        RETURN_IF_ERROR(
            sets_[set].by_projection.Multiply(call, cell_out, call.operands[at + 4], projected));
        if (gradient_) {
          std::copy(cell_out, cell_out + batch * s_.hidden,
                    call.Work<T>(m.inner) + t * batch * s_.hidden);
        }
      }
      T* const output = call.Work<T>(m.output) + t * batch * wide + (set % s_.directions) * s_.out;
      for (int64_t n = 0; n < batch; ++n) {
        const bool active = Active(t, n);
        for (int64_t j = 0; j < s_.out; ++j) {
          if (active) h[n * s_.out + j] = projected[n * s_.out + j];
          output[n * wide + j] = active ? h[n * s_.out + j] : T(0);
        }
      }
    }
    if (gradient_) return absl::OkStatus();
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t j = 0; h_n_.present && j < s_.out; ++j) {
        h_n_.at<T>(call, set, n, j) = h[n * s_.out + j];
      }
      for (int64_t j = 0; c_n_.present && j < s_.hidden; ++j) {
        c_n_.at<T>(call, set, n, j) = c[n * s_.hidden + j];
      }
    }
    return absl::OkStatus();
  }

  // The gates of one item at one step, in place; `to` is its h before and after (projected: after).
  void Cell(const Call& call, const Memory& m, int64_t t, int64_t n, T* gate, const T* state, T* c,
            T* to) const {
    const int64_t hidden = s_.hidden;
    const int64_t at = (t * s_.batch + n) * hidden;
    T* const cell = gradient_ && lstm_ ? call.Work<T>(m.cell) + at : nullptr;
    T* const inner = gradient_ && gru_ ? call.Work<T>(m.inner) + at : nullptr;
    switch (a_.mode) {
      case v1::RNN_MODE_LSTM:
        for (int64_t j = 0; j < hidden; ++j) {
          const T i = gate[j] = Sigmoid(gate[j]);
          const T f = gate[hidden + j] = Sigmoid(gate[hidden + j]);
          const T g = gate[2 * hidden + j] = std::tanh(gate[2 * hidden + j]);
          const T o = gate[3 * hidden + j] = Sigmoid(gate[3 * hidden + j]);
          c[j] = f * c[j] + i * g;
          to[j] = o * std::tanh(c[j]);
          if (cell != nullptr) cell[j] = c[j];
        }
        return;
      case v1::RNN_MODE_GRU:
        for (int64_t j = 0; j < hidden; ++j) {
          const T r = gate[j] = Sigmoid(gate[j] + state[j]);
          const T z = gate[hidden + j] = Sigmoid(gate[hidden + j] + state[hidden + j]);
          const T scaled = state[2 * hidden + j];
          const T fresh = gate[2 * hidden + j] = std::tanh(gate[2 * hidden + j] + r * scaled);
          to[j] = (T(1) - z) * fresh + z * to[j];
          if (inner != nullptr) inner[j] = scaled;
        }
        return;
      case v1::RNN_MODE_RNN_RELU:
        for (int64_t j = 0; j < hidden; ++j) to[j] = gate[j] = Relu(gate[j]);
        return;
      default:
        for (int64_t j = 0; j < hidden; ++j) to[j] = gate[j] = std::tanh(gate[j]);
    }
  }

  absl::Status Backward(const Call& call) const {
    T* const d_output = call.Work<T>(d_output_);
    T* const d_input = call.Work<T>(d_input_);
    const int64_t wide = s_.directions * s_.out;
    for (int64_t t = 0; t < s_.steps; ++t) {
      for (int64_t n = 0; n < s_.batch; ++n) {
        for (int64_t j = 0; j < wide; ++j) {
          d_output[(t * s_.batch + n) * wide + j] = dy_.present ? dy_.at<T>(call, t, n, j) : T(0);
        }
      }
    }
    for (int64_t layer = a_.num_layers - 1; layer >= 0; --layer) {
      const int64_t in = s_.InputOf(layer * s_.directions);
      std::fill(d_input, d_input + rows_ * in, T(0));
      for (int64_t d = 0; d < s_.directions; ++d) {
        RETURN_IF_ERROR(LayerBackward(call, layer * s_.directions + d));
      }
      if (layer > 0) std::copy(d_input, d_input + rows_ * in, d_output);
    }
    for (int64_t t = 0; t < s_.steps; ++t) {
      for (int64_t n = 0; n < s_.batch; ++n) {
        for (int64_t j = 0; j < s_.input; ++j) {
          dx_.at<T>(call, t, n, j) = d_input[(t * s_.batch + n) * s_.input + j];
        }
      }
    }
    return absl::OkStatus();
  }

  // From the last step of the forward to its first: gradients of the gates, then of all that they
  // came from.
  absl::Status LayerBackward(const Call& call, int64_t set) const {
    const Set& parts = sets_[set];
    const Memory& m = parts.memory;
    const int at = RnnWeightPlace(set);
    const int64_t batch = s_.batch, wide = s_.directions * s_.out;
    T *const dh = call.Work<T>(h_), *const dc = call.Work<T>(c_);
    T *const d_gates = call.Work<T>(d_gates_), *const d_state = call.Work<T>(d_state_gates_);
    T* const d_cell_out = call.Work<T>(cell_out_);
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t j = 0; j < s_.out; ++j) {
        dh[n * s_.out + j] = dh_n_.present ? dh_n_.at<T>(call, set, n, j) : T(0);
      }
      for (int64_t j = 0; lstm_ && j < s_.hidden; ++j) {
        dc[n * s_.hidden + j] = dc_n_.present ? dc_n_.at<T>(call, set, n, j) : T(0);
      }
    }
    std::fill(d_gates, d_gates + rows_ * width_, T(0));
    if (gru_) std::fill(d_state, d_state + rows_ * width_, T(0));
    for (int64_t i = 0; i < s_.steps; ++i) {
      const int64_t t = Reverse(set) ? i : s_.steps - 1 - i;
      const T* const d_output =
          call.Work<T>(d_output_) + t * batch * wide + (set % s_.directions) * s_.out;
      T* const projected = projects_ ? call.Work<T>(d_projected_) + t * batch * s_.out : nullptr;
      for (int64_t n = 0; n < batch; ++n) {
        const bool active = Active(t, n);
        for (int64_t j = 0; j < s_.out; ++j) {
          if (active) dh[n * s_.out + j] += d_output[n * wide + j];
          if (projects_) projected[n * s_.out + j] = active ? dh[n * s_.out + j] : T(0);
        }
      }
      if (projects_) {
        RETURN_IF_ERROR(parts.to_cell.Multiply(call, projected, call.operands[at + 4], d_cell_out));
      }
      for (int64_t n = 0; n < batch; ++n) {
        if (!Active(t, n)) continue;
        const int64_t row = t * batch + n;
        T* const own = dh + n * s_.out;
        CellBackward(call, m, row, projects_ ? d_cell_out + n * s_.hidden : own, dc + n * s_.hidden,
                     d_gates + row * width_, d_state + row * width_);
        // What reaches the state before past the gates: z of GRU does, the rest by the product.
        const T* const z = call.Work<T>(m.gates) + row * width_ + s_.hidden;
        for (int64_t j = 0; j < s_.out; ++j) own[j] = gru_ ? own[j] * z[j] : T(0);
      }
      RETURN_IF_ERROR(
          parts.to_state.Multiply(call, d_state + t * batch * width_, call.operands[at + 1], dh));
    }
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t j = 0; dh_0_.present && j < s_.out; ++j) {
        dh_0_.at<T>(call, set, n, j) = dh[n * s_.out + j];
      }
      for (int64_t j = 0; dc_0_.present && j < s_.hidden; ++j) {
        dc_0_.at<T>(call, set, n, j) = dc[n * s_.hidden + j];
      }
    }
    RETURN_IF_ERROR(
        parts.to_input.Multiply(call, d_gates, call.operands[at], call.Work<T>(d_input_)));
    return Weights(call, set, d_gates, d_state);
  }

  void CellBackward(const Call& call, const Memory& m, int64_t row, const T* dh, T* dc, T* d_gate,
                    T* d_state) const {
    const int64_t hidden = s_.hidden;
    const T* const gate = call.Work<T>(m.gates) + row * width_;
    const auto kept = [&](uint64_t offset) { return call.Work<T>(offset) + row * hidden; };
    switch (a_.mode) {
      case v1::RNN_MODE_LSTM: {
        const T *const cell = kept(m.cell), *const before = kept(m.cell_before);
        for (int64_t j = 0; j < hidden; ++j) {
          const T i = gate[j], f = gate[hidden + j], g = gate[2 * hidden + j],
                  o = gate[3 * hidden + j], squashed = std::tanh(cell[j]);
          const T d = dc[j] + dh[j] * o * (T(1) - squashed * squashed);
          d_gate[j] = d * g * i * (T(1) - i);
          d_gate[hidden + j] = d * before[j] * f * (T(1) - f);
          d_gate[2 * hidden + j] = d * i * (T(1) - g * g);
          d_gate[3 * hidden + j] = dh[j] * squashed * o * (T(1) - o);
          dc[j] = d * f;
        }
        return;
      }
      case v1::RNN_MODE_GRU: {
        const T *const scaled = kept(m.inner), *const before = kept(m.before);
        for (int64_t j = 0; j < hidden; ++j) {
          const T r = gate[j], z = gate[hidden + j], fresh = gate[2 * hidden + j];
          const T d = dh[j] * (T(1) - z) * (T(1) - fresh * fresh);
          d_gate[j] = d_state[j] = d * scaled[j] * r * (T(1) - r);
          d_gate[hidden + j] = d_state[hidden + j] = dh[j] * (before[j] - fresh) * z * (T(1) - z);
          d_gate[2 * hidden + j] = d;
          d_state[2 * hidden + j] = d * r;
        }
        return;
      }
      case v1::RNN_MODE_RNN_RELU:
        for (int64_t j = 0; j < hidden; ++j) d_gate[j] = gate[j] > T(0) ? dh[j] : T(0);
        return;
      default:
        for (int64_t j = 0; j < hidden; ++j) d_gate[j] = dh[j] * (T(1) - gate[j] * gate[j]);
    }
  }

  absl::Status Weights(const Call& call, int64_t set, const T* d_gates, const T* d_state) const {
    const Set& parts = sets_[set];
    const int out = weights_out_ + kRnnWeights * static_cast<int>(set);
    const int64_t at = set * kRnnWeights;
    auto to = [&](int which) { return call.operands[out + which]; };
    if (gradients_present_[at]) {
      RETURN_IF_ERROR(parts.weight_ih.Multiply(call, d_gates, InputOf(call, set), to(0)));
    }
    if (gradients_present_[at + 1]) {
      RETURN_IF_ERROR(
          parts.weight_hh.Multiply(call, d_state, call.Work<T>(parts.memory.before), to(1)));
    }
    for (int which : {2, 3}) {
      if (!gradients_present_[at + which]) continue;
      const T* const from = which == 2 ? d_gates : d_state;
      for (int64_t j = 0; j < width_; ++j) {
        double sum = 0;
        for (int64_t row = 0; row < rows_; ++row) sum += from[row * width_ + j];
        static_cast<T*>(to(which))[j * gradient_step_[at + which]] = static_cast<T>(sum);
      }
    }
    if (gradients_present_[at + 4]) {
      RETURN_IF_ERROR(parts.weight_hr.Multiply(call, call.Work<T>(d_projected_),
                                               call.Work<T>(parts.memory.inner), to(4)));
    }
    return absl::OkStatus();
  }

  // An empty batch: the weights have no gradient.
  absl::Status Nothing(const Call& call) const {
    for (const auto& [place, type] : gradient_types_) {
      const int64_t columns = type.rank() > 1 ? type.shape[1] : 1;
      const int64_t step = type.rank() > 1 ? type.strides[1] : 0;
      for (int64_t i = 0; i < type.shape[0]; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          call.At<T>(place)[i * type.strides[0] + j * step] = T(0);
        }
      }
    }
    return absl::OkStatus();
  }

  const RnnAttributes a_;
  const RnnShape s_;
  const DType dtype_;
  const bool gradient_, lstm_, gru_, projects_;
  View x_, h_0_, c_0_, y_, h_n_, c_n_, dy_, dh_n_, dc_n_, dx_, dh_0_, dc_0_;
  int64_t rows_ = 0, width_ = 0;
  int weights_out_ = 0;
  // Offsets: the input, the running state, a step's product, what a cell gives to the projection.
  uint64_t input_ = 0, h_ = 0, c_ = 0, step_ = 0, cell_out_ = 0;
  uint64_t d_output_ = 0, d_input_ = 0, d_gates_ = 0, d_state_gates_ = 0, d_projected_ = 0;
  std::vector<Set> sets_;
  std::vector<bool> weights_present_, gradients_present_;  // kRnnWeights for each set
  std::vector<int64_t> vector_step_, gradient_step_;
  std::vector<std::pair<int, TensorType>> gradient_types_;
};

absl::Status BuildRnn(Builder& b, bool gradient) {
  return ByFloat(b.type(0).dtype, KindName(b.spec.kind), [&](auto zero) -> absl::Status {
    auto rnn = std::make_shared<Rnn<decltype(zero)>>(b, gradient);
    RETURN_IF_ERROR(rnn->Build(b));
    b.plan.kernel = [rnn = std::move(rnn)](const Call& call) { return rnn->Run(call); };
    return absl::OkStatus();
  });
}

constexpr KernelRow kRows[] = {
    {OpKind::kRnn, [](Builder& b) { return BuildRnn(b, false); }},
    {OpKind::kRnnGradient, [](Builder& b) { return BuildRnn(b, true); }},
};

}  // namespace

absl::Span<const KernelRow> RecurrentKernels() { return kRows; }

}  // namespace backendd::worker
