// What the daemon gives a worker at its start; both sides read it here.
#ifndef BACKENDD_SERVER_CONTROL_WORKER_START_H_
#define BACKENDD_SERVER_CONTROL_WORKER_START_H_

#include <string>

namespace backendd {

// Open in a worker from the first instruction; beside the standard three there are no others.
inline constexpr int kControlFd = 3;     // the stream socket of ControlLink
inline constexpr int kListenerFd = 4;    // listening, SOCK_STREAM: gRPC
inline constexpr int kFdListenerFd = 5;  // listening, SOCK_SEQPACKET: FdChannel

// Variables that the daemon sets. The worker's first act is PR_SET_PDEATHSIG(SIGKILL), its second
// to compare getppid() with the daemon's pid: a daemon that died in between sends no signal any
// more.
inline constexpr char kDaemonPidVariable[] = "BACKENDD_DAEMON_PID";
inline constexpr char kDeviceVariable[] = "BACKENDD_DEVICE";             // "cpu"
inline constexpr char kDeviceEpochVariable[] = "BACKENDD_DEVICE_EPOCH";  // decimal
inline constexpr char kReflectionVariable[] = "BACKENDD_REFLECTION";     // "0": off
inline constexpr char kLogLevelVariable[] = "BACKENDD_LOG_LEVEL";        // debug, info, ...

// The protocol's version and the catalogue's hash; Ready.abi must equal the daemon's own.
std::string ControlAbi();

}  // namespace backendd

#endif  // BACKENDD_SERVER_CONTROL_WORKER_START_H_
