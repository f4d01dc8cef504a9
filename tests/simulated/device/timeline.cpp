#include "timeline.h"

#include "memory.h"

#include <c10/util/Exception.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace simulated {

std::recursive_mutex state;

namespace {

// Far from zero, as a machine that has been up for a day; the same for all processes.
constexpr Nanoseconds kOrigin = 100'000'000'000'000;
constexpr int kStreamsPerDevice = 64;

struct Stream {
  Nanoseconds ready = 0;
  std::deque<Nanoseconds> queued;
};

struct Device {
  Stream streams[kStreamsPerDevice];
  Nanoseconds engines[3] = {0, 0, 0};
  int used_streams = 1;
};

Nanoseconds clock_now = kOrigin;
Device devices[kMostDevices];
thread_local int device_of_thread = 0;
thread_local int stream_of_thread[kMostDevices] = {};
thread_local bool counted_thread = false;
bool replaying = false;  // a graph's kernels need neither the host nor room in its queue
bool silent = false;     // what is done takes no time at all

int sync_debug_mode = 0;

bool recording = false;
int64_t next_correlation = 1;
std::vector<Activity> activities;
std::vector<Operation> done;

int64_t thread_id() { return static_cast<int64_t>(syscall(SYS_gettid)); }

void record(Activity::Kind kind, const std::string& name, int device, int stream, Nanoseconds start, Nanoseconds end,
            int64_t correlation, Bytes bytes = 0) {
  if (recording) activities.push_back({kind, name, device, stream, start, end, correlation, thread_id(), bytes});
}

void host_waits(Nanoseconds moment, const char* name, int device, int stream) {
  if (silent) return;
  const Nanoseconds began = now();
  spend(profile.synchronize_nanoseconds);
  wait_until(moment);
  record(Activity::Kind::wait, name, device, stream, began, now(), next_correlation++);
}

}  // namespace

Nanoseconds now() { return clock_now; }

void spend(double nanoseconds) {
  if (moves_the_clock() && !replaying && !silent) clock_now += static_cast<Nanoseconds>(nanoseconds);
}

void wait_until(Nanoseconds moment) {
  if (moment > clock_now && moves_the_clock() && !silent) clock_now = moment;
}

bool moves_the_clock() { return counted_thread; }
void join_the_clock() { counted_thread = true; }

Nanoseconds launch(int device, int stream, const Work& work) {
  Device& on = devices[device];
  Stream& queue = on.streams[stream];
  if (silent) return queue.ready;
  const Nanoseconds began = now();
  spend(profile.launch_nanoseconds);
  while (!replaying && queue.queued.size() >= static_cast<size_t>(profile.queue_depth)) {
    wait_until(queue.queued.front());
    queue.queued.pop_front();
  }
  while (!queue.queued.empty() && queue.queued.front() <= now()) queue.queued.pop_front();

  Nanoseconds& engine = on.engines[static_cast<int>(work.engine)];
  const Nanoseconds start = std::max({queue.ready, engine, now()});
  const Nanoseconds end = start + static_cast<Nanoseconds>(work.nanoseconds * contention());
  queue.ready = engine = end;
  queue.queued.push_back(end);

  const int64_t correlation = next_correlation++;
  const bool is_kernel = work.engine == Engine::compute && work.bytes == 0;
  record(Activity::Kind::launch, is_kernel ? "cudaLaunchKernel" : "cudaMemcpyAsync", device, stream, began, now(),
         correlation);
  record(is_kernel ? Activity::Kind::kernel : Activity::Kind::copy, work.name, device, stream, start, end, correlation,
         work.bytes);
  return end;
}

int new_stream(int device) {
  std::lock_guard<std::recursive_mutex> guard(state);
  int& used = devices[device].used_streams;
  // As torch's own pool: beyond its size streams are handed out again.
  return used < kStreamsPerDevice ? used++ : 1 + (used++ - 1) % (kStreamsPerDevice - 1);
}

int current_stream(int device) { return stream_of_thread[device]; }
void set_current_stream(int device, int stream) { stream_of_thread[device] = stream; }
int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

Nanoseconds ready(int device, int stream) { return devices[device].streams[stream].ready; }

void stream_waits(int device, int stream, Nanoseconds moment) {
  std::lock_guard<std::recursive_mutex> guard(state);
  Nanoseconds& ready = devices[device].streams[stream].ready;
  ready = std::max(ready, moment);
}

void synchronize_stream(int device, int stream) {
  std::lock_guard<std::recursive_mutex> guard(state);
  host_waits(ready(device, stream), "cudaStreamSynchronize", device, stream);
}

void synchronize_device(int device) {
  std::lock_guard<std::recursive_mutex> guard(state);
  Nanoseconds last = 0;
  for (const Stream& it : devices[device].streams) last = std::max(last, it.ready);
  host_waits(last, "cudaDeviceSynchronize", device, 0);
}

void synchronize_event(Nanoseconds moment) {
  std::lock_guard<std::recursive_mutex> guard(state);
  host_waits(moment, "cudaEventSynchronize", current_device(), 0);
}

void set_sync_debug_mode(int mode) { sync_debug_mode = mode; }
void set_replaying(bool is) { replaying = is; }
void set_silent(bool is) { silent = is; }

void about_to_read(const char* what) {
  TORCH_CHECK(sync_debug_mode != 2, "called a synchronizing CUDA operation");
  if (sync_debug_mode == 1) TORCH_WARN("called a synchronizing CUDA operation");
}

void start_recording() {
  std::lock_guard<std::recursive_mutex> guard(state);
  recording = true;
  activities.clear();
  done.clear();
}

std::vector<Activity> stop_recording() {
  std::lock_guard<std::recursive_mutex> guard(state);
  recording = false;
  return std::move(activities);
}

bool is_recording() { return recording; }

void record_operation(const Operation& it) {
  std::lock_guard<std::recursive_mutex> guard(state);
  if (recording) done.push_back(it);
}

const std::vector<Operation>& operations() { return done; }

}  // namespace simulated
