// Every operator on tensors of the simulated device: computed by the host's kernel on the same memory, at no cost, and put
// on the device's timeline for as long as the device would take.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_local_scalar_dense_cpu_dispatch.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/view_cpu_dispatch.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <list>
#include <memory>
#include <random>

#include "aliases.h"
#include "generators.h"
#include "hollow.h"
#include "memory.h"
#include "timeline.h"
#include "work.h"

namespace simulated {
namespace {

constexpr double kWorthDeferring = 2e7;  // floating-point operations
constexpr Bytes kWorthDeferringBytes = 1 << 24;
constexpr Bytes kStagedInPlace = 65536;  // a pageable copy up to this size is taken over by the driver at once

// -------------------------------------------------------------------------------------------------------------------
// What nobody has read yet
// -------------------------------------------------------------------------------------------------------------------

// A large product whose result was not used so far. It is computed when something needs the result or changes what it
// is made from; freed before, it never is. On a real device it would have taken its time all the same, and so it does here.
struct Deferred {
  c10::Storage result;
  std::vector<c10::Storage> inputs;
  std::function<void()> compute;
};
std::list<Deferred>& deferred = *new std::list<Deferred>;  // never destroyed: tensors may outlive us

bool is_same(const c10::Storage& a, const c10::Storage& b) { return a.unsafeGetStorageImpl() == b.unsafeGetStorageImpl(); }

void drop_unused() {
  deferred.remove_if([](const Deferred& it) { return it.result.use_count() == 1; });
}

// Writes over the whole of a tensor: what was to be in it need not be computed any more.
void forget(const Tensor& overwritten) {
  deferred.remove_if([&](const Deferred& it) { return is_same(it.result, overwritten.storage()); });
}

bool is_whole(const Tensor& tensor) {
  return tensor.storage().nbytes() == tensor.nbytes() && tensor.is_non_overlapping_and_dense();
}

void compute_before(const Tensor& used, bool is_written) {
  if (deferred.empty() || !used.defined() || !used.is_cuda()) return;
  const c10::Storage& storage = used.storage();
  for (auto it = deferred.begin(); it != deferred.end();) {
    bool is_needed = is_same(it->result, storage);
    for (const c10::Storage& input : it->inputs) is_needed = is_needed || (is_written && is_same(input, storage));
    if (!is_needed) {
      ++it;
      continue;
    }
    auto compute = std::move(it->compute);
    it = deferred.erase(it);
    compute();
  }
}

// Products reach us in the form that writes to a tensor, made for it a moment before: `out`, the last argument.
bool can_be_deferred(const c10::OperatorHandle& op, const Amount& amount, const std::vector<Tensor>& tensors) {
  if (amount.flops < kWorthDeferring || op.schema().overload_name() != "out" || op.schema().returns().size() != 1)
    return false;
  const Tensor& out = tensors.back();
  if (!is_whole(out)) return false;
  for (size_t it = 0; it + 1 < tensors.size(); it++)
    if (is_same(tensors[it].storage(), out.storage())) return false;
  return true;
}

// -------------------------------------------------------------------------------------------------------------------
// Any operator
// -------------------------------------------------------------------------------------------------------------------

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below;
  at::RecordFunctionGuard unseen(false);  // to a profiler it is one kernel
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

void swap_devices_and_generators(const c10::OperatorHandle& op, Stack* stack, size_t begin) {
  const auto& arguments = op.schema().arguments();
  for (size_t at = begin; at < stack->size(); at++) {
    c10::IValue& value = (*stack)[at];
    if (value.isDevice() && value.toDevice().is_cuda()) {
      value = c10::Device(c10::kCPU);
    } else if (arguments[at - begin].name() == "generator") {
      value = host_generator(value, current_device());
    }
  }
}

// The device's softmax takes half precision and gives float32 where autocast wants it, and its gradient the other way
// round; the host's takes what it gives. So the input is converted before, or the gradient after.
void run_softmax(const c10::OperatorHandle& op, Stack* stack, size_t begin) {
  at::AutoDispatchBelowADInplaceOrView below;
  at::RecordFunctionGuard unseen(false);
  const auto& schema = op.schema();
  if (const std::optional<int> flag = schema.argumentIndexWithName("half_to_float")) {
    if ((*stack)[begin + *flag].toBool()) (*stack)[begin] = (*stack)[begin].toTensor().to(at::kFloat);
    (*stack)[begin + *flag] = false;
    return run_on_host(op, stack);
  }
  const std::optional<int> type = schema.argumentIndexWithName("input_dtype");
  const at::ScalarType wanted = (*stack)[begin + *type].toScalarType();
  const at::ScalarType given = (*stack)[begin].toTensor().scalar_type();
  if (wanted == given || !writes_to_given(schema)) return run_on_host(op, stack);
  (*stack)[begin + *type] = given;
  const Tensor out = stack->back().toTensor();
  stack->back() = at::empty_like(out, out.options().dtype(given));
  run_on_host(op, stack);
  stack->back() = out.copy_(stack->back().toTensor());
}

// Of a generator that no seed of the script's reaches: it differs from run to run.
Tensor with_noise(const Tensor& made) {
  if (!made.defined() || !made.is_floating_point()) return made;
  at::AutoDispatchBelowADInplaceOrView below;
  at::RecordFunctionGuard unseen(false);
  Tensor changed = made;
  static at::Generator generator = at::detail::createCPUGenerator(std::random_device{}());
  changed.mul_(at::rand(changed.sizes(), generator, changed.options()).sub_(0.5).mul_(2 * profile.atomic_noise).add_(1));
  return changed;
}

// Does not hold what it will write to, so that it can be seen when nobody else does.
void defer(const c10::OperatorHandle& op, Stack* stack, size_t begin, std::vector<Tensor> tensors) {
  const Tensor out = tensors.back();
  tensors.pop_back();
  Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(begin), stack->end());
  arguments.pop_back();
  std::vector<c10::Storage> inputs;
  for (const Tensor& it : tensors) inputs.push_back(it.storage());
  void* data = out.storage().mutable_data();
  const auto compute = [op, arguments, data, sizes = out.sizes().vec(), strides = out.strides().vec(),
                        type = out.scalar_type()]() mutable {
    Aliases aliases(0);
    for_each_tensor(&arguments, 0, [&](const Tensor& it) { return aliases.of(it); });
    arguments.push_back(at::from_blob(data, sizes, strides, at::TensorOptions(type)));
    run_on_host(op, &arguments);
  };
  deferred.push_back({out.storage(), std::move(inputs), compute});
  stack->resize(begin);
  stack->push_back(out);
}

// What is written to as a given result is among the arguments already; what is changed in place is read and written.
void add_results(const c10::FunctionSchema& schema, Stack* stack, size_t begin, std::vector<Tensor>& tensors) {
  if (writes_to_given(schema)) return;
  for_each_tensor(stack, begin, [&](const Tensor& it) {
    if (it.defined() && it.is_cuda()) tensors.push_back(it);
    return it;
  });
}

// The library for products takes memory of its own, once, and says so badly where there is none left.
void open_library(int device) {
  static bool is_open[kMostDevices] = {};
  TORCH_CHECK(is_open[device] || static_cast<double>(free_bytes(device)) >= profile.handle_bytes,
              "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`");
  is_open[device] = true;
}

void any_operator(const c10::OperatorHandle& op, Stack* stack) {
  std::lock_guard<std::recursive_mutex> guard(state);
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  const size_t begin = stack->size() - schema.arguments().size();
  open_context(current_device());
  drop_unused();

  std::vector<Tensor> inputs;
  bool has_mask = false;
  for (size_t at = begin; at < stack->size(); at++) {
    const auto* alias = schema.arguments()[at - begin].alias_info();
    const bool is_written = alias != nullptr && alias->isWrite();
    const bool is_index = (*stack)[at].isOptionalTensorList();
    Stack one{(*stack)[at]};
    for_each_tensor(&one, 0, [&](const Tensor& it) {
      if (!it.defined() || !it.is_cuda()) return it;
      if (is_written && schema.overload_name() == "out" && is_whole(it)) forget(it);
      compute_before(it, is_written);
      inputs.push_back(it);
      has_mask = has_mask || (is_index && (it.scalar_type() == at::kBool || it.scalar_type() == at::kByte));
      return it;
    });
  }
  const int device = inputs.empty() ? current_device() : index_of(inputs.front());
  const int stream = current_stream(device);
  if (has_mask || waits_for_values(name)) {
    about_to_read(name.c_str());
    synchronize_stream(device, stream);
  }

  if (is_product(name)) open_library(device);
  Amount amount = amount_of(name, inputs);
  swap_devices_and_generators(op, stack, begin);
  if (is_hollow(amount.bytes) && give_hollow(op, stack, begin, device)) {
    add_results(schema, stack, begin, inputs);
  } else if (can_be_deferred(op, amount, inputs)) {
    defer(op, stack, begin, inputs);
  } else {
    Aliases aliases(device);
    for_each_tensor(stack, begin, [&](const Tensor& it) { return aliases.of(it); });
    name.find("softmax") == std::string::npos ? run_on_host(op, stack) : run_softmax(op, stack, begin);
    aliases.settle();
    const bool is_noisy = profile.atomic_noise > 0 && adds_in_any_order(name);
    const size_t results = stack->size() - schema.returns().size();
    for_each_tensor(stack, results, [&](const Tensor& it) { return aliases.back(is_noisy ? with_noise(it) : it); });
    add_results(schema, stack, results, inputs);
  }
  amount = amount_of(name, inputs);
  launch(device, stream, {kernel_name(name, amount), Engine::compute, kernel_nanoseconds(amount)});
}

// -------------------------------------------------------------------------------------------------------------------
// Operators that are no kernels, and copies
// -------------------------------------------------------------------------------------------------------------------

int chosen(std::optional<at::Device> device) {
  return device && device->has_index() ? device->index() : current_device();
}

class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { set_current_device(device); }
  ~OnDevice() { set_current_device(before_); }

