//! The page of what the compiler makes of each kernel, amd-isa.md.

use super::{CHIPS, Figures, MESA, WAVES};

/// The page, from each chip's figures and the digest of all kernels.
pub fn page(all: &[Vec<Figures>; 3], digest: &str) -> String {
    let names = CHIPS.map(|(chip, _)| chip);
    let (listed, [first, ..]) = (names.join(", "), names);
    let mut page = format!(
        "# The kernels on {listed}\n\
         \n\
         What RADV of Mesa {MESA} compiles each kernel to: every one that can be chosen for the shapes of Gemma 3 27B and of the\n\
         demo model, whatever tuning finds (for the types of GGUF files, as without tuning), for passes of 1 to 512 rows in waves\n\
         of 32; the other public shapes' attention in every tile; and each other module once. Not listed, but held to the rules on\n\
         {first}, is what the cost model chooses for the other public shapes in INT8, and for 27B in the formats most used.\n\
         Where the chips differ, their figures stand in the order above, between slashes.\n\n\
         `cargo test --test amd` (in [amd.rs](amd.rs)) compares this page with the compiler and holds the kernels to rules:\n\
         no register is spilled and no scratch used; linear kernels load weights by 16 bytes; linear, attend and read kernels\n\
         leave room for {WAVES} waves a SIMD; kernels for matrix units and for dot products use those instructions; what a relayed\n\
         kernel loads behind its wait skips the cache of its compute unit (`glc`), but for weights and the KV cache. After a change\n\
         to a shader, `KILN_BLESS=1 cargo test --test amd` writes it anew. The digest of the kernels is\n\
         {digest}.\n\
         \n\
         ## What differs from chip to chip\n\
         \n\
         Over all kernels: instructions, of them those of floats on scalars, waits for counters (`s_waitcnt` and its kin), and hints of\n\
         delays (`s_delay_alu`); how many kernels have other registers than on {first}, and how many fit fewer waves on a SIMD.\n\
         \n\
         | | instructions | scalar floats | waits | delays | other VGPRs | fewer waves | more waves |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for (chip, figures) in names.iter().zip(all) {
        let sum = |of: fn(&Figures) -> usize| figures.iter().map(of).sum::<usize>();
        let count = |is: fn(&Figures, &Figures) -> bool| figures.iter().zip(&all[0]).filter(|(f, g)| is(f, g)).count();
        page += &format!(
            "| {chip} | {} | {} | {} | {} | {} | {} | {} |\n",
            sum(|f| f.isa.instructions),
            sum(|f| f.isa.scalar_floats),
            sum(|f| f.isa.waits),
            sum(|f| f.isa.delays),
            count(|f, g| f.vgprs != g.vgprs),
            count(|f, g| f.waves < g.waves),
            count(|f, g| f.waves > g.waves),
        );
    }
    page += "\n\
         ## The kernels\n\
         \n\
         - constants: the kernel's specialisation by number, where it is not 0; its source says what they mean\n\
         - VGPRs of a wave, LDS in bytes of a workgroup, code in bytes\n\
         - waves: how many a SIMD holds at a time, at most 16\n\
         - loads: global loads within loops that hold 16-byte loads, 16-byte ones + narrower ones\n\
         - matrix, dot: `v_wmma_*` and `v_dot4_i32_iu8` instructions\n\
         \n\
         | kernel | workgroup | constants | VGPRs | LDS | waves | code | loads | matrix | dot |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for (name, [constants, figures @ ..], workgroups) in rows(all) {
        page += &format!("| {name} | {} | {constants} | {} |\n", workgroups.join(", "), figures.join(" | "));
    }
    page
}

/// A row of the page: module, constants and figures, and the workgroup sizes that have these figures.
type Row = (String, [String; 8], Vec<String>);

pub fn rows(all: &[Vec<Figures>; 3]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    assert!(all.iter().all(|figures| figures.len() == all[0].len()));
    for (i, x) in all[0].iter().enumerate() {
        let chips = all.each_ref().map(|figures| &figures[i]);
        let key = |f: &Figures| (f.module.clone(), f.workgroup, f.constants.clone());
        assert!(chips.iter().all(|f| key(f) == key(x)));
        let cell = |of: &dyn Fn(&Figures) -> String| {
            let cells = chips.map(of);
            if cells.iter().all(|c| *c == cells[0]) { cells[0].clone() } else { cells.join(" / ") }
        };
        let cells = [
            x.constants.clone(),
            cell(&|f| f.vgprs.to_string()),
            cell(&|f| f.lds.to_string()),
            cell(&|f| f.waves.to_string()),
            cell(&|f| f.code.to_string()),
            cell(&|f| format!("{} + {}", f.isa.wide_loads, f.isa.narrow_loads)),
            cell(&|f| f.isa.wmma.to_string()),
            cell(&|f| f.isa.dot4.to_string()),
        ];
        match rows.iter_mut().find(|(name, c, _)| *name == x.module && *c == cells) {
            Some((_, _, workgroups)) => workgroups.push(x.workgroup.to_string()),
            None => rows.push((x.module.clone(), cells, vec![x.workgroup.to_string()])),
        }
    }
    rows.sort_by(|a, b| (&a.0, &a.1[0]).cmp(&(&b.0, &b.1[0])));
    rows
}
