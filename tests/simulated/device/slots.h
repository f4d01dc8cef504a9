// The file by which processes on the simulated devices, and their driver, know of each other.
#pragma once

#include <signal.h>

#include <cstdint>

#include "profile.h"

namespace simulated {

constexpr int kSlots = 64;

struct Slot {
  int64_t process;
  int64_t bytes[kMostDevices];
};

// Whether its memory is taken: a process that ends gives it back at once.
inline bool is_taken(const Slot& slot) {
  return slot.process != 0 && kill(static_cast<pid_t>(slot.process), 0) == 0;
}

}  // namespace simulated
