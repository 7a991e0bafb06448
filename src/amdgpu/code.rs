//! The machine code of every kernel, compiled ahead of time by RADV of Mesa 25.0.7 for each chip.
//!
//! A set is one LZMA stream in src/amdgpu/code: the code of one kernel is mostly that of its neighbours, and a window over
//! all of it makes 18 MB 2.4. `KILN_BLESS=1 cargo test --test amd code::` makes the sets anew (tests/amd/code.rs);
//! tests/amd/list.rs has the models and weight formats that they are for. Chips of one instruction set share a stream.
//!
//! A stream consists of u32, little endian: [`MAGIC`]; the number of modules, and each one's name as its length in bytes
//! and its bytes in whole words; the number of constants of a kernel; the number of codes, and for each its registers, its
//! user SGPRs and its length in words; all codes' words; for each chip the number of its kernels, and each kernel's module,
//! workgroup, constants and code.

use super::device::by_others;
use crate::lower::kernels::constants::Constants;
use crate::lower::kernels::{Kernel, Module, checksum};
use crate::sys::amdgpu::GpuInfo;
use crate::{Error, Result};
use lzma_rust2::LzmaReader;
use std::collections::HashMap;
use std::io::Read;
use std::rc::Rc;

/// The chips for which Kiln has machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chip {
    /// RDNA 3: Radeon 740M to 780M.
    Gfx1103,
    /// RDNA 3.5: Radeon 880M and 890M.
    Gfx1150,
    /// RDNA 3.5: Radeon 8040S to 8060S.
    Gfx1151,
}

/// Families and revisions of the kernel's driver: `AMDGPU_FAMILY_GC_11_0_1` and `AMDGPU_FAMILY_GC_11_5_0` of amdgpu_drm.h,
/// and the revisions that soc21.c gives the chips within the second one.
const GC_11_0_1: u32 = 148;
const GC_11_5_0: u32 = 150;
const GFX1150_REVISIONS: std::ops::Range<u32> = 0x01..0x40;
const GFX1151_REVISIONS: std::ops::Range<u32> = 0xc0..0x100;

impl Chip {
    /// Every chip for which Kiln has machine code.
    pub const ALL: [Chip; 3] = [Chip::Gfx1103, Chip::Gfx1150, Chip::Gfx1151];

    /// The chip of a GPU, if there is code for it.
    pub fn of(info: &GpuInfo) -> Option<Chip> {
        match (info.family, info.external_rev) {
            (GC_11_0_1, _) => Some(Chip::Gfx1103),
            (GC_11_5_0, revision) if GFX1150_REVISIONS.contains(&revision) => Some(Chip::Gfx1150),
            (GC_11_5_0, revision) if GFX1151_REVISIONS.contains(&revision) => Some(Chip::Gfx1151),
            _ => None,
        }
    }

    /// The name of the chip's instruction set.
    pub fn name(self) -> &'static str {
        match self {
            Chip::Gfx1103 => "gfx1103",
            Chip::Gfx1150 => "gfx1150",
            Chip::Gfx1151 => "gfx1151",
        }
    }

    /// The checksum of the file with the chip's code. Measurements hold for this code alone.
    pub fn digest(self) -> u64 {
        self.stream().0.first_chunk().map_or(0, |sum| u64::from_le_bytes(*sum))
    }

    /// The compressed file with the chip's code, and the chip's index among those in the file.
    fn stream(self) -> (&'static [u8], usize) {
        match self {
            Chip::Gfx1103 => (include_bytes!("code/gfx11.lzma"), 0),
            Chip::Gfx1150 => (include_bytes!("code/gfx115.lzma"), 0),
            Chip::Gfx1151 => (include_bytes!("code/gfx115.lzma"), 1),
        }
    }
}

/// One kernel's machine code. Its workgroup is [`Kernel::workgroup`] threads in waves of 32; it has no scratch memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCode {
    /// The code. The fetcher reads up to 192 bytes behind it, which must be mapped.
    pub words: Rc<[u32]>,
    /// The register values that the code needs.
    pub registers: KernelRegisters,
}

