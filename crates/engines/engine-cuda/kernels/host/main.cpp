// Runs kernels on the host, one request after the other.
//
// A request on standard input, all numbers little-endian:
//   u64 bytes of the arena, the arena;
//   u64 launches, and for each: u64 length of the name, name, u64 grid, u64 block,
//   u64 bytes of parameters, parameters, u64 pointers, u64 offset in the parameters for each.
// A pointer in the parameters is an offset into the arena. The answer on standard output is the
// arena afterwards. Every request is computed twice, the second time with threads and blocks in
// reversed order; results that differ are an error. The arena ends where its pages end, so that a
// kernel that reaches beyond it is killed.

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "emulation.h"

#include "../common.cuh"
#include "../window.cuh"

namespace attention {
#include "../attention.cu"
}
namespace elementwise {
#include "../elementwise.cu"
}
namespace gemm {
#include "../gemm.cu"
}
namespace images {
#include "../images.cu"
}
namespace movement {
#include "../movement.cu"
}
namespace rows {
#include "../rows.cu"
}

namespace {

struct Launch {
    std::string name;
    emulation::Shape shape;
    std::vector<char> parameters;
    std::vector<std::uint64_t> pointers;
};

[[noreturn]] void stop(const std::string& problem) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    std::exit(2);
}

bool read_bytes(void* to, std::size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

std::uint64_t read_number() {
    std::uint64_t number;
    if (!read_bytes(&number, sizeof number)) stop("the request ends too early");
    return number;
}

std::vector<char> read_block() {
    std::vector<char> block(read_number());
    if (!read_bytes(block.data(), block.size())) stop("the request ends too early");
    return block;
}

Launch read_launch() {
    Launch launch;
    std::vector<char> name = read_block();
    launch.name.assign(name.begin(), name.end());
    launch.shape.grid = (unsigned)read_number();
    launch.shape.block = (unsigned)read_number();
    launch.parameters = read_block();
    launch.pointers.resize(read_number());
    for (std::uint64_t& pointer : launch.pointers) pointer = read_number();
    return launch;
}

// Memory that ends where its pages end; the page behind it cannot be touched.
class Arena {
  public:
    explicit Arena(std::size_t bytes) : bytes_(bytes) {
        std::size_t page = (std::size_t)sysconf(_SC_PAGESIZE);
        std::size_t pages = (bytes + page - 1) / page;
        length_ = (pages + 1) * page;
        void* mapped = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) stop("no memory for the arena");
        start_ = (char*)mapped;
        mprotect(start_ + pages * page, page, PROT_NONE);
        first_ = start_ + (pages * page - bytes);
    }
    ~Arena() { munmap(start_, length_); }
    Arena(const Arena&) = delete;
    char* data() { return first_; }

  private:
    std::size_t bytes_, length_;
    char* start_;
    char* first_;
};

// A kernel that finds its parameters by itself.
struct Entry {
    const char* name;
    std::size_t (*invoke)(bool);
};

const Entry ENTRIES[] = {
#define ENTRY(NAMESPACE, NAME) \
    {#NAME, [](bool run) { return emulation::invoke(NAMESPACE::NAME, run); }},
#include "entries.inc"
};

const Entry& find(const std::string& name) {
    for (const Entry& entry : ENTRIES)
        if (name == entry.name) return entry;
    stop("no kernel `" + name + "`");
}

void run(Launch launch, Arena& arena, bool reversed) {
    for (std::uint64_t at : launch.pointers) {
        std::uint64_t address;
        std::memcpy(&address, &launch.parameters[at], sizeof address);
        address += (std::uint64_t)arena.data();
        std::memcpy(&launch.parameters[at], &address, sizeof address);
    }
    launch.shape.reversed = reversed;
    const Entry& entry = find(launch.name);
    std::size_t expected = entry.invoke(false);
    if (expected != launch.parameters.size())
        stop("`" + launch.name + "` takes " + std::to_string(expected) + " bytes of parameters, not " +
             std::to_string(launch.parameters.size()));
    emulation::launch(entry.invoke, launch.shape, launch.parameters.data());
}

bool answer_one() {
    std::uint64_t bytes;
    if (!read_bytes(&bytes, sizeof bytes)) return false;
    std::vector<char> given(bytes);
    if (!read_bytes(given.data(), bytes)) stop("the request ends too early");
    std::vector<Launch> launches(read_number());
    for (Launch& launch : launches) launch = read_launch();
    Arena arena(bytes), again(bytes);
    std::memcpy(arena.data(), given.data(), bytes);
    std::memcpy(again.data(), given.data(), bytes);
    for (const Launch& launch : launches) run(launch, arena, false);
    for (const Launch& launch : launches) run(launch, again, true);
    if (std::memcmp(arena.data(), again.data(), bytes) != 0)
        stop("`" + launches[0].name + "` depends on the order of its threads");
    std::fwrite(arena.data(), 1, bytes, stdout);
    std::fflush(stdout);
    return true;
}

}  // namespace

int main() {
    while (answer_one()) {
    }
}
