/* A GPU of the kernel's driver amdgpu that is not there, for Mesa's RADV to compile for: a library to preload. It answers what
 * RADV and libdrm ask of the kernel, so far that a Vulkan device opens and pipelines are made; nothing is ever executed.
 * RADV_FORCE_FAMILY will not do for the chips of RDNA 3.5, which RADV then takes for RDNA 3.
 *
 * KILN_TEST_CHIP names the chip. What is submitted is refused, but where KILN_TEST_PACKETS names a file: its packets are then
 * appended there, each indirect buffer as its ring's kind, its words' number and its words; and it counts as done.
 * The interface is that of the kernel's drm.h and amdgpu_drm.h, and of libdrm's xf86drm.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct chip {
    const char *name;
    /* Family and revision as the kernel numbers them, and the version of the graphics block. */
    uint32_t device, family, revision, version;
    uint32_t engines, arrays, units_of_array, vgprs;
};

static const struct chip CHIPS[] = {
    {"gfx1103", 0x15bf, 148, 1, 0x0b0001, 1, 2, 6, 1024},
    {"gfx1150", 0x150e, 150, 1, 0x0b0500, 1, 2, 8, 1024},
    {"gfx1151", 0x1586, 150, 0xc0, 0x0b0501, 2, 2, 10, 1536},
};

static const struct chip *chip(void) {
    const char *name = getenv("KILN_TEST_CHIP");
    for (size_t i = 0; name && i < sizeof CHIPS / sizeof *CHIPS; i++)
        if (!strcmp(CHIPS[i].name, name)) return &CHIPS[i];
    fprintf(stderr, "KILN_TEST_CHIP names no chip that is known here\n");
    abort();
}

/* What is mapped of buffers: a file without bytes on any disk. Each buffer has its own part of it, and none is used twice. */
static int memory(void) {
    static int file = -1;
    if (file < 0) {
        file = memfd_create("buffers", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, (off_t)1 << 40)) abort();
    }
    return file;
}

/* libdrm's list of devices: one, whose nodes are that file. */

struct bus { uint16_t domain; uint8_t bus, device, function; };
struct ids { uint16_t vendor, device, subvendor, subdevice; uint8_t revision; };
struct device { char **nodes; int available, bus_type; struct bus *bus; struct ids *ids; };

static struct device *the_device(void) {
    static char path[32];
    static char *nodes[3] = {path, path, path};
    static struct bus bus = {0, 4, 0, 0};
    static struct ids ids = {.vendor = 0x1002};
    static struct device device = {nodes, 1 << 0 | 1 << 2, 0, &bus, &ids};
    ids.device = chip()->device;
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory());
    return &device;
}

int drmGetDevices2(uint32_t flags, struct device **devices, int most) {
    (void)flags;
    if (devices && most > 0) devices[0] = the_device();
    return 1;
}
int drmGetDevice2(int file, uint32_t flags, struct device **device) {
    (void)file, (void)flags;
    *device = the_device();
    return 0;
}
void drmFreeDevices(struct device **devices, int count) { (void)devices, (void)count; }
void drmFreeDevice(struct device **device) { *device = NULL; }

/* The kernel's answers. */

struct version { int major, minor, patch; size_t name_bytes; char *name; size_t date_bytes; char *date; size_t text_bytes; char *text; };
struct info { uint64_t to; uint32_t bytes, query, of[4]; };

struct device_info {
    uint32_t device, chip_revision, revision, pci_revision, family, engines, arrays, counter_khz;
    uint64_t engine_khz, memory_khz;
    uint32_t units, always_on, unit_bits[4][4], backend_bits, backends, contexts, pcie;
    uint64_t flags, address_first, address_end;
    uint32_t address_align, fragment, gart_page, ce_ram, memory_type, memory_bits, vce, off_chip;
    uint64_t buffers[4];
    uint32_t buffer_bytes[4], wave, vgprs, units_of_array, caches, table_depth, buffer_depth, geometry_waves, lanes, always[4][4];
    uint64_t high_first, high_end;
    uint32_t tile, pad;
    uint64_t caches_off, least_engine_khz, least_memory_khz;
    uint32_t l0_kib, scalar_caches, scalar_kib, instruction_kib, gl1_kib, gl2_kib;
    uint64_t mall;
};
_Static_assert(offsetof(struct device_info, wave) == 240 && offsetof(struct device_info, high_first) == 336, "amdgpu_drm.h");
_Static_assert(offsetof(struct device_info, l0_kib) == 384 && sizeof(struct device_info) == 416, "amdgpu_drm.h");

