// A FAKE of libxrt: not AMD's. It declares what the bridge (ffi/xrt/kiln_xrt.cpp) uses of libxrt's documented C++ interface,
// with the same names and types, so that the bridge can be tested without libxrt and without an NPU, and every step of it
// be made to fail (fake.cpp).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#define FAKE __attribute__((visibility("default")))

enum xclBOSyncDirection { XCL_BO_SYNC_BO_TO_DEVICE = 0, XCL_BO_SYNC_BO_FROM_DEVICE = 1 };

// As libxrt's ert.h numbers them; the others are no run's of the fake.
enum ert_cmd_state {
    ERT_CMD_STATE_NEW = 1,
    ERT_CMD_STATE_QUEUED = 2,
    ERT_CMD_STATE_RUNNING = 3,
    ERT_CMD_STATE_COMPLETED = 4,
    ERT_CMD_STATE_ERROR = 5,
    ERT_CMD_STATE_SUBMITTED = 7,
};

namespace xrt {

namespace version {
FAKE unsigned int major();
FAKE unsigned int minor();
FAKE unsigned int patch();
}

namespace system {
FAKE unsigned int enumerate_devices();
}

namespace info {
enum class device : unsigned int { bdf, name };
}

class uuid {
public:
    int number = 0;
};

class FAKE xclbin {
public:
    explicit xclbin(const std::vector<char> &data);
    std::vector<char> bytes;
};

class FAKE device {
public:
    explicit device(const std::string &bdf);
    uuid register_xclbin(const xclbin &image);
    template <info::device what> std::string get_info() const { return describe(what); }

private:
    std::string describe(info::device what) const;
    std::string place;
};

class FAKE hw_context {
public:
    hw_context(const device &owner, const uuid &id);
    int number;
};

class FAKE kernel {
public:
    kernel(const hw_context &context, const std::string &name);
    int group_id(int argument) const;
    std::string name;
};

using memory_group = uint32_t;
struct fake_memory;

class FAKE bo {
public:
    enum class flags : uint32_t { cacheable = 1u << 24, host_only = 1u << 29 };
    using export_handle = int32_t;
    bo() = default;
    bo(const device &owner, size_t size, flags kind, memory_group group);
    bo(const device &owner, export_handle fd);
    size_t size() const;
    export_handle export_buffer();
    void sync(xclBOSyncDirection direction, size_t size, size_t offset);
    void *map();
    std::shared_ptr<fake_memory> memory;
};

struct fake_run;

class FAKE run {
public:
    explicit run(const kernel &of);
    void set_arg(int argument, const bo &buffer);
    void set_arg(int argument, const void *number, size_t size);
    void start();
    std::cv_status wait2(const std::chrono::milliseconds &timeout) const;
    ert_cmd_state state() const;

private:
    std::shared_ptr<fake_run> own;
};

}
