// How long kernels take: the longer of reading and writing their tensors and of their arithmetic (the roofline model;
// Williams, Waterman and Patterson, 2009), and never less than the shortest kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace simulated {

struct Amount {
  double bytes = 0;
  double flops = 0;
  at::ScalarType type = at::kFloat;
};

// What an operator does with these tensors, its results among them.
Amount amount_of(const std::string& name, const std::vector<at::Tensor>& tensors);

double kernel_nanoseconds(const Amount& amount);
double host_nanoseconds(const Amount& amount);

// A name as the libraries give their kernels.
std::string kernel_name(const std::string& name, const Amount& amount);

bool is_product(const std::string& name);

// Operators that only look at a tensor in another way.
bool is_view(const std::string& name);

// Operators whose results have a size that depends on values, so that the host waits for them.
bool waits_for_values(const std::string& name);

// Operators whose kernels add with atomics, in an order that changes from run to run.
bool adds_in_any_order(const std::string& name);

}  // namespace simulated
