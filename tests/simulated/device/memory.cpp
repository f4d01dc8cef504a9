#include "memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "slots.h"
#include "timeline.h"

namespace simulated {
namespace {

using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr Bytes kMiB = 1 << 20;
constexpr Bytes kGranularity = 512;
constexpr Bytes kSmall = kMiB;            // larger blocks have a pool of their own
constexpr Bytes kSmallSegment = 2 * kMiB;
constexpr Bytes kLargeSegment = 20 * kMiB;
constexpr Bytes kLargeEnough = 10 * kMiB;  // from here on a segment is as large as its block

Bytes rounded(Bytes bytes, Bytes unit) { return (bytes + unit - 1) / unit * unit; }

// -------------------------------------------------------------------------------------------------------------------
// What other processes take
// -------------------------------------------------------------------------------------------------------------------

class Neighbours {
 public:
  void open(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    TORCH_CHECK(file >= 0, "The simulated device cannot open ", path);
    TORCH_CHECK(ftruncate(file, sizeof(Slot) * kSlots) == 0);
    slots_ = static_cast<Slot*>(mmap(nullptr, sizeof(Slot) * kSlots, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
  }

  Bytes taken(int device) {
    Bytes sum = 0;
    for (int it = 0; slots_ != nullptr && it < kSlots; it++) {
      notice_end(slots_[it]);
      if (slots_[it].process != getpid() && is_taken(slots_[it])) sum += slots_[it].bytes[device];
    }
    return sum;
  }

  // Whether another process has launched anything since this one last did.
  bool have_worked() {
    int64_t launches = 0;
    for (int it = 0; slots_ != nullptr && it < kSlots; it++)
      if (slots_[it].process != getpid()) launches += slots_[it].launches;
    if (Slot* mine = own()) mine->launches++;
    return std::exchange(their_launches_, launches) != launches;
  }

  void publish(int device, Bytes bytes) {
    if (Slot* mine = own()) mine->bytes[device] = bytes;
  }

 private:
  Slot* own() {
    for (int it = 0; slots_ != nullptr && it < kSlots; it++)
      if (slots_[it].process == getpid()) return &slots_[it];
    for (int it = 0; slots_ != nullptr && it < kSlots; it++) {
      const int64_t before = slots_[it].process;
      if (is_taken(slots_[it])) continue;
      if (__sync_bool_compare_and_swap(&slots_[it].process, before, static_cast<int64_t>(getpid()))) {
        std::fill(std::begin(slots_[it].bytes), std::end(slots_[it].bytes), 0);
        slots_[it].launches = slots_[it].noticed = 0;
        slots_[it].teardown_nanoseconds = static_cast<int64_t>(1e9 * profile.teardown_seconds);
        return &slots_[it];
      }
    }
    return nullptr;
  }

  Slot* slots_ = nullptr;
  int64_t their_launches_ = 0;
};

Neighbours neighbours;

// -------------------------------------------------------------------------------------------------------------------
// Segments and blocks
// -------------------------------------------------------------------------------------------------------------------

struct Segment;

struct Block {
  Segment* segment;
  Bytes offset;
  Bytes bytes;
  Bytes requested = 0;
  bool taken = false;
  Block* before = nullptr;
  Block* after = nullptr;

  char* data() const;
};

struct Segment {
  int device;
  bool is_small;
  Bytes bytes;
  char* address;
  Block* first;

  bool is_free() const { return !first->taken && first->after == nullptr; }
};

char* Block::data() const { return segment->address + offset; }

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return std::make_tuple(a->bytes, a->segment->address, a->offset) <
        std::make_tuple(b->bytes, b->segment->address, b->offset);
  }
};

class DeviceMemory {
 public:
  explicit DeviceMemory(int device) : device_(device) {}

  Block* take(Bytes requested) {
    const Bytes bytes = rounded(std::max<Bytes>(requested, 1), kGranularity);
    open();
    Block* block = best_fit(bytes);
    if (block == nullptr) block = add_segment(bytes);
    split(block, bytes);
    block->taken = true;
    block->requested = requested;
    change(stats.allocated_bytes, stats.active_bytes, block, block->bytes, +1);
    return block;
  }

  void give_back(Block* block) {
    block->taken = false;
    change(stats.allocated_bytes, stats.active_bytes, block, block->bytes, -1);
    if (block->before != nullptr && !block->before->taken) block = merge(block->before, block);
    if (block->after != nullptr && !block->after->taken) block = merge(block, block->after);
    pool(block).insert(block);
  }

  // Returns how many bytes went back to the driver.
  Bytes release_cached() {
    Bytes released = 0;
    for (auto it = segments_.begin(); it != segments_.end();) {
      if (!(*it)->is_free()) {
        ++it;
        continue;
      }
      pool((*it)->first).erase((*it)->first);
      munmap((*it)->address, (*it)->bytes);
      released += (*it)->bytes;
      count(stats.segment, (*it)->is_small, -1);
      count(stats.reserved_bytes, (*it)->is_small, -(*it)->bytes);
      stats.num_device_free++;
      delete (*it)->first;
      it = segments_.erase(it);
      spend(profile.release_nanoseconds);
    }
    publish();
    return released;
  }