static struct device_info device_info(void) {
    const struct chip *c = chip();
    struct device_info d = {
        .device = c->device, .revision = c->revision, .family = c->family, .engines = c->engines, .arrays = c->arrays,
        .counter_khz = 100000, .engine_khz = 2800000, .memory_khz = 1000000, .units = c->engines * c->arrays * c->units_of_array,
        .backend_bits = 0xf, .backends = 4, .contexts = 8, .flags = 9, .address_first = 0x10000, .address_end = 1ull << 47,
        .address_align = 4096, .fragment = 2 << 20, .gart_page = 4096, .memory_type = 12, .memory_bits = 128, .wave = 32,
        .vgprs = c->vgprs, .units_of_array = c->units_of_array, .caches = 4, .table_depth = 32, .buffer_depth = 1792,
        .geometry_waves = 32, .lanes = 16, .high_first = 0xffff800000000000, .high_end = 0xffffffffffbfe000,
        .least_engine_khz = 600000, .least_memory_khz = 400000, .l0_kib = 32, .scalar_caches = 1, .scalar_kib = 16,
        .instruction_kib = 32, .gl1_kib = 256, .gl2_kib = 2048,
    };
    for (uint32_t e = 0; e < c->engines; e++)
        for (uint32_t a = 0; a < c->arrays; a++) d.unit_bits[e][a] = (1u << c->units_of_array) - 1;
    return d;
}

enum { ACCEL_WORKING = 0, HW_IP = 2, HW_IP_COUNT = 3, FIRMWARE = 0xe, REGISTERS = 0x15, DEVICE = 0x16, MEMORY = 0x19 };

static int answer(const struct info *info) {
    union {
        uint32_t words[128];
        struct { uint32_t major, minor; uint64_t flags; uint32_t start_align, size_align, rings, version; } ip;
        struct { uint64_t total, usable, used, most; } heaps[3];
        struct device_info device;
    } a = {0};
    /* Graphics and compute alone have rings. */
    int has_rings = info->of[0] <= 1;
    switch (info->query) {
    case ACCEL_WORKING: a.words[0] = 1; break;
    case HW_IP_COUNT: a.words[0] = has_rings; break;
    case HW_IP:
        if (has_rings) {
            a.ip.major = chip()->version >> 16, a.ip.minor = chip()->version >> 8 & 0xff;
            a.ip.start_align = a.ip.size_align = 32, a.ip.rings = 1, a.ip.version = chip()->version;
        }
        break;
    case FIRMWARE: a.words[0] = 30, a.words[1] = 35; break;
    /* How addresses spread over channels (GB_ADDR_CONFIG): for images alone. */
    case REGISTERS: a.words[0] = 0x242; break;
    case DEVICE: a.device = device_info(); break;
    case MEMORY:
        for (int i = 0; i < 3; i++) {
            a.heaps[i].total = a.heaps[i].usable = (i < 2 ? 4ull : 16ull) << 30;
            a.heaps[i].most = a.heaps[i].total / 4 * 3;
        }
        break;
    default: return EINVAL;
    }
    memcpy((void *)(uintptr_t)info->to, &a, info->bytes < sizeof a ? info->bytes : sizeof a);
    return 0;
}

/* What buffers have as addresses of the device, and where they lie in the file. */
struct mapping { uint64_t address, bytes, part; };
static struct mapping mappings[1 << 14];
static size_t mapping_count;

struct map { uint32_t handle, pad, operation, flags; uint64_t address, offset, bytes; };
enum { MAP = 1, REPLACE = 4 };

static int map(const struct map *m, uint64_t part) {
    size_t kept = 0;
    for (size_t i = 0; i < mapping_count; i++)
        if (mappings[i].address != m->address) mappings[kept++] = mappings[i];
    mapping_count = kept;
    if (m->operation != MAP && m->operation != REPLACE) return 0;
    if (mapping_count == sizeof mappings / sizeof *mappings) return ENOMEM;
    mappings[mapping_count++] = (struct mapping){m->address, m->bytes, part + m->offset};
    return 0;
}

