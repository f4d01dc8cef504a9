#include "aliases.h"

#include <c10/core/CPUAllocator.h>

#include <memory>

#include "memory.h"

namespace simulated {

Tensor tensor_of(const c10::Storage& storage, c10::DispatchKey key, const Tensor& like) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return made;
}

Tensor Aliases::of(const Tensor& original) {
  if (!original.defined() || !original.is_cuda()) return original;
  device_ = index_of(original);
  const c10::Storage& storage = original.storage();
  void* data = const_cast<void*>(storage.data());
  auto host = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(), at::DataPtr(data, c10::Device(c10::kCPU)),
      c10::GetCPUAllocator(), true);
  Tensor alias = tensor_of(c10::Storage(std::move(host)), c10::DispatchKey::CPU, original);
  if (original.is_conj()) alias._set_conj(true);
  if (original.is_neg()) alias._set_neg(true);
  pairs_.push_back({original, alias, data});
  return alias;
}

Tensor Aliases::back(const Tensor& made) {
  if (!made.defined() || !made.is_cpu()) return made;
  for (const Pair& it : pairs_)
    if (it.alias.is_same(made)) return it.original;
  for (const Pair& it : pairs_)
    if (it.alias.storage().unsafeGetStorageImpl() == made.storage().unsafeGetStorageImpl())
      return tensor_of(it.original.storage(), c10::DispatchKey::CUDA, made);
  return moved(made);
}

void Aliases::settle() {
  for (const Pair& it : pairs_) {
    void* data = const_cast<void*>(it.alias.storage().data());
    if (data != it.data) {
      const auto bytes = static_cast<Bytes>(it.alias.storage().nbytes());
      c10::StorageImpl* storage = it.original.storage().unsafeGetStorageImpl();
      storage->set_data_ptr(adopt(data, bytes, device_, std::make_shared<c10::Storage>(it.alias.storage())));
      storage->set_nbytes(bytes);
    }
    if (it.alias.sizes() != it.original.sizes() || it.alias.strides() != it.original.strides())
      it.original.unsafeGetTensorImpl()->set_sizes_and_strides(it.alias.sizes(), it.alias.strides());
  }
}

Tensor Aliases::moved(const Tensor& made) const {
  const auto bytes = static_cast<Bytes>(made.storage().nbytes());
  const c10::Device on(c10::kCUDA, static_cast<c10::DeviceIndex>(device_));
  at::DataPtr data(nullptr, on);
  if (bytes > 0)
    data = adopt(const_cast<void*>(made.storage().data()), bytes, device_,
                 std::make_shared<c10::Storage>(made.storage()));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), device_allocator(), true);
  return tensor_of(c10::Storage(std::move(storage)), c10::DispatchKey::CUDA, made);
}

}  // namespace simulated
