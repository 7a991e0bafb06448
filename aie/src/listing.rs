//! The listing: addresses, cycles, bytes and instructions, and what each loop makes of the multiply-accumulate units.

use std::fmt::Write;

use crate::assemble::Program;
use crate::flow::{self, HardwareLoop, Setting};
use crate::isa::Isa;

/// Products that a multiply-accumulate instruction adds up in one cycle. A core's peak is one such instruction a cycle:
/// AMD's AM020 (AI Engine-ML architecture), "Number of MACs" by precision: bfloat16 × bfloat16 128, int8 × int8 256.
const PEAKS: [(&str, &[&str], u64); 2] = [
    ("bf16", &["vmac.f", "vmsc.f", "vmul.f", "vnegmul.f", "vaddmac.f", "vaddmsc.f"], 128),
    ("int8", &["vmac", "vmsc", "vmul", "vnegmul", "vaddmac", "vaddmsc", "vsubmac", "vsubmsc"], 256),
];

/// A repeated run of bundles, hardware loop or branch back.
struct Loop {
    start: usize,
    /// The last bundle, included.
    end: usize,
    /// Of a hardware loop whose count is a constant.
    count: Option<u64>,
    hardware: bool,
}

/// What a pass over some bundles costs and does.
#[derive(Default)]
struct Pass {
    cycles: u64,
    /// Instructions of each row of [`PEAKS`].
    macs: [u64; PEAKS.len()],
    /// A loop within has no constant count.
    open: bool,
}

/// Writes the listing of a program.
pub fn write(isa: &Isa, program: &Program) -> String {
    let mut text = String::new();
    let loops = find_loops(isa, program);
    let _ = writeln!(text, "// {}: {} bundles, {} bytes", program.name, program.bundles.len(), program.code.len());
    for found in &loops {
        let _ = writeln!(text, "// {}", describe(isa, program, &loops, found));
    }
    let _ = writeln!(text, "//\n// address  cycle  bytes");
    let mut cycle = 0;
    for (index, placed) in program.bundles.iter().enumerate() {
        for (label, _) in program.labels.iter().filter(|(_, address)| **address == placed.address) {
            let _ = writeln!(text, "{label}:");
            cycle = 0;
        }
        let from = placed.address as usize;
        let to = from + isa.bytes(&placed.bundle);
        let bytes: Vec<String> = program.code[from..to].iter().map(|byte| format!("{byte:02x}")).collect();
        let busy: Vec<String> = placed
            .bundle
            .instructions
            .iter()
            .filter(|instruction| !isa.op(instruction).is_nop())
            .map(|instruction| isa.write(instruction))
            .collect();
        let busy = if busy.is_empty() { "nop".to_string() } else { busy.join(" ; ") };
        let mark = if loops.iter().any(|found| found.end == index) { "  // loop end" } else { "" };
        let _ = writeln!(text, "  {from:#06x} {cycle:5}  {:<32}  {busy}{mark}", bytes.join(""));
        cycle += 1;
    }
    text
}

fn find_loops(isa: &Isa, program: &Program) -> Vec<Loop> {
    let hardware = program.flow.loops.iter().map(|found| Loop {
        start: found.start,
        end: found.end,
        count: constant_count(isa, program, found),
        hardware: true,
    });
    let delay = isa.machine.delay_slots as usize;
    let back = program.flow.branches.iter().filter_map(|branch| {
        let start = branch.target.filter(|target| *target <= branch.from)?;
        Some(Loop { start, end: branch.from + delay, count: None, hardware: false })
    });
    let mut loops: Vec<Loop> = hardware.chain(back).collect();
    loops.sort_by_key(|found| (found.start, std::cmp::Reverse(found.end)));
    loops
}

/// What `lc` was last set to before the loop, if to a constant.
fn constant_count(isa: &Isa, program: &Program, found: &HardwareLoop) -> Option<u64> {
    let before = program.bundles[..found.start].iter().rev().flat_map(|placed| &placed.bundle.instructions);
    let mut settings = before.filter_map(|instruction| flow::setting(isa, instruction, "lc"));
    match settings.next()? {
        Setting::To(count) => u64::try_from(count).ok(),
        Setting::Unknown => None,
    }
}

fn describe(isa: &Isa, program: &Program, loops: &[Loop], found: &Loop) -> String {
    let address = program.bundles[found.start].address;
    let names: Vec<&str> =
        program.labels.iter().filter(|label| *label.1 == address).map(|label| label.0.as_str()).collect();
    let name = names.join(", ");
    let pass = measure(isa, program, loops, found.start, found.end);
    let kind = if found.hardware { "hardware loop" } else { "loop" };
    let mut text = format!("{kind} {name}: {} cycles a pass", pass.cycles);
    if let Some(count) = found.count {
        let _ = write!(text, ", {count} passes");
    }
    if pass.open {
        text.push_str(" and more: a loop within counts as one pass, its count is no constant");
        return text;
    }
    for ((name, _, peak), macs) in PEAKS.iter().zip(pass.macs) {
        if macs > 0 {
            let rate = (macs * peak) as f64 / pass.cycles as f64;
            let share = 100.0 * rate / *peak as f64;
            let _ = write!(
                text,
                "; {} {name} MACs: {rate:.1} a cycle, {share:.1} % of the peak of {peak} (AM020)",
                macs * peak
            );
        }
    }
    text
}

/// Cycles and products of a pass over bundles, with the hardware loops among them at their counts.
fn measure(isa: &Isa, program: &Program, loops: &[Loop], start: usize, end: usize) -> Pass {
    let mut pass = Pass::default();
    for index in start..=end {
        let inner = loops
            .iter()
            .filter(|found| (found.start..=found.end).contains(&index) && start <= found.start && found.end <= end);
        let mut times = 1;
        for found in inner.filter(|found| (found.start, found.end) != (start, end)) {
            match found.count {
                Some(count) => times *= count,
                None => pass.open = true,
            }
        }
        pass.cycles += times;
        for instruction in &program.bundles[index].bundle.instructions {
            let mnemonic = isa.op(instruction).mnemonic.as_str();
            for ((_, mnemonics, _), macs) in PEAKS.iter().zip(&mut pass.macs) {
                *macs += if mnemonics.contains(&mnemonic) { times } else { 0 };
            }
        }
    }
    pass
}
