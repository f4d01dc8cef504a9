// Random numbers of the simulated devices: generators that say they are a device's, and draw as the host's do.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

namespace simulated {

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);

// The generator of the host behind a device's; that of the device's default generator for none at all.
c10::IValue host_generator(const c10::IValue& generator, int device);

}  // namespace simulated