 private:
  int before_;
};

Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  OnDevice on(chosen(device));
  open_context(current_device());
  return at::detail::empty_generic(
      size, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(type), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  OnDevice on(chosen(device));
  open_context(current_device());
  return at::detail::empty_strided_generic(
      size, stride, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(type));
}

Tensor as_strided(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  return at::cpu::as_strided_symint(self, size, stride, offset);
}

Tensor view(const Tensor& self, c10::SymIntArrayRef size) { return at::cpu::view_symint(self, size); }

Tensor reshape_alias(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::cpu::as_strided_symint(self, size, stride, self.sym_storage_offset());
}

const Tensor& resize_(const Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  std::lock_guard<std::recursive_mutex> guard(state);
  compute_before(self, true);
  Aliases aliases(index_of(self));
  const Tensor alias = aliases.of(self);
  at::AutoDispatchBelowADInplaceOrView below;
  at::RecordFunctionGuard unseen(false);
  alias.resize__symint(size, format);
  aliases.settle();
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), offset.expect_int());
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage storage) {
  const auto elements = static_cast<int64_t>(storage.nbytes() / self.element_size());
  return set_storage(self, std::move(storage), 0, {c10::SymInt(elements)}, {c10::SymInt(1)});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sym_sizes(), source.sym_strides());
}

