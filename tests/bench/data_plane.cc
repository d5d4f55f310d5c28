// Programs, arenas and products, through the worker's socket and beside it.
#include <cblas.h>
#include <omp.h>

#include <cstring>
#include <dnnl.hpp>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "backendd/v1/compute_service.grpc.pb.h"
#include "shared/fd/arena.h"
#include "shared/fd/channel.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"
#include "tests/bench/figures.h"
#include "tests/bench/stats.h"

namespace backendd::bench {
namespace {

constexpr uint64_t kArenaBytes = uint64_t{64} << 20;
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
constexpr int64_t kSide = 1024;
constexpr absl::Duration kTimeout = absl::Seconds(10);

// A session with its grant for the first device's worker.
struct Worker {
  std::unique_ptr<RawSession> session;
  v1::DeviceGrant grant;
  std::string token;  // as metadata
  std::unique_ptr<v1::ComputeService::Stub> stub;

  static absl::StatusOr<Worker> Open(const Options& options) {
    Worker worker;
    ASSIGN_OR_RETURN(worker.session,
                     RawSession::Open(ChannelTo(options.socket), "bench", absl::Minutes(10)));
    if (worker.session->welcome().devices().empty()) {
      return Error(Reason::kDeviceUnknown, "the daemon granted no device");
    }
    worker.grant = worker.session->welcome().devices(0);
    worker.token = absl::BytesToHexString(worker.grant.token());
    worker.stub = v1::ComputeService::NewStub(ChannelTo(worker.grant.socket()));
    return worker;
  }

  template <class Request, class Response>
  absl::Status Call(grpc::Status (v1::ComputeService::Stub::*method)(grpc::ClientContext*,
                                                                     const Request&, Response*),
                    const Request& request, Response* response) const {
    grpc::ClientContext context;
    context.AddMetadata("backendd-grant", token);
    return FromGrpc((stub.get()->*method)(&context, request, response));
  }

  absl::Status Allocate(std::vector<std::pair<uint64_t, uint64_t>> buffers) const {
    v1::AllocateBuffersRequest request;
    v1::AllocateBuffersResponse response;
    request.set_session_id(session->id());
    for (const auto& [id, bytes] : buffers) {
      v1::BufferSpec* spec = request.add_buffers();
      spec->set_buffer(id);
      spec->set_bytes(bytes);
    }
    return Call(&v1::ComputeService::Stub::AllocateBuffers, request, &response);
  }
  absl::Status Free(uint64_t buffer) const {
    v1::FreeBuffersRequest request;
    v1::FreeBuffersResponse response;
    request.set_session_id(session->id());
    request.add_buffers(buffer);
    return Call(&v1::ComputeService::Stub::FreeBuffers, request, &response);
  }
  v1::SubmitRequest Program() const {
    v1::SubmitRequest request;
    request.set_session_id(session->id());
    request.set_device_epoch(grant.device_epoch());
    return request;
  }
};

// 64 MiB as 64 WriteChunks, timed.
absl::StatusOr<double> WriteByGrpc(const Worker& worker, uint64_t buffer) {
  v1::WriteChunksRequest request;
  v1::WriteChunksResponse response;
  request.set_session_id(worker.session->id());
  request.set_buffer(buffer);
  request.set_bytes(std::string(kChunkBytes, 'x'));
  const double begin = NowUs();
  for (uint64_t offset = 0; offset < kArenaBytes; offset += kChunkBytes) {
    request.set_offset(offset);
    RETURN_IF_ERROR(worker.Call(&v1::ComputeService::Stub::WriteChunks, request, &response));
  }
  return NowUs() - begin;
}

absl::Status MeasureArena(const Options& options, std::vector<double>* import_us,
                          std::vector<double>* grpc_us) {
  ASSIGN_OR_RETURN(const Worker worker, Worker::Open(options));
  ASSIGN_OR_RETURN(FdChannel channel, FdChannel::Connect(worker.grant.fd_socket()));
  Frame hello;
  hello.kind = FrameKind::kHello;
  hello.request = 1;
  hello.session = worker.session->id();
  hello.payload = worker.grant.token();
  RETURN_IF_ERROR(channel.Call(hello, kTimeout).status());
  // An arena that the client has filled already: what is handed over is the whole of it.
  ASSIGN_OR_RETURN(const Fd arena, CreateArena(kArenaBytes));
  ASSIGN_OR_RETURN(const Mapping mapping, MapShared(arena.get(), 0, kArenaBytes));
  memset(mapping.data(), 7, mapping.size());
  constexpr uint64_t kWritten = 1;
  RETURN_IF_ERROR(worker.Allocate({{kWritten, kArenaBytes}}));
  for (int block = 0; block < options.blocks; ++block) {
    for (int which : {0, 1, 1, 0}) {
      if (which == 1) {
        ASSIGN_OR_RETURN(const double us, WriteByGrpc(worker, kWritten));
        grpc_us->push_back(us);
        continue;
      }
      const uint64_t buffer = 100 + import_us->size();
      Frame import;
      import.kind = FrameKind::kImport;
      import.request = buffer;
      import.session = worker.session->id();
      import.buffer = buffer;
      import.length = kArenaBytes;
      import.fds.emplace_back(dup(arena.get()));
      const double begin = NowUs();
      RETURN_IF_ERROR(channel.Call(import, kTimeout).status());
      import_us->push_back(NowUs() - begin);
      RETURN_IF_ERROR(worker.Free(buffer));
    }
  }
  return absl::OkStatus();
}

// One library's own product of square matrices in this process.
class DirectProduct {
 public:
  DirectProduct(const std::string& library, int threads)
      : onednn_(library == "onednn"),
        a_(kSide * kSide, 0.5f),
        b_(kSide * kSide, 0.25f),
        y_(kSide * kSide) {
    omp_set_num_threads(threads);
    openblas_set_num_threads(threads);
    if (!onednn_) return;
    const dnnl::memory::desc matrix({kSide, kSide}, dnnl::memory::data_type::f32,
                                    dnnl::memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine_, matrix, matrix, matrix);
#else
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(matrix, matrix, matrix),
                                                   engine_);
#endif
    matmul_ = dnnl::matmul(description);
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(matrix, engine_, a_.data())},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(matrix, engine_, b_.data())},
                  {DNNL_ARG_DST, dnnl::memory(matrix, engine_, y_.data())}};
  }
  double Run() {
    const double begin = NowUs();
    if (onednn_) {
      matmul_.execute(stream_, arguments_);
      stream_.wait();
    } else {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSide, kSide, kSide, 1, a_.data(),
                  kSide, b_.data(), kSide, 0, y_.data(), kSide);
    }
    return NowUs() - begin;
  }

 private:
  const bool onednn_;
  std::vector<float> a_, b_, y_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

