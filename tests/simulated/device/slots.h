// The file by which processes on the simulated devices, and their driver, know of each other.
#pragma once

#include <signal.h>
#include <time.h>

#include <cstdint>

#include "profile.h"

namespace simulated {

constexpr int kSlots = 64;

struct Slot {
  int64_t process;
  int64_t bytes[kMostDevices];
  int64_t launches;              // so far: whether the process works shows in their change
  int64_t teardown_nanoseconds;  // of real time, from when its end is first noticed
  int64_t noticed;
};

inline int64_t real_nanoseconds() {
  timespec it;
  clock_gettime(CLOCK_MONOTONIC, &it);
  return it.tv_sec * 1'000'000'000 + it.tv_nsec;
}

// Whether its memory is taken: a process that ends gives it back at once, or once the device has been cleaned up.
inline bool is_taken(const Slot& slot) {
  if (slot.process == 0) return false;
  if (kill(static_cast<pid_t>(slot.process), 0) == 0) return true;
  return slot.noticed == 0 ? slot.teardown_nanoseconds > 0
                           : real_nanoseconds() - slot.noticed < slot.teardown_nanoseconds;
}

// Begins to clean up after a process that has ended.
inline void notice_end(Slot& slot) {
  if (slot.process != 0 && slot.noticed == 0 && kill(static_cast<pid_t>(slot.process), 0) != 0)
    slot.noticed = real_nanoseconds();
}

}  // namespace simulated
