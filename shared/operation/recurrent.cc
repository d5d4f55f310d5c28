// rnn and rnn_gradient. Places: x h_0 c_0, five weights per layer and direction, then what follows
// in the message.
#include "shared/operation/recurrent.h"

#include "shared/operation/family.h"

namespace backendd {
namespace {

void Weights(Reader& r, const google::protobuf::RepeatedPtrField<v1::RnnWeights>& weights,
             Use use) {
  for (int i = 0; i < weights.size(); ++i) {
    const v1::RnnWeights& w = weights[i];
    const bool needed = use == Use::kIn;
    r.Add("weight_ih", w.has_weight_ih(), w.weight_ih(), use, needed, i, true);
    r.Add("weight_hh", w.has_weight_hh(), w.weight_hh(), use, needed, i, true);
    r.Add("bias_ih", w.has_bias_ih(), w.bias_ih(), use, false, i, true);
    r.Add("bias_hh", w.has_bias_hh(), w.bias_hh(), use, false, i, true);
    r.Add("weight_hr", w.has_weight_hr(), w.weight_hr(), use, false, i, true);
  }
}

template <class Message>
void Attribute(const Message& m, Reader& r) {
  RnnAttributes a;
  a.mode = r.Enum("mode", m.mode(), v1::RNN_MODE_RNN_TANH, v1::RnnMode_IsValid);
  a.num_layers = m.num_layers() == 0 ? 1 : m.num_layers();
  a.bidirectional = m.bidirectional();
  a.batch_first = m.batch_first();
  a.lengths.assign(m.lengths().begin(), m.lengths().end());
  a.proj_size = m.proj_size();
  if (a.num_layers < 1) r.Bad("num_layers", "must be 1 or more");
  const int64_t sets = m.weights_size(), directions = a.bidirectional ? 2 : 1;
  if (sets == 0 || sets % directions != 0 || sets / directions != a.num_layers) {
    r.Bad("weights", absl::StrCat("has ", sets, " sets for ", a.num_layers, " layers of ",
                                  directions, " directions"));
    return;
  }
  r.out().spec.attributes = std::move(a);
}

void DecodeRnn(const v1::Operation& operation, Reader& r) {
  const v1::Rnn& m = operation.rnn();
  r.In("x", m.has_x(), m.x());
  r.MaybeIn("h_0", m.has_h_0(), m.h_0());
  r.MaybeIn("c_0", m.has_c_0(), m.c_0());
  Weights(r, m.weights(), Use::kIn);
  r.Out("y", m.has_y(), m.y());
  r.MaybeOut("h_n", m.has_h_n(), m.h_n());
  r.MaybeOut("c_n", m.has_c_n(), m.c_n());
  Attribute(m, r);
}

void DecodeRnnGradient(const v1::Operation& operation, Reader& r) {
  const v1::RnnGradient& m = operation.rnn_gradient();
  r.In("x", m.has_x(), m.x());
  r.MaybeIn("h_0", m.has_h_0(), m.h_0());
  r.MaybeIn("c_0", m.has_c_0(), m.c_0());
  Weights(r, m.weights(), Use::kIn);
  r.MaybeIn("dy", m.has_dy(), m.dy());
  r.MaybeIn("dh_n", m.has_dh_n(), m.dh_n());
  r.MaybeIn("dc_n", m.has_dc_n(), m.dc_n());
  r.Out("dx", m.has_dx(), m.dx());
  r.MaybeOut("dh_0", m.has_dh_0(), m.dh_0());
  r.MaybeOut("dc_0", m.has_dc_0(), m.dc_0());
  Weights(r, m.dweights(), Use::kOut);
  Attribute(m, r);
  if (m.dweights_size() != 0 && m.dweights_size() != m.weights_size()) {
    r.Bad("dweights",
          absl::StrCat("has ", m.dweights_size(), " sets; weights has ", m.weights_size()));
    r.out().spec.attributes = {};
  }
}

// What both directions of the computation share; false where something is wrong.
bool Common(Check& check, RnnShape* s) {
  const auto& a = check.attributes<RnnAttributes>();
  check.Floating(0);
  check.Rank(0, 2, 3);
  const bool lstm = a.mode == v1::RNN_MODE_LSTM;
  if (check.ok()) {
    const Extents& x = check.shape(0);
    for (int64_t length : a.lengths) {
      const int64_t steps = x.size() == 3 && a.batch_first ? x[1] : x[0];
      if (length < 1 || length > steps) {
        check.BadAttribute("lengths", absl::StrCat("has ", length, "; allowed: 1 to ", steps));
        break;
      }
    }
  }
  const int64_t rows = check.type(3).rank() == 2 ? check.shape(3)[0] : -1;
  const int64_t hidden = rows / RnnGates(a.mode);
  if (a.proj_size != 0 && (!lstm || a.proj_size < 0 || a.proj_size >= hidden)) {
    check.BadAttribute("proj_size", "is for lstm, and below hidden_size");
  }
  if (rows < 1 || rows % RnnGates(a.mode) != 0) {
    check.Bad(
        3, Reason::kShapeInvalid,
        absl::StrCat("must have a row per gate and hidden unit, of ", RnnGates(a.mode), " gates"));
  }
  if (!check.ok()) return false;
  *s = ShapeOfRnn(a, check.shape(0), hidden);
  if (s->steps == 0) check.Bad(0, Reason::kShapeInvalid, "has no step");
  if (!a.lengths.empty() && static_cast<int64_t>(a.lengths.size()) != s->batch) {
    check.BadAttribute("lengths",
                       absl::StrCat("has ", a.lengths.size(), " numbers for ", s->batch, " items"));
  }
  const DType dtype = check.dtype(0);
  const Extents h = s->State(s->out), c = s->State(s->hidden);
  check.Dtype(1, dtype);
  check.Shape(1, h);
  check.Dtype(2, dtype);
  check.Shape(2, c);
  if (!lstm && check.has(2)) check.BadAttribute("c_0", "is for lstm");
  for (int64_t set = 0; set < s->sets; ++set) {
    const int at = RnnWeightPlace(set);
    for (int i = 0; i < kRnnWeights; ++i) {
      check.Dtype(at + i, dtype);
      check.Shape(at + i, s->Weight(set, i));
    }
    if (check.has(at + 4) != (a.proj_size > 0)) {
      check.BadAttribute("weight_hr", "goes with proj_size");
    }
  }
  return check.ok();
}

void InferRnn(Check& check) {
  RnnShape s;
  if (!Common(check, &s)) return;
  const int y = RnnWeightPlace(s.sets);
  const DType dtype = check.dtype(0);
  check.Output(y, dtype, s.Output());
  check.Output(y + 1, dtype, s.State(s.out));
  check.Output(y + 2, dtype, s.State(s.hidden));
  if (check.has(y + 2) && check.attributes<RnnAttributes>().mode != v1::RNN_MODE_LSTM) {
    check.BadAttribute("c_n", "is for lstm");
  }
}

void InferRnnGradient(Check& check) {
  RnnShape s;
  if (!Common(check, &s)) return;
  const int dy = RnnWeightPlace(s.sets);
  const DType dtype = check.dtype(0);
  const Extents shapes[] = {s.Output(), s.State(s.out), s.State(s.hidden)};
  for (int i = 0; i < 3; ++i) {
    check.Dtype(dy + i, dtype);
    check.Shape(dy + i, shapes[i]);
  }
  const Extents x = check.shape(0);
  check.Output(dy + 3, dtype, x);
  check.Output(dy + 4, dtype, s.State(s.out));
  check.Output(dy + 5, dtype, s.State(s.hidden));
  const bool lstm = check.attributes<RnnAttributes>().mode == v1::RNN_MODE_LSTM;
  if (!lstm && (check.has(dy + 2) || check.has(dy + 5))) {
    check.BadAttribute("dc_n", "is for lstm");
  }
  for (int at = dy + 6, i = 0; at < check.operands(); ++at, ++i) {
    const int set = i / kRnnWeights, which = i % kRnnWeights;
    if (check.has(at) && !check.has(RnnWeightPlace(set) + which)) {
      check.BadAttribute("dweights", "asks for the gradient of a weight that is not there");
    }
    check.Output(at, dtype, s.Weight(set, which));
  }
}

constexpr Family kFamilies[] = {
    {OpKind::kRnn, "rnn", DecodeRnn, InferRnn},
    {OpKind::kRnnGradient, "rnn_gradient", DecodeRnnGradient, InferRnnGradient},
};

}  // namespace

int RnnGates(v1::RnnMode mode) {
  return mode == v1::RNN_MODE_LSTM ? 4 : mode == v1::RNN_MODE_GRU ? 3 : 1;
}

RnnShape ShapeOfRnn(const RnnAttributes& a, const Extents& x, int64_t hidden) {
  RnnShape s;
  s.batched = x.size() == 3;
  s.batch_first = s.batched && a.batch_first;
  s.steps = x[s.batch_first ? 1 : 0];
  s.batch = s.batched ? x[s.batch_first ? 0 : 1] : 1;
  s.input = x.back();
  s.hidden = hidden;
  s.out = a.proj_size > 0 ? a.proj_size : hidden;
  s.gates = RnnGates(a.mode);
  s.directions = a.bidirectional ? 2 : 1;
  s.sets = a.num_layers * s.directions;
  return s;
}

Extents RnnShape::State(int64_t width) const {
  return batched ? Extents{sets, batch, width} : Extents{sets, width};
}

Extents RnnShape::Output() const {
  const int64_t width = directions * out;
  if (!batched) return {steps, width};
  return batch_first ? Extents{batch, steps, width} : Extents{steps, batch, width};
}

Extents RnnShape::Weight(int64_t set, int which) const {
  const int64_t rows = gates * hidden;
  switch (which) {
    case 0:
      return {rows, InputOf(set)};
    case 1:
      return {rows, out};
    case 4:
      return {out, hidden};
    default:
      return {rows};
  }
}

absl::Span<const Family> RecurrentFamilies() { return kFamilies; }

}  // namespace backendd