/// The register words that a kernel runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelRegisters {
    /// The value of the register COMPUTE_PGM_RSRC1.
    pub rsrc1: u32,
    /// The value of the register COMPUTE_PGM_RSRC2.
    pub rsrc2: u32,
    /// The value of the register COMPUTE_PGM_RSRC3.
    pub rsrc3: u32,
    /// The value of the register COMPUTE_RESOURCE_LIMITS.
    pub limits: u32,
    /// Bytes of LDS of a workgroup, which `rsrc2` has in units of 512.
    pub lds: u32,
    /// The values that the code expects in its user SGPRs.
    pub user: UserSgprs,
}

/// The content of user SGPRs, s2 and on. s[0:1] are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserSgprs {
    /// The SGPR of the low half of the address of all push words; `None` if the code does not read them from memory. The
    /// high half is [`PUSH_HIGH`].
    pub pointer: Option<u32>,
    /// The first SGPR of the inline push words.
    pub inline: Option<u32>,
    /// The push words that are inline, a bit each, lowest first.
    pub inline_words: u64,
    /// The first of three SGPRs with the number of workgroups in x, y and z.
    pub groups: Option<u32>,
}

/// High half of the address of push words, part of the code.
pub const PUSH_HIGH: u32 = 0xffff_8000;

impl UserSgprs {
    /// Each SGPR with its word. `low`: low half of the address of the push words.
    pub fn words<'a>(
        &'a self,
        push: &'a [u32],
        low: u32,
        groups: &'a [u32; 3],
    ) -> impl Iterator<Item = (u32, u32)> + 'a {
        let inline = (0..64).filter(|i| self.inline_words >> i & 1 != 0);
        let inline = self.inline.into_iter().flat_map(move |first| (first..).zip(inline.clone()));
        let inline = inline.map(|(sgpr, at)| (sgpr, push.get(at as usize).copied().unwrap_or(0)));
        let groups = self.groups.into_iter().flat_map(|first| (first..).zip(groups.iter().copied()));
        self.pointer.map(|sgpr| (sgpr, low)).into_iter().chain(inline).chain(groups)
    }
}

/// The first word of a code file. It changes with the file's format.
const MAGIC: u32 = 0x4b43_0001;
/// Most bytes of an inflated stream, and most that inflating may take.
const MOST_BYTES: u64 = 256 << 20;

/// The code of all kernels of one chip.
#[derive(Debug)]
pub struct CodeSet {
    chip: Chip,
    codes: Vec<KernelCode>,
    /// The index in `codes` of each kernel's code.
    kernels: HashMap<Kernel, usize>,
}

impl CodeSet {
    /// Inflates the set of a chip.
    ///
    /// # Errors
    /// Device: the executable is damaged.
    pub fn of(chip: Chip) -> Result<CodeSet> {
        let (stream, place) = chip.stream();
        let set = inflate(stream).and_then(|words| CodeSet::read(chip, &words, place));
        set.map_err(|e| Error::device(format!("the code for {} in this executable {e}", chip.name()), "rebuild Kiln"))
    }

    /// A kernel's code.
    ///
    /// # Errors
    /// Device: the set does not have it. It was made for the public models' sizes.
    pub fn get(&self, kernel: &Kernel) -> Result<&KernelCode> {
        let code = self.kernels.get(kernel).and_then(|&at| self.codes.get(at));
        code.ok_or_else(|| {
            let (name, chip) = (kernel.module.name(), self.chip.name());
            let cause = format!("this executable has no code for {chip} of the kernel {name} for this model's sizes");
            Error::device(cause, by_others())
        })
    }

    /// The set without the kernels for which `is_out` is true.
    #[cfg(test)]
    pub(super) fn without(mut self, is_out: impl Fn(&Kernel) -> bool) -> CodeSet {
        self.kernels.retain(|kernel, _| !is_out(kernel));
        self
    }

