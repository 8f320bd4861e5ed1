// Virtual memory management of the stand-in for libcuda, which includes this file.
//
// The memory of a handle is a file in memory: it is the same at every address. What has no access kills whoever uses it.
// `STAND_IN_MAPPING` is `none` for a device that cannot map memory, `refused` for one that says that it can and then has
// no memory that can be mapped, `inaccessible` for one that has and then does not let anybody use it, `single` for one
// that unmaps one mapping at a time.

#pragma once

#include <map>

#include <sys/mman.h>
#include <unistd.h>

namespace {

// A device's is 2 MiB; models of tests are small.
const std::size_t GRANULARITY = 32 << 10;

const int NOTHING = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// As CUmemLocation, CUmemAllocationProp and CUmemAccessDesc.
struct Location {
    int type, id;
};

struct AllocationProp {
    int type, handle_types;
    Location location;
    void* metadata;
    unsigned char flags[8];
};

struct AccessDesc {
    Location location;
    int flags;
};

struct Mapping {
    u64 end;
    u64 handle;
};

// Physical memory by its handle, which is the number of a file; reserved ranges by start; mappings by start.
std::map<u64, std::size_t> physical;
std::map<u64, u64> reserved;
std::map<u64, Mapping> mappings;

bool mapping_is(const char* what) {
    const char* set = std::getenv("STAND_IN_MAPPING");
    return set && !std::strcmp(set, what);
}

bool is_device(Location location) { return location.type == 1 && location.id == 0; }

bool is_whole(u64 address, std::size_t bytes) {
    return bytes && address % GRANULARITY == 0 && bytes % GRANULARITY == 0;
}

bool is_reserved(u64 start, u64 end) {
    auto behind = reserved.upper_bound(start);
    return behind != reserved.begin() && end <= std::prev(behind)->second;
}

// Whether the range consists of whole mappings.
bool is_mapped(u64 start, u64 end) {
    for (u64 at = start; at < end;) {
        auto found = mappings.find(at);
        if (found == mappings.end() || found->second.end > end) return false;
        at = found->second.end;
    }
    return true;
}

bool is_free(u64 start, u64 end) {
    auto behind = mappings.lower_bound(end);
    return behind == mappings.begin() || std::prev(behind)->second.end <= start;
}

// Nothing, in place of what is there.
int vacate(u64 start, u64 end) {
    void* made = mmap((void*)start, end - start, PROT_NONE, NOTHING | MAP_FIXED, -1, 0);
    return made == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}

}  // namespace

extern "C" {

int cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProp* of, int) {
    if (of->type != 1 || !is_device(of->location)) return INVALID_VALUE;
    return *bytes = GRANULARITY, SUCCESS;
}
int cuMemAddressReserve(u64* start, std::size_t bytes, std::size_t alignment, u64 wished, u64 flags) {
    std::lock_guard<std::recursive_mutex> lock(device);
    if (!is_whole(0, bytes) || alignment > GRANULARITY || wished || flags) return INVALID_VALUE;
    // With room to begin where a multiple is.
    std::size_t room = bytes + GRANULARITY;
    void* made = mmap(nullptr, room, PROT_NONE, NOTHING, -1, 0);
    if (made == MAP_FAILED) return OUT_OF_MEMORY;
    *start = ((u64)made + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    munmap(made, *start - (u64)made);
    munmap((void*)(*start + bytes), (u64)made + room - *start - bytes);
    return reserved[*start] = *start + bytes, SUCCESS;
}
int cuMemAddressFree(u64 start, std::size_t bytes) {
    std::lock_guard<std::recursive_mutex> lock(device);
    auto found = reserved.find(start);
    if (found == reserved.end() || found->second != start + bytes) return INVALID_VALUE;
    if (!is_free(start, start + bytes)) return INVALID_VALUE;
    reserved.erase(found);
    return munmap((void*)start, bytes), SUCCESS;
}
int cuMemCreate(u64* handle, std::size_t bytes, const AllocationProp* of, u64 flags) {
    std::lock_guard<std::recursive_mutex> lock(device);
    if (mapping_is("refused")) return NOT_SUPPORTED;
    if (!is_whole(0, bytes) || of->type != 1 || !is_device(of->location) || flags) return INVALID_VALUE;
    int file = memfd_create("stand-in", MFD_CLOEXEC);
    if (file < 0) return OUT_OF_MEMORY;
    // What was never written is not 0.
    std::string never(bytes, '\xff');
    if (write(file, never.data(), bytes) != (ssize_t)bytes) return close(file), OUT_OF_MEMORY;
    *handle = (u64)file;
    return physical[*handle] = bytes, SUCCESS;
}
int cuMemRelease(u64 handle) {
    std::lock_guard<std::recursive_mutex> lock(device);
    if (!physical.erase(handle)) return INVALID_VALUE;
    return close((int)handle), SUCCESS;
}
int cuMemMap(u64 start, std::size_t bytes, std::size_t offset, u64 handle, u64 flags) {
    std::lock_guard<std::recursive_mutex> lock(device);
    auto memory = physical.find(handle);
    if (!is_whole(start, bytes) || offset || flags) return INVALID_VALUE;
    if (memory == physical.end() || bytes > memory->second) return INVALID_VALUE;
    if (!is_reserved(start, start + bytes) || !is_free(start, start + bytes)) return INVALID_VALUE;
    // Without access: whoever uses it too early dies.
    void* made = mmap((void*)start, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, 0);
    if (made == MAP_FAILED) return OUT_OF_MEMORY;
    return mappings[start] = {start + bytes, handle}, SUCCESS;
}
int cuMemSetAccess(u64 start, std::size_t bytes, const AccessDesc* access, std::size_t count) {
    std::lock_guard<std::recursive_mutex> lock(device);
    if (mapping_is("inaccessible")) return NOT_SUPPORTED;
    if (!is_whole(start, bytes) || !is_mapped(start, start + bytes)) return INVALID_VALUE;
    if (count != 1 || !is_device(access->location) || access->flags != 3) return INVALID_VALUE;
    return mprotect((void*)start, bytes, PROT_READ | PROT_WRITE) ? OUT_OF_MEMORY : SUCCESS;
}
int cuMemUnmap(u64 start, std::size_t bytes) {
    std::lock_guard<std::recursive_mutex> lock(device);
    u64 end = start + bytes;
    if (!is_whole(start, bytes) || !is_mapped(start, end)) return INVALID_VALUE;
    if (mapping_is("single") && mappings[start].end != end) return INVALID_VALUE;
    mappings.erase(mappings.find(start), mappings.lower_bound(end));
    return vacate(start, end);
}
}
