//! `quantize` and `forge` write what was asked for, completely or not at all.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use kiln::Cancel;
use kiln::model::write::{WriteMonitor, WriteSummary, forge, quantize};
use kiln::model::{Checkpoint, Shape, SourceFormat, TensorId, WeightFormat, config, presets};

use super::files::{golden, read_matrix};

fn quantize(src: &Path, dst: &Path) -> kiln::Result<WriteSummary> {
    let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
    quantize::quantize(src, dst, WeightFormat::Int8, &monitor)
}

fn forge(shape: &Shape, dst: &Path, format: WeightFormat, seed: u64) -> kiln::Result<WriteSummary> {
    let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
    forge::forge(shape, dst, format, seed, &monitor)
}

fn read(c: &Checkpoint, id: TensorId, format: WeightFormat) -> (Vec<u8>, Vec<f32>) {
    read_matrix(c, id, format).unwrap()
}

fn assert_empty(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A copy of a golden case that a test may damage.
fn copy(case: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        std::fs::copy(golden(case).join(file), dir.path().join(file)).unwrap();
    }
    dir
}

#[test]
fn a_quantised_model_is_the_same_model() {
    for case in ["tiny", "wide_small", "deep62"] {
        let place = tempfile::tempdir().unwrap();
        let dst = place.path().join("int8");
        let written = quantize(&golden(case), &dst).unwrap();
        let (from, to) = (Checkpoint::open(&golden(case)).unwrap(), Checkpoint::open(&dst).unwrap());
        assert_eq!((to.shape(), to.source()), (from.shape(), SourceFormat::Native(WeightFormat::Int8)));
        for id in TensorId::all(from.shape()) {
            if id.is_vector() {
                assert_eq!(from.read_vector(id).unwrap(), to.read_vector(id).unwrap());
            } else {
                assert_eq!(read(&from, id, WeightFormat::Int8), read(&to, id, WeightFormat::Int8), "{case} {id:?}");
            }
        }
        assert_eq!(written.tensors, from.shape().layers.len() * 13 + 2);
        assert_eq!(written.bytes, std::fs::metadata(dst.join("model.safetensors")).unwrap().len());
        assert!(dst.join("generation_config.json").exists());
        let again = place.path().join("again");
        quantize(&dst, &again).unwrap();
        let bytes = |dir: &Path| std::fs::read(dir.join("model.safetensors")).unwrap();
        assert_eq!(bytes(&dst), bytes(&again), "INT8 goes through unchanged");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "nothing else is left");
    }
}

#[test]
fn what_quantize_writes_is_plain_safetensors() {
    let place = tempfile::tempdir().unwrap();
    let dst = place.path().join("int8");
    quantize(&golden("tiny"), &dst).unwrap();
    let (ours, theirs) = (std::fs::read(dst.join("model.safetensors")).unwrap(), golden("tiny/model.int8.safetensors"));
    let theirs = std::fs::read(theirs).unwrap();
    let ours = safetensors::SafeTensors::deserialize(&ours).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&theirs).unwrap();
    assert_eq!(ours.len(), theirs.len());
    for (name, tensor) in theirs.iter() {
        let mine = ours.tensor(name).unwrap();
        assert_eq!((mine.dtype(), mine.shape()), (tensor.dtype(), tensor.shape()), "{name}");
        assert!(mine.data() == tensor.data(), "{name}");
    }
}

#[test]
fn companions_are_copied_and_nothing_else() {
    let (src, place) = (copy("tiny"), tempfile::tempdir().unwrap());
    for name in ["tokenizer.json", "chat_template.jinja", "notes.txt"] {
        std::fs::write(src.path().join(name), name).unwrap();
    }
    let dst = place.path().join("int8");
    quantize(src.path(), &dst).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&dst).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let wanted =
        ["chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"];
    assert_eq!(names, wanted);
    assert_eq!(std::fs::read_to_string(dst.join("tokenizer.json")).unwrap(), "tokenizer.json");
}

#[test]
fn a_destination_that_exists_is_not_touched() {
    let place = tempfile::tempdir().unwrap();
    let (dir, file, link) = (place.path().join("dir"), place.path().join("file"), place.path().join("link"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&file, "precious").unwrap();
    std::os::unix::fs::symlink("/nonexistent", &link).unwrap();
    let shape = Checkpoint::open(&golden("tiny")).unwrap().shape().clone();
    for dst in [dir.as_path(), &file, &link, Path::new("/"), Path::new("..")] {
        for error in
            [quantize(&golden("tiny"), dst).unwrap_err(), forge(&shape, dst, WeightFormat::Int8, 0).unwrap_err()]
        {
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains("exists already"), "{error}");
        }
    }
    assert_empty(&dir);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 3);
}

#[test]
fn a_destination_that_cannot_be_written_is_exit_1() {
    for dst in ["/nonexistent/place/model", "/proc/model"] {
        let error = quantize(&golden("tiny"), Path::new(dst)).unwrap_err();
        assert_eq!(error.exit_code(), 1, "{error}");
        assert!(error.to_string().contains(dst), "{error}");
    }
}

#[test]
fn a_bad_row_at_the_end_leaves_nothing_behind() {
    let (src, place) = (copy("tiny"), tempfile::tempdir().unwrap());
    let path = src.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    // The last matrix of the file: v_proj of the last layer, before the final norm's 256 bytes.
    let at = bytes.len() - 256 - 2;
    bytes[at..at + 2].copy_from_slice(&0x7F80u16.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let error = quantize(src.path(), &place.path().join("int8")).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("model.layers.5.self_attn.v_proj.weight"), "{error}");
    assert_empty(place.path());
}

