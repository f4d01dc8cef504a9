// Fused attention: torch chooses a kernel as on CUDA, by its switches, the types and the device, and each is one launch.
// The host's own fused kernel computes what goes forward, so what that one lacks (dropout, grouped heads) gets the plain
// kernel.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <array>
#include <cmath>

#include "profile.h"

namespace simulated {
namespace {

using at::Tensor;
using c10::SymInt;
using Bias = std::optional<Tensor>;
using Scale = std::optional<double>;

bool fits(at::SDPBackend backend, const Tensor& query, bool has_mask) {
  const at::Context& context = at::globalContext();
  const bool is_half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  const bool is_ampere = profile.tf32_flops > profile.float32_flops;  // what has TF32 has these kernels
  switch (backend) {
    case at::SDPBackend::flash_attention:
      return context.userEnabledFlashSDP() && is_half && is_ampere && !has_mask;
    case at::SDPBackend::efficient_attention:
      return context.userEnabledMemEfficientSDP() && (is_half || query.scalar_type() == at::kFloat);
    case at::SDPBackend::cudnn_attention:
      return context.userEnabledCuDNNSDP() && is_half && is_ampere;
    case at::SDPBackend::math:
      return context.userEnabledMathSDP();
    default:
      return false;
  }
}

int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value, const Bias& mask, double dropout, bool,
               Scale, bool grouped) {
  const bool has_mask = mask && mask->defined();
  const bool is_plain = dropout > 0 || grouped || query.dim() != 4 || query.size(-1) != value.size(-1) ||
      query.size(-3) != key.size(-3) || (has_mask && mask->requires_grad());
  for (const at::SDPBackend it : at::globalContext().sDPPriorityOrder())
    if ((it == at::SDPBackend::math || !is_plain) && fits(it, query, has_mask)) return static_cast<int64_t>(it);
  TORCH_CHECK(false, "No viable backend for scaled_dot_product_attention was found.");
}

Tensor nothing(const Tensor& like, at::ScalarType type = at::kLong) { return at::empty({0}, like.options().dtype(type)); }

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, SymInt, SymInt, Tensor, Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

Forward forward(const Tensor& query, const Tensor& key, const Tensor& value, const Bias& bias, double dropout, bool causal,
                Scale scale) {
  auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, bias, scale);
  return {out, sums, nothing(query), nothing(query), query.size(2), key.size(2), nothing(query), nothing(query),
          nothing(query, query.scalar_type())};
}

// By the formulas, in float32, since the host's own kernel for this does not return from the thread of a device.
Gradients gradients(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                    const Bias& bias, bool causal, Scale scale) {
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  const Tensor queries = query.to(at::kFloat), keys = key.to(at::kFloat), values = value.to(at::kFloat);
  const Tensor given = grad.to(at::kFloat);
  Tensor scores = at::matmul(queries, keys.transpose(-2, -1)) * factor;
  if (bias && bias->defined()) scores = scores + bias->to(at::kFloat);
  if (causal) scores = scores.masked_fill(at::ones_like(scores, at::kBool).triu(1), -INFINITY);
  const Tensor shares = at::softmax(scores, -1);
  const Tensor of_shares = at::matmul(given, values.transpose(-2, -1));
  const Tensor of_scores = shares * (of_shares - (of_shares * shares).sum(-1, true)) * factor;
  return {at::matmul(of_scores, keys).to(query.scalar_type()),
          at::matmul(of_scores.transpose(-2, -1), queries).to(key.scalar_type()),
          at::matmul(shares.transpose(-2, -1), given).to(value.scalar_type())};
}

Forward flash(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool causal, bool, Scale scale) {
  return forward(query, key, value, {}, dropout, causal, scale);
}

Gradients flash_backward(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
                         const Tensor& sums, const Tensor&, const Tensor&, SymInt, SymInt, double dropout, bool causal,
                         const Tensor&, const Tensor&, Scale scale) {
  return gradients(grad, query, key, value, {}, causal, scale);
}

Forward cudnn(const Tensor& query, const Tensor& key, const Tensor& value, const Bias& bias, bool, double dropout,
              bool causal, bool, Scale scale) {
  return forward(query, key, value, bias, dropout, causal, scale);
}

Gradients cudnn_backward(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
                         const Tensor& sums, const Tensor&, const Tensor&, const Tensor& bias, const Tensor&, const Tensor&,
                         SymInt, SymInt, double dropout, bool causal, Scale scale) {
  return gradients(grad, query, key, value, bias, causal, scale);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient(const Tensor& query, const Tensor& key, const Tensor& value,
                                                     const Bias& bias, bool, double dropout, bool causal, Scale scale) {
  auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, bias, scale);
  return {out, sums, nothing(query), nothing(query)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias, const Tensor& out,
    const Tensor& sums, const Tensor&, const Tensor&, double dropout, std::array<bool, 4>, bool causal, Scale scale) {
  auto [of_query, of_key, of_value] = gradients(grad, query, key, value, bias, causal, scale);
  return {of_query, of_key, of_value, Tensor()};
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_scaled_dot_product_flash_attention", flash);
  library.impl("_scaled_dot_product_flash_attention_backward", flash_backward);
  library.impl("_scaled_dot_product_efficient_attention", efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", efficient_backward);
  library.impl("_scaled_dot_product_cudnn_attention", cudnn);
  library.impl("_scaled_dot_product_cudnn_attention_backward", cudnn_backward);
}

const bool is_registered = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(choose);
  return true;
}();

}  // namespace
}  // namespace simulated