    /// Every kernel that the set has.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.keys()
    }

    /// Reads the words of a stream. `place`: of the chip among the stream's. An error completes the sentence "the code
    /// in this executable …".
    fn read(chip: Chip, words: &[u32], place: usize) -> std::result::Result<CodeSet, String> {
        let mut words = Words(words);
        if words.next()? != MAGIC {
            return Err("has another format".into());
        }
        let modules = (0..words.next()?).map(|_| module(&mut words)).collect::<std::result::Result<Vec<_>, _>>()?;
        let constants = words.next()? as usize;
        let codes = (0..words.next()?).map(|_| words.take(CODE_WORDS)).collect::<std::result::Result<Vec<_>, _>>()?;
        let codes = codes.into_iter().map(|header| code(header, &mut words));
        let codes = codes.collect::<std::result::Result<Vec<_>, String>>()?;
        let mut kernels = HashMap::new();
        for at in 0..=place {
            let count = words.next()?;
            for _ in 0..count {
                let (module, workgroup) = (words.next()? as usize, words.next()?);
                let (constants, code) = (words.take(constants)?, words.next()? as usize);
                if at < place {
                    continue;
                }
                let module = *modules.get(module).ok_or("names a module that is not there")?;
                let constants = Constants::read(constants).ok_or("has another number of constants")?;
                if code >= codes.len() || kernels.insert(Kernel { module, workgroup, constants }, code).is_some() {
                    return Err("has a kernel twice, or without code".into());
                }
            }
        }
        Ok(CodeSet { chip, codes, kernels })
    }
}

/// Words of a code's header: registers, LDS, user SGPRs and the number of its words.
const CODE_WORDS: usize = 11;

/// The code with this header, whose words are next.
fn code(header: &[u32], words: &mut Words<'_>) -> std::result::Result<KernelCode, String> {
    let &[rsrc1, rsrc2, rsrc3, limits, lds, pointer, inline, low, high, groups, length] = header else {
        return Err("has a code without its registers".into());
    };
    let sgpr = |word: u32| (word != 0).then_some(word);
    let user = UserSgprs {
        pointer: sgpr(pointer),
        inline: sgpr(inline),
        inline_words: u64::from(low) | u64::from(high) << 32,
        groups: sgpr(groups),
    };
    let registers = KernelRegisters { rsrc1, rsrc2, rsrc3, limits, lds, user };
    Ok(KernelCode { words: words.take(length as usize)?.into(), registers })
}

/// A module by its name, which is next.
fn module(words: &mut Words<'_>) -> std::result::Result<Module, String> {
    let length = words.next()? as usize;
    let name: Vec<u8> =
        words.take(length.div_ceil(4))?.iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
    let named = Module::ALL.iter().find(|module| module.name().as_bytes() == name);
    named.copied().ok_or_else(|| "names a module that this executable does not have".into())
}

/// The words of a code file that were not read yet.
struct Words<'a>(&'a [u32]);

impl<'a> Words<'a> {
    fn take(&mut self, count: usize) -> std::result::Result<&'a [u32], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn next(&mut self) -> std::result::Result<u32, String> {
        self.take(1).map(|word| word[0])
    }
}

