// Every kind of operation with shapes and values at the edges: each is answered by OK or by a typed
// error, and the worker lives. Most of these programs are refused: kernels have their own suites.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstring>
#include <limits>
#include <random>

#include "tests/process/worker/worker_process.h"

namespace backendd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr uint64_t kBytes = 64 << 10;

class Sweep : public WorkerProcess {
 protected:
  void SetUp() override {
    WorkerProcess::SetUp();
    caller_ = Open();
    // Inputs: NaN, Inf, zeros, large and small numbers; outputs lie in buffers of their own.
    std::string bytes(kBytes, 0);
    const float odd[] = {std::numeric_limits<float>::quiet_NaN(), 0, -0.0f, 1, 3e38f, 1e-45f, -2,
                         std::numeric_limits<float>::infinity()};
    for (uint64_t at = 0; at < kBytes; at += sizeof odd) std::memcpy(&bytes[at], odd, sizeof odd);
    for (uint64_t buffer = 1; buffer <= kBuffers; ++buffer) {
      ASSERT_OK(caller_->Allocate(buffer, kBytes));
      if (buffer % 2 == 1) ASSERT_OK(caller_->Write(buffer, bytes));
    }
  }

  int64_t Pick(std::initializer_list<int64_t> choices) {
    return choices.begin()[random_() % choices.size()];
  }
  // A view of a buffer that no other operand has; with the program's usual rank, dtype and extents
  // mostly, so that many programs are right.
  void FillOperand(v1::Operand* operand) {
    operand->set_buffer(1 + next_buffer_++ % kBuffers);
    if (plain_) {
      operand->set_dtype(dtype_);
      for (int64_t i = 0; i < rank_; ++i) operand->add_shape(extent_);
      return;
    }
    const bool usual = random_() % 16 != 0;
    const auto* dtypes = v1::Dtype_descriptor();
    operand->set_dtype(usual ? dtype_ : static_cast<v1::Dtype>(random_() % dtypes->value_count()));
    const int64_t rank = random_() % 8 == 0 ? Pick({0, 1, 2, 3, 4, 9}) : rank_;
    int64_t stride = 1;
    for (int64_t i = 0; i < rank; ++i) {
      operand->add_shape(random_() % 4 != 0 ? extent_ : Pick({0, 1, 2, 3, 7}));
      stride *= 7;
    }
    if (random_() % 4 == 0) {
      for (int64_t i = 0; i < rank; ++i) operand->add_strides(stride /= 7);
      if (rank > 0 && random_() % 3 == 0) operand->set_strides(0, Pick({0, 1, 3, -1}));
    }
    if (random_() % 8 == 0) operand->set_offset(Pick({4, 8, 16, 1, int64_t{kBytes}}));
  }
  void FillMessage(Message* message) {
    const auto* reflection = message->GetReflection();
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* const field = message->GetDescriptor()->field(i);
      const int times = field->is_repeated() ? static_cast<int>(random_() % 3) : 1;
      const bool attribute = field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
      if (plain_ && attribute && random_() % 4 != 0) continue;
      if (!field->is_repeated() && random_() % 5 == 0) continue;
      for (int n = 0; n < times; ++n) FillField(reflection, message, field);
    }
  }
  void FillField(const google::protobuf::Reflection* reflection, Message* message,
                 const FieldDescriptor* field) {
    const bool many = field->is_repeated();
    const int64_t number = Pick({0, 1, 1, 1, 2, 3, -1});
    const double real = Pick({0, 1, 1, 2, -1}) * (random_() % 4 == 0 ? 0.5 : 1);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        Message* const inner = many ? reflection->AddMessage(message, field)
                                    : reflection->MutableMessage(message, field);
        if (auto* operand = dynamic_cast<v1::Operand*>(inner)) return FillOperand(operand);
        return FillMessage(inner);
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const int value = static_cast<int>(random_() % (field->enum_type()->value_count() + 1));
        many ? reflection->AddEnumValue(message, field, value)
             : reflection->SetEnumValue(message, field, value);
        return;
      }
      case FieldDescriptor::CPPTYPE_INT64:
        return many ? reflection->AddInt64(message, field, number)
                    : reflection->SetInt64(message, field, number);
      case FieldDescriptor::CPPTYPE_UINT64:
        return many ? reflection->AddUInt64(message, field, static_cast<uint64_t>(number))
                    : reflection->SetUInt64(message, field, static_cast<uint64_t>(number));
      case FieldDescriptor::CPPTYPE_INT32:
        return many ? reflection->AddInt32(message, field, static_cast<int32_t>(number))
                    : reflection->SetInt32(message, field, static_cast<int32_t>(number));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return many ? reflection->AddDouble(message, field, real)
                    : reflection->SetDouble(message, field, real);
      case FieldDescriptor::CPPTYPE_BOOL:
        if (!many) reflection->SetBool(message, field, random_() % 2 == 0);
        return;
      case FieldDescriptor::CPPTYPE_STRING: {
        static const char* const words[] = {"", "ab,bc->ac", "ii->i", "a,a->", "ab->ba", "zz"};
        const std::string word = words[random_() % 6];
        many ? reflection->AddString(message, field, word)
             : reflection->SetString(message, field, word);
        return;
      }
      default:
        FAIL() << "a field of a type that the sweep does not know: " << field->full_name();
    }
  }
  void Usual() {
    plain_ = random_() % 2 == 0;
    next_buffer_ = random_() % kBuffers;
    dtype_ =
        static_cast<v1::Dtype>(Pick({v1::DTYPE_F32, v1::DTYPE_F32, v1::DTYPE_F64, v1::DTYPE_F16,
                                     v1::DTYPE_BF16, v1::DTYPE_C64, v1::DTYPE_S8, v1::DTYPE_S64}));
    rank_ = Pick({2, 2, 3, 4, 1});
    extent_ = Pick({0, 1, 2, 4, 5});
  }
  // Whether it ran.
  bool Answered(const v1::SubmitRequest& program) {
    v1::SubmitResponse response;
    const absl::Status status = caller_->Submit(program, &response);
    EXPECT_TRUE(status.ok() || ReasonOf(status).has_value()) << status << "\n"
                                                             << program.ShortDebugString();
    EXPECT_NE(ReasonOf(status), Reason::kInternal) << status << "\n" << program.ShortDebugString();
    return status.ok();
  }

  static constexpr uint64_t kBuffers = 24;
  std::unique_ptr<Caller> caller_;
  std::mt19937 random_{1};  // the same programs each time
  uint64_t next_buffer_ = 0;
  v1::Dtype dtype_ = v1::DTYPE_F32;
  int64_t rank_ = 2, extent_ = 2;
  bool plain_ = false;  // equal shapes and few attributes: more programs run
};

