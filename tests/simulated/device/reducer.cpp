// What DistributedDataParallel times on a device: moments on its current stream.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "timeline.h"

namespace simulated {
namespace {

class Timer final : public c10d::Timer {
 public:
  explicit Timer(c10::Device device) : device_(device.has_index() ? device.index() : current_device()) {}

  void record(Event event) override {
    c10d::Timer::record(event);
    moments_[static_cast<int>(event)] = std::max(ready(device_, current_stream(device_)), now());
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const Nanoseconds first = moments_[static_cast<int>(start)];
    const Nanoseconds last = moments_[static_cast<int>(end)];
    if (first == 0 || last < first) return std::nullopt;
    return last - first;
  }

 private:
  int device_;
  Nanoseconds moments_[5] = {0, 0, 0, 0, 0};
};

}  // namespace
}  // namespace simulated

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, simulated::Timer);
}  // namespace c10d
