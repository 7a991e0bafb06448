//! The subject of a forecast: a model in a certain form, and an optional draft model.

use super::machine::PlannedMachine;
use crate::Result;
use crate::engine::{self, ModelFiles};
use crate::machine::heaps::DeviceMemory;
use crate::model::{FileMix, Shape, TensorId, WeightFormat, presets};
use crate::plan::{Needs, Plan};
use crate::schedule::{Extent, Schedule};
use std::path::Path;
use std::rc::Rc;

/// A model in a certain form, from which schedules and their memory needs are built.
pub(crate) struct ModelForm {
    pub(crate) shape: Shape,
    formats: Box<dyn Fn(TensorId) -> WeightFormat>,
    /// Whether uploads go through a staging buffer; `None` if there is no device.
    staged: Option<bool>,
    /// The drafter that reads its keys and values.
    drafter: Option<Rc<ModelForm>>,
}

impl ModelForm {
    /// A form that Kiln quantises from floating-point weights.
    pub(crate) fn made(shape: &Shape, weights: WeightFormat, staged: Option<bool>) -> ModelForm {
        let of = shape.clone();
        let formats = Box::new(move |id| weights.of_matrix(id, &of, None));
        ModelForm { shape: shape.clone(), formats, staged, drafter: None }
    }

    /// The form of a file with this mix of types.
    pub(crate) fn of_mix(shape: &Shape, mix: FileMix, staged: Option<bool>) -> ModelForm {
        let of = shape.clone();
        ModelForm { shape: shape.clone(), formats: Box::new(move |id| mix.kept(id, &of)), staged, drafter: None }
    }

    /// The form in which Kiln loads these files.
    pub(crate) fn of_files(
        files: &ModelFiles,
        shape: &Shape,
        weights: WeightFormat,
        staged: Option<bool>,
    ) -> ModelForm {
        let formats = Box::new(files.formats(weights, shape));
        ModelForm { shape: shape.clone(), formats, staged, drafter: None }
    }

    /// The same model, with `drafter` loaded beside it.
    pub(crate) fn with_drafter(self, drafter: Option<Rc<ModelForm>>) -> ModelForm {
        ModelForm { drafter, ..self }
    }

    /// The schedule for `extent`, and an executor's further needs beside weights and KV cache.
    pub(crate) fn build(&self, extent: Extent) -> (Schedule, Needs) {
        let drafter = self.drafter.as_ref().map(|drafter| (&drafter.shape, &drafter.formats as &dyn Fn(_) -> _));
        let schedule = Schedule::build_with(&self.shape, extent, &self.formats, drafter);
        let needs = Needs::of_executor(&schedule, self.staged);
        (schedule, needs)
    }

    /// As [`Plan::fit`].
    ///
    /// # Errors
    /// As [`Plan::fit`].
    pub(crate) fn fit(&self, extent: Extent, memory: &DeviceMemory) -> Result<(Schedule, Plan)> {
        Plan::fit(extent, memory, |extent| self.build(extent))
    }

    /// Checks whether a model fits a device when it is loaded as by `kiln run`. Returns the bytes that it needs.
    ///
    /// # Errors
    /// Refused: it does not fit; the message has the sum. Input: its files are damaged or not of a Gemma.
    #[cfg(feature = "cli")]
    pub(crate) fn fit_on(opened: &engine::Opened, files: &ModelFiles) -> Result<u64> {
        let (options, shape) = (engine::Options::default(), files.shape()?);
        let form = ModelForm::of_files(files, &shape, options.weights, opened.staged());
        form.fit(options.extent(&shape)?, &opened.memory()?).map(|(_, plan)| plan.bytes())
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
    /// The name and the form of the draft model called `word`.
    ///
    /// # Errors
    /// Input: there is no such model.
    pub(crate) fn find(word: &str, weights: WeightFormat, target: &PlannedMachine) -> Result<(String, ModelForm)> {
        let files = ModelFiles::of_draft(Path::new(word));
        let is_model = Path::new(word).is_dir() || !matches!(files, ModelFiles::Directory(_));
        let shape = if is_model { files.shape()? } else { presets::find(word)? };
        Ok(match is_model {
            true => (files.name(), ModelForm::of_files(&files, &shape, weights, target.staged)),
            false => (word.to_owned(), ModelForm::made(&shape, weights, target.staged)),
        })
    }

    /// Plans a draft model.
    ///
    /// # Errors
    /// Input: its context is too short. Refused: it does not fit.
    pub(crate) fn plan(
        (name, form): (String, ModelForm),
        options: engine::Options,
        target: &PlannedMachine,
    ) -> Result<Draft> {
        engine::check_draft_context(&form.shape, options.context)?;
        let (schedule, plan) = form.fit(options.extent(&form.shape)?, &target.memory)?;
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