TEST_F(Sweep, EveryKindOfOperationWithOddOperandsIsAnswered) {
  const auto* const kinds = v1::Operation::descriptor()->FindOneofByName("kind");
  int ran = 0;
  for (int kind = 0; kind < kinds->field_count(); ++kind) {
    for (int round = 0; round < 120; ++round) {
      Usual();
      v1::SubmitRequest program = caller_->Program();
      v1::Operation* const operation = program.add_operations();
      FillMessage(operation->GetReflection()->MutableMessage(operation, kinds->field(kind)));
      ran += Answered(program);
      if (HasFailure()) FAIL() << program.ShortDebugString();
    }
  }
  EXPECT_GT(ran, 100);
  EXPECT_EQ(Cpu().epoch(), cpu_.epoch());
}

TEST_F(Sweep, NoExtentOfZeroReachesALibrary) {
  for (const v1::Dtype dtype : {v1::DTYPE_F32, v1::DTYPE_F64, v1::DTYPE_BF16, v1::DTYPE_F16,
                                v1::DTYPE_C64, v1::DTYPE_C128}) {
    for (const int64_t m : {0, 1, 4}) {
      for (const int64_t n : {0, 1, 4}) {
        for (const int64_t k : {0, 1, 4}) {
          v1::SubmitRequest program = caller_->Program();
          Gemm(&program, View(1, 0, {m, k}, dtype), View(3, 0, {k, n}, dtype),
               View(2, 0, {m, n}, dtype));
          EXPECT_TRUE(Answered(program)) << m << "x" << n << "x" << k << " of " << dtype;
        }
      }
    }
  }
  // A sum of nothing is zero.
  v1::SubmitRequest program = caller_->Program();
  Fill(&program, View(2, 0, {4, 4}), 7);
  Gemm(&program, View(1, 0, {4, 0}), View(3, 0, {0, 4}), View(2, 0, {4, 4}));
  Read(&program, View(2, 0, {4, 4}));
  v1::SubmitResponse response;
  ASSERT_OK(caller_->Submit(program, &response));
  for (const double value : response.reads(0).float_values()) EXPECT_EQ(value, 0);
  EXPECT_EQ(Cpu().epoch(), cpu_.epoch());
}

}  // namespace
}  // namespace backendd
