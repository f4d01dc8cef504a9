// What Python calls, by ctypes.
#include <ATen/record_function.h>
#include <c10/core/impl/GPUTrace.h>

#include <cstring>
#include <fstream>
#include <string>

#include "memory.h"
#include "timeline.h"
#include "work.h"

namespace simulated {
namespace {

// An operator that has begun on this thread: what its work takes of the host, if no other operator does it.
struct Begun {
  double nanoseconds;
  bool calls_others;
};
thread_local std::vector<Begun> begun;

struct Recorded : at::ObserverContext {
  Recorded(uint64_t id, Nanoseconds start) : id(id), start(start) {}
  uint64_t id;
  Nanoseconds start;
};

std::unique_ptr<at::ObserverContext> recorded(const at::RecordFunction& function) {
  return is_recording() ? std::make_unique<Recorded>(function.handle(), now()) : nullptr;
}

// Whatever torch does on a thread that trains costs the host the time of one operator, and on tensors of the host that
// of its work. Half of the former comes first: an operator that waits does so in its midst.
std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& function) {
  std::lock_guard<std::recursive_mutex> guard(state);
  auto context = recorded(function);
  if (function.scope() == at::RecordScope::USER_SCOPE) return context;
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    join_the_clock();  // one of autograd's own threads, which is not waited for until the very end of this
    spend(profile.operator_nanoseconds);
    return context;
  }
  std::vector<at::Tensor> tensors;
  bool is_hosts = !is_view(function.name());
  for (const c10::IValue& it : function.inputs()) {
    if (!it.isTensor() || !it.toTensor().defined()) continue;
    is_hosts = is_hosts && it.toTensor().is_cpu();
    tensors.push_back(it.toTensor());
  }
  if (!begun.empty()) begun.back().calls_others = true;
  begun.push_back({is_hosts ? host_nanoseconds(amount_of(function.name(), tensors)) : 0, false});
  spend(profile.operator_nanoseconds / 2);
  return context;
}

void operator_ends(const at::RecordFunction& function, at::ObserverContext* context) {
  std::lock_guard<std::recursive_mutex> guard(state);
  if (function.scope() == at::RecordScope::FUNCTION && !begun.empty()) {
    const Begun it = begun.back();
    begun.pop_back();
    spend(profile.operator_nanoseconds / 2 + (it.calls_others ? 0 : it.nanoseconds));
  }
  if (const auto* of_it = static_cast<Recorded*>(context)) record_operation({of_it->id, of_it->start, now()});
}

struct AtLoading {
  AtLoading() {
    join_the_clock();
    c10::SetAllocator(c10::kCUDA, device_allocator(), 100);
    at::addGlobalCallback(at::RecordFunctionCallback(&operator_begins, &operator_ends)
                              .needsInputs(true)
                              .needsIds(true)
                              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                       at::RecordScope::USER_SCOPE}));
  }
} at_loading;

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char it : text) {
    if (it == '"' || it == '\\') made += '\\';
    made += it;
  }
  return made + '"';
}

const char* kind_of(const Activity& it) {
  switch (it.kind) {
    case Activity::Kind::kernel:
      return "kernel";
    case Activity::Kind::copy:
      return "copy";
    case Activity::Kind::wait:
      return "wait";
    default:
      return "launch";
  }
}

}  // namespace
}  // namespace simulated

using namespace simulated;

