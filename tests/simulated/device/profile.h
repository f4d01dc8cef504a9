// What the simulated machine can do. Python sets it before torch looks for a device; nothing changes it later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace simulated {

using Nanoseconds = int64_t;
using Bytes = int64_t;

constexpr int kMostDevices = 4;

struct Profile {
  int64_t devices = 1;

  // The host: what calls cost the thread that makes them.
  double operator_nanoseconds = 2000;  // dispatching one operator, on whatever device
  double launch_nanoseconds = 4000;
  double synchronize_nanoseconds = 3000;
  double allocate_nanoseconds = 150'000;  // asking the driver for a segment
  double release_nanoseconds = 250'000;   // giving one back; the device is idle then
  double bytes_per_host_second = 20e9;    // of operators on tensors of the host
  // Of the order of what a test's own machine does, since on the host everything is computed for real.
  double host_float32_flops = 1.5e11;
  double host_bfloat16_flops = 3e11;
  double host_float16_flops = 6e9;  // emulated

  // The device.
  double shortest_kernel_nanoseconds = 2000;
  double bytes_per_second = 3.0e12;
  double float64_flops = 3.4e13;
  double float32_flops = 6.7e13;
  double tf32_flops = 4.9e14;
  double float16_flops = 9.9e14;
  double bfloat16_flops = 9.9e14;
  double queue_depth = 1024;

  // The link between them.
  double pinned_bytes_per_second = 5.0e10;
  double pageable_bytes_per_second = 8.0e9;

  // Memory, of each device; the context is what a process takes before its first tensor.
  double memory_bytes = 85'899'345'920;
  double context_bytes = 524'288'000;

  // Work on more bytes is not computed, and gives zeros; 0 where all is.
  double hollow_bytes = 0;

  // Faults.
  double atomic_noise = 0;  // relative, of kernels that add in no fixed order
  double handle_bytes = 0;  // what the first product needs besides, for the library that computes it
  double exclusive = 0;     // 1 where a device takes one process at a time
  double teardown_seconds = 0;  // of real time, for which the memory of a process that has ended stays taken
  double contention = 1;    // how many times as long work takes while another process works too

  double* field(const std::string& name);  // null for a name that is none of these
};

extern Profile profile;

}  // namespace simulated
