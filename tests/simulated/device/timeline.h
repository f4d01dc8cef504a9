// Simulated time: one clock for the host, and what lies ahead of it on the streams of each device.
//
// The clock stands still unless something here moves it: an operator that the training threads call, a launch, a wait, a
// sleep. So the same script takes the same time on every machine, whatever else that machine does.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "profile.h"

namespace simulated {

// Guards the timeline and the memory. Recursive, since a kernel may free what it replaces.
extern std::recursive_mutex state;

Nanoseconds now();
void spend(double nanoseconds);
void wait_until(Nanoseconds moment);

// Whether this thread's work moves the clock: the one that loaded us does, and those on which autograd runs. A thread
// that pins batches works beside them.
bool moves_the_clock();
void join_the_clock();

enum class Engine { compute, to_device, to_host };

struct Work {
  std::string name;
  Engine engine;
  double nanoseconds;
  Bytes bytes = 0;
};

// Puts work at the end of a stream, and makes the host pay for the launch. Returns when it will be done.
Nanoseconds launch(int device, int stream, const Work& work);

int new_stream(int device);
int current_stream(int device);
void set_current_stream(int device, int stream);
int current_device();
void set_current_device(int device);

Nanoseconds ready(int device, int stream);
void stream_waits(int device, int stream, Nanoseconds moment);

// The host waits; `what` is how a profiler calls it.
void synchronize_stream(int device, int stream);
void synchronize_device(int device);
void synchronize_event(Nanoseconds moment);

// torch's debug mode for calls that wait: 0 silent, 1 warns, 2 raises.
void set_sync_debug_mode(int mode);
void about_to_read(const char* what);

// Whether a graph is replayed: its kernels cost the host nothing.
void set_replaying(bool is);

// Whether what is done is part of the simulation's own work, and takes no time.
void set_silent(bool is);

// What a profiler sees, from `start_recording` on.
struct Activity {
  enum class Kind { kernel, copy, wait, launch } kind;
  std::string name;
  int device;
  int stream;
  Nanoseconds start;
  Nanoseconds end;
  int64_t correlation;  // the same for a launch and what it launched
  int64_t thread;       // of the host
  Bytes bytes;
};
void start_recording();
std::vector<Activity> stop_recording();
bool is_recording();

// When an operator, a node of autograd's or a range that the script names began and ended; the id is its record's, which a
// profiler writes down as well.
struct Operation {
  uint64_t id;
  Nanoseconds start;
  Nanoseconds end;
};
void record_operation(const Operation& it);
const std::vector<Operation>& operations();

}  // namespace simulated
