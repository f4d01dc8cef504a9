#include "profile.h"

#include <map>

namespace simulated {

Profile profile;

double* Profile::field(const std::string& name) {
  const std::map<std::string, double*> fields{
      {"operator_nanoseconds", &operator_nanoseconds},
      {"launch_nanoseconds", &launch_nanoseconds},
      {"synchronize_nanoseconds", &synchronize_nanoseconds},
      {"allocate_nanoseconds", &allocate_nanoseconds},
      {"release_nanoseconds", &release_nanoseconds},
      {"bytes_per_host_second", &bytes_per_host_second},
      {"host_float32_flops", &host_float32_flops},
      {"host_bfloat16_flops", &host_bfloat16_flops},
      {"host_float16_flops", &host_float16_flops},
      {"shortest_kernel_nanoseconds", &shortest_kernel_nanoseconds},
      {"bytes_per_second", &bytes_per_second},
      {"float64_flops", &float64_flops},
      {"float32_flops", &float32_flops},
      {"tf32_flops", &tf32_flops},
      {"float16_flops", &float16_flops},
      {"bfloat16_flops", &bfloat16_flops},
      {"queue_depth", &queue_depth},
      {"pinned_bytes_per_second", &pinned_bytes_per_second},
      {"pageable_bytes_per_second", &pageable_bytes_per_second},
      {"memory_bytes", &memory_bytes},
      {"context_bytes", &context_bytes},
      {"hollow_bytes", &hollow_bytes},
      {"atomic_noise", &atomic_noise},
      {"handle_bytes", &handle_bytes},
      {"exclusive", &exclusive},
      {"teardown_seconds", &teardown_seconds},
      {"contention", &contention},
  };
  const auto found = fields.find(name);
  return found == fields.end() ? nullptr : found->second;
}

}  // namespace simulated
