//! Metrics of the server for Prometheus: counters, gauges and histograms.

use crate::diagnose::energy::Energy;
use crate::executor::Pages;
use crate::executor::offload::{OffloadedPasses, PlacementTiming};
use crate::schedule::kv::Pool;
use crate::schedule::{PassShape, Schedule};
use crate::sequence::Generation;
use crate::sequence::meter::DecodeMeter;
use crate::version;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Unit::{self, Bytes, Joules, Seconds};
use prometheus_client::registry::{Metric, Registry};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A gauge of a rate or a share.
type Real = Gauge<f64, AtomicU64>;

/// A metric by source of energy: the GPU, or the processor's package.
type BySource<M> = Family<[(&'static str, &'static str); 1], M>;
/// A family of metrics with `LABELS` labels each.
type Labelled<const LABELS: usize, M> = Family<[(&'static str, String); LABELS], M>;

/// Declares the metrics. A line has the field and its type, and the metric's name and description for Prometheus.
macro_rules! metrics {
    ($($(#[$doc:meta])* $seen:vis $field:ident: $kind:ty = $register:ident($($argument:expr),+);)*) => {
        /// The server's metrics, shared between threads.
        pub struct Metrics {
            registry: Registry,
            $($(#[$doc])* $seen $field: $kind,)*
        }

        impl Default for Metrics {
            fn default() -> Metrics {
                let mut registry = Registry::with_prefix("kiln");
                register_build(&mut registry);
                $(let $field: $kind = $register(&mut registry, $($argument),+);)*
                let metrics = Metrics { registry, $($field,)* };
                metrics.set_attends(OffloadedPasses::NONE);
                metrics
            }
        }
    };
}

metrics! {
    prompt_tokens: Counter = register("prompt_tokens", "Prompt tokens that were run");
    cached_tokens: Counter = register("cached_tokens", "Prompt tokens that the KV cache held already");
    reply_tokens: Counter = register("reply_tokens", "Tokens of replies");
    drafted_tokens: Counter = register("drafted_tokens", "Drafted tokens that passes verified");
    accepted_tokens: Counter = register("accepted_tokens", "Drafted tokens that were right");
    replies: Counter = register("replies", "Replies that were completed");
    pub(super) cancelled: Counter = register("replies_cancelled", "Replies given up by their clients, or late");
    pub(super) refused: Counter = register("requests_refused", "Requests for which there was no room");
    pub(super) errors: Counter = register("errors", "Answers that failed by the server's fault");
    passes: Counter = register("passes", "Passes over the model");
    mixed_passes: Counter = register("passes_mixed", "Passes with a prompt's chunk and decoding rows");
    device_seconds: Counter<f64, AtomicU64> = measured("pass", Seconds, "Time of all passes");
    pub(super) waiting: Gauge = register("queue_length", "Replies that wait for a place");
    pub(super) running: Gauge = register("sequences_running", "Replies that are being made");
    pub(super) slots: Gauge = register("sequences_limit", "Replies that can be made at once");
    loaded: Gauge = register("model_loaded", "Whether the weights are in memory: 1, or 0");
    npu_attends: Labelled<1, Gauge> = register("npu_attends",
        "Whether attention of such passes is on the NPU: 1, or 0");
    npu_layers: Labelled<3, Real> = measured("npu_placement", Seconds,
        "Time of a pass's layers at the start, with attention on each of both");
    npu_failures: Counter = register("npu_failures", "Failures of the NPU after which the GPU went on");
    pub(super) kv_pages: Gauge = register("kv_pages", "Pages of the KV cache");
    pub(super) kv_pages_used: Gauge = register("kv_pages_used", "Pages of the KV cache that hold tokens");
    kv_bytes: Gauge = measured("kv_memory", Bytes, "Device memory of the KV cache");
    prefix_bytes: Gauge = measured("prefix_memory", Bytes,
        "Memory of the KV cache that is kept for prompts to come alone");
    prefix_limit: Gauge = measured("prefix_memory_limit", Bytes, "Most that is kept so");
    weight_bytes: Gauge = measured("weight_memory", Bytes, "Device memory of the weights");
    pub(super) tokens_per_second: Real = register("decode_tokens_per_second", "Decoded tokens a second of work");
    tokens_per_pass: Real = register("decode_tokens_per_pass", "Tokens of a reply that a pass decodes");
    experts_share: Real = register("experts_share", "Share of the last layer's experts that a decode pass uses");
    bytes_per_second: Real = register("decode_bytes_per_second", "Bytes a second that decoding moves");
    read_ceiling: Real = register("read_ceiling_bytes_per_second", "Most that the device reads");
    pub(super) roofline_share: Real = register("roofline_share", "Share of that which decoding uses");
    /// Without samples if no energy can be read.
    energy: BySource<Counter<f64, AtomicU64>> = measured("energy", Joules,
        "Energy that was used since the model answers, by all that runs there");
    joules_per_token: BySource<Real> = register("joules_per_token",
        "Energy by the tokens decoded meanwhile, while some are");
    pub(super) queued: Histogram = times("queue_time", "Time in the queue");
    pub(super) first_token: Histogram = times("time_to_first_token", "Arrival to first token");
    pub(super) gap: Histogram = times("time_between_tokens", "From token to token");
}

/// A gauge that is always 1 and has the version in its labels.
fn register_build(registry: &mut Registry) {
    let build: Family<Vec<(&str, String)>, Gauge> = register(registry, "build_info", "The version that runs");
    let features: Vec<&str> = version::features().collect();
    let commit = version::COMMIT.unwrap_or_default().to_owned();
    let labels = vec![("version", version::VERSION.to_owned()), ("commit", commit), ("features", features.join(","))];
    build.get_or_create(&labels).set(1);
}

/// Makes a metric, and registers it by its name and its help text.
fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Makes a metric with a unit, and registers it as [`register`] does.
fn measured<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, unit: Unit, help: &str) -> M {
    let metric = M::default();
    registry.register_with_unit(name, help, unit, metric.clone());
    metric
}

/// A histogram of times from a millisecond to four minutes, registered.
fn times(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let times = Histogram::new(exponential_buckets(0.001, 2.0, 19));
    registry.register_with_unit(name, help, Seconds, times.clone());
    times
}

impl Metrics {
    /// All metrics in OpenMetrics' format.
    pub fn openmetrics(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// All metrics in Prometheus' text format, version 0.0.4, in which a counter's family has the name of its samples
    /// and there are no lines for units.
    pub fn prometheus(&self) -> String {
        let text = self.openmetrics();
        let counters: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
        let mut plain = String::with_capacity(text.len());
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("#"), Some(kind @ ("TYPE" | "HELP")), Some(name), Some(rest)) if counters.contains(&name) => {
                    plain.extend(["# ", kind, " ", name, "_total ", rest, "\n"]);
                }
                (Some("#"), Some("UNIT" | "EOF"), ..) => {}
                _ => plain.extend([line, "\n"]),
            }
        }
        plain
    }

    /// Records the loaded model, the device's read rate in bytes per second, and the limit of kept prefixes.
    pub(super) fn set_model(&self, schedule: &Schedule, ceiling: f64, prefix_bytes: Option<u64>) {
        let all = schedule.kv_bytes();
        self.prefix_limit.set(prefix_bytes.map_or(all, |bytes| bytes.min(all)) as i64);
        self.slots.set(schedule.extent.sequences as i64);
        self.kv_bytes.set(all as i64);
        self.weight_bytes.set(schedule.weights.bytes() as i64);
        self.read_ceiling.set(ceiling);
        self.loaded.set(1);
    }

    /// Records that no model is loaded, so that the metrics of a loaded model are 0.
    pub(super) fn set_unloaded(&self) {
        for gauge in [
            &self.loaded,
            &self.running,
            &self.kv_pages,
            &self.kv_pages_used,
            &self.kv_bytes,
            &self.prefix_bytes,
            &self.prefix_limit,
            &self.weight_bytes,
        ] {
            gauge.set(0);
        }
        self.set_attends(OffloadedPasses::NONE);
    }

    /// Counts a pass, and the time that it took on the device.
    pub(super) fn note_pass(&self, pass: PassShape, time: Duration) {
        self.passes.inc();
        self.device_seconds.inc_by(time.as_secs_f64());
        if let PassShape::Mixed { .. } = pass {
            self.mixed_passes.inc();
        }
    }

    /// Records a complete reply, with its counts and times.
    pub(super) fn note_end(&self, g: &Generation) {
        self.replies.inc();
        self.prompt_tokens.inc_by((g.prompt - g.kept) as u64);
        self.cached_tokens.inc_by(g.kept as u64);
        self.reply_tokens.inc_by(g.tokens.len() as u64);
        self.drafted_tokens.inc_by(g.drafted as u64);
        self.accepted_tokens.inc_by(g.accepted as u64);
    }

    /// Publishes the rates of the last second, and the memory in use.
    pub(super) fn publish(&self, meter: &DecodeMeter, running: usize, pages: &Pages, kept: u64) {
        self.prefix_bytes.set(kept as i64);
        self.running.set(running as i64);
        let (total, free) = (pages.total(Pool::Global), pages.free(Pool::Global));
        self.kv_pages.set(total as i64);
        self.kv_pages_used.set((total - free) as i64);
        self.tokens_per_second.set(meter.rate().unwrap_or(0.0));
        self.tokens_per_pass.set(meter.tokens_per_pass().unwrap_or(0.0));
        self.experts_share.set(meter.experts_share().unwrap_or(0.0));
        self.bytes_per_second.set(meter.bytes_per_second().unwrap_or(0.0));
        self.roofline_share.set(meter.share(self.read_ceiling.get()).unwrap_or(0.0));
    }

    /// Adds `new` failures of the NPU, which computes attention in the GPU's place.
    pub(super) fn note_offload_failures(&self, new: u32) {
        self.npu_failures.inc_by(new.into());
    }

    /// Publishes the kinds of pass in which attention's offload attends.
    pub(super) fn set_attends(&self, attends: OffloadedPasses) {
        let OffloadedPasses { decode, prefill, others } = attends;
        for (pass, is) in [("decode", decode), ("prefill", prefill), ("others", others)] {
            self.npu_attends.get_or_create(&[("pass", pass.into())]).set(is.into());
        }
    }

    /// Publishes the measured times of attention on the GPU and on the NPU, which decide where it runs.
    pub(super) fn set_placements(&self, timings: &[PlacementTiming]) {
        // Measurements of an earlier load are obsolete.
        self.npu_layers.clear();
        for t in timings {
            for (on, seconds) in [("gpu", t.device), ("npu", t.offload)] {
                let labels = [("rows", t.rows.to_string()), ("behind", t.depth.to_string()), ("on", on.into())];
                self.npu_layers.get_or_create(&labels).set(seconds);
            }
        }
    }

    /// Publishes the energy used for `tokens` decoded tokens.
    pub(super) fn add_energy(&self, used: Energy, tokens: usize) {
        // Without tokens there is no value; the previous one would be wrong.
        self.joules_per_token.clear();
        for (source, joules) in used.parts() {
            self.energy.get_or_create(&[("source", source)]).inc_by(joules);
            if tokens > 0 {
                self.joules_per_token.get_or_create(&[("source", source)]).set(joules / tokens as f64);
            }
        }
    }

    /// Device memory of weights and KV cache, in bytes.
    pub(super) fn device_bytes(&self) -> i64 {
        self.weight_bytes.get() + self.kv_bytes.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_offload_attends_and_how_often_it_failed_is_published() {
        let metrics = Metrics::default();
        assert!(metrics.prometheus().contains("kiln_npu_attends{pass=\"decode\"} 0\n"));
        let prefill = OffloadedPasses { prefill: true, ..OffloadedPasses::NONE };
        for (attends, new) in [(OffloadedPasses::ALL, 0), (prefill, 2), (OffloadedPasses::NONE, 0)] {
            metrics.set_attends(attends);
            metrics.note_offload_failures(new);
            let text = metrics.openmetrics();
            let OffloadedPasses { decode, prefill, others } = attends;
            for (pass, is) in [("decode", decode), ("prefill", prefill), ("others", others)] {
                let line = format!("kiln_npu_attends{{pass=\"{pass}\"}} {}\n", u32::from(is));
                assert!(text.contains(&line), "{text}");
            }
        }
        assert!(metrics.openmetrics().contains("kiln_npu_failures_total 2\n"));
    }

    #[test]
    fn what_was_measured_for_the_npu_has_a_sample_for_each_placement() {
        let metrics = Metrics::default();
        assert!(!metrics.prometheus().contains("kiln_npu_placement"));
        metrics.set_placements(&[PlacementTiming { rows: 512, depth: 1792, device: 4.5, offload: 4.25 }]);
        let text = metrics.prometheus();
        for (on, seconds) in [("gpu", "4.5"), ("npu", "4.25")] {
            let labels = format!("{{rows=\"512\",behind=\"1792\",on=\"{on}\"}}");
            assert!(text.contains(&format!("kiln_npu_placement_seconds{labels} {seconds}\n")), "{text}");
        }
    }

    #[test]
    fn energy_has_samples_where_something_is_known_and_of_no_token_none() {
        let metrics = Metrics::default();
        metrics.add_energy(Energy::default(), 5);
        assert!(!metrics.prometheus().contains("energy") && !metrics.prometheus().contains("joules"));
        metrics.add_energy(Energy { gpu: Some(12.0), package: None }, 4);
        let text = metrics.openmetrics();
        assert!(text.contains("kiln_energy_joules_total{source=\"gpu\"} 12.0\n"), "{text}");
        assert!(text.contains("kiln_joules_per_token{source=\"gpu\"} 3.0\n") && !text.contains("package"), "{text}");
        metrics.add_energy(Energy { gpu: Some(1.5), package: None }, 0);
        let text = metrics.prometheus();
        assert!(text.contains("kiln_energy_joules_total{source=\"gpu\"} 13.5\n"), "{text}");
        assert!(!text.contains("kiln_joules_per_token{"), "{text}");
    }
}
