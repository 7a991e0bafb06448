//! The forecast: whether a model fits a machine, this one or another, and the rates that the machine allows.

pub(crate) mod form;
pub(crate) mod machine;
pub(crate) mod rates;
pub(crate) mod verdict;

use crate::Result;
use crate::engine::{self, ModelFiles, Options};
use crate::error::Text;
use crate::machine::heaps::DeviceMemory;
use crate::machine::profile::THIS;
use crate::model::checkpoint::check_drafter;
use crate::model::{FileMix, TensorId, WeightFormat, presets};
use crate::plan::{Plan, Purpose, kernel_parameters, sums};
use crate::replay::measure::estimate;
use crate::schedule::cost::step_cost;
use crate::schedule::layout::Placement;
use crate::schedule::step::WeightBuffer;
use crate::schedule::{Extent, PassShape, Schedule};
use crate::sequence::draft::MOST_DRAFTED;
use form::{Draft, ModelForm};
use machine::PlannedMachine;
use rates::{Attention, BATCHES, DRAFTED, Prediction, RIGHT, draft_rate, roof};
use serde_json::{Value, json};
use std::rc::Rc;
use verdict::FitVerdict;

/// Settings of a forecast: the machine, the model and the sizes to plan for.
#[derive(Debug, Clone)]
pub struct ForecastOptions {
    /// The model's files. Only the config and the headers of the weights are read.
    pub files: ModelFiles,
    /// A model by name or by its config.json, instead of files.
    pub shape: Option<String>,
    /// The mix of types in the file of a model given by shape. `None`: the matrices have the format in `options`.
    pub mix: Option<FileMix>,
    /// The machine: `this`, or one by name, with GiB of carve-out as in `780m:4`.
    pub machine: String,
    /// GiB of RAM of a machine by name, including the carve-out. `None`: the usual size.
    pub ram: Option<u64>,
    /// A draft model: its name, its config.json, a model's path, or `demo`.
    pub draft: Option<String>,
    /// Options for loading: `sequences` at once, with `kv_tokens` in total.
    pub options: Options,
    /// True if every step of a decode pass is listed.
    pub with_schedule: bool,
}

/// A function that words an error for the front end.
pub(crate) type TextWording<'a> = &'a dyn Fn(&Text) -> String;

/// The forecast as one object, as `kiln plan --json` prints it. `fits` says whether the model fits.
///
/// # Errors
/// Input: the model is wrong, or the machine is unknown. Device: this machine has no such device.
pub fn to_json(asked: &ForecastOptions) -> Result<Value> {
    Ok(ForecastView::of(asked, &|text| text.to_string())?.to_json())
}

/// A forecast, ready to show.
pub(crate) struct ForecastView<'a> {
    pub(crate) asked: &'a ForecastOptions,
    words: TextWording<'a>,
    pub(crate) options: engine::Options,
    /// The sizes that were requested. The KV cache of [`ForecastView::schedule`] may be smaller.
    pub(crate) extent: Extent,
    pub(crate) schedule: Schedule,
    pub(crate) form: ModelForm,
    wanted: Vec<(Purpose, u64)>,
    pub(crate) placed: Result<Plan>,
    /// For each number of sequences, the most KV tokens that fit, in total.
    pub(crate) room: Vec<(usize, usize)>,
    pub(crate) target: PlannedMachine,
    /// A draft model with a plan of its own.
    pub(crate) draft: Option<Draft>,
    /// The name and the form of a drafter, which is a part of the model's plan.
    pub(crate) drafter: Option<(String, Rc<ModelForm>)>,
}

