//! The time of each kernel of a pass.

use super::roof::{Ceilings, MeasuredRates};
use super::stats::Sample;
use crate::executor::KernelTiming;
use crate::schedule::cost::step_cost;
use crate::schedule::{Cost, PassShape, Schedule, Segment};

/// The time and the cost of one kernel of a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// The segment of the pass that it belongs to.
    pub segment: Segment,
    /// Labels of the steps that it runs, joined by `+`. A kernel that only prepares a step has its own name in
    /// brackets.
    pub label: String,
    /// The name of the kernel, for tables.
    pub kernel: &'static str,
    /// The kernel's specialisation and its grid.
    pub variant: String,
    /// The bytes and the operations of the kernel.
    pub cost: Cost,
    /// Median seconds; 0 where the clock is too coarse.
    pub seconds: f64,
    /// Rates. `None` where the clock is too coarse or a rate is above its ceiling: a kernel may read data from a cache
    /// that the kernel before it has filled, while the ceiling is that of memory.
    pub rates: Option<MeasuredRates>,
}

/// Kernels of the same kind and size, as one line for all layers.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelGroup {
    /// The first kernel of the group. Its cost, seconds and rates are those of the whole group.
    pub kernel: KernelTime,
    /// The number of kernels in the group.
    pub count: usize,
}

impl KernelTime {
    pub(super) fn new(schedule: &Schedule, timed: &KernelTiming, pass: PassShape, ceilings: Ceilings) -> KernelTime {
        let steps = &schedule.steps[timed.steps.clone()];
        let cost = steps.iter().map(|s| step_cost(s, pass)).sum();
        let seconds = Sample::new(timed.seconds.iter().copied()).median();
        let label = match steps {
            [] => format!("({})", timed.kernel),
            _ => steps.iter().map(|s| s.label).collect::<Vec<_>>().join("+"),
        };
        KernelTime {
            segment: timed.segment,
            label,
            kernel: timed.kernel,
            variant: timed.variant.clone(),
            cost,
            seconds,
            rates: ceilings.judge("a kernel", cost, seconds).ok(),
        }
    }

    fn is_like(&self, other: &KernelTime) -> bool {
        let in_layer = |k: &KernelTime| matches!(k.segment, Segment::Layer(_));
        self.label == other.label
            && self.kernel == other.kernel
            && self.variant == other.variant
            && self.cost == other.cost
            && in_layer(self) == in_layer(other)
    }
}

/// Groups kernels of the same kind and size. Groups are in the order of their first kernel.
pub fn group(kernels: &[KernelTime], ceilings: Ceilings) -> Vec<KernelGroup> {
    let mut groups: Vec<(KernelGroup, KernelTime)> = Vec::new();
    for k in kernels {
        match groups.iter_mut().find(|(_, first)| first.is_like(k)) {
            Some((g, _)) => {
                g.count += 1;
                g.kernel.cost += k.cost;
                g.kernel.seconds += k.seconds;
            }
            None => groups.push((KernelGroup { kernel: k.clone(), count: 1 }, k.clone())),
        }
    }
    let rated = |(mut g, _): (KernelGroup, KernelTime)| {
        g.kernel.rates = ceilings.judge("kernels", g.kernel.cost, g.kernel.seconds).ok();
        g
    };
    groups.into_iter().map(rated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(segment: Segment, label: &str, bytes: u64, seconds: f64) -> KernelTime {
        let cost = Cost { weight_bytes: bytes, ..Cost::default() };
        KernelTime { segment, label: label.into(), kernel: "k", variant: String::new(), cost, seconds, rates: None }
    }

    #[test]
    fn groups_add_up_and_differ_by_label_and_size() {
        let kernels = [
            kernel(Segment::Embed, "norm", 10, 1.0),
            kernel(Segment::Layer(0), "norm", 10, 2.0),
            kernel(Segment::Layer(0), "attend", 20, 3.0),
            kernel(Segment::Layer(1), "norm", 10, 4.0),
            kernel(Segment::Layer(1), "attend", 90, 5.0),
            kernel(Segment::Layer(2), "attend", 20, 0.0),
        ];
        let ceilings = Ceilings { read: 10.0, matrix: None };
        let groups = group(&kernels, ceilings);
        let seen: Vec<_> =
            groups.iter().map(|g| (&*g.kernel.label, g.count, g.kernel.cost.weight_bytes, g.kernel.seconds)).collect();
        assert_eq!(seen, [("norm", 1, 10, 1.0), ("norm", 2, 20, 6.0), ("attend", 2, 40, 3.0), ("attend", 1, 90, 5.0)]);
        // The ceiling is 10 bytes per second. 40 bytes in 3 seconds exceed it, so no rate is shown.
        assert_eq!(groups[0].kernel.rates.map(|r| r.read_share), Some(1.0));
        assert_eq!(groups[2].kernel.rates, None);
    }
}
