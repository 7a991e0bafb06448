//! Counts instructions in RADV's listing of a kernel's machine code.

use serde::{Deserialize, Serialize};

/// Counts of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Isa {
    /// All of them.
    pub instructions: usize,
    /// Arithmetic of floats on scalar registers, which RDNA 3.5 has.
    pub scalar_floats: usize,
    /// Waits for the counters of loads, stores and LDS.
    pub waits: usize,
    /// Hints of how long a result takes (`s_delay_alu`).
    pub delays: usize,
    /// Global loads of 16 bytes within loops.
    pub wide_loads: usize,
    /// Narrower loads in the same loops. Loops inside or around them do not count.
    pub narrow_loads: usize,
    /// Matrix products (WMMA).
    pub wmma: usize,
    /// Packed products of four 8-bit integers.
    pub dot4: usize,
    /// Global loads of 16 bytes past the nearest cache (`glc`).
    pub coherent_wide: usize,
    /// Global loads through that cache behind the first past it: 16 bytes.
    pub cached_wide: usize,
    /// The same: 8 bytes.
    pub cached_pairs: usize,
    /// The same, narrower.
    pub cached_narrow: usize,
}

impl Isa {
    /// Counts in a listing: one instruction per line, labels as `BB7:`, branches by label.
    pub fn read(listing: &str) -> Isa {
        let lines: Vec<&str> = listing.lines().map(str::trim).collect();
        let loops = loops(&lines);
        let own = |at: usize| loops.iter().position(|l| l.contains(&at));
        let loads = |at: &usize| is_global_load(lines[*at]);
        let wide: Vec<usize> = (0..lines.len()).filter(loads).filter(|&at| lines[at].contains("_b128")).collect();
        let wide = || wide.iter().filter_map(|&at| own(at));
        let narrow = (0..lines.len()).filter(loads).filter(|&at| !lines[at].contains("_b128"));
        let is_wide = |line: &&&str| line.contains("_b128");
        let is_pair = |line: &&&str| line.contains("_b64");
        // The relay's look at a counter is the first coherent load.
        let behind = lines.iter().filter(|l| is_global_load(l)).skip_while(|l| !is_coherent(l));
        let [coherent, cached] = [true, false].map(|c| behind.clone().filter(move |l| is_coherent(l) == c));
        let named = |is: fn(&str) -> bool| lines.iter().filter(|l| is(l.split(' ').next().unwrap_or_default())).count();
        Isa {
            instructions: named(|name| !name.is_empty() && !name.ends_with(':')),
            scalar_floats: named(|name| name.starts_with("s_") && (name.contains("_f32") || name.contains("_f16"))),
            waits: named(|name| name.starts_with("s_waitcnt")),
            delays: named(|name| name == "s_delay_alu"),
            wide_loads: wide().count(),
            narrow_loads: narrow.filter_map(own).filter(|&l| wide().any(|w| w == l)).count(),
            wmma: lines.iter().filter(|l| l.starts_with("v_wmma_")).count(),
            dot4: lines.iter().filter(|l| l.starts_with("v_dot4_i32_iu8")).count(),
            coherent_wide: coherent.filter(is_wide).count(),
            cached_wide: cached.clone().filter(is_wide).count(),
            cached_pairs: cached.clone().filter(is_pair).count(),
            cached_narrow: cached.filter(|l| !is_wide(l) && !is_pair(l)).count(),
        }
    }
}

/// Scalar loads fetch constants and pointers, and LDS is not memory, so neither counts.
fn is_global_load(line: &str) -> bool {
    line.starts_with("global_load_") || line.starts_with("buffer_load_") || line.starts_with("flat_load_")
}

/// Whether a load goes past the cache of its compute unit.
fn is_coherent(line: &str) -> bool {
    line.split(';').next().is_some_and(|code| code.split_whitespace().any(|word| word == "glc"))
}

