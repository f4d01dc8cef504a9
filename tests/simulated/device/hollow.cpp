#include "hollow.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>

#include <cstring>
#include <utility>

#include "memory.h"
#include "timeline.h"

namespace simulated {
namespace {

using Pairs = std::vector<std::pair<Tensor, Tensor>>;  // an original, and what has its form alone

Tensor form_of(const Tensor& original, Pairs& pairs) {
  if (!original.defined() || !original.is_cuda()) return original;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), original.storage().nbytes(), at::DataPtr(nullptr, c10::Device(c10::kMeta)),
      c10::GetAllocator(c10::kMeta), true);
  pairs.push_back({original, tensor_of(c10::Storage(std::move(storage)), c10::DispatchKey::Meta, original)});
  return pairs.back().second;
}

void fill_small(const Tensor& made) {
  if (made.storage().nbytes() > 0 && !is_hollow(static_cast<double>(made.storage().nbytes())))
    std::memset(made.storage().mutable_data(), 0, made.storage().nbytes());
}

Tensor with_memory(const Tensor& form, const Pairs& pairs, int device) {
  if (!form.defined() || !form.is_meta()) return form;
  for (const auto& [original, of_it] : pairs)
    if (of_it.is_same(form)) return original;
  for (const auto& [original, of_it] : pairs)
    if (of_it.storage().unsafeGetStorageImpl() == form.storage().unsafeGetStorageImpl())
      return tensor_of(original.storage(), c10::DispatchKey::CUDA, form);
  const int before = current_device();
  set_current_device(device);
  Tensor made = at::detail::empty_strided_generic(
      form.sizes(), form.strides(), device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA), form.scalar_type());
  set_current_device(before);
  fill_small(made);
  return made;
}

// The arguments that an operator writes to, where it gives nothing but these; nothing where it makes anything new.
std::optional<std::vector<c10::IValue>> written_arguments(const c10::FunctionSchema& schema, const Stack& arguments) {
  std::vector<c10::IValue> found;
  for (const c10::Argument& given : schema.returns()) {
    if (given.alias_info() == nullptr || !given.alias_info()->isWrite()) return std::nullopt;
    for (size_t at = 0; at < schema.arguments().size(); at++) {
      const auto* alias = schema.arguments()[at].alias_info();
      if (alias != nullptr && alias->beforeSets() == given.alias_info()->beforeSets()) found.push_back(arguments[at]);
    }
  }
  const bool writes = std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& it) {
    return it.alias_info() != nullptr && it.alias_info()->isWrite();
  });
  if (found.size() != schema.returns().size() || !writes) return std::nullopt;
  return found;
}

bool is_to_be_resized(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& written) {
  return writes_to_given(schema) && std::any_of(written.begin(), written.end(), [](const c10::IValue& it) {
           return it.isTensor() && it.toTensor().numel() == 0;
         });
}

// What a convolution gives; nobody but its kernels says so. Nothing for any other operator.
std::optional<Stack> convolved(const c10::FunctionSchema& schema, const Stack& arguments) {
  const auto like = [](const Tensor& original, c10::IntArrayRef sizes) {
    return at::empty(sizes, original.options().device(c10::kMeta));
  };
  if (schema.name() == "aten::_slow_conv2d_forward" && schema.overload_name().empty()) {
    const Tensor images = arguments[0].toTensor(), weight = arguments[1].toTensor();
    const auto kernel = arguments[2].toDimVector(), stride = arguments[4].toDimVector(), padding = arguments[5].toDimVector();
    const auto side = [&](int64_t at) { return (images.size(2 + at) + 2 * padding[at] - kernel[at]) / stride[at] + 1; };
    return Stack{like(images, {images.size(0), weight.size(0), side(0), side(1)})};
  }
  if (schema.name() == "aten::_slow_conv2d_backward" && schema.overload_name() == "output_mask") {
    const Tensor images = arguments[1].toTensor(), weight = arguments[2].toTensor();
    const auto wanted = arguments[6].toBoolList();
    return Stack{wanted[0] ? like(images, images.sizes()) : Tensor(), wanted[1] ? like(weight, weight.sizes()) : Tensor(),
                 wanted[2] ? like(weight, {weight.size(0)}) : Tensor()};
  }
  return std::nullopt;
}

// The same of any operator of which torch knows without computing it.
std::optional<Stack> formed(const c10::OperatorHandle& op, Stack arguments, Pairs& pairs) {
  at::AutoDispatchBelowADInplaceOrView below;
  at::RecordFunctionGuard unseen(false);
  if (auto found = convolved(op.schema(), arguments)) return found;
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  for_each_tensor(&arguments, 0, [&](const Tensor& it) { return form_of(it, pairs); });
  for (c10::IValue& it : arguments)
    if (it.isDevice() && !it.toDevice().is_meta()) it = c10::Device(c10::kMeta);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &arguments);
  return arguments;
}

}  // namespace

bool is_hollow(double bytes) { return profile.hollow_bytes > 0 && bytes > profile.hollow_bytes; }

bool give_hollow(const c10::OperatorHandle& op, Stack* stack, size_t begin, int device) {
  const auto& schema = op.schema();
  Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(begin), stack->end());
  if (const auto written = written_arguments(schema, arguments)) {
    if (is_to_be_resized(schema, *written)) return false;
    stack->resize(begin);
    for (const c10::IValue& it : *written) {
      if (writes_to_given(schema) && it.isTensor()) fill_small(it.toTensor());
      stack->push_back(it);
    }
    return true;
  }
  Pairs pairs;
  auto results = formed(op, std::move(arguments), pairs);
  if (!results) return false;
  stack->resize(begin);
  for (c10::IValue& it : *results) stack->push_back(std::move(it));
  for_each_tensor(stack, begin, [&](const Tensor& it) { return with_memory(it, pairs, device); });
  return true;
}

}  // namespace simulated
