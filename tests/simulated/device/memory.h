// Memory of the simulated devices: a caching allocator with segments and blocks as torch's own has them, in address
// space alone (a page that nobody writes to takes no memory), and a table that all processes on the device share.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <string>
#include <vector>

#include "profile.h"

namespace simulated {

c10::DeviceAllocator* device_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);

// Takes memory of the host as memory of the device, which `keep` holds: what a kernel made. Throws OutOfMemoryError.
c10::DataPtr adopt(void* data, Bytes bytes, int device, std::shared_ptr<void> keep);

// A process takes its context with the first thing it does on a device.
void open_context(int device);
bool has_context(int device);

Bytes free_bytes(int device);
Bytes total_bytes(int device);

struct BlockSnapshot {
  Bytes offset;
  Bytes bytes;
  Bytes requested;
  bool taken;
};
struct SegmentSnapshot {
  int device;
  int64_t address;
  Bytes bytes;
  bool is_small;
  std::vector<BlockSnapshot> blocks;
};
std::vector<SegmentSnapshot> memory_snapshot();

// The file by which processes know of each other; without one each has the devices for itself.
void share_devices(const std::string& path);

// How many times as long work takes that is launched now, where the profile has a contention.
double contention();

}  // namespace simulated
