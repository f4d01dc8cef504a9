#include "generators.h"

#include <ATen/CPUGeneratorImpl.h>

#include "profile.h"

namespace simulated {
namespace {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(int device, at::Generator inner = at::detail::createCPUGenerator())
      : GeneratorImpl({c10::kCUDA, static_cast<c10::DeviceIndex>(device)}, c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        inner_(std::move(inner)) {}

  const at::Generator& inner() const { return inner_; }

  void set_current_seed(uint64_t seed) override { inner_.set_current_seed(seed); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return inner_.current_seed(); }
  uint64_t seed() override { return inner_.seed(); }
  void set_state(const c10::TensorImpl& state) override { inner_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return inner_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  DeviceGenerator* clone_impl() const override { return new DeviceGenerator(device().index(), inner_.clone()); }

  at::Generator inner_;
};

}  // namespace

const at::Generator& default_generator(int device) {
  static at::Generator generators[kMostDevices] = {new_generator(0), new_generator(1), new_generator(2), new_generator(3)};
  return generators[device < 0 ? 0 : device];
}

at::Generator new_generator(int device) {
  at::Generator made = at::make_generator<DeviceGenerator>(device);
  made.set_current_seed(c10::default_rng_seed_val);
  return made;
}

c10::IValue host_generator(const c10::IValue& generator, int device) {
  const at::Generator wanted = generator.isGenerator() ? generator.toGenerator() : default_generator(device);
  const auto* ours = dynamic_cast<DeviceGenerator*>(wanted.unsafeGetGeneratorImpl());
  return ours == nullptr ? c10::IValue(wanted) : c10::IValue(ours->inner());
}

}  // namespace simulated
