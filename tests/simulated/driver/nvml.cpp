// A libnvidia-ml.so.1 for the simulated devices, which the real pynvml loads.
//
// What it says stands in the file that SIMULATED_DRIVER names, a line of a name and a value each, read anew at every
// call: a test changes a clock or a reason for throttling by writing it there. What has no line is not supported. The
// memory that is used, and by whom, is what the processes on the devices wrote into SIMULATED_STATE.
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "../device/slots.h"

namespace {

using simulated::is_taken;
using simulated::kSlots;
using simulated::Slot;

enum Result { kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7 };

constexpr double kEnergyStepSeconds = 0.02;  // counters move in steps

// A slice of the first device: what the driver says of it has names that begin so.
constexpr int kSlice = 100;
const std::string kSlicePrefix = "slice_";

std::string value_of(const std::string& name) {
  const char* path = getenv("SIMULATED_DRIVER");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    const auto space = line.find(' ');
    if (line.substr(0, space) == name) return line.substr(space + 1);
  }
  return "";
}

template <typename Number>
int number(const std::string& name, Number* into) {
  const std::string value = value_of(name);
  if (value.empty()) return kNotSupported;
  *into = static_cast<Number>(atof(value.c_str()));
  return kSuccess;
}

int text(const std::string& name, char* into, unsigned length) {
  const std::string value = value_of(name);
  if (value.empty()) return kNotSupported;
  snprintf(into, length, "%s", value.c_str());
  return kSuccess;
}

std::vector<Slot> users() {
  std::vector<Slot> found;
  const char* path = getenv("SIMULATED_STATE");
  std::fstream file(path == nullptr ? "" : path, std::ios::binary | std::ios::in | std::ios::out);
  Slot slot;
  for (int it = 0; it < kSlots && file.read(reinterpret_cast<char*>(&slot), sizeof slot); it++) {
    const int64_t noticed = slot.noticed;
    notice_end(slot);
    if (slot.noticed != noticed) {
      file.seekp(it * sizeof slot);
      file.write(reinterpret_cast<const char*>(&slot), sizeof slot);
      file.seekg((it + 1) * sizeof slot);
    }
    if (is_taken(slot)) found.push_back(slot);
  }
  return found;
}

int number_of(void* device) { return static_cast<int>(reinterpret_cast<intptr_t>(device)) - 1; }
bool is_slice(void* device) { return number_of(device) == kSlice; }
int index_of(void* device) { return is_slice(device) ? 0 : number_of(device); }
std::string named(void* device, const char* name) { return (is_slice(device) ? kSlicePrefix : "") + name; }

std::string uuid_of(int index) { return "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(index); }

int devices() {
  int count = 0;
  number("devices", &count);
  return count;
}

struct Memory {
  unsigned long long total, free, used;
};

struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlInitWithFlags(unsigned) { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int result) { return result == kNotSupported ? "Not Supported" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char* into, unsigned length) { return text("driver", into, length); }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(devices());
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (static_cast<int>(index) >= devices()) return kInvalidArgument;
  *device = reinterpret_cast<void*>(static_cast<intptr_t>(index) + 1);
  return kSuccess;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (value_of("slice_uuid") == uuid) {
    *device = reinterpret_cast<void*>(static_cast<intptr_t>(kSlice) + 1);
    return kSuccess;
  }
  for (int it = 0; it < devices(); it++)
    if (uuid_of(it) == uuid) return nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(it), device);
  return kNotFound;
}

int nvmlDeviceGetUUID(void* device, char* into, unsigned length) {
  const std::string uuid = is_slice(device) ? value_of("slice_uuid") : uuid_of(index_of(device));
  snprintf(into, length, "%s", uuid.c_str());
  return kSuccess;
}

int nvmlDeviceGetName(void* device, char* into, unsigned length) { return text(named(device, "name"), into, length); }

int nvmlDeviceGetMemoryInfo(void* device, Memory* into) {
  const int known = number(named(device, "memory_bytes"), &into->total);
  if (known != kSuccess) return known;
  into->used = 0;
  for (const Slot& it : users()) into->used += static_cast<unsigned long long>(it.bytes[index_of(device)]);
  into->free = into->total - into->used;
  return kSuccess;
}

int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  const int known = number("capability_major", major);
  return known == kSuccess ? number("capability_minor", minor) : known;
}

int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return number(named(device, "power_limit_milliwatts"), milliwatts);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return number(named(device, "power_milliwatts"), milliwatts);
}
int nvmlDeviceGetClockInfo(void* device, int, unsigned* megahertz) {
  return number(named(device, "clock_megahertz"), megahertz);
}
int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* into) { return number("link_generation", into); }
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* into) { return number("link_width", into); }

int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* into) {
  return number("throttle_reasons", into);
}
int nvmlDeviceGetCurrentClocksEventReasons(void*, unsigned long long* into) { return number("throttle_reasons", into); }

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  double milliwatts = 0;
  const int known = number(named(device, "power_milliwatts"), &milliwatts);
  if (known != kSuccess) return known;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  const double steps = static_cast<double>(static_cast<int64_t>(seconds / kEnergyStepSeconds));
  *millijoules = static_cast<unsigned long long>(steps * kEnergyStepSeconds * milliwatts);
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* into) {
  std::vector<Slot> found;
  for (const Slot& it : users())
    if (it.bytes[index_of(device)] > 0) found.push_back(it);
  const bool is_enough = *count >= found.size() && into != nullptr;
  *count = static_cast<unsigned>(found.size());
  if (!is_enough) return found.empty() ? kSuccess : kInsufficientSize;
  for (size_t it = 0; it < found.size(); it++)
    into[it] = {static_cast<unsigned>(found[it].process),
                static_cast<unsigned long long>(found[it].bytes[index_of(device)]), ~0u, ~0u};
  return kSuccess;
}
}
