//! The subject of a forecast: a model in a certain form, and an optional draft model.

use super::machine::PlannedMachine;
use crate::Result;
use crate::engine::{self, ModelFiles};
use crate::machine::heaps::DeviceMemory;
use crate::model::{FileMix, Shape, TensorId, WeightFormat, presets};
use crate::plan::{Needs, Plan};
use crate::schedule::{Extent, Schedule};
use std::path::Path;

/// A model in a certain form, from which schedules and their memory needs are built.
pub(crate) struct ModelForm {
    pub(crate) shape: Shape,
    formats: Box<dyn Fn(TensorId) -> WeightFormat>,
    /// Whether uploads go through staging; `None` if there is no device.
    staged: Option<bool>,
}

impl ModelForm {
    /// A form that Kiln quantises from floating-point weights.
    pub(crate) fn made(shape: &Shape, weights: WeightFormat, staged: Option<bool>) -> ModelForm {
        let of = shape.clone();
        let formats = Box::new(move |id| weights.of_matrix(id, &of, None));
        ModelForm { shape: shape.clone(), formats, staged }
    }

    /// The form of a file with this mix of types.
    pub(crate) fn of_mix(shape: &Shape, mix: FileMix, staged: Option<bool>) -> ModelForm {
        let of = shape.clone();
        ModelForm { shape: shape.clone(), formats: Box::new(move |id| mix.kept(id, &of)), staged }
    }

    /// The form in which Kiln loads these files.
    pub(crate) fn of_files(
        files: &ModelFiles,
        shape: &Shape,
        weights: WeightFormat,
        staged: Option<bool>,
    ) -> ModelForm {
        let formats = Box::new(files.formats(weights, shape));
        ModelForm { shape: shape.clone(), formats, staged }
    }

    /// The schedule for `extent`, and an executor's further needs beside weights and KV cache.
    pub(crate) fn build(&self, extent: Extent) -> (Schedule, Needs) {
        let schedule = Schedule::build(&self.shape, extent, &self.formats);
        let needs = self.staged.map_or(Needs::of(&schedule), |staged| Needs::on_device(&schedule, staged));
        (schedule, needs)
    }

    /// As [`Plan::fit`].
    ///
    /// # Errors
    /// As [`Plan::fit`].
    pub(crate) fn fit(&self, extent: Extent, memory: &DeviceMemory) -> Result<(Schedule, Plan)> {
        Plan::fit(extent, memory, |extent| self.build(extent))
    }

    /// All bytes that a schedule for `extent` needs.
    pub(crate) fn bytes(&self, extent: Extent) -> u64 {
        let (schedule, needs) = self.build(extent);
        Plan::wanted(&schedule, needs).iter().fold(0, |sum, wanted| sum.saturating_add(wanted.1))
    }
}

/// A draft model with its plan. It is placed before the model.
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
    pub(crate) plan: Plan,
    form: ModelForm,
}

impl Draft {
    /// Plans the draft model called `word`.
    ///
    /// # Errors
    /// Input: there is no such model, or its context is too short. Refused: it does not fit.
    pub(crate) fn plan(word: &str, options: engine::Options, target: &PlannedMachine) -> Result<Draft> {
        let files = ModelFiles::of_draft(Path::new(word));
        let is_model = Path::new(word).is_dir() || !matches!(files, ModelFiles::Directory(_));
        let shape = if is_model { files.shape()? } else { presets::find(word)? };
        engine::check_draft_context(&shape, options.context)?;
        let form = match is_model {
            true => ModelForm::of_files(&files, &shape, options.weights, target.staged),
            false => ModelForm::made(&shape, options.weights, target.staged),
        };
        let (schedule, plan) = form.fit(options.extent(&shape)?, &target.memory)?;
        let name = if is_model { files.name() } else { word.to_owned() };
        Ok(Draft { name, schedule, plan, form })
    }

    /// The part of `memory` that the draft model leaves free.
    ///
    /// # Errors
    /// Refused: it has no room for the draft model.
    pub(crate) fn beside(&self, memory: &DeviceMemory) -> Result<DeviceMemory> {
        let (_, plan) = self.form.fit(self.schedule.extent, memory)?;
        Ok(memory.less(plan.regions.iter().map(|r| (r.heap, r.bytes))))
    }
}
