//! amdgpu's `gpu_metrics`: a table from the firmware, whose first bytes name its version. From the versions of APUs and
//! graphics cards this reads the fabric's clock and the causes of throttling; other versions are ignored.
//!
//! Offsets are from the kernel's `kgd_pp_interface.h`, and chip-independent bits from its `amdgpu_smu.h`.

/// The measurements in a table of amdgpu's `gpu_metrics`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuMetrics {
    /// Clock of the data fabric, MHz.
    pub fabric_mhz: Option<u16>,
    /// The reasons for which the GPU is throttled.
    pub throttle: Throttle,
}

/// The causes of throttling, as far as the table's version has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Throttle {
    /// The version or the chip does not report them.
    #[default]
    Unknown,
    /// The reasons at present, one bit each.
    Now(u64),
    /// For each limit in `RESIDENT`, the time for which it has throttled the GPU since the start.
    Since([u32; RESIDENT.len()]),
}

/// The limits for which a table of version 3.0 counts the time.
const RESIDENT: [&str; 7] = ["PROCHOT", "SPL", "FPPT", "SPPT", "TEMP_CORE", "TEMP_GFX", "TEMP_SOC"];

/// The names of the bits in [`Throttle::Now`].
const BITS: [(u32, &str); 34] = [
    (0, "PPT0"),
    (1, "PPT1"),
    (2, "PPT2"),
    (3, "PPT3"),
    (4, "SPL"),
    (5, "FPPT"),
    (6, "SPPT"),
    (7, "SPPT_APU"),
    (16, "TDC_GFX"),
    (17, "TDC_SOC"),
    (18, "TDC_MEM"),
    (19, "TDC_VDD"),
    (20, "TDC_CVIP"),
    (21, "EDC_CPU"),
    (22, "EDC_GFX"),
    (23, "APCC"),
    (32, "TEMP_GPU"),
    (33, "TEMP_CORE"),
    (34, "TEMP_MEM"),
    (35, "TEMP_EDGE"),
    (36, "TEMP_HOTSPOT"),
    (37, "TEMP_SOC"),
    (38, "TEMP_VR_GFX"),
    (39, "TEMP_VR_SOC"),
    (40, "TEMP_VR_MEM0"),
    (41, "TEMP_VR_MEM1"),
    (42, "TEMP_LIQUID0"),
    (43, "TEMP_LIQUID1"),
    (44, "VRHOT0"),
    (45, "VRHOT1"),
    (46, "PROCHOT_CPU"),
    (47, "PROCHOT_GFX"),
    (56, "PPM"),
    (57, "FIT"),
];

impl GpuMetrics {
    /// Reads a table. `None`: it is truncated, or of an unknown version.
    pub fn parse(table: &[u8]) -> Option<GpuMetrics> {
        let (length, form) = (u16::from_le_bytes(part(table, 0)?), [*table.get(2)?, *table.get(3)?]);
        let table = table.get(..usize::from(length))?;
        // All ones: the chip does not report the value.
        let clock = |at| part(table, at).map(u16::from_le_bytes).filter(|mhz| *mhz != u16::MAX);
        let now = |at| part(table, at).map(u64::from_le_bytes).filter(|bits| *bits != u64::MAX);
        let now = |at| now(at).map_or(Throttle::Unknown, Throttle::Now);
        Some(match form {
            [1, 3] => GpuMetrics { fabric_mhz: None, throttle: now(112) },
            [2, 1] => GpuMetrics { fabric_mhz: clock(82), throttle: Throttle::Unknown },
            [2, 2..=4] => GpuMetrics { fabric_mhz: clock(82), throttle: now(120) },
            [3, 0] => {
                let time = |i: usize| Some(u32::from_le_bytes(part(table, 228 + 4 * i)?));
                let times: Option<Vec<u32>> = (0..RESIDENT.len()).map(time).collect();
                let times = times?.try_into().ok()?;
                let is_told = times != [u32::MAX; RESIDENT.len()];
                GpuMetrics {
                    fabric_mhz: clock(182),
                    throttle: if is_told { Throttle::Since(times) } else { Throttle::Unknown },
                }
            }
            _ => return None,
        })
    }
}

