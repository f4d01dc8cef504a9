// The cells of recurrent networks that torch has for CUDA alone, as kernels of the host: the device runs them as it does
// all others, one launch each.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace simulated {
namespace {

using at::Tensor;
using Bias = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const Bias& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& from_input, const Tensor& from_hidden, const Tensor& cell,
                                             const Bias& input_bias, const Bias& hidden_bias) {
  const auto gates = (with_bias(from_input, input_bias) + with_bias(from_hidden, hidden_bias)).chunk(4, 1);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), fresh = gates[2].tanh(), out = gates[3].sigmoid();
  const Tensor next = forget * cell + in * fresh;
  return {out * next.tanh(), next, at::cat({in, forget, fresh, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Bias& given_hidden, const Bias& given_cell, const Tensor& cell,
                                                      const Tensor& next, const Tensor& kept, bool has_bias) {
  if (!(given_hidden && given_hidden->defined()) && !(given_cell && given_cell->defined())) return {};
  const auto parts = kept.chunk(4, 1);
  const Tensor &in = parts[0], &forget = parts[1], &fresh = parts[2], &out = parts[3];
  const Tensor of_hidden = given_hidden && given_hidden->defined() ? *given_hidden : at::zeros_like(next);
  const Tensor of_cell = given_cell && given_cell->defined() ? *given_cell : at::zeros_like(next);
  const Tensor bent = next.tanh();
  const Tensor grad = of_hidden * out * (1 - bent * bent) + of_cell;
  const Tensor gates = at::cat({grad * fresh * in * (1 - in), grad * cell * forget * (1 - forget),
                                grad * in * (1 - fresh * fresh), of_hidden * bent * out * (1 - out)}, 1);
  return {gates, grad * forget, has_bias ? gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& from_input, const Tensor& from_hidden, const Tensor& hidden,
                                    const Bias& input_bias, const Bias& hidden_bias) {
  const auto given = with_bias(from_input, input_bias).chunk(3, 1), own = with_bias(from_hidden, hidden_bias).chunk(3, 1);
  const Tensor reset = (given[0] + own[0]).sigmoid(), update = (given[1] + own[1]).sigmoid();
  const Tensor fresh = (given[2] + reset * own[2]).tanh();
  return {fresh + update * (hidden - fresh), at::cat({reset, update, fresh, hidden, own[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad, const Tensor& kept,
                                                                     bool has_bias) {
  const auto parts = kept.chunk(5, 1);
  const Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hidden = parts[3], &own = parts[4];
  const Tensor of_update = grad * (hidden - fresh) * update * (1 - update);
  const Tensor of_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const Tensor of_reset = of_fresh * own * reset * (1 - reset);
  const Tensor given = at::cat({of_reset, of_update, of_fresh}, 1);
  const Tensor from_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  return {given, from_hidden, grad * update, has_bias ? given.sum(0) : Tensor(), has_bias ? from_hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace
}  // namespace simulated