void Matrix(uint64_t buffer, v1::Operand* operand) {
  operand->set_buffer(buffer);
  operand->set_dtype(v1::DTYPE_F32);
  operand->add_shape(kSide);
  operand->add_shape(kSide);
}

void Fill(v1::SubmitRequest& program, uint64_t buffer, double value) {
  v1::Fill* fill = program.add_operations()->mutable_fill();
  Matrix(buffer, fill->mutable_y());
  fill->mutable_value()->set_real(value);
}

absl::Status MeasureSgemm(const Options& options, Row* row) {
  ASSIGN_OR_RETURN(const Worker worker, Worker::Open(options));
  constexpr uint64_t kBytes = kSide * kSide * sizeof(float);
  RETURN_IF_ERROR(worker.Allocate({{1, kBytes}, {2, kBytes}, {3, kBytes}}));
  v1::SubmitRequest fills = worker.Program();
  Fill(fills, 1, 0.5);
  Fill(fills, 2, 0.25);
  v1::SubmitResponse response;
  RETURN_IF_ERROR(worker.Call(&v1::ComputeService::Stub::Submit, fills, &response));
  v1::SubmitRequest program = worker.Program();
  v1::Gemm* gemm = program.add_operations()->mutable_gemm();
  Matrix(1, gemm->mutable_a());
  Matrix(2, gemm->mutable_b());
  Matrix(3, gemm->mutable_y());
  RETURN_IF_ERROR(worker.Call(&v1::ComputeService::Stub::Submit, program, &response));
  if (response.has_failure() || response.stamp().operations().empty()) {
    return Error(Reason::kInternal, absl::StrCat("sgemm: ", response.failure().message()));
  }
  const v1::OperationStamp stamp = response.stamp().operations(0);
  DirectProduct direct(stamp.library(), stamp.threads());
  program.set_stamp_detail(v1::STAMP_DETAIL_NONE);
  // Threads that spin after a product would be in the other side's way.
  const auto rested = [](const Timed& call) {
    return [call] {
      absl::SleepFor(absl::Milliseconds(5));
      return call();
    };
  };
  absl::Status error;
  Ratio r;
  const Timed served =
      rested(Unary(*worker.stub, &v1::ComputeService::Stub::Submit, program, &error, worker.token));
  const Timed called = rested([&direct] { return direct.Run(); });
  for (int i = 0; i < 3; ++i) {
    if (served() < 0 || called() < 0) return error;
  }
  if (!Abba(options.blocks, options.products, served, called, &r)) return error;
  row->name =
      absl::StrFormat("sgemm 1024^3, %s, %d threads / direct", stamp.library(), stamp.threads());
  row->measured = absl::StrFormat("%.2f ms", r.a_us / 1e3);
  row->floor = absl::StrFormat("%.2f ms", r.b_us / 1e3);
  row->ratio = absl::StrFormat("%.3f [%.3f, %.3f]", r.ratio, r.low, r.high);
  row->reached = r.ratio <= 1.05;
  return absl::OkStatus();
}

}  // namespace

Row NullProgram(const Options& options) {
  Row row{"null program / empty call", "", "", "", "<= 1.5"};
  const auto worker = Worker::Open(options);
  if (!worker.ok()) return Failed(row, worker.status());
  v1::SubmitRequest request = worker->Program();
  request.add_operations()->mutable_barrier();
  request.set_stamp_detail(v1::STAMP_DETAIL_NONE);
  absl::Status error;
  return AgainstEmpty(
      row, 1.5, options,
      Unary(*worker->stub, &v1::ComputeService::Stub::Submit, request, &error, worker->token),
      error);
}

Row ArenaHandOver(const Options& options) {
  Row row{"64 MiB arena handed over / by gRPC", "", "", "", "< 1 ms, <= 0.01"};
  std::vector<double> import_us, grpc_us;
  const absl::Status status = MeasureArena(options, &import_us, &grpc_us);
  if (!status.ok()) return Failed(row, status);
  const double ratio = Median(import_us) / Median(grpc_us);
  row.measured = absl::StrFormat("%.0f us", Median(import_us));
  row.floor = absl::StrFormat("%.1f ms", Median(grpc_us) / 1e3);
  row.ratio = absl::StrFormat("%.4f (%.0f times)", ratio, 1 / ratio);
  row.reached = Median(import_us) < 1000 && ratio <= 0.01;
  return row;
}

Row Sgemm(const Options& options) {
  Row row{"sgemm 1024^3 / direct call", "", "", "", "<= 1.05"};
  const absl::Status status = MeasureSgemm(options, &row);
  return status.ok() ? row : Failed(row, status);
}

}  // namespace backendd::bench
