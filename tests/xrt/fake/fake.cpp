// A FAKE of libxrt: not AMD's (fake.h). One device; memory has a host's side and a device's, which only `sync` makes equal;
// the kernel `add` adds argument 2 (a u32) to the bytes of argument 0 and puts them into argument 1. `vector_add_bf16` is
// Kiln's program of that name, by what it computes: operation, instruction stream and its words, then three buffers.

#include "xrt/fake.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace {

// What the next calls throw; 0: nothing. What runs of `vector_add_bf16` do: 7: never end, 8: fail, 9: compute wrongly.
int failure = 0;
int alive = 0;

struct empty_exception : std::exception {
    const char *what() const noexcept override { return ""; }
};

void step()
{
    switch (failure) {
    case 1: throw std::runtime_error("the fake\nfails \033[31mas told");
    case 2: throw 42;
    case 3: throw std::bad_alloc();
    case 4: throw std::string("no exception of the standard's");
    case 5: throw empty_exception();
    case 6: throw std::runtime_error(std::string(5000, 'x'));
    default: break;
    }
}

}

extern "C" FAKE void fake_fail(int how) { failure = how; }
extern "C" FAKE int fake_alive() { return alive; }
// How many are held; they are counted no more.
extern "C" FAKE int fake_forget() { return std::exchange(alive, 0); }

namespace xrt {

unsigned int version::major() { step(); return 2; }
unsigned int version::minor() { return 99; }
unsigned int version::patch() { return 7; }
unsigned int system::enumerate_devices() { step(); return 1; }

xclbin::xclbin(const std::vector<char> &data) : bytes(data)
{
    step();
    if (data.size() < 8 || std::memcmp(data.data(), "xclbin2", 8) != 0) throw std::runtime_error("Invalid xclbin");
}

device::device(const std::string &bdf) : place(bdf)
{
    step();
    if (bdf != "0000:c6:00.1" && bdf != "0") throw std::runtime_error("No such device with index '" + bdf + "'");
}

uuid device::register_xclbin(const xclbin &) { step(); return uuid{5}; }

std::string device::describe(info::device what) const
{
    step();
    return what == info::device::name ? "Fake\n\033[2JNPU" : "0000:c6:00.1";
}

hw_context::hw_context(const device &, const uuid &id) : number(id.number)
{
    step();
    if (number != 5) throw std::runtime_error("an id that was not registered");
}

kernel::kernel(const hw_context &context, const std::string &which) : name(which)
{
    step();
    const bool known = which == "add" || which == "slow" || which == "broken" || which == "vector_add_bf16";
    if (context.number != 5 || !known) throw std::runtime_error("No such kernel '" + which + "'");
}

int kernel::group_id(int argument) const { step(); return 10 + argument; }

struct fake_memory {
    explicit fake_memory(size_t bytes, int from) : size(bytes), fd(from)
    {
        host = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        if (host == MAP_FAILED) throw std::runtime_error("mmap failed");
        device.resize(size);
        alive++;
    }
    ~fake_memory()
    {
        alive--;
        munmap(host, size);
        close(fd);
    }
    size_t size;
    int fd;
    char *host;
    std::vector<char> device;
};

bo::bo(const device &, size_t size, flags kind, memory_group group)
{
    step();
    if (size == 0 || (group == 11u) != (kind == flags::cacheable)) throw std::runtime_error("Invalid argument");
    const int fd = memfd_create("fake", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) throw std::bad_alloc();
    memory = std::make_shared<fake_memory>(size, fd);
}

bo::bo(const device &, export_handle fd)
{
    step();
    struct stat about;
    if (fstat(fd, &about) != 0) throw std::runtime_error("no such descriptor");
    memory = std::make_shared<fake_memory>(static_cast<size_t>(about.st_size), dup(fd));
}

size_t bo::size() const { step(); return memory->size; }
bo::export_handle bo::export_buffer() { step(); return memory->fd; }
void *bo::map() { step(); return memory->host; }

void bo::sync(xclBOSyncDirection direction, size_t size, size_t offset)
{
    step();
    char *host = memory->host + offset, *device = memory->device.data() + offset;
    if (direction == XCL_BO_SYNC_BO_TO_DEVICE) std::memcpy(device, host, size);
    else std::memcpy(host, device, size);
}

struct fake_run {
    std::string kernel;
    fake_memory *memory[6] = {}; // not owned: the bridge must keep them
    uint64_t numbers[3] = {};
    bool started = false, hangs = false;

    // As libxrt does where a run goes whose command has not ended.
    ~fake_run()
    {
        if (hangs) std::abort();
    }

    bool adds_vectors() const { return kernel == "vector_add_bf16"; }

    void add_vectors()
    {
        const size_t count = 4096;
        if (numbers[0] != 3 || numbers[2] * 4 != memory[1]->size) throw std::runtime_error("not a run of a stream");
        float sums[count] = {};
        for (int argument : {3, 4}) {
            for (size_t i = 0; i < count; i++) {
                uint16_t value;
                std::memcpy(&value, &memory[argument]->device.at(2 * i), sizeof value);
                const uint32_t bits = static_cast<uint32_t>(value) << 16;
                float wide;
                std::memcpy(&wide, &bits, sizeof wide);
                sums[i] += wide;
            }
        }
        for (size_t i = 0; i < count; i++) {
            uint32_t bits;
            std::memcpy(&bits, &sums[i], sizeof bits);
            const uint16_t nearest = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
            std::memcpy(&memory[5]->device.at(2 * i), &nearest, sizeof nearest);
        }
        if (failure == 9) memory[5]->device[5] ^= 1;
    }
};

run::run(const kernel &of) : own(std::make_shared<fake_run>()) { step(); own->kernel = of.name; }

void run::set_arg(int argument, const bo &buffer)
{
    step();
    const bool known = own->adds_vectors() ? argument == 1 || (argument > 2 && argument < 6) : argument == 0 || argument == 1;
    if (!known) throw std::out_of_range("no such argument");
    own->memory[argument] = buffer.memory.get();
}

void run::set_arg(int argument, const void *number, size_t size)
{
    step();
    const bool known = argument == 2 ? size == 4 : own->adds_vectors() && argument == 0 && size == 8;
    if (!known) throw std::out_of_range("no such argument");
    std::memcpy(&own->numbers[argument], number, size);
}

void run::start()
{
    step();
    if (own->kernel == "add")
        for (size_t i = 0; i < own->memory[0]->size; i++)
            own->memory[1]->device[i] = static_cast<char>(own->memory[0]->device[i] + static_cast<char>(own->numbers[2]));
    if (own->adds_vectors()) own->add_vectors();
    own->started = true;
    own->hangs = own->kernel == "slow" || failure == 7;
}

std::cv_status run::wait2(const std::chrono::milliseconds &timeout) const
{
    step();
    if (timeout.count() == 0) throw std::logic_error("a wait for ever");
    if (own->kernel == "broken" || failure == 8) throw std::runtime_error("kernel aborted: ERT_CMD_STATE_ERROR");
    if (own->started && !own->hangs) return std::cv_status::no_timeout;
    // On amdxdna libxrt 2.25 takes a wait that runs out of time for the command's end.
    std::this_thread::sleep_for(timeout);
    throw std::runtime_error("qds_device::wait() unexpected command state");
}

ert_cmd_state run::state() const
{
    if (!own->started) return ERT_CMD_STATE_NEW;
    if (own->kernel == "broken") return ERT_CMD_STATE_ERROR;
    return own->hangs ? ERT_CMD_STATE_RUNNING : ERT_CMD_STATE_COMPLETED;
}

}