impl Throttle {
    /// The causes of throttling, by the kernel's names. For times, those that have grown since `before`. `None`:
    /// unknown.
    pub fn reasons(&self, before: Option<&Throttle>) -> Option<Vec<&'static str>> {
        match (self, before) {
            (Throttle::Now(bits), _) => {
                Some(BITS.into_iter().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, name)| name).collect())
            }
            (Throttle::Since(now), Some(Throttle::Since(then))) => {
                let grown = RESIDENT.into_iter().zip(now.iter().zip(then)).filter(|(_, (now, then))| now > then);
                Some(grown.map(|(name, _)| name).collect())
            }
            _ => None,
        }
    }
}

fn part<const N: usize>(table: &[u8], at: usize) -> Option<[u8; N]> {
    table.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of `length` bytes of all ones but for its header and `parts`.
    fn table(length: u16, form: [u8; 2], parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut table = vec![0xff; length.into()];
        table[..2].copy_from_slice(&length.to_le_bytes());
        table[2..4].copy_from_slice(&form);
        for (at, bytes) in parts {
            table[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        table
    }

    #[test]
    fn each_form_has_its_clock_and_its_limits_where_it_has_them() {
        let bits = (1u64 << 6 | 1 << 33 | 1 << 57 | 1 << 63).to_le_bytes();
        let names = vec!["SPPT", "TEMP_CORE", "FIT"];
        let clock = 1200u16.to_le_bytes();
        for (length, form, mhz, at) in
            [(120, [1, 3], None, 112), (128, [2, 2], Some(82), 120), (152, [2, 3], Some(82), 120)]
        {
            let clocks = mhz.map(|at| (at, &clock[..]));
            let parts: Vec<_> = clocks.into_iter().chain([(at, &bits[..])]).collect();
            let told = GpuMetrics::parse(&table(length, form, &parts)).unwrap();
            assert_eq!((told.fabric_mhz, told.throttle.reasons(None)), (mhz.map(|_| 1200), Some(names.clone())));
            // All ones: the chip reports no value.
            let silent = GpuMetrics::parse(&table(length, form, &[])).unwrap();
            assert_eq!(silent, GpuMetrics::default());
        }
        let told = GpuMetrics::parse(&table(120, [2, 1], &[(82, &clock)])).unwrap();
        assert_eq!(told, GpuMetrics { fabric_mhz: Some(1200), throttle: Throttle::Unknown });
    }

    #[test]
    fn times_say_what_they_grew_by() {
        let at = |times: [u32; 7]| {
            let bytes: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
            GpuMetrics::parse(&table(264, [3, 0], &[(182, &2000u16.to_le_bytes()), (228, &bytes)])).unwrap()
        };
        let (first, second) = (at([1, 2, 3, 4, 5, 6, 7]), at([1, 2, 3, 9, 5, 6, 8]));
        assert_eq!((first.fabric_mhz, first.throttle.reasons(None)), (Some(2000), None));
        assert_eq!(second.throttle.reasons(Some(&first.throttle)), Some(vec!["SPPT", "TEMP_SOC"]));
        assert_eq!(second.throttle.reasons(Some(&second.throttle)), Some(vec![]));
        assert_eq!(GpuMetrics::parse(&table(264, [3, 0], &[])).unwrap(), GpuMetrics::default());
    }

    #[test]
    fn what_is_cut_off_or_of_another_form_says_nothing() {
        for length in 0..264 {
            let whole = table(264, [3, 0], &[(228, &[0; 28])]);
            assert_eq!(GpuMetrics::parse(&whole[..length]), None, "{length}");
        }
        assert_eq!(GpuMetrics::parse(&table(100, [3, 0], &[])), None, "shorter than its form");
        for form in [[0, 0], [1, 0], [1, 4], [2, 0], [2, 5], [3, 1], [9, 9]] {
            assert_eq!(GpuMetrics::parse(&table(300, form, &[])), None, "{form:?}");
        }
    }
}
