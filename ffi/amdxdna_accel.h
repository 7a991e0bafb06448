/* The interface of the NPU's driver, amdxdna (Linux 6.14 on), as far as Kiln speaks it. Debian 12's headers do not have
 * it, so it is declared here. Sizes and offsets are the interface: ffi/bindings.rs asserts every one of them, and
 * src/sys/amdxdna.rs those that were read from a running driver. What a field is for stands where it is used. */
#ifndef KILN_AMDXDNA_ACCEL_H
#define KILN_AMDXDNA_ACCEL_H

#include <linux/types.h>

/* Numbers of the ioctls, from DRM_COMMAND_BASE on. */
enum amdxdna_ioctl_number {
	DRM_AMDXDNA_CREATE_HWCTX = 0,
	DRM_AMDXDNA_DESTROY_HWCTX = 1,
	DRM_AMDXDNA_CONFIG_HWCTX = 2,
	DRM_AMDXDNA_CREATE_BO = 3,
	DRM_AMDXDNA_GET_BO_INFO = 4,
	DRM_AMDXDNA_SYNC_BO = 5,
	DRM_AMDXDNA_EXEC_CMD = 6,
	DRM_AMDXDNA_GET_INFO = 7,
	DRM_AMDXDNA_SET_STATE = 8,
	DRM_AMDXDNA_GET_ARRAY = 10,
};

struct amdxdna_qos_info {
	__u32 gops;
	__u32 fps;
	__u32 dma_bandwidth;
	__u32 latency;
	__u32 frame_exec_time;
	__u32 priority;
};

struct amdxdna_drm_create_hwctx {
	__u64 ext; /* 0 */
	__u64 ext_flags; /* 0 */
	__u64 qos_p; /* address of an amdxdna_qos_info */
	__u32 umq_bo;
	__u32 log_buf_bo;
	__u32 max_opc;
	__u32 num_tiles;
	__u32 mem_size;
	__u32 umq_doorbell; /* out */
	__u32 handle; /* out */
	__u32 syncobj_handle; /* out */
};

struct amdxdna_drm_destroy_hwctx {
	__u32 handle;
	__u32 pad;
};

enum amdxdna_config_hwctx_param {
	DRM_AMDXDNA_HWCTX_CONFIG_CU = 0,
};

struct amdxdna_drm_config_hwctx {
	__u32 handle;
	__u32 param_type;
	__u64 param_val; /* address of an amdxdna_config_cu and its CUs */
	__u32 param_val_size;
	__u32 pad;
};

struct amdxdna_cu_config {
	__u32 cu_bo;
	__u8 cu_func;
	__u8 pad[3];
};

/* What the kernel ends in an array of any length: Kiln's programs have one CU. */
struct amdxdna_config_one_cu {
	__u16 num_cus;
	__u16 pad[3];
	struct amdxdna_cu_config cu;
};

enum amdxdna_bo_type {
	AMDXDNA_BO_SHMEM = 1,
	AMDXDNA_BO_DEV_HEAP = 2,
	AMDXDNA_BO_DEV = 3,
	AMDXDNA_BO_CMD = 4,
};

struct amdxdna_drm_create_bo {
	__u64 flags; /* 0 */
	__u64 vaddr; /* 0 */
	__u64 size;
	__u32 type;
	__u32 handle; /* out */
};

struct amdxdna_drm_get_bo_info {
	__u64 ext; /* 0 */
	__u64 ext_flags; /* 0 */
	__u32 handle;
	__u32 pad;
	/* out; all ones: none (vaddr of what is not mapped, and xdna_addr where it follows from vaddr) */
	__u64 map_offset;
	__u64 vaddr;
	__u64 xdna_addr;
};

enum amdxdna_sync_direction {
	AMDXDNA_SYNC_TO_DEVICE = 0,
	AMDXDNA_SYNC_FROM_DEVICE = 1,
};

struct amdxdna_drm_sync_bo {
	__u32 handle;
	__u32 direction;
	__u64 offset;
	__u64 size;
};

enum amdxdna_cmd_type {
	AMDXDNA_CMD_SUBMIT_EXEC_BUF = 0,
};

struct amdxdna_drm_exec_cmd {
	__u64 ext; /* 0 */
	__u64 ext_flags; /* 0 */
	__u32 hwctx;
	__u32 type;
	__u64 cmd_handles; /* the handle itself when cmd_count is 1 */
	__u64 args; /* address of the handles of what the command uses */
	__u32 cmd_count;
	__u32 arg_count;
	__u64 seq; /* out */
};

/* What GET_INFO answers. */
enum amdxdna_get_info_param {
	DRM_AMDXDNA_QUERY_AIE_STATUS = 0,
	DRM_AMDXDNA_QUERY_AIE_METADATA = 1,
	DRM_AMDXDNA_QUERY_AIE_VERSION = 2,
	DRM_AMDXDNA_QUERY_CLOCK_METADATA = 3,
	DRM_AMDXDNA_QUERY_SENSORS = 4,
	DRM_AMDXDNA_QUERY_HW_CONTEXTS = 5,
	DRM_AMDXDNA_QUERY_FIRMWARE_VERSION = 8,
	DRM_AMDXDNA_GET_POWER_MODE = 9,
	DRM_AMDXDNA_QUERY_TELEMETRY = 10,
	DRM_AMDXDNA_QUERY_RESOURCE_INFO = 12,
};

struct amdxdna_drm_get_info {
	__u32 param;
	__u32 buffer_size; /* in: the buffer's; out: as the query says */
	__u64 buffer;
};

