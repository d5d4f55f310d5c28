#include "server/listener/reflection.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>

#include <algorithm>
#include <set>
#include <utility>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "shared/sync.h"

extern "C" const char backendd_descriptors[];
extern "C" const char backendd_descriptors_end[];

namespace backendd {
namespace {

using google::protobuf::FileDescriptorProto;

// The built-in files. Made at the first question, so that who never asks pays nothing. The
// database sorts itself while it is read, hence the lock.
class Descriptors {
 public:
  static Descriptors& Instance() {
    static auto* descriptors = new Descriptors;
    return *descriptors;
  }

  // The file and everything it imports, serialized, the file first; empty: there is none.
  std::vector<std::string> ByName(const std::string& name) {
    MutexLock lock(&mutex_);
    FileDescriptorProto file;
    const bool found = database_.FindFileByName(name, &file);
    return WithImports(found, std::move(file));
  }
  std::vector<std::string> BySymbol(const std::string& symbol) {
    MutexLock lock(&mutex_);
    FileDescriptorProto file;
    const bool found = database_.FindFileContainingSymbol(symbol, &file);
    return WithImports(found, std::move(file));
  }
  std::vector<std::string> ByExtension(const std::string& type, int number) {
    MutexLock lock(&mutex_);
    FileDescriptorProto file;
    const bool found = database_.FindFileContainingExtension(type, number, &file);
    return WithImports(found, std::move(file));
  }
  bool ExtensionNumbers(const std::string& type, std::vector<int>* numbers) {
    MutexLock lock(&mutex_);
    FileDescriptorProto file;
    // A type without extensions has none; only an unknown type is an error.
    return database_.FindAllExtensionNumbers(type, numbers) ||
           database_.FindFileContainingSymbol(type, &file);
  }

 private:
  Descriptors() {
    google::protobuf::FileDescriptorSet set;
    set.ParseFromArray(backendd_descriptors,
                       static_cast<int>(backendd_descriptors_end - backendd_descriptors));
    for (const FileDescriptorProto& file : set.file()) {
      const std::string bytes = file.SerializeAsString();
      database_.AddCopy(bytes.data(), static_cast<int>(bytes.size()));
    }
  }

  std::vector<std::string> WithImports(bool found, FileDescriptorProto root)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> files;
    if (!found) return files;
    std::set<std::string> seen = {root.name()};
    std::vector<FileDescriptorProto> open = {std::move(root)};
    while (!open.empty()) {
      const FileDescriptorProto file = std::move(open.back());
      open.pop_back();
      files.push_back(file.SerializeAsString());
      for (const std::string& import : file.dependency()) {
        FileDescriptorProto imported;
        if (seen.insert(import).second && database_.FindFileByName(import, &imported))
          open.push_back(std::move(imported));
      }
    }
    return files;
  }

  Mutex mutex_;
  google::protobuf::EncodedDescriptorDatabase database_ ABSL_GUARDED_BY(mutex_);
};

template <class Request, class Response>
void Answer(const std::vector<std::string>& services, const Request& request, Response* response) {
  response->Clear();
  response->set_valid_host(request.host());
  *response->mutable_original_request() = request;
  const auto not_found = [&] {
    response->mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response->mutable_error_response()->set_error_message("not found");
  };
  const auto files = [&](std::vector<std::string> found) {
    if (found.empty()) return not_found();
    for (std::string& file : found)
      response->mutable_file_descriptor_response()->add_file_descriptor_proto(std::move(file));
  };
  Descriptors& all = Descriptors::Instance();
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      return files(all.ByName(request.file_by_filename()));
    case Request::kFileContainingSymbol:
      return files(all.BySymbol(request.file_containing_symbol()));
    case Request::kFileContainingExtension:
      return files(all.ByExtension(request.file_containing_extension().containing_type(),
                                   request.file_containing_extension().extension_number()));
    case Request::kAllExtensionNumbersOfType: {
      std::vector<int> numbers;
      if (!all.ExtensionNumbers(request.all_extension_numbers_of_type(), &numbers))
        return not_found();
      auto* answer = response->mutable_all_extension_numbers_response();
      answer->set_base_type_name(request.all_extension_numbers_of_type());
      for (int number : numbers) answer->add_extension_number(number);
      return;
    }
    case Request::kListServices:
      for (const std::string& name : services)
        response->mutable_list_services_response()->add_service()->set_name(name);
      return;
    case Request::MESSAGE_REQUEST_NOT_SET:
      response->mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response->mutable_error_response()->set_error_message("the request asks for nothing");
  }
}

// One stream: an answer for each request, in order. Deletes itself.
template <class Request, class Response>
class Stream final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  explicit Stream(const std::vector<std::string>* services) : services_(services) {
    this->StartRead(&request_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return this->Finish(grpc::Status::OK);
    Answer(*services_, request_, &response_);
    this->StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return this->Finish(grpc::Status::CANCELLED);
    this->StartRead(&request_);
  }
  void OnDone() override { delete this; }

  const std::vector<std::string>* const services_;
  Request request_;
  Response response_;
};

// Both versions have the same messages under two names.
template <class Service, class Request, class Response>
class Reflection final : public Service::CallbackService {
 public:
  explicit Reflection(std::vector<std::string> services) : services_(std::move(services)) {}

 private:
  grpc::ServerBidiReactor<Request, Response>* ServerReflectionInfo(
      grpc::CallbackServerContext*) override {
    return new Stream<Request, Response>(&services_);
  }
  const std::vector<std::string> services_;
};

}  // namespace

ReflectionServices MakeReflection(std::vector<std::string> names) {
  namespace v1 = grpc::reflection::v1;
  namespace v1alpha = grpc::reflection::v1alpha;
  names.push_back(v1::ServerReflection::service_full_name());
  names.push_back(v1alpha::ServerReflection::service_full_name());
  std::sort(names.begin(), names.end());
  return {std::make_unique<Reflection<v1::ServerReflection, v1::ServerReflectionRequest,
                                      v1::ServerReflectionResponse>>(names),
          std::make_unique<Reflection<v1alpha::ServerReflection, v1alpha::ServerReflectionRequest,
                                      v1alpha::ServerReflectionResponse>>(names)};
}

}  // namespace backendd
