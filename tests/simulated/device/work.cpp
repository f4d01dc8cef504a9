#include "work.h"

#include <ATen/Context.h>

#include <algorithm>
#include <unordered_set>

#include "profile.h"

namespace simulated {
namespace {

constexpr double kNanoseconds = 1e9;
constexpr double kUnaligned = 2;  // how much longer matrix units take for sides that they cannot load in whole pieces

bool contains(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

bool is_convolution(const std::string& name) { return contains(name, "conv") && contains(name, "aten::"); }

// Of the last two factors: every element of the first meets every column of the second.
double product_flops(const std::string& name, const std::vector<at::Tensor>& tensors) {
  const size_t first = contains(name, "add") ? 1 : 0;
  if (tensors.size() < first + 2) return 0;
  const at::Tensor& left = tensors[first];
  const at::Tensor& right = tensors[first + 1];
  return 2.0 * static_cast<double>(left.numel()) * (right.dim() >= 2 ? static_cast<double>(right.size(-1)) : 1.0);
}

// Whether matrix units can load the last two factors in whole pieces of sixteen bytes.
bool is_aligned(const std::string& name, const std::vector<at::Tensor>& tensors) {
  const size_t first = contains(name, "add") ? 1 : 0;
  for (size_t at = first; at < std::min(first + 2, tensors.size()); at++)
    for (const int64_t side : tensors[at].sizes().slice(std::max<int64_t>(0, tensors[at].dim() - 2)))
      if (side * static_cast<int64_t>(tensors[at].element_size()) % 16 != 0) return false;
  return true;
}

// Every output element is a sum over the kernel's window and all input channels of its group. The weight is the tensor
// with as many dimensions whose first is the number of channels of the largest output.
double convolution_flops(const std::string& name, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> images;
  for (const at::Tensor& it : tensors)
    if (it.dim() >= 3) images.push_back(it);
  if (images.size() < 2) return 0;
  const bool is_backward = contains(name, "backward");
  const at::Tensor& weight = is_backward && images.size() > 2 ? images[2] : images[1];
  const at::Tensor& output = is_backward ? images[0] : images.back();
  const double channels = std::max<double>(1, static_cast<double>(weight.size(0)));
  const double once = 2.0 * static_cast<double>(output.numel()) * static_cast<double>(weight.numel()) / channels;
  return is_backward ? 2 * once : once;
}

bool is_fused_attention(const std::string& name) {
  return contains(name, "aten::_scaled_dot_product_") && contains(name, "_attention");
}

// Two products forward and five backward, of each query with each key; a backward is given the gradient first.
double attention_flops(const std::string& name, const std::vector<at::Tensor>& tensors) {
  const bool is_backward = contains(name, "backward");
  const at::Tensor &query = tensors[is_backward ? 1 : 0], &key = tensors[is_backward ? 2 : 1];
  return (is_backward ? 5 : 2) * 2.0 * static_cast<double>(query.numel()) * static_cast<double>(key.size(2));
}

double flops_per_second(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return profile.float16_flops;
    case at::kBFloat16:
      return profile.bfloat16_flops;
    case at::kDouble:
      return profile.float64_flops;
    default:
      return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST
          ? profile.float32_flops
          : profile.tf32_flops;
  }
}

}  // namespace

Amount amount_of(const std::string& name, const std::vector<at::Tensor>& tensors) {
  Amount amount;
  for (const at::Tensor& it : tensors) {
    if (!it.defined()) continue;
    amount.bytes += static_cast<double>(it.numel()) * static_cast<double>(it.element_size());
    if (at::isFloatingType(it.scalar_type())) amount.type = it.scalar_type();
  }
  if (is_product(name)) {
    amount.flops = product_flops(name, tensors);
    const bool on_matrix_units = amount.type == at::kHalf || amount.type == at::kBFloat16;
    if (on_matrix_units && !is_aligned(name, tensors)) amount.flops *= kUnaligned;
  }
  if (is_convolution(name)) amount.flops = convolution_flops(name, tensors);
  if (is_fused_attention(name)) {
    amount.flops = attention_flops(name, tensors);
    amount.type = tensors.front().scalar_type();  // sums of scores are float32, whatever is multiplied
  }
  return amount;
}

double kernel_nanoseconds(const Amount& amount) {
  const double moving = amount.bytes / profile.bytes_per_second;
  const double computing = amount.flops / flops_per_second(amount.type);
  return std::max(profile.shortest_kernel_nanoseconds, std::max(moving, computing) * kNanoseconds);
}

double host_nanoseconds(const Amount& amount) {
  const double flops_per_second = amount.type == at::kBFloat16 ? profile.host_bfloat16_flops
      : amount.type == at::kHalf                              ? profile.host_float16_flops
                                                              : profile.host_float32_flops;
  const double working = std::max(amount.bytes / profile.bytes_per_host_second, amount.flops / flops_per_second);
  return working * kNanoseconds;
}

std::string kernel_name(const std::string& name, const Amount& amount) {
  const std::string plain = name.substr(name.find("::") + 2);
  const bool is_half = amount.type == at::kHalf || amount.type == at::kBFloat16;
  const bool uses_tf32 = amount.type == at::kFloat &&
      at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST;
  if (is_product(name)) {
    if (is_half) return "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16";
    return uses_tf32 ? "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8"
                     : "ampere_sgemm_128x64_tn";
  }
  if (is_fused_attention(name)) {
    const std::string way = contains(name, "backward") ? "bwd" : "fwd";
    if (contains(name, "flash")) return "void pytorch_flash::flash_" + way + "_kernel<pytorch_flash::Flash_kernel_traits>";
    if (contains(name, "cudnn")) return "cudnn_generated_fort_native_sdpa_sm80_flash_" + way;
    return std::string("fmha_cutlass") + (way == "fwd" ? "F_" : "B_") + (is_half ? "bf16" : "f32") + "_aligned_64x64_sm80";
  }
  if (is_convolution(name)) return is_half ? "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32" : "implicit_convolve_sgemm";
  return "void at::native::vectorized_elementwise_kernel<4, at::native::" + plain + "_functor>(int)";
}

bool is_product(const std::string& name) {
  static const std::unordered_set<std::string> products{
      "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_addmm_activation", "aten::addbmm", "aten::mv",
      "aten::addmv", "aten::dot"};
  return products.count(name) > 0;
}

bool is_view(const std::string& name) {
  static const std::unordered_set<std::string> views{
      "aten::as_strided", "aten::view", "aten::_unsafe_view", "aten::_reshape_alias", "aten::alias", "aten::detach",
      "aten::detach_", "aten::expand", "aten::select", "aten::slice", "aten::unsqueeze", "aten::squeeze", "aten::t",
      "aten::transpose", "aten::permute", "aten::set_", "aten::resize_", "aten::unbind", "aten::split", "aten::chunk"};
  return views.count(name) > 0;
}

bool waits_for_values(const std::string& name) {
  static const std::unordered_set<std::string> waiting{
      "aten::nonzero", "aten::masked_select", "aten::equal", "aten::_unique2", "aten::unique_dim",
      "aten::unique_consecutive", "aten::bincount", "aten::repeat_interleave", "aten::is_nonzero"};
  return waiting.count(name) > 0;
}

bool adds_in_any_order(const std::string& name) {
  static const std::unordered_set<std::string> atomic{
      "aten::index_add_", "aten::index_add", "aten::scatter_add_", "aten::scatter_add", "aten::scatter_reduce",
      "aten::embedding_dense_backward", "aten::index_put_", "aten::_index_put_impl_", "aten::_slow_conv2d_backward"};
  return atomic.count(name) > 0;
}

}  // namespace simulated