/* DRM_AMDXDNA_QUERY_AIE_VERSION */
struct amdxdna_drm_query_aie_version {
	__u32 major;
	__u32 minor;
};

struct amdxdna_drm_query_aie_tile_metadata {
	__u16 row_count;
	__u16 row_start;
	__u16 dma_channel_count;
	__u16 lock_count;
	__u16 event_reg_count;
	__u16 pad[3];
};

/* DRM_AMDXDNA_QUERY_AIE_METADATA */
struct amdxdna_drm_query_aie_metadata {
	__u32 col_size;
	__u16 cols;
	__u16 rows;
	struct amdxdna_drm_query_aie_version version;
	struct amdxdna_drm_query_aie_tile_metadata core;
	struct amdxdna_drm_query_aie_tile_metadata mem;
	struct amdxdna_drm_query_aie_tile_metadata shim;
};

struct amdxdna_drm_query_clock {
	__u8 name[16];
	__u32 freq_mhz;
	__u32 pad;
};

/* DRM_AMDXDNA_QUERY_CLOCK_METADATA */
struct amdxdna_drm_query_clock_metadata {
	struct amdxdna_drm_query_clock mp_npu_clock;
	struct amdxdna_drm_query_clock h_clock;
};

enum amdxdna_sensor_type {
	AMDXDNA_SENSOR_TYPE_POWER = 0,
	AMDXDNA_SENSOR_TYPE_COLUMN_UTILIZATION = 1,
	AMDXDNA_SENSOR_TYPE_TEMPERATURE = 2,
};

/* DRM_AMDXDNA_QUERY_SENSORS: as many as fit */
struct amdxdna_drm_query_sensor {
	__u8 label[64];
	__u32 input; /* all ones: unknown */
	__u32 max;
	__u32 average;
	__u32 highest;
	__u8 status[64];
	__u8 units[16];
	__s8 unitm; /* a value times ten to this is in the unit proper: power in W, though `units` is "mW" */
	__u8 type;
	__u8 pad[6];
};

/* DRM_AMDXDNA_QUERY_HW_CONTEXTS: as many as fit */
struct amdxdna_drm_query_hwctx {
	__u32 context_id;
	__u32 start_col;
	__u32 num_col;
	__u32 pad;
	__s64 pid;
	__u64 command_submissions;
	__u64 command_completions;
	__u64 migrations;
	__u64 preemptions;
	__u64 errors;
};

/* DRM_AMDXDNA_QUERY_FIRMWARE_VERSION */
struct amdxdna_drm_query_firmware_version {
	__u32 major;
	__u32 minor;
	__u32 patch;
	__u32 build;
};

enum amdxdna_power_mode_type {
	POWER_MODE_DEFAULT = 0,
	POWER_MODE_LOW = 1,
	POWER_MODE_MEDIUM = 2,
	POWER_MODE_HIGH = 3,
	POWER_MODE_TURBO = 4,
};

/* DRM_AMDXDNA_GET_POWER_MODE, DRM_AMDXDNA_SET_POWER_MODE */
struct amdxdna_drm_power_mode {
	__u8 power_mode;
	__u8 pad[7];
};

/* DRM_AMDXDNA_QUERY_RESOURCE_INFO */
struct amdxdna_drm_get_resource_info {
	__u64 npu_clk_max;
	__u64 npu_tops_max;
	__u64 npu_task_max;
	__u64 npu_tops_curr;
	__u64 npu_task_curr;
};

enum amdxdna_set_state_param {
	DRM_AMDXDNA_SET_POWER_MODE = 0,
};

struct amdxdna_drm_set_state {
	__u32 param;
	__u32 buffer_size;
	__u64 buffer;
};

/* What GET_ARRAY answers. */
enum amdxdna_get_array_param {
	DRM_AMDXDNA_HW_CONTEXT_ALL = 0,
	DRM_AMDXDNA_HW_LAST_ASYNC_ERR = 2,
	DRM_AMDXDNA_BO_USAGE = 6,
};

struct amdxdna_drm_get_array {
	__u32 param;
	__u32 element_size; /* in: at most; out: the driver's own */
	__u32 num_element; /* in: at most; out: how many there are */
	__u32 pad;
	__u64 buffer;
};

/* DRM_AMDXDNA_HW_CONTEXT_ALL */
struct amdxdna_drm_hwctx_entry {
	__u32 context_id;
	__u32 start_col;
	__u32 num_col;
	__u32 hwctx_id;
	__s64 pid;
	__u64 command_submissions;
	__u64 command_completions;
	__u64 migrations;
	__u64 preemptions;
	__u64 errors;
	__u64 priority;
	__u64 heap_usage;
	__u64 suspensions;
	__u32 state; /* 0 idle, 1 active */
	__u32 pasid;
	__u32 gops;
	__u32 fps;
	__u32 dma_bandwidth;
	__u32 latency;
	__u32 frame_exec_time;
	__u32 txn_op_idx;
	__u32 ctx_pc;
	__u32 fatal_error_type;
	__u32 fatal_error_exception_type;
	__u32 fatal_error_exception_pc;
	__u32 fatal_error_app_module;
	__u32 pad;
};

/* DRM_AMDXDNA_HW_LAST_ASYNC_ERR */
struct amdxdna_async_error {
	__u64 err_code;
	__u64 ts_us;
	__u64 ex_err_code;
};

/* DRM_AMDXDNA_BO_USAGE */
struct amdxdna_drm_bo_usage {
	__s64 pid; /* in: whose */
	__u64 total_usage;
	__u64 internal_usage;
	__u64 heap_usage;
};

#endif