/// A mapped file that is cut short ends the process.
#[test]
fn a_file_that_is_cut_short_while_it_is_read_is_an_error_and_leaves_nothing() {
    let (src, place) = (copy("tiny"), tempfile::tempdir().unwrap());
    let path = src.path().join("model.safetensors");
    let half = std::fs::metadata(&path).unwrap().len() / 2;
    let cut = |_, _| std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(half).unwrap();
    let monitor = WriteMonitor { progress: &cut, cancel: &Cancel::default() };
    let error = quantize::quantize(src.path(), &place.path().join("dst"), WeightFormat::Int8, &monitor).unwrap_err();
    let line = error.to_string();
    assert!(line.contains("model.safetensors was cut short while it was read") && error.exit_code() == 1, "{line}");
    assert_empty(place.path());
}

#[test]
fn cancelling_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let cancel = Cancel::default();
    // Cancelled at the first progress, like a signal in the middle.
    let calls = AtomicU64::new(0);
    let progress = |_: u64, _: u64| {
        calls.fetch_add(1, Ordering::Relaxed);
        cancel.set();
    };
    let monitor = WriteMonitor { progress: &progress, cancel: &cancel };
    let error =
        quantize::quantize(&golden("tiny"), &place.path().join("int8"), WeightFormat::Int8, &monitor).unwrap_err();
    assert!(matches!(error, kiln::Error::Interrupted { .. }) && error.to_string().contains("interrupted"), "{error}");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_empty(place.path());
}

#[test]
fn progress_ends_at_the_bytes_written() {
    let place = tempfile::tempdir().unwrap();
    let (most, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let progress = |done: u64, total: u64| {
        most.fetch_max(done, Ordering::Relaxed);
        all.store(total, Ordering::Relaxed);
    };
    let monitor = WriteMonitor { progress: &progress, cancel: &Cancel::default() };
    let written =
        quantize::quantize(&golden("tiny"), &place.path().join("int8"), WeightFormat::Int8, &monitor).unwrap();
    assert_eq!((most.into_inner(), all.into_inner()), (written.bytes, written.bytes));
}

#[test]
fn more_than_the_disk_holds_is_refused_with_the_sum() {
    let place = tempfile::tempdir().unwrap();
    let huge = Shape { vocab: 1 << 24, hidden: 1 << 17, ffn: 1 << 20, ..presets::preset("27b").unwrap() };
    let error = forge(&huge, &place.path().join("huge"), WeightFormat::Bf16, 0).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    let line = error.to_string();
    assert!(line.contains("the weights take") && line.contains("GB are free"), "{line}");
    assert_empty(place.path());
}

#[test]
fn a_forged_model_follows_from_its_seed_alone() {
    let shape = Shape { eos: vec![1, 106], ..Checkpoint::open(&golden("wide_small")).unwrap().shape().clone() };
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let bytes = |name: &str| std::fs::read(path(name).join("model.safetensors")).unwrap();
    forge(&shape, &path("a"), WeightFormat::Int8, 7).unwrap();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    one_thread.install(|| forge(&shape, &path("b"), WeightFormat::Int8, 7)).unwrap();
    forge(&shape, &path("c"), WeightFormat::Int8, 8).unwrap();
    forge(&shape, &path("d"), WeightFormat::Bf16, 7).unwrap();
    assert!(bytes("a") == bytes("b"));
    assert!(bytes("a") != bytes("c"));
    let (int8, bf16) = (Checkpoint::open(&path("a")).unwrap(), Checkpoint::open(&path("d")).unwrap());
    assert_eq!((int8.shape(), int8.source()), (&shape, SourceFormat::Native(WeightFormat::Int8)));
    assert_eq!((bf16.shape(), bf16.source()), (&shape, SourceFormat::Native(WeightFormat::Bf16)));
    assert_eq!(config::parse(&std::fs::read_to_string(path("a").join("config.json")).unwrap(), None).unwrap(), shape);
}

#[test]
fn forged_weights_are_spread_as_a_model_needs() {
    let shape = Checkpoint::open(&golden("wide_small")).unwrap().shape().clone();
    let place = tempfile::tempdir().unwrap();
    let dst = place.path().join("model");
    forge(&shape, &dst, WeightFormat::Int8, 1).unwrap();
    let c = Checkpoint::open(&dst).unwrap();
    let mut rows = std::collections::HashSet::new();
    for id in TensorId::all(&shape).filter(|id| !id.is_vector()) {
        let [height, cols] = id.dims(&shape);
        let (data, scales) = read(&c, id, WeightFormat::Int8);
        let mut sum = 0f64;
        for (row, scale) in data.chunks_exact(WeightFormat::Int8.row_bytes(cols)).zip(&scales) {
            assert!(rows.insert(row[..cols].to_vec()), "{id:?} repeats a row");
            assert!(row.iter().all(|q| *q != 0x80));
            sum += row.iter().map(|q| f64::from(*q as i8 as f32 * scale).powi(2)).sum::<f64>();
        }
        let deviation = (sum / (height * cols) as f64).sqrt() * (cols as f64).sqrt();
        assert!((0.9..1.2).contains(&deviation), "{id:?}: {deviation}");
        assert!(scales.windows(2).any(|s| s[0] != s[1]), "{id:?} has one scale for all rows");
    }
    let norm = c.read_vector(TensorId::FinalNorm).unwrap();
    assert!(norm.iter().all(|w| w.abs() <= 0.11) && norm.iter().any(|w| w.abs() > 0.02), "{norm:?}");
}
