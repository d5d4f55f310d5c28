// What the services share: unary answers, and streams that are written to from anywhere.
#ifndef BACKENDD_SERVER_NODE_RPC_CALL_H_
#define BACKENDD_SERVER_NODE_RPC_CALL_H_

#include <deque>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/listener/peer.h"
#include "server/node/node.h"
#include "shared/status/grpc_status.h"
#include "shared/sync.h"

namespace backendd::node {

inline Caller CallerOf(const Node& node, const grpc::ServerContextBase& context) {
  return node.CallerOf(PeerOf(context));
}

template <class Response>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                 absl::StatusOr<Response> result, Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (result.ok()) response->Swap(&*result);
  reactor->Finish(ToGrpc(result.status()));
  return reactor;
}

template <class Response>
Done<Response> Later(grpc::ServerUnaryReactor* reactor, Response* response) {
  return [reactor, response](absl::StatusOr<Response> result) {
    if (result.ok()) response->Swap(&*result);
    reactor->Finish(ToGrpc(result.status()));
  };
}

// The writing half of a stream: messages go out in order, then the status. Any thread.
template <class Reactor, class Message>
class Outbox {
 public:
  explicit Outbox(Reactor* reactor) : reactor_(reactor) {}
  // False: more than `most` messages wait.
  bool Push(Message message, size_t most = SIZE_MAX) {
    MutexLock lock(&mutex_);
    if (status_.has_value()) return true;
    if (queue_.size() >= most) return false;
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) reactor_->StartWrite(&queue_.front());
    return true;
  }
  void End(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (status_.has_value()) return;
    status_ = ToGrpc(status);
    if (queue_.empty()) reactor_->Finish(*status_);
  }
  void OnWriteDone(bool ok) {
    MutexLock lock(&mutex_);
    queue_.pop_front();
    if (!ok) queue_.clear();
    if (!queue_.empty()) {
      reactor_->StartWrite(&queue_.front());
    } else if (status_.has_value()) {
      reactor_->Finish(*status_);
    }
  }
  // Runs `read` unless the stream has ended.
  template <class Read>
  void IfOpen(Read read) {
    MutexLock lock(&mutex_);
    if (!status_.has_value()) read();
  }

 private:
  Reactor* const reactor_;
  Mutex mutex_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_RPC_CALL_H_
