//! amdxdna's own interface: the NPU's array, clocks, sensors, firmware, contexts and errors.

use super::answer::{ANSWER_BYTES, ReplyBuffer};
use super::drm::{Node, text};
use super::failure::{DriverResult, retry};
use super::{bindings as b, raw};

// Sizes as in a running driver (Linux 7.2), because ffi/amdxdna_accel.h is written by hand.
const _: () = {
    assert!(size_of::<b::amdxdna_drm_create_hwctx>() == 56);
    assert!(size_of::<b::amdxdna_qos_info>() == 24);
    assert!(size_of::<b::amdxdna_drm_destroy_hwctx>() == 8);
    assert!(size_of::<b::amdxdna_drm_config_hwctx>() == 24);
    assert!(size_of::<b::amdxdna_cu_config>() == 8);
    assert!(size_of::<b::amdxdna_config_one_cu>() == 16);
    assert!(size_of::<b::amdxdna_drm_create_bo>() == 32);
    assert!(size_of::<b::amdxdna_drm_get_bo_info>() == 48);
    assert!(size_of::<b::amdxdna_drm_sync_bo>() == 24);
    assert!(size_of::<b::amdxdna_drm_exec_cmd>() == 56);
    assert!(size_of::<b::amdxdna_drm_get_info>() == 16);
    assert!(size_of::<b::amdxdna_drm_get_array>() == 24);
    assert!(size_of::<b::amdxdna_drm_query_hwctx>() == 64);
    assert!(size_of::<b::amdxdna_drm_query_aie_version>() == 8);
    assert!(size_of::<b::amdxdna_drm_query_aie_tile_metadata>() == 16);
    assert!(size_of::<b::amdxdna_drm_query_aie_metadata>() == 64);
    assert!(size_of::<b::amdxdna_drm_query_clock_metadata>() == 48);
    assert!(size_of::<b::amdxdna_drm_query_sensor>() == 168);
    assert!(size_of::<b::amdxdna_drm_power_mode>() == 8);
    assert!(size_of::<b::amdxdna_drm_get_resource_info>() == 40);
    assert!(size_of::<b::amdxdna_drm_hwctx_entry>() == 144);
    assert!(size_of::<b::amdxdna_async_error>() == 24);
    assert!(size_of::<b::amdxdna_drm_bo_usage>() == 32);
};

/// The NPU's array of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileArray {
    /// The version of the tile architecture: major and minor.
    pub version: [u32; 2],
    /// The number of columns in the array.
    pub columns: u16,
    /// The number of rows of tiles: shim, memory and compute.
    pub rows: u16,
    /// The number of rows of compute tiles.
    pub core_rows: u16,
}

/// The NPU's clocks, in MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The clock of the NPU's controller.
    pub controller: u32,
    /// The clock of the array ("H clock").
    pub array: u32,
}

/// A sensor of the NPU, with its present value.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NpuSensor {
    /// The quantity that the sensor measures.
    pub label: String,
    /// The measured value, in `unit`.
    pub value: f64,
    /// The unit of the value, as the driver names it.
    pub unit: String,
}

/// A hardware context: a program that holds columns of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextInfo {
    /// The id of the context.
    pub id: u32,
    /// The id of the process that owns the context.
    pub pid: i64,
    /// The first column that the context occupies.
    pub first_column: u32,
    /// The number of columns that the context occupies.
    pub columns: u32,
    /// The number of commands submitted to the context.
    pub submitted: u64,
    /// The number of commands that the context has completed.
    pub completed: u64,
    /// The number of errors in the context.
    pub errors: u64,
}

/// An asynchronous error of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncError {
    /// The driver's error code.
    pub code: u64,
}

/// Names of the power modes, indexed by the driver's number.
const POWER_MODES: [&str; 5] = ["default", "low", "medium", "high", "turbo"];

/// Entries requested from the driver: more contexts than any NPU has.
const MAX_CONTEXTS: usize = 32;

/// Makes the GET_INFO ioctl, and returns the driver's reply.
fn info(node: &Node, what: &str, param: u32) -> DriverResult<ReplyBuffer> {
    let mut answer = ReplyBuffer::new();
    let mut data = b::amdxdna_drm_get_info { param, buffer_size: ANSWER_BYTES as u32, buffer: answer.address() };
    // SAFETY: the structure and the buffer that it points to, with its size, are valid for the call.
    retry(what, || unsafe { raw::amdxdna_get_info(node.raw(), &mut data) })?;
    Ok(answer)
}

/// The GET_ARRAY ioctl: the answer, and the stride between its entries in bytes.
fn array_of(node: &Node, what: &str, param: u32, element: usize, count: usize) -> DriverResult<(ReplyBuffer, usize)> {
    let mut answer = ReplyBuffer::new();
    let mut data = b::amdxdna_drm_get_array {
        param,
        element_size: element as u32,
        num_element: count as u32,
        pad: 0,
        buffer: answer.address(),
    };
    // SAFETY: as in `info`.
    retry(what, || unsafe { raw::amdxdna_get_array(node.raw(), &mut data) })?;
    // An older driver's entries are shorter than requested.
    let stride = (data.element_size as usize).clamp(8, element);
    Ok((answer, stride))
}

