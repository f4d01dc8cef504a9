// What torch asks of every device: which is current, streams and events, and whether there is one at all.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "generators.h"
#include "memory.h"
#include "timeline.h"

namespace simulated {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

Stream stream_of(DeviceIndex device, int stream) {
  return Stream(Stream::UNSAFE, Device(c10::kCUDA, device), static_cast<c10::StreamId>(stream));
}

int chosen(Device device) { return device.has_index() ? device.index() : current_device(); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(profile.devices); }

  Device getDevice() const override { return {c10::kCUDA, static_cast<DeviceIndex>(current_device())}; }
  void setDevice(Device device) const override { set_current_device(chosen(device)); }
  void uncheckedSetDevice(Device device) const noexcept override { set_current_device(chosen(device)); }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }

  Stream getStream(Device device) const override {
    const int index = chosen(device);
    return stream_of(static_cast<DeviceIndex>(index), current_stream(index));
  }
  Stream getDefaultStream(Device device) const override { return stream_of(static_cast<DeviceIndex>(chosen(device)), 0); }
  Stream getNewStream(Device device, int) const override {
    const int index = chosen(device);
    return stream_of(static_cast<DeviceIndex>(index), new_stream(index));
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream exchangeStream(Stream stream) const override {
    const int device = stream.device_index();
    const int before = current_stream(device);
    set_current_stream(device, static_cast<int>(stream.id()));
    return stream_of(static_cast<DeviceIndex>(device), before);
  }
  bool queryStream(const Stream& stream) const override {
    return ready(stream.device_index(), static_cast<int>(stream.id())) <= now();
  }
  void synchronizeStream(const Stream& stream) const override {
    synchronize_stream(stream.device_index(), static_cast<int>(stream.id()));
  }
  void synchronizeDevice(const DeviceIndex device) const override { synchronize_device(device); }

  // An event is the moment at which all that was launched before it is done.
  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Nanoseconds(0);
    *static_cast<Nanoseconds*>(*event) = std::max(ready(stream.device_index(), static_cast<int>(stream.id())), now());
  }
  void block(void* event, const Stream& stream) const override {
    if (event != nullptr)
      stream_waits(stream.device_index(), static_cast<int>(stream.id()), *static_cast<Nanoseconds*>(event));
  }
  bool queryEvent(void* event) const override { return event == nullptr || *static_cast<Nanoseconds*>(event) <= now(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronize_event(*static_cast<Nanoseconds*>(event));
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Nanoseconds*>(event); }
  double elapsedTime(void* begin, void* end, const DeviceIndex) const override {
    return static_cast<double>(*static_cast<Nanoseconds*>(end) - *static_cast<Nanoseconds*>(begin)) / 1e6;
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

struct Hooks final : public at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}

  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex device) const override { return has_context(device); }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(profile.devices); }
  int getNumGPUs() const override { return static_cast<int>(profile.devices); }
  DeviceIndex current_device() const override { return static_cast<DeviceIndex>(simulated::current_device()); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = current_device();
    set_current_device(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return device_allocator(); }
  Device getDeviceFromPtr(void*) const override { return {c10::kCUDA, current_device()}; }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override { return new_generator(device < 0 ? 0 : device); }
  void deviceSynchronize(DeviceIndex device) const override { synchronize_device(device); }
};

}  // namespace simulated

namespace at {
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, simulated::Hooks)
}  // namespace at