impl<'a> ForecastView<'a> {
    /// Makes the forecast.
    ///
    /// # Errors
    /// As [`to_json`].
    pub(crate) fn of(asked: &'a ForecastOptions, words: TextWording<'a>) -> Result<ForecastView<'a>> {
        let shape = match &asked.shape {
            Some(word) => presets::find(word)?,
            None => asked.files.shape()?,
        };
        engine::refuse_drafter(&shape)?;
        let mut target = PlannedMachine::find(asked)?;
        let of_batch = |batch| Options {
            sequences: batch,
            head_rows: batch,
            drafted: if asked.draft.is_some() { MOST_DRAFTED } else { 0 },
            ..asked.options
        };
        let options = of_batch(asked.options.sequences);
        let extent = options.extent(&shape)?;
        let found = asked.draft.as_deref().map(|word| Draft::find(word, options.weights, &target)).transpose()?;
        let (draft, drafter) = match found {
            Some((name, form)) if form.shape.backbone.is_some() => {
                check_drafter(&shape, &form.shape)?;
                (None, Some((name, Rc::new(form))))
            }
            Some(found) => {
                let draft = Draft::plan(found, engine::draft_options(&options, extent.context), &target);
                let draft = draft.map_err(engine::without_draft)?;
                target.memory = draft.beside(&target.memory)?;
                (Some(draft), None)
            }
            None => (None, None),
        };
        // A model by name has no files with other formats.
        let form = match (&asked.shape, asked.mix) {
            (Some(_), Some(mix)) => ModelForm::of_mix(&shape, mix, target.staged),
            (Some(_), None) => ModelForm::made(&shape, options.weights, target.staged),
            (None, _) => ModelForm::of_files(&asked.files, &shape, options.weights, target.staged),
        };
        let form = form.with_drafter(drafter.as_ref().map(|(_, form)| form.clone()));
        let (schedule, placed) = match form.fit(extent, &target.memory) {
            Ok((schedule, plan)) => (schedule, Ok(plan)),
            Err(e) => (form.build(extent).0, Err(e)),
        };
        let room_of = |batch: usize| {
            let extent = Options { context: Some(shape.max_context), ..of_batch(batch) }.extent(&shape).ok()?;
            Some((batch, Plan::room(extent, &target.memory, |extent| form.build(extent))))
        };
        let room = BATCHES.into_iter().filter_map(room_of).collect();
        let wanted = Plan::wanted(&schedule, form.build(schedule.extent).1);
        Ok(ForecastView { asked, words, options, extent, schedule, form, wanted, placed, room, target, draft, drafter })
    }

    pub(crate) fn name(&self) -> String {
        self.asked.shape.clone().unwrap_or_else(|| self.asked.files.name())
    }

    /// The names of the matrices' formats.
    pub(crate) fn weights(&self) -> String {
        self.schedule.weights.format_names()
    }

    /// The planned file's mix of types, and its bytes.
    pub(crate) fn file(&self) -> Option<(FileMix, u64)> {
        self.asked.mix.map(|mix| (mix, mix.file_bytes(&self.schedule.shape)))
    }

    pub(crate) fn sums(&self) -> Vec<(&'static str, u64)> {
        sums(self.wanted.iter().copied())
    }

    pub(crate) fn total(&self) -> u64 {
        self.wanted.iter().fold(0, |sum, w| sum.saturating_add(w.1))
    }

    /// The model in 4 bits. `None` if it has 4-bit matrices already; files of "4 bits" keep some matrices in 5 or 6.
    pub(crate) fn in_4_bits(&self) -> Option<ModelForm> {
        /// The most bits per weight of a 4-bit type. Types of 5 bits start at 5.5.
        const FEW: f64 = 5.25;
        let of_layers = self.schedule.weights.buffers.iter().flat_map(|buffer| &buffer.tensors);
        let has_few = of_layers.into_iter().any(|tensor| match tensor {
            Placement::Matrix(TensorId::Layer(..), matrix) => matrix.format.bits() <= FEW,
            _ => false,
        });
        let drafter = self.drafter.as_ref().map(|(_, form)| form.clone());
        let made = || ModelForm::made(&self.schedule.shape, WeightFormat::Int4, self.target.staged);
        (!has_few).then(|| made().with_drafter(drafter))
    }

    /// Kernel parameters with which the model would fit; `None` if it fits already or they would not help.
    pub(crate) fn parameters(&self) -> Option<String> {
        self.placed.is_err().then(|| kernel_parameters(&self.wanted, &self.target.memory))?
    }

    /// True if a form of the model fits into a memory, together with the draft model if there is one.
    fn fits_in(&self, form: &ModelForm, memory: &DeviceMemory) -> bool {
        let left = match &self.draft {
            Some(draft) => draft.beside(memory),
            None => Ok(memory.clone()),
        };
        left.is_ok_and(|left| form.fit(self.extent, &left).is_ok())
    }

    /// Seconds of tuning; `None` if nothing is tuned.
    pub(crate) fn tuning_seconds(&self) -> Option<f64> {
        match self.asked.machine.as_str() {
            THIS => {
                let device = engine::open(self.asked.options.device).ok()?.device?;
                estimate::seconds_here(device.caps(), &self.schedule)
            }
            name => estimate::seconds_on(name, &self.schedule),
        }
    }

    /// The cost model's prediction; `None` for this machine.
    pub(crate) fn prediction(&self) -> Option<Prediction> {
        Prediction::of(&self.form, self.extent, &self.target)
    }

    /// Tokens per second of one sequence with `drafted` tokens per draft, for each acceptance in [`RIGHT`].
    pub(crate) fn draft_rates(&self, drafted: usize) -> [f64; 4] {
        let draft = self.draft.as_ref().map(|draft| &draft.schedule);
        RIGHT.map(|right| draft_rate(&self.schedule, draft, &self.target, drafted, right))
    }

    pub(crate) fn to_json(&self) -> Value {
        let (asked, s, target, verdict) = (self.asked, &self.schedule, &self.target, FitVerdict::of(self));
        let plan = self.placed.as_ref().ok();
        let regions: Vec<Value> = plan
            .into_iter()
            .flat_map(|p| &p.regions)
            .map(|r| json!({"purpose": r.purpose.to_string(), "kind": r.purpose.kind(), "bytes": r.bytes, "heap": r.heap, "offset": r.offset}))
            .collect();
        // A model that does not fit has no rates.
        let (batches, drafted): (&[usize], &[usize]) = if plan.is_some() { (&BATCHES, &DRAFTED) } else { (&[], &[]) };
        let roofline: Vec<Value> = batches
            .iter()
            .map(|&batch| roof(s, target, batch))
            .map(|r| json!({"batch": r.batch, "bytes": r.bytes, "tokens_s": r.tokens_s, "bound": r.bound}))
            .collect();
        let prediction = plan.and_then(|_| self.prediction()).map(|p| {
            let decode: Vec<Value> =
                p.decode.iter().map(|(n, rate)| json!({"sequences": n, "tokens_s": rate})).collect();
            let attention: Vec<Value> = p.attention.iter().map(attention_json).collect();
            let prefill = json!({"rows": p.prefill.0, "tokens_s": p.prefill.1});
            json!({"decode": decode, "prefill": prefill, "attention": attention})
        });
        let room = self.room.iter().filter(|(_, tokens)| *tokens > 0);
        let mut value = json!({
            "verdict": verdict.line(),
            "model": self.name(),
            "weights": self.weights(),
            "file": self.file().map(|(mix, bytes)| json!({"mix": mix.name, "bytes": bytes})),
            "device": target.memory.device,
            "machine": target.named.as_ref().map(|named| verdict::machine_json(self, named)),
            "fits": plan.is_some(),
            "reason": self.placed.as_ref().err().map(|e| (self.words)(e.parts().0)),
            "at_best": verdict.rates_json(),
            "remedies": verdict.remedies_json(),
            "bytes": self.total(),
            "sums": self.sums().into_iter().map(|(k, b)| (k.to_string(), json!(b))).collect::<serde_json::Map<_, _>>(),
            "kv_tokens": s.kv.tokens(),
            "kv_room": room.map(|(n, tokens)| json!({"sequences": n, "tokens": tokens})).collect::<Vec<_>>(),
            "heaps": target.memory.heaps,
            "pool": target.memory.pool.map(|p| {
                json!({
                    "available": p.available(),
                    "vram": p.vram,
                    "gtt": p.gtt,
                    "gtt_used": p.gtt_used,
                    "gtt_reserved": p.gtt_reserved,
                    "system": p.system,
                })
            }),
            "kernel_parameters": self.parameters(),
            "regions": regions,
            "bandwidth": target.bandwidth,
            "bandwidth_source": target.source,
            "tuning_s": self.tuning_seconds(),
            "roofline": roofline,
            "prediction": prediction,
        });
        value["drafts"] = drafted
            .iter()
            .map(|&drafted| {
                let rates = self.draft_rates(drafted);
                let rates: Vec<Value> =
                    RIGHT.iter().zip(rates).map(|(right, rate)| json!({"right": right, "tokens_s": rate})).collect();
                json!({"drafted": drafted, "rates": rates})
            })
            .collect();
        if let Some(draft) = &self.draft {
            let sums = draft.plan.sums().into_iter().map(|(kind, sum)| (kind.to_string(), json!(sum)));
            let sums = sums.collect::<serde_json::Map<_, _>>();
            value["draft"] = json!({"model": draft.name, "bytes": draft.plan.bytes(), "sums": sums});
        }
        if let Some((name, _)) = &self.drafter {
            let buffer = s.weights.index(WeightBuffer::Drafter);
            value["draft"] = json!({"model": name, "bytes": s.weights.buffers[buffer].bytes});
        }
        if asked.with_schedule {
            let pass = PassShape::Decode { sequences: asked.options.sequences, depth: 0 };
            value["schedule"] = s
                .steps
                .iter()
                .map(|step| {
                    let c = step_cost(step, pass);
                    json!({
                        "segment": step.segment.to_string(), "label": step.label, "kernel": step.op.name(),
                        "operands": step.op.operands(), "weight_bytes": c.weight_bytes, "kv_bytes": c.kv_bytes,
                        "activation_bytes": c.activation_bytes, "operations": c.operations, "after": step.after,
                    })
                })
                .collect();
        }
        value
    }
}

/// The prediction for a pass whose attention could run on either engine.
fn attention_json(attention: &Attention) -> Value {
    let Attention { behind, sequences, tokens, placements: p } = attention;
    json!({
        "behind": behind, "sequences": sequences, "tokens": tokens, "npu_bytes": p.npu_bytes, "on_gpu_s": p.on_gpu,
        "on_npu_s": p.on_npu, "pass_s": p.all, "pass_with_npu_s": p.with_npu, "chosen": p.chosen(),
    })
}