/// The words of a stream, which follows its checksum. An error completes the sentence "the code in this executable …".
fn inflate(sealed: &[u8]) -> std::result::Result<Vec<u32>, String> {
    let is_whole = |(sum, stream): &(&[u8; 8], &[u8])| u64::from_le_bytes(**sum) == checksum(stream);
    let (_, stream) = sealed.split_first_chunk::<8>().filter(is_whole).ok_or("is damaged")?;
    let refused = |e: std::io::Error| format!("cannot be inflated: {e}");
    let mut reader = LzmaReader::new_mem_limit(stream, (MOST_BYTES >> 10) as u32, None).map_err(refused)?;
    let mut bytes = Vec::new();
    reader.by_ref().take(MOST_BYTES).read_to_end(&mut bytes).map_err(refused)?;
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    Ok(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of two chips: of the first with a code of two words for `read`, of the second with another.
    fn stream() -> Vec<u32> {
        let name: Vec<u32> = b"read".chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        let constants = Constants::default().values().to_vec();
        let kernel = |workgroup: u32, code: u32| [&[0, workgroup], &constants[..], &[code]].concat();
        let headers = [[1, 2, 0, 6, 512, 2, 3, 0b101, 1 << 31, 9, 2], [4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1]].concat();
        let start = [MAGIC, 1, 4, name[0], constants.len() as u32, 2];
        [&start[..], &headers, &[7, 8, 9], &[1], &kernel(64, 0), &[2], &kernel(64, 1), &kernel(32, 0)].concat()
    }

    fn kernel(workgroup: u32) -> Kernel {
        Kernel { module: Module::Read, workgroup, constants: Constants::default() }
    }

    #[test]
    fn a_stream_has_the_code_of_each_of_its_chips() {
        let first = CodeSet::read(Chip::Gfx1150, &stream(), 0).unwrap();
        let user = UserSgprs { pointer: Some(2), inline: Some(3), inline_words: 1 << 63 | 0b101, groups: Some(9) };
        let registers = KernelRegisters { rsrc1: 1, rsrc2: 2, rsrc3: 0, limits: 6, lds: 512, user };
        let want = KernelCode { words: [7, 8].into(), registers };
        assert_eq!(first.get(&kernel(64)), Ok(&want));
        let missing = first.get(&kernel(32)).unwrap_err().to_string();
        assert!(
            missing.contains("no code for gfx1150 of the kernel read") && missing.contains("; use Vulkan or"),
            "{missing}"
        );
        let second = CodeSet::read(Chip::Gfx1151, &stream(), 1).unwrap();
        assert_eq!(second.get(&kernel(64)).unwrap().words[..], [9]);
        assert_eq!((second.get(&kernel(32)), second.kernels().count()), (Ok(&want), 2));
    }

    #[test]
    fn a_damaged_stream_is_refused_or_read_but_makes_no_panic() {
        let words = stream();
        for end in 0..words.len() {
            assert!(CodeSet::read(Chip::Gfx1151, &words[..end], 1).is_err(), "{end} words");
        }
        for at in 0..words.len() {
            for changed in [0, 1, 2, u32::MAX] {
                let mut words = words.clone();
                words[at] = changed;
                let _ = CodeSet::read(Chip::Gfx1151, &words, 1);
            }
        }
        let mut twice = words.clone();
        let last = twice.len() - Constants::default().values().len() - 2;
        twice[last] = 64;
        assert!(CodeSet::read(Chip::Gfx1151, &twice, 1).unwrap_err().contains("twice"));
    }

    #[test]
    fn every_chip_has_a_set_and_a_changed_byte_of_it_is_seen() {
        for chip in Chip::ALL {
            let set = CodeSet::of(chip).unwrap();
            assert!(set.kernels().count() > 1000, "{}", chip.name());
            assert!(set.codes.iter().all(|code| code.words.last() == Some(&S_ENDPGM)));
        }
        let stream = Chip::Gfx1103.stream().0;
        for at in [0, 9, 30, stream.len() / 2, stream.len() - 1] {
            let mut stream = stream.to_vec();
            stream[at] ^= 4;
            assert_eq!(inflate(&stream).unwrap_err(), "is damaged");
        }
        assert!(inflate(&[]).is_err());
    }

    const S_ENDPGM: u32 = 0xbfb0_0000;

    #[test]
    fn chips_are_known_by_family_and_revision() {
        let of = |family, external_rev| {
            let info = GpuInfo {
                device_id: 0,
                family,
                external_rev,
                compute_units: 12,
                max_engine_clock: 0,
                max_memory_clock: 0,
                memory_bits: 0,
                memory_type: 0,
                is_apu: true,
            };
            Chip::of(&info)
        };
        assert_eq!([of(148, 1), of(148, 0x80), of(148, 0xc1)], [Some(Chip::Gfx1103); 3]);
        assert_eq!(
            [of(150, 1), of(150, 0xc0), of(150, 0xc1)].map(|c| c.unwrap().name()),
            ["gfx1150", "gfx1151", "gfx1151"]
        );
        // gfx1152, gfx1153, a discrete RDNA 3 and RDNA 4.
        assert_eq!([of(150, 0x40), of(150, 0x50), of(145, 1), of(152, 0x50)], [None; 4]);
    }

    #[test]
    fn user_sgprs_get_the_words_that_the_code_expects() {
        let user = UserSgprs { pointer: Some(2), inline: Some(3), inline_words: 0b1001, groups: Some(5) };
        let words: Vec<(u32, u32)> = user.words(&[10, 11, 12, 13], 77, &[1, 2, 3]).collect();
        assert_eq!(words, [(2, 77), (3, 10), (4, 13), (5, 1), (6, 2), (7, 3)]);
        let none = UserSgprs { pointer: None, inline: None, inline_words: 0, groups: None };
        assert_eq!(none.words(&[1], 2, &[1, 1, 1]).count(), 0);
    }
}
