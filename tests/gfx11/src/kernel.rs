//! RADV's compute kernels as `vkGetPipelineCacheData` of Mesa 25.0.7 gives them, and how they are entered.

use crate::fault::Fault;
use crate::float::Mode;
use crate::machine::{Dispatch, Machine, Report};
use crate::memory::Memory;
use crate::program::Program;
use crate::scratch::Scratch;
use crate::wave::Wave;

/// High half of the address of push constants.
pub const PUSH_HIGH: u64 = 0xffff_8000 << 32;

/// A kernel with what its registers say.
pub struct Kernel {
    /// Its code, decoded.
    pub program: Program,
    /// Dwords of the code.
    pub code: Vec<u32>,
    /// Threads of a workgroup.
    pub threads: [u32; 3],
    /// Bytes of LDS.
    pub lds: usize,
    /// MODE's float bits.
    pub float_mode: u8,
    /// COMPUTE_PGM_RSRC1, 2 (user SGPRs and what follows them) and 3.
    pub rsrc: [u32; 3],
    /// COMPUTE_RESOURCE_LIMITS.
    pub limits: u32,
    /// Whether waves have 64 lanes.
    pub wave64: bool,
    /// Bytes of scratch a wave.
    pub scratch: u32,
    /// First SGPR of the push pointer, the inline push constants, the grid size.
    pub places: [Option<usize>; 3],
    /// Push constant dwords that come inline.
    pub inline: u64,
}

/// A kernel, and what a dispatch gives it.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Workgroups.
    pub grid: [u32; 3],
    /// All its push constants. Where the kernel reads them from memory they must also stand at [`PUSH_HIGH`] + `push_low`.
    pub push: &'a [u32],
    /// See `push`.
    pub push_low: u32,
}

/// Runs kernels with nothing between them, as [`Machine::run_beside`] does.
pub fn run(machine: &mut Machine, memory: &Memory, launches: &[Launch]) -> Result<Report, Fault> {
    let enters: Vec<_> = launches.iter().map(|l| move |w: &mut Wave, id: [u32; 3]| l.kernel.enter(w, id, l)).collect();
    let dispatches = launches.iter().zip(&enters).map(|(l, enter)| Dispatch {
        program: &l.kernel.program,
        grid: l.grid,
        threads: l.kernel.threads,
        lds: l.kernel.lds,
        wave64: l.kernel.wave64,
        mode: Mode { float: l.kernel.float_mode, ..Mode::RADV },
        enter,
    });
    machine.run_beside(memory, &dispatches.collect::<Vec<_>>())
}

/// Numbers of a blob, little endian; none past its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u32(&self, at: usize) -> Result<u32, String> {
        let bytes = at.checked_add(4).and_then(|end| self.0.get(at..end)).ok_or("it is cut short")?;
        Ok(bytes.iter().rev().fold(0, |all, b| all << 8 | *b as u32))
    }
    fn u64(&self, at: usize) -> Result<u64, String> {
        Ok(self.u32(at)? as u64 | (self.u32(at + 4)? as u64) << 32)
    }
    fn slice(&self, at: usize, bytes: usize) -> Result<&[u8], String> {
        at.checked_add(bytes).and_then(|end| self.0.get(at..end)).ok_or("it is cut short".into())
    }
}

impl Kernel {
    /// All kernels of a pipeline cache.
    pub fn all(blob: &[u8]) -> Result<Vec<Self>, String> {
        let bytes = Bytes(blob);
        if (bytes.u32(0)?, bytes.u32(4)?, bytes.u32(8)?) != (32, 1, 0x1002) {
            return Err("it is no pipeline cache of RADV".into());
        }
        let (mut at, mut kernels) = (36, Vec::new());
        for _ in 0..bytes.u32(32)? {
            let (key, size) = (bytes.u32(at + 4)? as usize, bytes.u32(at + 8)? as usize);
            let data = (at + 12 + key).next_multiple_of(8);
            let object = bytes.slice(data, size)?;
            // Pipelines have keys of 20 bytes, shaders of 32.
            if key == 32 {
                kernels.push(Self::of(object)?);
            }
            at = data + size;
        }
        Ok(kernels)
    }

    /// The kernel of one shader object.
    pub fn of(object: &[u8]) -> Result<Self, String> {
        let bytes = Bytes(object);
        if bytes.u32(1168)? as usize != object.len() {
            return Err("its size is not what it says: the layout is that of Mesa 25.0.7".into());
        }
        let place = |at: usize| -> Result<Option<usize>, String> {
            let byte = bytes.slice(at, 1)?[0] as i8;
            Ok(usize::try_from(byte).ok())
        };
        let (size, statistics) = (bytes.u32(1180)? as usize, bytes.u32(1192)? as usize);
        let code = bytes.slice(1200 + statistics, size)?;
        let code: Vec<u32> = code.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
        let program = Program::new(&code).map_err(|fault| fault.to_string())?;
        Ok(Self {
            program,
            code,
            threads: [bytes.u32(820)?, bytes.u32(824)?, bytes.u32(828)?],
            lds: 512 * bytes.u32(24)? as usize,
            float_mode: bytes.u32(36)? as u8,
            rsrc: [bytes.u32(44)?, bytes.u32(48)?, bytes.u32(52)?],
            limits: bytes.u32(1128)?,
            wave64: bytes.slice(75, 1)?[0] == 64,
            scratch: bytes.u32(40)?,
            places: [place(146)?, place(148)?, place(180)?],
            inline: bytes.u64(56)?,
        })
    }

    /// Sets a wave's scalar registers.
    fn enter(&self, w: &mut Wave, id: [u32; 3], launch: &Launch) {
        w.scratch = Scratch::new(self.scratch / if self.wave64 { 64 } else { 32 });
        let [pointer, inline, size] = self.places;
        if let Some(r) = pointer {
            w.set_s(r, launch.push_low);
        }
        let dwords = (0..64).filter(|i| self.inline >> i & 1 != 0);
        for (i, dword) in dwords.enumerate() {
            if let (Some(r), Some(word)) = (inline, launch.push.get(dword)) {
                w.set_s(r + i, *word);
            }
        }
        if let Some(r) = size {
            launch.grid.iter().enumerate().for_each(|(i, n)| w.set_s(r + i, *n));
        }
        let mut r = (self.rsrc[1] >> 1 & 31) as usize;
        for (axis, id) in id.into_iter().enumerate() {
            if self.rsrc[1] >> (7 + axis) & 1 != 0 {
                w.set_s(r, id);
                r += 1;
            }
        }
        if self.rsrc[1] >> 10 & 1 != 0 {
            let lanes = if self.wave64 { 64 } else { 32 };
            let waves = self.threads.iter().product::<u32>().div_ceil(lanes);
            w.set_s(r, waves | w.id << 20);
        }
    }
}