/* Appends an indirect buffer's words; then those of the one that it ends with a jump to. */
static int keep(int out, uint32_t ring, uint64_t address, uint32_t words) {
    for (size_t i = 0; i < mapping_count; i++) {
        const struct mapping *m = &mappings[i];
        if (address < m->address || address - m->address + 4ull * words > m->bytes) continue;
        uint32_t *ib = malloc(4ull * words), head[2] = {ring, words};
        ssize_t bytes = 4 * (ssize_t)words;
        int error = EIO;
        if (ib && words >= 4 && pread(memory(), ib, (size_t)bytes, (off_t)(m->part + address - m->address)) == bytes &&
            write(out, head, sizeof head) == sizeof head && write(out, ib, (size_t)bytes) == bytes) {
            const uint32_t *jump = ib + words - 4;
            int jumps = jump[0] == 0xc0023f00 && jump[3] >> 20 & 1;
            error = jumps ? keep(out, ring, jump[1] | (uint64_t)jump[2] << 32, jump[3] & 0xfffff) : 0;
        }
        free(ib);
        return error;
    }
    return EFAULT;
}

struct submit { uint32_t context, list, chunks, flags; uint64_t to; };
struct chunk { uint32_t kind, words; uint64_t at; };
struct indirect { uint32_t pad, flags; uint64_t address; uint32_t bytes, ring, instance, number; };
enum { INDIRECT = 1 };

static int submit(struct submit *s) {
    static uint64_t number;
    const char *path = getenv("KILN_TEST_PACKETS");
    int out = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1, error = 0;
    if (out < 0) return ENODEV;
    const uint64_t *chunks = (const void *)(uintptr_t)s->to;
    for (uint32_t i = 0; i < s->chunks && !error; i++) {
        const struct chunk *c = (const void *)(uintptr_t)chunks[i];
        const struct indirect *ib = (const void *)(uintptr_t)c->at;
        if (c->kind == INDIRECT) error = keep(out, ib->ring, ib->address, ib->bytes / 4);
    }
    close(out);
    *(uint64_t *)s = ++number;
    return error;
}

enum { VERSION = 0, CLIENT = 5, CAP = 0xc, SYNC_CREATE = 0xbf, GEM_CREATE = 0x40, GEM_MAP = 0x41, CONTEXT = 0x42, SUBMIT = 0x44,
       INFO = 0x45, GEM_ADDRESS = 0x48 };

static int request(unsigned number, void *argument) {
    static uint64_t parts[1 << 16], next_part;
    static uint32_t next_handle = 1, next_sync = 1;
    uint32_t *words = argument;
    uint64_t *longs = argument;
    switch (number) {
    case VERSION: {
        struct version *v = argument;
        v->major = 3, v->minor = 54, v->patch = 0;
        if (v->name && v->name_bytes >= 6) memcpy(v->name, "amdgpu", 6);
        v->name_bytes = 6, v->date_bytes = 0, v->text_bytes = 0;
        return 0;
    }
    case CLIENT: words[1] = 1; return 0;
    case CAP: longs[1] = 1; return 0;
    case SYNC_CREATE: words[0] = next_sync++; return 0;
    /* One that is made has a number; one that is asked after was never reset. */
    case CONTEXT: words[0] = words[0] == 1, words[1] = words[2] = words[3] = 0; return 0;
    case INFO: return answer(argument);
    case SUBMIT: return submit(argument);
    case GEM_CREATE: {
        uint64_t bytes = longs[0];
        if (next_handle == sizeof parts / sizeof *parts) return ENOMEM;
        parts[next_handle] = next_part;
        next_part += (bytes + 0xffff) & ~0xffffull;
        words[0] = next_handle++, words[1] = 0;
        return 0;
    }
    case GEM_ADDRESS: return map(argument, words[0] < next_handle ? parts[words[0]] : 0);
    case GEM_MAP: longs[0] = words[0] < next_handle ? parts[words[0]] : 0; return 0;
    default: return 0;
    }
}

int ioctl(int file, unsigned long number, ...) {
    va_list list;
    va_start(list, number);
    void *argument = va_arg(list, void *);
    va_end(list);
    if ((number >> 8 & 0xff) != 'd') return (int)syscall(SYS_ioctl, file, number, argument);
    int error = request(number & 0xff, argument);
    if (error) errno = error;
    return error ? -1 : 0;
}