extern "C" {

int simulated_set(const char* name, double value) {
  if (std::strcmp(name, "devices") == 0) {
    profile.devices = static_cast<int64_t>(value);
    return 1;
  }
  double* field = profile.field(name);
  if (field != nullptr) *field = value;
  return field != nullptr;
}
void simulated_share(const char* path) { share_devices(path); }

int64_t simulated_now() { return now(); }
void simulated_spend(double nanoseconds) {
  std::lock_guard<std::recursive_mutex> guard(state);
  spend(nanoseconds);
}
void simulated_wait_until(int64_t moment) {
  std::lock_guard<std::recursive_mutex> guard(state);
  wait_until(moment);
}
void simulated_join() { join_the_clock(); }
int simulated_counts_here() { return moves_the_clock(); }

int simulated_new_stream(int device) { return new_stream(device); }
int simulated_current_stream(int device) { return current_stream(device); }
void simulated_set_current_stream(int device, int stream) { set_current_stream(device, stream); }
int simulated_current_device() { return current_device(); }
void simulated_set_current_device(int device) { set_current_device(device); }
int64_t simulated_ready(int device, int stream) { return ready(device, stream); }
void simulated_stream_waits(int device, int stream, int64_t moment) { stream_waits(device, stream, moment); }
void simulated_synchronize_stream(int device, int stream) { synchronize_stream(device, stream); }
void simulated_synchronize_device(int device) { synchronize_device(device); }
void simulated_synchronize_event(int64_t moment) { synchronize_event(moment); }
void simulated_set_sync_debug_mode(int mode) { set_sync_debug_mode(mode); }
// A product that nobody reads: kind 0 is float32, 1 bfloat16, 2 float16.
void simulated_multiply_on_host(double operations, int kind) {
  const at::ScalarType types[] = {at::kFloat, at::kBFloat16, at::kHalf};
  std::lock_guard<std::recursive_mutex> guard(state);
  spend(profile.operator_nanoseconds + host_nanoseconds({0, operations, types[kind]}));
}
void simulated_set_replaying(int is) { set_replaying(is != 0); }
void simulated_set_silent(int is) { set_silent(is != 0); }
void simulated_launch(int device, int stream, const char* name, double nanoseconds) {
  std::lock_guard<std::recursive_mutex> guard(state);
  launch(device, stream, {name, Engine::compute, nanoseconds});
}

// What CUDA says if it cannot be had, else null.
const char* simulated_open_context(int device) {
  static thread_local std::string refused;
  try {
    open_context(device);
    return nullptr;
  } catch (const c10::Error& error) {
    refused = error.what_without_backtrace();
    return refused.c_str();
  }
}
// A storage of another size, which keeps what fits: torch without CUDA cannot resize one on a device.
void simulated_resize_storage(int64_t address, int64_t bytes) {
  auto* storage = reinterpret_cast<c10::StorageImpl*>(address);
  c10::DataPtr fresh = bytes > 0 ? storage->allocator()->allocate(bytes) : c10::DataPtr(nullptr, storage->device());
  const size_t kept = std::min<size_t>(bytes, storage->nbytes());
  if (kept > 0) std::memcpy(fresh.get(), storage->data(), kept);
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}
int64_t simulated_free_bytes(int device) { return free_bytes(device); }
int64_t simulated_total_bytes(int device) { return total_bytes(device); }

void simulated_start_recording() { start_recording(); }

// Writes what happened since, as JSON: what the device did, and when the host's operations began and ended.
void simulated_stop_recording(const char* path) {
  std::ofstream file(path);
  file << "{\"activities\": [";
  const char* separator = "";
  for (const Activity& it : stop_recording()) {
    file << separator << "[" << quoted(kind_of(it)) << "," << quoted(it.name) << "," << it.device << "," << it.stream
         << "," << it.start << "," << it.end << "," << it.correlation << "," << it.thread << "," << it.bytes << "]";
    separator = ",\n";
  }
  file << "], \"operations\": [";
  separator = "";
  for (const Operation& it : operations()) {
    file << separator << "[" << it.id << "," << it.start << "," << it.end << "]";
    separator = ",\n";
  }
  file << "]}";
}

void simulated_memory_snapshot(const char* path) {
  std::ofstream file(path);
  file << "[";
  const char* separator = "";
  for (const SegmentSnapshot& segment : memory_snapshot()) {
    file << separator << "{\"device\": " << segment.device << ", \"address\": " << segment.address
         << ", \"total_size\": " << segment.bytes << ", \"is_small\": " << (segment.is_small ? "true" : "false")
         << ", \"blocks\": [";
    const char* between = "";
    for (const BlockSnapshot& it : segment.blocks) {
      file << between << "[" << it.offset << "," << it.bytes << "," << it.requested << "," << it.taken << "]";
      between = ",";
    }
    file << "]}";
    separator = ",\n";
  }
  file << "]";
}
}
