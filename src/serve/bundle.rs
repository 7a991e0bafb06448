//! Loads a bundle, and the one before it where that fails.

use super::model::Model;
use super::server::{LoadedExecutor, ModelLoader};
use crate::engine::ModelFiles;
use crate::executor::weights::Progress;
use crate::model::bundle::{Manifest, roll_back};
use crate::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// As `load`. With `verify` the bundle's sums are checked first. Where the model is a link to a bundle that cannot be loaded, and has
/// not been loaded before, the link is turned back to the one before it, which is loaded in its place.
pub fn guarded(load: ModelLoader, files: ModelFiles, verify: bool) -> ModelLoader {
    let good = Mutex::<Option<PathBuf>>::default();
    Box::new(move |progress| {
        let link = files.place().filter(|place| place.is_symlink());
        let target = link.and_then(|link| link.read_link().ok());
        let mut good = good.lock().unwrap_or_else(PoisonError::into_inner);
        match attempt(&load, &files, link, verify, progress) {
            Ok(loaded) => {
                *good = target;
                Ok(loaded)
            }
            // What fails by itself is no fault of a bundle's.
            Err(e @ (Error::Input { .. } | Error::Refused { .. })) if target != *good => {
                let turned = link.map(roll_back).transpose().unwrap_or_else(|not| {
                    log::error!("the link to the bundle before it stays as it is: {not}");
                    None
                });
                let Some([from, to]) = turned.flatten() else { return Err(e) };
                log::error!("the bundle {} cannot be used: {e}", from.display());
                log::error!("going back to the bundle before it, {}", to.display());
                attempt(&load, &files, link, verify, progress).inspect(|_| *good = Some(to))
            }
            Err(e) => Err(e),
        }
    })
}

fn attempt(
    load: &ModelLoader,
    files: &ModelFiles,
    link: Option<&Path>,
    verify: bool,
    progress: &Progress,
) -> Result<LoadedExecutor> {
    if verify {
        let place = files.place().ok_or_else(|| {
            Error::input("the built-in model is no bundle", "leave out --verify, or name a bundle as the model")
        })?;
        let bundle = Manifest::verify(place, &progress.cancel)?;
        log::info!("all files of the bundle {} are as they were made", bundle.name);
    }
    let loaded = load(progress)?;
    if link.is_some() {
        // Its text side fails here too, before the bundle is taken for good.
        Model::open(0, files, loaded.executor.schedule(), loaded.executor.device())?;
    }
    Ok(loaded)
}
