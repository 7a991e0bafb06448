//! Explanations of a plan's verdict: its assumptions, and the derivation of its figures.

use crate::diagnose::forecast::ForecastView;
use crate::diagnose::forecast::machine::{Named, gib};
use crate::diagnose::forecast::verdict::{BestRates, DRAFTED, RIGHT, is_worth, least_ram, prompt, shown};
use crate::display::duration;
use crate::machine::profile::PREFILL_SHARE;
use crate::sequence::draft::gain::expected_tokens;

/// The derivation of the verdict's figures, one line each.
pub(super) fn figures(rates: &BestRates) -> String {
    let mut t = match &rates.with_draft {
        Some((rate, weights)) => format!(
            "with a draft, in {weights}: a pass with {DRAFTED} drafted token, right with a probability of {RIGHT}, gives \
             {} tokens: {} tokens/s\n",
            expected_tokens(DRAFTED, RIGHT),
            shown(*rate)
        ),
        None => String::new(),
    };
    t += &match &rates.prefill {
        Some(p) => format!(
            "a prompt of {}: {} operations, {} at the matrix units' {} a second, {} at {} % of that, \
             which Kiln was measured to reach on an H200\n",
            prompt(p.tokens),
            count(p.operations as f64),
            duration(p.seconds_at_peak),
            count(p.peak),
            duration(p.seconds),
            100.0 * PREFILL_SHARE,
        ),
        None => "how long a prompt takes is not known without a GPU's matrix units: `kiln bench` measures it\n".into(),
    };
    t
}

/// The line below the verdict: the assumed memory of a machine by name, and the RAM with which the model fits there.
pub(super) fn assumptions(view: &ForecastView<'_>, named: &Named) -> String {
    let p = &named.profile;
    let (ram, carve_out) = (p.ram, gib(p.carve_out));
    let has = match (named.has_ram, named.has_carve_out()) {
        (true, true) => format!("with {ram} GiB of RAM, {carve_out} of them carved out for the GPU"),
        (true, false) => format!(
            "with {ram} GiB of RAM; assumes that {carve_out} of them are carved out for the GPU (--machine {}:N takes N)",
            p.name
        ),
        (false, true) => {
            format!("assumes {ram} GiB of RAM (--ram N takes N), with {carve_out} of them carved out for the GPU")
        }
        (false, false) => format!(
            "assumes {ram} GiB of RAM (--ram N takes N), {carve_out} of them carved out for the GPU (--machine {}:N takes N)",
            p.name
        ),
    };
    let from = match least_ram(view, view.form) {
        Some(gib) => format!("it fits from {gib} GiB of RAM on"),
        None => "it fits with no RAM that is sold".into(),
    };
    let int4 = view.in_4_bits().filter(|int4| is_worth(int4.bytes(view.extent), view));
    let in_4_bits = int4.and_then(|int4| least_ram(view, &int4));
    let in_4_bits = in_4_bits.filter(|gib| least_ram(view, view.form).is_none_or(|least| *gib < least));
    format!("{has}; {from}{}", in_4_bits.map_or(String::new(), |gib| format!(", in 4 bits from {gib}")))
}

/// A number of operations: `51.7 T`.
fn count(operations: f64) -> String {
    match operations {
        0.0..1e9 => format!("{:.1} M", operations / 1e6),
        1e9..1e12 => format!("{:.1} G", operations / 1e9),
        _ => format!("{:.1} T", operations / 1e12),
    }
}
