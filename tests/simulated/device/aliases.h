// Tensors of the device as tensors that another backend's kernels take, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <vector>

#include "profile.h"

namespace simulated {

using at::Tensor;
using torch::jit::Stack;

inline int index_of(const Tensor& tensor) { return std::max<int>(0, tensor.device().index()); }

// Whether an operator has `out` arguments, for its results.
inline bool writes_to_given(const c10::FunctionSchema& schema) {
  return !schema.arguments().empty() && schema.arguments().back().is_out();
}

// A tensor on a storage, with the type, the sizes and the strides of another one.
Tensor tensor_of(const c10::Storage& storage, c10::DispatchKey key, const Tensor& like);

// Tensors of the host on the device's own memory.
class Aliases {
 public:
  explicit Aliases(int device) : device_(device) {}

  Tensor of(const Tensor& original);

  // A result of the host's kernel: the argument itself, a view of one, or something new.
  Tensor back(const Tensor& made);

  // Where a kernel resized an argument, the original follows.
  void settle();

 private:
  struct Pair {
    Tensor original;
    Tensor alias;
    void* data;
  };

  Tensor moved(const Tensor& made) const;

  int device_;
  std::vector<Pair> pairs_;
};

// Applies a function to every tensor among some values of the stack, in place.
template <typename Change>
void for_each_tensor(Stack* stack, size_t begin, Change change) {
  for (size_t at = begin; at < stack->size(); at++) {
    c10::IValue& value = (*stack)[at];
    if (value.isTensor()) {
      value = change(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<Tensor> changed;
      for (const Tensor& it : value.toTensorVector()) changed.push_back(change(it));
      value = c10::IValue(c10::List<Tensor>(changed));
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> changed;
      for (const std::optional<Tensor>& it : value.toOptionalTensorVector())
        changed.push_back(it && it->defined() ? std::optional<Tensor>(change(*it)) : it);
      value = c10::IValue(changed);
    }
  }
}

}  // namespace simulated