/// The loops of a listing as ranges of lines, shorter ones first. A loop goes from a label to the last branch back to
/// it.
fn loops(lines: &[&str]) -> Vec<std::ops::RangeInclusive<usize>> {
    let mut loops: Vec<std::ops::RangeInclusive<usize>> = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(label) = line.strip_suffix(':') else { continue };
        let back = |l: &&str| {
            let mut words = l.split_whitespace();
            words.next().is_some_and(|w| w.starts_with("s_branch") || w.starts_with("s_cbranch"))
                && words.next() == Some(label)
        };
        if let Some(length) = lines[start..].iter().rposition(back) {
            loops.push(start..=start + length);
        }
    }
    loops.sort_by_key(|l| l.end() - l.start());
    loops
}

#[test]
fn loads_count_with_the_innermost_loop_that_they_stand_in() {
    let listing = "BB0:
        global_load_b32 v0, v0, s[0:1]          ; dc520000 00000000
    BB1:
        global_load_u8 v9, v[6:7], off          ; 00000000 00000000
    BB2:
        global_load_b128 v[8:11], v[6:7], off   ; dc5e0000 087c0006
        buffer_load_b32 v1, v[6:7], off         ; 00000000 00000000
        v_dot4_i32_iu8 v1, v2, v3, v1           ; 00000000 00000000
        s_cbranch_scc0 BB3                      ; bfa10000
        s_branch BB2                            ; bfa0ff1f
    BB3:
        ds_load_b128 v[8:11], v6                ; 00000000 00000000
        v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]
        s_cbranch_scc1 BB1                      ; bfa10000
        global_load_b32 v0, v0, s[0:1]          ; dc520000 00000000";
    let counted = Isa { instructions: 11, wide_loads: 1, narrow_loads: 1, wmma: 1, dot4: 1, ..Isa::default() };
    assert_eq!(Isa::read(listing), counted);
    // Without the branch back, the same loads are only in the outer loop, together with the byte load.
    let outer = Isa::read(&listing.replace("s_branch BB2", "s_branch BB3"));
    assert_eq!(outer, Isa { narrow_loads: 2, ..counted });
}

#[test]
fn loads_behind_the_first_coherent_one_count_by_the_cache_they_take() {
    let listing = "global_load_b32 v1, v1, s[0:1]
        global_load_b128 v[8:11], v[6:7], off                       ; 00000000 glc
        global_load_b32 v5, v5, s[2:3] glc                          ; 00000000
        global_load_b128 v[72:75], v[74:75], off glc                ; 00000000
        global_load_b128 v[8:11], v[10:11], off                     ; 00000000
        global_load_b32 v5, v[80:81], off offset:12 glc             ; 00000000
        global_load_u8 v9, v[6:7], off                              ; 00000000
        global_load_b64 v[8:9], v[6:7], off                         ; 00000000
        ds_load_b128 v[8:11], v6";
    let counted =
        Isa { instructions: 9, coherent_wide: 1, cached_wide: 1, cached_pairs: 1, cached_narrow: 1, ..Isa::default() };
    assert_eq!(Isa::read(listing), counted);
}

#[test]
fn instructions_count_by_what_they_are() {
    let listing = "BB0:
        s_fmac_f32 s0, s1, s2                   ; a3800201
        s_delay_alu instid0(SALU_CYCLE_2)       ; bf87000a
        s_cmp_lt_f32 s0, s3                     ; bf410300
        s_mov_b32 s1, s0                        ; be810000
        s_waitcnt vmcnt(3)                      ; bf890ff7
        s_waitcnt_vscnt null, 0x0               ; bc7c0000
        v_add_f32_e32 v0, v1, v2                ; 06000501

        s_endpgm                                ; bfb00000";
    let counted = Isa { instructions: 8, scalar_floats: 2, waits: 2, delays: 1, ..Isa::default() };
    assert_eq!(Isa::read(listing), counted);
}