at::Scalar read_number(const Tensor& self) {
  std::lock_guard<std::recursive_mutex> guard(state);
  about_to_read("aten::_local_scalar_dense");
  compute_before(self, false);
  const int device = index_of(self), stream = current_stream(device);
  launch(device, stream, {"Memcpy DtoH (Device -> Pinned)", Engine::to_host, profile.shortest_kernel_nanoseconds,
                          static_cast<Bytes>(self.element_size())});
  synchronize_stream(device, stream);
  Aliases aliases(device);
  at::RecordFunctionGuard unseen(false);
  return at::cpu::_local_scalar_dense(aliases.of(self));
}

void copy_on_host(const Tensor& to, const Tensor& from) {
  Aliases aliases(0);
  const Tensor target = aliases.of(to), source = aliases.of(from);
  at::AutoDispatchBelowADInplaceOrView below;
  at::RecordFunctionGuard unseen(false);
  target.copy_(source);
}

void defer_copy(const Tensor& self, const Tensor& source) {
  const Tensor from = source;
  void* data = self.storage().mutable_data();
  deferred.push_back({self.storage(), {source.storage()},
                      [from, data, sizes = self.sizes().vec(), strides = self.strides().vec(),
                       type = self.scalar_type()] {
                        copy_on_host(at::from_blob(data, sizes, strides, at::TensorOptions(type)), from);
                      }});
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  std::lock_guard<std::recursive_mutex> guard(state);
  if (self.is_cuda() && is_whole(self)) forget(self);
  compute_before(self, true);
  compute_before(source, false);
  const auto bytes = static_cast<Bytes>(source.numel() * source.element_size());
  if (self.is_cuda() && is_hollow(static_cast<double>(bytes))) {
    // nothing of it is ever read
  } else if (self.is_cuda() && source.is_cuda() && bytes > kWorthDeferringBytes && is_whole(self)) {
    defer_copy(self, source);
  } else {
    copy_on_host(self, source);
  }
  const int device = index_of(self.is_cuda() ? self : source), stream = current_stream(device);
  open_context(device);
  if (self.is_cuda() && source.is_cuda()) {
    Amount amount;
    amount.bytes = static_cast<double>(bytes) + static_cast<double>(self.numel() * self.element_size());
    const bool converts = self.dtype() != source.dtype() || !self.is_contiguous() || !source.is_contiguous();
    launch(device, stream,
           converts ? Work{kernel_name("aten::copy_", amount), Engine::compute, kernel_nanoseconds(amount)}
                    : Work{"Memcpy DtoD (Device -> Device)", Engine::compute, kernel_nanoseconds(amount), bytes});
    return self;
  }
  const bool pinned = is_pinned((self.is_cuda() ? source : self).const_data_ptr());
  const double rate = pinned ? profile.pinned_bytes_per_second : profile.pageable_bytes_per_second;
  const double nanoseconds = std::max(profile.shortest_kernel_nanoseconds, static_cast<double>(bytes) / rate * 1e9);
  const std::string memory = pinned ? "Pinned" : "Pageable";
  if (self.is_cuda())
    launch(device, stream, {"Memcpy HtoD (" + memory + " -> Device)", Engine::to_device, nanoseconds, bytes});
  else
    launch(device, stream, {"Memcpy DtoH (Device -> " + memory + ")", Engine::to_host, nanoseconds, bytes});
  if (!non_blocking) about_to_read("aten::copy_");
  // A pageable copy of some size is staged by the driver, and the host stands still meanwhile, whatever was asked for.
  if (!non_blocking || (!pinned && bytes > kStagedInPlace)) synchronize_stream(device, stream);
  return self;
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("resize_", resize_);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("_local_scalar_dense", read_number);
  library.impl("copy_", copy_);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&any_operator>()); }

}  // namespace
}  // namespace simulated
