//! `kiln bundle`: a model in a directory with a manifest. Makes bundles, checks them, and switches a link to another
//! one.

use super::{print, print_json, signals};
use crate::display::counted;
use crate::engine::ModelFiles;
use crate::model::TensorId;
use crate::model::bundle::{Manifest, use_bundle};
use crate::model::write::bundle::bundle;
use crate::{Error, Result};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Makes, checks and puts in place bundles: a model's files with a manifest of their sums.
#[derive(Debug, clap::Args)]
pub struct BundleArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Copy a model's files into a new bundle
    Make {
        /// Model directory, GGUF file, or the model's name in the hub's cache [default: $KILN_MODEL]
        #[arg(short, long, value_name = "SRC")]
        model: Option<PathBuf>,
        /// Directory to create
        #[arg(short, long, value_name = "DST")]
        output: PathBuf,
        /// What servers call the model [default: its own name]
        #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        name: Option<String>,
    },
    /// Check each file of a bundle against its manifest
    Check {
        /// The bundle
        bundle: PathBuf,
    },
    /// Check a bundle, and make a link lead to it in the place of another, which LINK.previous keeps
    Use {
        /// The bundle
        bundle: PathBuf,
        /// The link, which servers have as their model
        link: PathBuf,
    },
}

/// Runs the command.
///
/// # Errors
/// Input: the model, the bundle or the link is not valid. Failed: a file cannot be written.
pub fn run(args: &BundleArgs, as_json: bool) -> Result<()> {
    match &args.what {
        What::Make { model, output, name } => make(model.as_deref(), output, name.as_deref(), as_json),
        What::Check { bundle } => {
            let manifest = check(bundle)?;
            let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
            if as_json {
                let (name, files) = (&manifest.name, manifest.files.len());
                return print_json(
                    &json!({"bundle": bundle.display().to_string(), "name": name, "files": files, "bytes": bytes}),
                );
            }
            let (files, size) = (counted(manifest.files.len(), "file"), crate::display::bytes(bytes));
            print(&format!("{} is whole: {}, {files}, {size}\n", bundle.display(), manifest.name))
        }
        What::Use { bundle, link } => {
            let manifest = check(bundle)?;
            let old = use_bundle(bundle, link)?;
            if as_json {
                let [link, bundle] = [link, bundle].map(|path| path.display().to_string());
                let old = old.map(|old| old.display().to_string());
                return print_json(&json!({"link": link, "bundle": bundle, "name": manifest.name, "previous": old}));
            }
            let before = old.map(|old| format!("; before it, {}", old.display())).unwrap_or_default();
            print(&format!("{} leads to {}{before}\n", link.display(), bundle.display()))
        }
    }
}

fn check(bundle: &Path) -> Result<Manifest> {
    signals::catch(signals::stops().iter().copied());
    Manifest::verify(bundle, &signals::cancel())
}

fn make(model: Option<&Path>, output: &Path, name: Option<&str>, as_json: bool) -> Result<()> {
    let model = ModelFiles::from(super::model::chosen(model));
    let Some(files) = model.to_bundle()? else {
        return Err(Error::input("the built-in model has no files to bundle", "give a model with -m"));
    };
    let tensors = TensorId::all(model.checkpoint()?.shape()).count();
    let name = name.map_or_else(|| model.name(), str::to_owned);
    super::job::run(&name.clone(), output, &[], as_json, |watch| bundle(name, &files, tensors, output, watch))
}
