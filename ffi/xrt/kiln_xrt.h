/*
 * The C face of the bridge to libxrt, whose hardware contexts exist in C++ alone. The bridge (kiln_xrt.cpp) is a shared
 * object of its own, so that Kiln links no libxrt: it is loaded at run time, beside libxrt.
 *
 * Every function that can fail gives KILN_XRT_DONE, or KILN_XRT_FAILED and says why in `why`: no exception passes. Objects
 * come by pointer to their maker and go by their `close_`; what one is made of lives as long as it does.
 */
#ifndef KILN_XRT_H
#define KILN_XRT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KILN_XRT_DONE = 0,
    KILN_XRT_FAILED = 1,
    /* A run is not finished when the wait for it ends. */
    KILN_XRT_LATE = 2,
};

/* Kinds of buffer. */
enum {
    /* Instructions, in the NPU's own heap. */
    KILN_XRT_INSTRUCTIONS = 0,
    /* Data, in the host's memory. */
    KILN_XRT_DATA = 1,
};

/* Directions of `sync`. */
enum {
    KILN_XRT_TO_DEVICE = 0,
    KILN_XRT_TO_HOST = 1,
};

/* Text that ends with a zero; what is too long is cut off. */
struct kiln_xrt_text {
    char bytes[512];
};

/* A device. */
struct kiln_xrt_device;
/* An xclbin with a hardware context for it. */
struct kiln_xrt_program;
/* A kernel of a program. */
struct kiln_xrt_kernel;
/* Memory that host and NPU reach. */
struct kiln_xrt_buffer;
/* A kernel with its arguments, to be started again and again. */
struct kiln_xrt_run;

struct kiln_xrt_face {
    /* libxrt's version. */
    int (*version)(uint32_t numbers[3], struct kiln_xrt_text *why);
    /* How many devices it finds. */
    int (*count)(uint32_t *devices, struct kiln_xrt_text *why);
    /* `which`: on the bus, as in "0000:c6:00.1", or an index. */
    int (*open)(const char *which, struct kiln_xrt_device **device, struct kiln_xrt_text *why);
    int (*describe)(const struct kiln_xrt_device *device, struct kiln_xrt_text *name, struct kiln_xrt_text *slot,
                    struct kiln_xrt_text *why);
    void (*close_device)(struct kiln_xrt_device *device);

    /* Registers the xclbin of `size` bytes and makes a hardware context for it. */
    int (*load)(const struct kiln_xrt_device *device, const void *xclbin, uint64_t size, struct kiln_xrt_program **program,
                struct kiln_xrt_text *why);
    void (*close_program)(struct kiln_xrt_program *program);
    int (*find_kernel)(const struct kiln_xrt_program *program, const char *name, struct kiln_xrt_kernel **kernel,
                       struct kiln_xrt_text *why);
    /* The memory group that a buffer for the kernel's argument is allocated in. */
    int (*group)(const struct kiln_xrt_kernel *kernel, int32_t argument, int32_t *group, struct kiln_xrt_text *why);
    void (*close_kernel)(struct kiln_xrt_kernel *kernel);

    int (*allocate)(const struct kiln_xrt_program *program, uint64_t size, int32_t kind, int32_t group,
                    struct kiln_xrt_buffer **buffer, struct kiln_xrt_text *why);
    /* A dma-buf; its descriptor stays the caller's. */
    int (*import_fd)(const struct kiln_xrt_program *program, int32_t fd, struct kiln_xrt_buffer **buffer,
                     struct kiln_xrt_text *why);
    /* A descriptor that stays the buffer's: the caller duplicates it. */
    int (*export_fd)(struct kiln_xrt_buffer *buffer, int32_t *fd, struct kiln_xrt_text *why);
    /* Where the host sees it, for as long as it lives, and its size. */
    int (*map)(struct kiln_xrt_buffer *buffer, void **bytes, uint64_t *size, struct kiln_xrt_text *why);
    int (*sync)(struct kiln_xrt_buffer *buffer, int32_t direction, uint64_t offset, uint64_t size,
                struct kiln_xrt_text *why);
    void (*close_buffer)(struct kiln_xrt_buffer *buffer);

    int (*make_run)(const struct kiln_xrt_kernel *kernel, struct kiln_xrt_run **run, struct kiln_xrt_text *why);
    int (*set_buffer)(struct kiln_xrt_run *run, int32_t argument, const struct kiln_xrt_buffer *buffer,
                      struct kiln_xrt_text *why);
    /* A number of `size` bytes. */
    int (*set_number)(struct kiln_xrt_run *run, int32_t argument, const void *number, uint64_t size,
                      struct kiln_xrt_text *why);
    int (*start)(struct kiln_xrt_run *run, struct kiln_xrt_text *why);
    /* Also KILN_XRT_LATE. 0 milliseconds: for ever. */
    int (*wait)(struct kiln_xrt_run *run, uint32_t milliseconds, struct kiln_xrt_text *why);
    void (*close_run)(struct kiln_xrt_run *run);
};

/* The one name that the bridge exports. */
#define KILN_XRT_FACE "kiln_xrt_face_1"
extern const struct kiln_xrt_face kiln_xrt_face_1;

#ifdef __cplusplus
}
#endif

#endif
