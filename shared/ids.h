// Strong ids: a session's number is never taken for a lease's.
#ifndef BACKENDD_SHARED_IDS_H_
#define BACKENDD_SHARED_IDS_H_

#include <sys/random.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"

namespace backendd {

// A 64-bit id of kind Tag. 0 is no id.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr explicit operator bool() const { return value_ != 0; }
  friend constexpr auto operator<=>(Id, Id) = default;
  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  uint64_t value_ = 0;
};

using SessionId = Id<struct SessionTag>;
using LeaseId = Id<struct LeaseTag>;
using BufferId = Id<struct BufferTag>;
using ProgramId = Id<struct ProgramTag>;

// A random id that nobody can guess: 64 bits of the kernel's generator, never 0.
template <class IdType>
IdType RandomId() {
  uint64_t value = 0;
  while (value == 0) {
    if (getrandom(&value, sizeof value, 0) != sizeof value)
      std::abort();  // cannot fail for 8 bytes once booted
  }
  return IdType(value);
}

// How people see an id: the first 8 of its 16 hex digits.
template <class Tag>
std::string Prefix(Id<Tag> id) {
  return absl::StrFormat("%08x", id.value() >> 32);
}

}  // namespace backendd

#endif  // BACKENDD_SHARED_IDS_H_