  void open() {
    if (is_open_) return;
    const Bytes context = static_cast<Bytes>(profile.context_bytes);
    TORCH_CHECK(
        profile.exclusive == 0 || neighbours.taken(device_) == 0,
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable");
    TORCH_CHECK_WITH(OutOfMemoryError, context + neighbours.taken(device_) <= total(), "CUDA error: out of memory");
    is_open_ = true;
    publish();
  }

  bool is_open() const { return is_open_; }
  Bytes total() const { return static_cast<Bytes>(profile.memory_bytes); }
  Bytes free() const { return std::max<Bytes>(0, total() - used() - neighbours.taken(device_)); }
  const std::vector<std::unique_ptr<Segment>>& segments() const { return segments_; }

  DeviceStats stats;

 private:
  using Pool = std::set<Block*, BySize>;

  Pool& pool(const Block* block) { return block->segment->is_small ? small_ : large_; }
  Bytes used() const { return (is_open_ ? static_cast<Bytes>(profile.context_bytes) : 0) + reserved_; }
  void publish() {
    reserved_ = 0;
    for (const auto& it : segments_) reserved_ += it->bytes;
    neighbours.publish(device_, used());
  }

  Block* best_fit(Bytes bytes) {
    Pool& candidates = bytes <= kSmall ? small_ : large_;
    Segment anywhere{device_, false, 0, nullptr, nullptr};
    Block wanted{&anywhere, 0, bytes};
    const auto found = candidates.lower_bound(&wanted);
    if (found == candidates.end()) return nullptr;
    Block* block = *found;
    candidates.erase(found);
    return block;
  }

  Block* add_segment(Bytes bytes) {
    const bool is_small = bytes <= kSmall;
    const Bytes size = is_small ? kSmallSegment : bytes < kLargeEnough ? kLargeSegment : rounded(bytes, kSmallSegment);
    if (size > free()) {
      stats.num_alloc_retries++;
      synchronize_device(device_);
      release_cached();
      if (size > free()) refuse(bytes);
    }
    spend(profile.allocate_nanoseconds);
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(address != MAP_FAILED, "The simulated device has no address space for ", size, " bytes.");
    segments_.push_back(std::make_unique<Segment>(Segment{device_, is_small, size, static_cast<char*>(address), nullptr}));
    Segment* segment = segments_.back().get();
    segment->first = new Block{segment, 0, size};
    count(stats.segment, is_small, +1);
    count(stats.reserved_bytes, is_small, size);
    stats.num_device_alloc++;
    publish();
    return segment->first;
  }

  [[noreturn]] void refuse(Bytes bytes) {
    stats.num_ooms++;
    const auto in_gib = [](Bytes it) { return std::to_string(static_cast<double>(it) / (1024.0 * kMiB)).substr(0, 5); };
    C10_THROW_ERROR(
        OutOfMemoryError,
        "CUDA out of memory. Tried to allocate " + std::to_string(bytes / kMiB) + " MiB. GPU " +
            std::to_string(device_) + " has a total capacity of " + in_gib(total()) + " GiB of which " +
            in_gib(free()) + " GiB is free. Process " + std::to_string(getpid()) + " has " + in_gib(used()) +
            " GiB memory in use (simulated).");
  }

  void split(Block* block, Bytes bytes) {
    const Bytes left = block->bytes - bytes;
    if (left < (block->segment->is_small ? kGranularity : kSmall + 1)) return;
    auto* rest = new Block{block->segment, block->offset + bytes, left, 0, false, block, block->after};
    if (block->after != nullptr) block->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    pool(rest).insert(rest);
  }

  Block* merge(Block* first, Block* second) {
    pool(first).erase(first);
    pool(second).erase(second);
    first->bytes += second->bytes;
    first->after = second->after;
    if (second->after != nullptr) second->after->before = first;
    delete second;
    return first;
  }

  template <typename Stats>
  void count(Stats& all, bool is_small, Bytes by) {
    for (auto type : {StatType::AGGREGATE, is_small ? StatType::SMALL_POOL : StatType::LARGE_POOL}) {
      auto& stat = all[static_cast<size_t>(type)];
      by >= 0 ? stat.increase(static_cast<size_t>(by)) : stat.decrease(static_cast<size_t>(-by));
    }
  }

  template <typename Stats>
  void change(Stats& allocated, Stats& active, const Block* block, Bytes bytes, int sign) {
    const bool is_small = block->segment->is_small;
    count(allocated, is_small, sign * bytes);
    count(active, is_small, sign * bytes);
    count(stats.requested_bytes, is_small, sign * block->requested);
    count(stats.allocation, is_small, sign);
    count(stats.active, is_small, sign);
  }

  int device_;
  bool is_open_ = false;
  Bytes reserved_ = 0;
  Pool small_;
  Pool large_;
  std::vector<std::unique_ptr<Segment>> segments_;
};

// Never destroyed: tensors may outlive us.
DeviceMemory* const memories =
    new DeviceMemory[kMostDevices]{DeviceMemory(0), DeviceMemory(1), DeviceMemory(2), DeviceMemory(3)};

// -------------------------------------------------------------------------------------------------------------------
// As torch asks for it
// -------------------------------------------------------------------------------------------------------------------

struct Held {
  Block* block;
  std::shared_ptr<void> keep;
};

void give_back(void* context) {
  std::unique_ptr<Held> held(static_cast<Held*>(context));
  std::lock_guard<std::recursive_mutex> guard(state);
  memories[held->block->segment->device].give_back(held->block);
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    std::lock_guard<std::recursive_mutex> guard(state);
    const int device = current_device();
    const c10::Device on(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, nullptr, [](void*) {}, on};
    Block* block = memories[device].take(static_cast<Bytes>(bytes));
    return {block->data(), new Held{block, nullptr}, &give_back, on};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    std::lock_guard<std::recursive_mutex> guard(state);
    for (int it = 0; it < profile.devices; it++) {
      if (!memories[it].is_open()) continue;
      synchronize_device(it);
      memories[it].release_cached();
    }
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex device) override { return memories[device].stats; }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    each(device, [](auto& stat) { stat.reset_accumulated(); });
    DeviceStats& stats = memories[device].stats;
    stats.num_alloc_retries = stats.num_ooms = stats.num_device_alloc = stats.num_device_free = 0;
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    each(device, [](auto& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {static_cast<size_t>(free_bytes(device)), static_cast<size_t>(total_bytes(device))};
  }

 private:
  template <typename Change>
  void each(c10::DeviceIndex device, Change change) {
    std::lock_guard<std::recursive_mutex> guard(state);
    DeviceStats& stats = memories[device].stats;
    for (auto* all : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
                      &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes})
      for (auto& stat : *all) change(stat);
  }
};

Allocator allocator;

std::map<const char*, size_t>& pinned_ranges = *new std::map<const char*, size_t>;

void unpin(void* pointer) {
  std::lock_guard<std::recursive_mutex> guard(state);
  pinned_ranges.erase(static_cast<const char*>(pointer));
  c10::GetCPUAllocator()->raw_deallocate(pointer);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = c10::GetCPUAllocator()->raw_allocate(std::max<size_t>(bytes, 1));
    std::lock_guard<std::recursive_mutex> guard(state);
    pinned_ranges[static_cast<const char*>(pointer)] = std::max<size_t>(bytes, 1);
    return {pointer, pointer, &unpin, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

PinnedAllocator pinned;

}  // namespace

c10::DeviceAllocator* device_allocator() { return &allocator; }
c10::Allocator* pinned_allocator() { return &pinned; }

bool is_pinned(const void* pointer) {
  std::lock_guard<std::recursive_mutex> guard(state);
  const auto* wanted = static_cast<const char*>(pointer);
  auto found = pinned_ranges.upper_bound(wanted);
  if (found == pinned_ranges.begin()) return false;
  --found;
  return wanted < found->first + found->second;
}

c10::DataPtr adopt(void* data, Bytes bytes, int device, std::shared_ptr<void> keep) {
  std::lock_guard<std::recursive_mutex> guard(state);
  Block* block = memories[device].take(bytes);
  const c10::Device on(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
  return {data, new Held{block, std::move(keep)}, &give_back, on};
}

void open_context(int device) {
  std::lock_guard<std::recursive_mutex> guard(state);
  memories[device].open();
}
bool has_context(int device) { return memories[device].is_open(); }
Bytes free_bytes(int device) { return memories[device].free(); }
Bytes total_bytes(int device) { return memories[device].total(); }

std::vector<SegmentSnapshot> memory_snapshot() {
  std::lock_guard<std::recursive_mutex> guard(state);
  std::vector<SegmentSnapshot> found;
  for (int device = 0; device < kMostDevices; device++) {
    for (const auto& segment : memories[device].segments()) {
      SegmentSnapshot it{
          segment->device, reinterpret_cast<int64_t>(segment->address), segment->bytes, segment->is_small, {}};
      for (const Block* block = segment->first; block != nullptr; block = block->after)
        it.blocks.push_back({block->offset, block->bytes, block->requested, block->taken});
      found.push_back(std::move(it));
    }
  }
  return found;
}

void share_devices(const std::string& path) { neighbours.open(path); }

double contention() { return profile.contention > 1 && neighbours.have_worked() ? profile.contention : 1; }

}  // namespace simulated
