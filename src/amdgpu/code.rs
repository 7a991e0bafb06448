//! The chips that there is code for, machine code of kernels, and the register words that it runs with.

use crate::sys::amdgpu::GpuInfo;

/// The chips that there is code for.
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
    /// Every chip.
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

    /// The name of its instruction set.
    pub fn name(self) -> &'static str {
        match self {
            Chip::Gfx1103 => "gfx1103",
            Chip::Gfx1150 => "gfx1150",
            Chip::Gfx1151 => "gfx1151",
        }
    }
}

/// One kernel's machine code, and the register words that it runs with. Its waves have 32 lanes; it has no scratch
/// memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCode {
    /// The code. The fetcher reads up to 192 bytes behind it, which must be mapped.
    pub code: Vec<u32>,
    /// COMPUTE_PGM_RSRC1.
    pub rsrc1: u32,
    /// COMPUTE_PGM_RSRC2.
    pub rsrc2: u32,
    /// COMPUTE_PGM_RSRC3.
    pub rsrc3: u32,
    /// Bytes of LDS of a workgroup, which `rsrc2` has in units of 512.
    pub lds: u32,
    /// What the code expects in its user SGPRs.
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
