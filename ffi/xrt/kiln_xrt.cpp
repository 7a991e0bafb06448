// The bridge to libxrt: each function of the C face is one step of libxrt's C++ interface (2.25; xrt_device.h,
// xrt_hw_context.h, xrt_kernel.h, xrt_bo.h) between a `try` and a `catch` of everything.

#include "kiln_xrt.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "xrt/xrt_bo.h"
#include "xrt/xrt_device.h"
#include "xrt/xrt_hw_context.h"
#include "xrt/xrt_kernel.h"
#include "xrt/experimental/xrt_system.h"
#include "xrt/experimental/xrt_version.h"
#include "xrt/experimental/xrt_xclbin.h"

struct kiln_xrt_device {
    xrt::device device;
};

struct kiln_xrt_program {
    xrt::device device;
    xrt::hw_context context;
};

struct kiln_xrt_kernel {
    xrt::kernel kernel;
};

struct kiln_xrt_buffer {
    xrt::bo bo;
};

struct kiln_xrt_run {
    xrt::run run;
    std::map<int32_t, xrt::bo> arguments; // so that no buffer goes before the run that the NPU may be at work on
    bool is_started = false;
};

namespace {

using Text = kiln_xrt_text;

void say(Text *text, const char *what) noexcept
{
    if (text == nullptr) return;
    std::strncpy(text->bytes, what, sizeof text->bytes - 1);
    text->bytes[sizeof text->bytes - 1] = '\0';
}

// Whatever is thrown ends here.
template <class Body> int guarded(Text *why, Body body) noexcept
{
    try {
        return body();
    } catch (const std::exception &e) {
        const char *what = e.what();
        say(why, what != nullptr && *what != '\0' ? what : "an exception without a word");
    } catch (...) {
        say(why, "an exception that is none of the standard's");
    }
    return KILN_XRT_FAILED;
}

template <class T> void close(T *object) noexcept
{
    guarded(nullptr, [&] {
        delete object;
        return KILN_XRT_DONE;
    });
}

int version(uint32_t numbers[3], Text *why) noexcept
{
    return guarded(why, [&] {
        numbers[0] = xrt::version::major();
        numbers[1] = xrt::version::minor();
        numbers[2] = xrt::version::patch();
        return KILN_XRT_DONE;
    });
}

int count(uint32_t *devices, Text *why) noexcept
{
    return guarded(why, [&] {
        *devices = xrt::system::enumerate_devices();
        return KILN_XRT_DONE;
    });
}

int open(const char *which, kiln_xrt_device **device, Text *why) noexcept
{
    return guarded(why, [&] {
        *device = new kiln_xrt_device{xrt::device{std::string{which}}};
        return KILN_XRT_DONE;
    });
}

int describe(const kiln_xrt_device *device, Text *name, Text *slot, Text *why) noexcept
{
    return guarded(why, [&] {
        say(name, device->device.get_info<xrt::info::device::name>().c_str());
        say(slot, device->device.get_info<xrt::info::device::bdf>().c_str());
        return KILN_XRT_DONE;
    });
}

int load(const kiln_xrt_device *device, const void *bytes, uint64_t size, kiln_xrt_program **program, Text *why) noexcept
{
    return guarded(why, [&] {
        const char *from = static_cast<const char *>(bytes);
        xrt::device owner = device->device;
        const xrt::uuid id = owner.register_xclbin(xrt::xclbin{std::vector<char>(from, from + size)});
        xrt::hw_context context{owner, id};
        *program = new kiln_xrt_program{std::move(owner), std::move(context)};
        return KILN_XRT_DONE;
    });
}

int find_kernel(const kiln_xrt_program *program, const char *name, kiln_xrt_kernel **kernel, Text *why) noexcept
{
    return guarded(why, [&] {
        *kernel = new kiln_xrt_kernel{xrt::kernel{program->context, name}};
        return KILN_XRT_DONE;
    });
}

int group(const kiln_xrt_kernel *kernel, int32_t argument, int32_t *group, Text *why) noexcept
{
    return guarded(why, [&] {
        *group = kernel->kernel.group_id(argument);
        return KILN_XRT_DONE;
    });
}

int allocate(const kiln_xrt_program *program, uint64_t size, int32_t kind, int32_t group, kiln_xrt_buffer **buffer,
             Text *why) noexcept
{
    return guarded(why, [&] {
        const auto flags = kind == KILN_XRT_INSTRUCTIONS ? xrt::bo::flags::cacheable : xrt::bo::flags::host_only;
        const auto memory = static_cast<xrt::memory_group>(group);
        *buffer = new kiln_xrt_buffer{xrt::bo{program->device, static_cast<size_t>(size), flags, memory}};
        return KILN_XRT_DONE;
    });
}

int import_fd(const kiln_xrt_program *program, int32_t fd, kiln_xrt_buffer **buffer, Text *why) noexcept
{
    return guarded(why, [&] {
        *buffer = new kiln_xrt_buffer{xrt::bo{program->device, xrt::bo::export_handle{fd}}};
        return KILN_XRT_DONE;
    });
}

int export_fd(kiln_xrt_buffer *buffer, int32_t *fd, Text *why) noexcept
{
    return guarded(why, [&] {
        *fd = buffer->bo.export_buffer();
        return KILN_XRT_DONE;
    });
}

int map(kiln_xrt_buffer *buffer, void **bytes, uint64_t *size, Text *why) noexcept
{
    return guarded(why, [&] {
        *bytes = buffer->bo.map();
        *size = buffer->bo.size();
        return KILN_XRT_DONE;
    });
}

int sync(kiln_xrt_buffer *buffer, int32_t direction, uint64_t offset, uint64_t size, Text *why) noexcept
{
    return guarded(why, [&] {
        buffer->bo.sync(direction == KILN_XRT_TO_DEVICE ? XCL_BO_SYNC_BO_TO_DEVICE : XCL_BO_SYNC_BO_FROM_DEVICE, size,
                        offset);
        return KILN_XRT_DONE;
    });
}

int make_run(const kiln_xrt_kernel *kernel, kiln_xrt_run **run, Text *why) noexcept
{
    return guarded(why, [&] {
        *run = new kiln_xrt_run{xrt::run{kernel->kernel}, {}, false};
        return KILN_XRT_DONE;
    });
}

int set_buffer(kiln_xrt_run *run, int32_t argument, const kiln_xrt_buffer *buffer, Text *why) noexcept
{
    return guarded(why, [&] {
        run->run.set_arg(argument, buffer->bo);
        run->arguments[argument] = buffer->bo;
        return KILN_XRT_DONE;
    });
}

int set_number(kiln_xrt_run *run, int32_t argument, const void *number, uint64_t size, Text *why) noexcept
{
    return guarded(why, [&] {
        run->run.set_arg(argument, number, static_cast<size_t>(size));
        return KILN_XRT_DONE;
    });
}

int start(kiln_xrt_run *run, Text *why) noexcept
{
    return guarded(why, [&] {
        run->is_started = true;
        run->run.start();
        return KILN_XRT_DONE;
    });
}

bool is_at_work(const kiln_xrt_run &run)
{
    if (!run.is_started) return false;
    switch (run.run.state()) {
    case ERT_CMD_STATE_NEW:
    case ERT_CMD_STATE_QUEUED:
    case ERT_CMD_STATE_RUNNING:
    case ERT_CMD_STATE_SUBMITTED: return true;
    default: return false;
    }
}

int wait(kiln_xrt_run *run, uint32_t milliseconds, Text *why) noexcept
{
    return guarded(why, [&] {
        const std::chrono::milliseconds longest{milliseconds};
        const auto begin = std::chrono::steady_clock::now();
        try {
            // Throws where the command ended in anything but success.
            return run->run.wait2(longest) == std::cv_status::timeout ? KILN_XRT_LATE : KILN_XRT_DONE;
        } catch (const std::exception &) {
            // libxrt 2.25 does not look at why its wait on amdxdna ends, and calls the state of a late command unexpected.
            const bool ran_out = std::chrono::steady_clock::now() - begin >= longest;
            if (ran_out && is_at_work(*run)) return KILN_XRT_LATE;
            throw;
        }
    });
}

// libxrt aborts the process where a run goes whose command has not ended. Such a run stays, with its hardware context
// and its buffers, until the process ends. So does one whose state is not to be had.
void close_run(kiln_xrt_run *run) noexcept
{
    guarded(nullptr, [&] {
        if (!is_at_work(*run)) delete run;
        return KILN_XRT_DONE;
    });
}

} // namespace

extern "C" __attribute__((visibility("default"))) const kiln_xrt_face kiln_xrt_face_1 = {
    version,
    count,
    open,
    describe,
    close<kiln_xrt_device>,
    load,
    close<kiln_xrt_program>,
    find_kernel,
    group,
    close<kiln_xrt_kernel>,
    allocate,
    import_fd,
    export_fd,
    map,
    sync,
    close<kiln_xrt_buffer>,
    make_run,
    set_buffer,
    set_number,
    start,
    wait,
    close_run,
};