/// The array of tiles.
///
/// # Errors
/// ENOTTY, EINVAL: not amdxdna. ENODEV: the NPU is gone.
pub fn array(node: &Node) -> DriverResult<TileArray> {
    let answer = info(node, "ask what the NPU is", b::DRM_AMDXDNA_QUERY_AIE_METADATA)?;
    // SAFETY: the structure consists of integers only.
    let m: b::amdxdna_drm_query_aie_metadata = unsafe { answer.read(0) };
    let version = [m.version.major, m.version.minor];
    Ok(TileArray { version, columns: m.cols, rows: m.rows, core_rows: m.core.row_count })
}

/// The NPU's clocks.
///
/// # Errors
/// As [`array()`].
pub fn clocks(node: &Node) -> DriverResult<Clocks> {
    let answer = info(node, "ask for the NPU's clocks", b::DRM_AMDXDNA_QUERY_CLOCK_METADATA)?;
    // SAFETY: the structure consists of integers only.
    let m: b::amdxdna_drm_query_clock_metadata = unsafe { answer.read(0) };
    Ok(Clocks { controller: m.mp_npu_clock.freq_mhz, array: m.h_clock.freq_mhz })
}

/// The NPU's sensors that have a reading now.
///
/// # Errors
/// EOPNOTSUPP: this driver reads no sensors. Otherwise as [`array()`].
pub fn sensors(node: &Node) -> DriverResult<Vec<NpuSensor>> {
    let answer = info(node, "read the NPU's sensors", b::DRM_AMDXDNA_QUERY_SENSORS)?;
    // SAFETY: the structure consists of integers only.
    let sensors: Vec<b::amdxdna_drm_query_sensor> = unsafe { answer.entries(size_of::<b::amdxdna_drm_query_sensor>()) };
    let sensor = |s: &b::amdxdna_drm_query_sensor| NpuSensor {
        label: text(&s.label),
        value: f64::from(s.input) * 10f64.powi(i32::from(s.unitm)),
        // Applying `unitm` gives watts, but the driver's `units` still names the raw input's unit, "mW".
        unit: if u32::from(s.type_) == b::AMDXDNA_SENSOR_TYPE_POWER { "W".into() } else { text(&s.units) },
    };
    // All ones: the driver has no reading.
    Ok(sensors.iter().filter(|s| s.input != u32::MAX).map(sensor).collect())
}

/// The name of the current power mode.
///
/// # Errors
/// As [`array()`].
pub fn power_mode(node: &Node) -> DriverResult<String> {
    let answer = info(node, "ask for the NPU's power mode", b::DRM_AMDXDNA_GET_POWER_MODE)?;
    // SAFETY: the structure consists of integers only.
    let m: b::amdxdna_drm_power_mode = unsafe { answer.read(0) };
    let name = POWER_MODES.get(usize::from(m.power_mode));
    Ok(name.map_or_else(|| format!("{} (unknown)", m.power_mode), |n| (*n).to_owned()))
}

/// The contexts that hold columns of the array: for root those of all processes, else the caller's own.
///
/// # Errors
/// EPERM, EACCES: the driver shows contexts to root only. Otherwise as [`array()`].
pub fn contexts(node: &Node) -> DriverResult<Vec<ContextInfo>> {
    let what = "list the NPU's contexts";
    let element = size_of::<b::amdxdna_drm_hwctx_entry>();
    let (answer, stride) = match array_of(node, what, b::DRM_AMDXDNA_HW_CONTEXT_ALL, element, MAX_CONTEXTS) {
        // Older drivers know only the older query.
        Err(e) if e.is_unknown() => {
            (info(node, what, b::DRM_AMDXDNA_QUERY_HW_CONTEXTS)?, size_of::<b::amdxdna_drm_query_hwctx>())
        }
        found => found?,
    };
    // SAFETY: the structure consists of integers only. The older query's entry is a prefix of the newer one's.
    let entries: Vec<b::amdxdna_drm_query_hwctx> = unsafe { answer.entries(stride) };
    let context = |e: &b::amdxdna_drm_query_hwctx| ContextInfo {
        id: e.context_id,
        pid: e.pid,
        first_column: e.start_col,
        columns: e.num_col,
        submitted: e.command_submissions,
        completed: e.command_completions,
        errors: e.errors,
    };
    Ok(entries.iter().map(context).collect())
}

/// Number of columns that contexts hold. A column shared by several contexts counts once.
pub fn columns_held(contexts: &[ContextInfo]) -> u64 {
    let mut held: Vec<(u64, u64)> =
        contexts.iter().map(|c| (c.first_column.into(), u64::from(c.first_column) + u64::from(c.columns))).collect();
    held.sort_unstable();
    let (mut count, mut end) = (0, 0);
    for (from, to) in held {
        count += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    count
}

/// The last asynchronous error of the array, if any.
///
/// # Errors
/// EINVAL, ENOTTY: an older driver. Otherwise as [`array()`].
pub fn last_error(node: &Node) -> DriverResult<Option<AsyncError>> {
    let size = size_of::<b::amdxdna_async_error>();
    let (answer, _) = array_of(node, "ask for the NPU's last error", b::DRM_AMDXDNA_HW_LAST_ASYNC_ERR, size, 1)?;
    // SAFETY: the structure consists of integers only.
    let e: b::amdxdna_async_error = unsafe { answer.read(0) };
    Ok((e.err_code != 0).then_some(AsyncError { code: e.err_code }))
}
