//! Loads a bundle, and falls back to the previous one if its files are at fault.

use super::load::{LoadedExecutor, ModelLoader};
use crate::Error;
use crate::engine::ModelFiles;
use crate::executor::weights::Progress;
use crate::model::bundle::{Manifest, roll_back};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Rules for loading a bundle.
#[derive(Debug, Clone, Copy)]
pub struct BundleRules {
    /// True: the checksums in the bundle's manifest are verified before the model is loaded.
    pub verify: bool,
    /// Whether the link is turned back to the previous bundle if this one is at fault. False for a mere check.
    pub goes_back: bool,
}

/// The error of a load, and whether the files caused it, as opposed to memory, options or a draft model.
struct LoadFailure {
    error: Error,
    is_of_files: bool,
}

/// Wraps `load` by `rules`. If the model is a link to a bundle that has never been loaded and whose files are at fault,
/// the link is turned back to the previous bundle, which is loaded instead. If the link changes during a load, the load
/// is repeated, so that weights, tokenizer and name belong to the same bundle.
pub fn guarded(load: ModelLoader, files: ModelFiles, rules: BundleRules) -> ModelLoader {
    let good = Mutex::<Option<PathBuf>>::default();
    Box::new(move |progress| {
        // Without a trailing slash, which would lead to the link's target.
        let place = files.place().map(|place| place.components().collect::<PathBuf>());
        let link = place.filter(|place| place.is_symlink());
        let target = || link.as_ref().and_then(|link| link.read_link().ok());
        let mut good = good.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_gone_back = false;
        loop {
            let before = target();
            let loaded = attempt(&load, &files, link.as_deref(), rules, progress);
            if before != target() {
                log::warn!("the link to the bundle was turned during the load, which begins anew");
                continue;
            }
            let LoadFailure { error, is_of_files } = match loaded {
                Ok(loaded) => {
                    *good = before;
                    return Ok(loaded);
                }
                Err(failure) => failure,
            };
            let (Some(link), Some(failed)) = (&link, &before) else { return Err(error) };
            if !is_of_files || !rules.goes_back || has_gone_back || before == *good {
                return Err(error);
            }
            has_gone_back = true;
            match roll_back(link, failed) {
                Ok(Some(to)) => {
                    log::error!("the bundle {} cannot be used: {error}", failed.display());
                    log::error!("going back to the bundle before it, {}", to.display());
                }
                Ok(None) => return Err(error),
                Err(not) => {
                    log::error!("the link to the bundle before it stays as it is: {not}");
                    return Err(error);
                }
            }
        }
    })
}

fn attempt(
    load: &ModelLoader,
    files: &ModelFiles,
    link: Option<&Path>,
    rules: BundleRules,
    progress: &Progress,
) -> std::result::Result<LoadedExecutor, LoadFailure> {
    let is_input = |error: &Error| matches!(error, Error::Input { .. });
    let of_files = |error: Error| LoadFailure { is_of_files: is_input(&error), error };
    if rules.verify {
        let place = files.place().ok_or_else(|| {
            of_files(Error::input(
                "the built-in model is no bundle",
                "leave out --verify, or name a bundle as the model",
            ))
        })?;
        let bundle = Manifest::verify(place, &progress.cancel).map_err(of_files)?;
        log::info!("all files of the bundle {} are as they were made", bundle.name);
    }
    // A faulty draft model or option gives the same kind of error, so the files are checked by themselves.
    let mut loaded = load(progress)
        .map_err(|error| LoadFailure { is_of_files: is_input(&error) && files.checkpoint().is_err(), error })?;
    if link.is_some() {
        // Opens the text side too, so that its faults are found before the bundle is accepted, and from the same
        // bundle.
        loaded.text = Some(loaded.take_text(0, files).map_err(of_files)?);
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;
    use crate::engine::{Device, Options};
    use crate::serve::load::loader;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const FILES: [&str; 4] =
        ["tiny/config.json", "tiny/model.safetensors", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"];

    /// Directories `one` and `two` with a model each, and links: `current` to `two`, `current.previous` to `one`.
    fn linked() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["one", "two"] {
            std::fs::create_dir(at(name)).unwrap();
            for file in FILES {
                let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
                std::fs::copy(&golden, at(name).join(golden.file_name().unwrap())).unwrap();
            }
        }
        symlink("two", at("current")).unwrap();
        symlink("one", at("current.previous")).unwrap();
        place
    }

    #[test]
    fn the_text_side_is_opened_once_and_is_of_the_bundle_that_was_loaded() {
        let place = linked();
        let files = ModelFiles::Directory(place.path().join("current"));
        let options = Options { device: Device::Cpu, context: Some(64), ..Options::default() };
        let load = loader(files.clone(), None, options, false);
        let load = guarded(load, files.clone(), BundleRules { verify: false, goes_back: true });
        let mut loaded = load(&Progress::new(Cancel::default())).unwrap();
        // Opening the tokenizer again would fail.
        std::fs::remove_file(place.path().join("two/tokenizer.json")).unwrap();
        let text = loaded.take_text(7, &files).unwrap();
        assert_eq!((text.id, text.context), (7, 64));
        assert!(loaded.take_text(8, &files).is_err());
    }

    #[test]
    fn only_files_at_fault_turn_a_link_back_and_no_check_does() {
        let place = linked();
        let at = |name: &str| place.path().join(name);
        let loads = std::sync::Arc::new(AtomicUsize::new(0));
        let attempts = |goes_back: bool| {
            let (count, before) = (loads.clone(), loads.load(Ordering::Relaxed));
            let fails: ModelLoader = Box::new(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Err(Error::input("no file named by an option", "name another"))
            });
            // With the slash that shells add when completing.
            let files = ModelFiles::Directory(at("current/"));
            let load = guarded(fails, files, BundleRules { verify: false, goes_back });
            assert!(load(&Progress::new(Cancel::default())).is_err());
            let leads = at("current").read_link().unwrap();
            (loads.load(Ordering::Relaxed) - before, leads.display().to_string())
        };
        assert_eq!(attempts(true), (1, "two".into()), "the files are not at fault");
        std::fs::write(at("two/model.safetensors"), "cut").unwrap();
        assert_eq!(attempts(false), (1, "two".into()));
        assert_eq!(attempts(true), (2, "one".into()));
        assert!(!at("current.previous").is_symlink());
    }
}
