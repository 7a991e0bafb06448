//! Models with experts: the golden ones in safetensors and GGUF files, whole and split, and wrong ones.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use kiln::Cancel;
use kiln::model::checkpoint::gguf::Gguf;
use kiln::model::write::{WriteMonitor, forge::forge, quantize::quantize};
use kiln::model::{BlockFormat, Checkpoint, Experts, Role, Shape, SourceFormat, TensorId, WeightFormat, config};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::files::{File, Tensor as Stored, bad_input, decode_matrix, dir_with, golden, read_matrix, refusal};
use crate::common::gguf::{Float, GgufFile, Tensor, Value, code_of, golden_gemma4, random_rows};
use crate::common::{Random, golden_dir};

const CASES: [(&str, Experts); 2] =
    [("moe4", Experts { count: 8, used: 2, ffn: 32 }), ("moe_wide4", Experts { count: 16, used: 4, ffn: 256 })];
const MERGED: &str = "ffn_gate_up_exps.weight";
const SPLIT: [&str; 2] = ["ffn_gate_exps.weight", "ffn_up_exps.weight"];

fn open(file: &GgufFile) -> kiln::Result<Checkpoint> {
    Checkpoint::from_gguf(Gguf::from_bytes(file.bytes())?)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The experts' matrices of a layer.
fn matrices(layer: usize) -> [TensorId; 3] {
    [Role::ExpertGate, Role::ExpertUp, Role::ExpertDown].map(|role| TensorId::Layer(layer, role))
}

/// The rows of two matrices as one tensor has them: of each expert those of the first, then those of the second.
fn merge<T: Copy>(gate: &[T], up: &[T], experts: usize) -> Vec<T> {
    let halves = gate.chunks((gate.len() / experts).max(1)).zip(up.chunks((up.len() / experts).max(1)));
    halves.flat_map(|(gate, up)| [gate, up].concat()).collect()
}

/// Every tensor of the golden files has its hash: as BF16 and as INT8, with an expert's rows in their places.
#[test]
fn golden_experts_have_their_hashes() {
    for (case, experts) in CASES {
        let c = Checkpoint::open(&golden_dir(case)).unwrap();
        assert_eq!(c.shape().experts, Some(experts), "{case}");
        let file = File::read(&golden_dir(case).join("model.safetensors"));
        let json: Json = serde_json::from_slice(&std::fs::read(golden(case).join("golden.json")).unwrap()).unwrap();
        let (mut tensors, mut quantised) = (0, 0);
        for id in TensorId::all(c.shape()).filter(|id| id.holder() == *id) {
            tensors += 1;
            let name = id.name();
            if id.is_vector() {
                // A norm's weights are the file's less 1, whose last bits are lost where they are small.
                let (added, stored) = (if id.is_norm() { 1.0 } else { 0.0 }, &file.tensors[&name]);
                assert_eq!(sha256(&stored.bytes), json["weights"][&name]["bf16_sha256"], "{case} {id:?}");
                let pairs = c.read_vector(id).unwrap().into_iter().zip(stored.bf16_values());
                assert!(pairs.clone().count() == id.dims(c.shape())[1], "{case} {id:?}");
                pairs.for_each(|(w, stored)| assert!((w + added - stored).abs() <= 6e-8, "{case} {id:?}"));
                continue;
            }
            // Rows have no padding: their lengths are multiples of 16.
            let ids = TensorId::all(c.shape()).filter(|other| other.holder() == id).collect::<Vec<_>>();
            let read = |format| {
                let halves: Vec<_> = ids.iter().map(|id| read_matrix(&c, *id, format).unwrap()).collect();
                match &halves[..] {
                    [(gate, g), (up, u)] => (merge(gate, up, experts.count), merge(g, u, experts.count)),
                    _ => halves[0].clone(),
                }
            };
            assert_eq!(sha256(&read(WeightFormat::Bf16).0), json["weights"][&name]["bf16_sha256"], "{case} {id:?}");
            if id.is_router() {
                assert!(WeightFormat::MADE.into_iter().all(|asked| c.formats(asked)(id) == WeightFormat::Bf16));
                continue;
            }
            quantised += 1;
            let (q, scales) = read(WeightFormat::Int8);
            assert_eq!(sha256(&q), json["int8"][&name]["q_sha256"], "{case} {id:?}");
            assert_eq!(sha256(bytemuck::cast_slice(&scales)), json["int8"][&name]["scale_sha256"], "{case} {id:?}");
        }
        assert_eq!(tensors, json["weights"].as_object().unwrap().len(), "{case}");
        assert_eq!(quantised, json["int8"].as_object().unwrap().len(), "{case}");
    }
}

/// A row of the router's norm, of an expert's factor, and of an expert, by their values in the file.
#[test]
fn an_experts_row_is_where_the_file_has_it() {
    let c = Checkpoint::open(&golden("moe4")).unwrap();
    let file = File::read(&golden("moe4/model.safetensors"));
    let values = |name: &str| file.tensors[&format!("model.layers.3.{name}")].bf16_values();
    let [gate, up, down] = matrices(3).map(|id| decode_matrix(&c, id, WeightFormat::Bf16));
    let (merged, wanted) = (values("experts.gate_up_proj"), values("experts.down_proj"));
    // Expert 5's row 7 of 32, in rows of 96.
    let row = |of: &[f32], row: usize| of[row * 96..(row + 1) * 96].to_vec();
    assert_eq!(row(&gate, 5 * 32 + 7), row(&merged, 5 * 64 + 7));
    assert_eq!(row(&up, 5 * 32 + 7), row(&merged, 5 * 64 + 32 + 7));
    assert_eq!(down, wanted);
    let factors = c.read_vector(TensorId::Layer(3, Role::ExpertScales)).unwrap();
    assert_eq!(factors, values("router.per_expert_scale"));
    let norm = c.read_vector(TensorId::Layer(3, Role::RouterNorm)).unwrap();
    assert!(norm.iter().zip(values("router.scale")).all(|(w, scale)| *w == scale - 1.0));
}

/// A file with the experts' gate and up projections as two tensors.
fn split(mut file: GgufFile) -> GgufFile {
    file.tensors = file
        .tensors
        .into_iter()
        .flat_map(|tensor| {
            let Some(layer) = tensor.name.strip_suffix(MERGED) else { return vec![tensor] };
            let [count, rows, cols] = tensor.dims[..] else { panic!("{:?}", tensor.dims) };
            let expert = tensor.bytes.len() / count as usize;
            let half = |second: usize| {
                let part = |e: &[u8]| e[second * expert / 2..(second + 1) * expert / 2].to_vec();
                let bytes = tensor.bytes.chunks(expert).flat_map(part).collect();
                let dims = [count, rows / 2, cols].map(|n| n as usize);
                Tensor::new(&format!("{layer}{}", SPLIT[second]), &dims, tensor.kind, bytes)
            };
            vec![half(0), half(1)]
        })
        .collect();
    file
}

/// The golden model with experts in a quantised type in its first layer.
fn quantised(case: &str, format: BlockFormat, experts: Experts) -> GgufFile {
    let (mut file, mut random) = (golden_gemma4(case, Float::Bf16), Random(11));
    let code = code_of(format);
    for name in [MERGED, "ffn_down_exps.weight"] {
        let tensor = file.tensor(&format!("blk.0.{name}"));
        let dims: Vec<usize> = tensor.dims.iter().map(|n| *n as usize).collect();
        let bytes = random_rows(&mut random, format, dims[0] * dims[1], dims[2]);
        *tensor = Tensor::new(&tensor.name, &dims, code, bytes);
    }
    assert_eq!(open(&file).unwrap().shape().experts, Some(experts));
    file
}

/// Rows of a matrix in the format that its file keeps it in.
fn rows_of(c: &Checkpoint, id: TensorId, rows: Range<usize>) -> (Vec<u8>, Vec<u8>) {
    let (format, [_, cols]) = (c.formats(WeightFormat::Int8)(id), id.dims(c.shape()));
    let mut data = vec![0xAA; rows.len() * format.row_bytes(cols)];
    let mut scales = vec![0xAA; rows.len() * format.scale_bytes(cols)];
    c.read_rows(id, rows, format, &mut data, &mut scales).unwrap();
    (data, scales)
}

/// One tensor of both projections, or two tensors: the same rows, in every type, also where a read begins within an expert
/// and ends within another.
#[test]
fn merged_and_split_experts_have_the_same_rows() {
    let mut files = vec![(golden_gemma4("moe4", Float::F32), SourceFormat::F32)];
    files.push((golden_gemma4("moe4", Float::F16), SourceFormat::F16));
    for format in BlockFormat::ALL {
        let (case, experts) = if format.block() == 32 { CASES[0] } else { CASES[1] };
        files.push((quantised(case, format, experts), SourceFormat::Blocks(format)));
    }
    for (file, source) in files {
        let bytes = file.tensors.iter().map(|tensor| tensor.bytes.len()).sum::<usize>();
        let (merged, split) = (open(&file).unwrap(), open(&split(file)).unwrap());
        assert_eq!(merged.shape(), split.shape());
        assert_eq!((merged.stored_bytes(), merged.source()), (split.stored_bytes(), split.source()));
        let frequencies = 4 * merged.shape().global.head_dim as u64 / 2;
        assert_eq!(merged.stored_bytes() + frequencies, bytes as u64, "{source:?}: each half counts once");
        for id in matrices(0) {
            assert_eq!((merged.stored_as(id), split.stored_as(id)), (source, source));
            let [height, cols] = id.dims(merged.shape());
            for rows in [0..height, 5..height - 3, 7..7, height / 2 - 1..height / 2 + 1] {
                assert!(rows_of(&merged, id, rows.clone()) == rows_of(&split, id, rows.clone()), "{source:?} {id:?}");
                let decoded = |c: &Checkpoint| {
                    let mut values = vec![f32::NAN; rows.len() * cols];
                    c.decode_rows(id, rows.clone(), &mut values).unwrap();
                    values
                };
                assert_eq!(decoded(&merged), decoded(&split), "{source:?} {id:?}");
            }
            merged.release(id, 5..height - 3);
        }
    }
}

/// A file whose experts are padded with zeros, as some publishers pad 704 to 768, so that larger blocks fit.
#[test]
fn padded_experts_have_the_width_of_the_file() {
    let mut file = golden_gemma4("moe4", Float::Bf16);
    file.set("gemma4.expert_feed_forward_length", Value::u32(64));
    for layer in 0..5 {
        let tensor = file.tensor(&format!("blk.{layer}.{MERGED}"));
        // 32 rows of 96 elements, then as many of zeros.
        let zeros = vec![0u8; 32 * 96 * 2];
        let bytes = tensor.bytes.chunks(zeros.len()).flat_map(|half| [half, &zeros].concat()).collect();
        *tensor = Tensor::new(&tensor.name, &[8, 128, 96], 30, bytes);
        let tensor = file.tensor(&format!("blk.{layer}.ffn_down_exps.weight"));
        let bytes = tensor.bytes.chunks(64).flat_map(|row| [row, &[0; 64]].concat()).collect();
        *tensor = Tensor::new(&tensor.name, &[8, 96, 64], 30, bytes);
    }
    let (padded, plain) = (open(&file).unwrap(), Checkpoint::open(&golden("moe4")).unwrap());
    assert_eq!(padded.shape().experts, Some(Experts { ffn: 64, ..CASES[0].1 }));
    for (i, id) in matrices(4).into_iter().enumerate() {
        let [found, wanted] = [&padded, &plain].map(|c| decode_matrix(c, id, WeightFormat::Bf16));
        let run = if i < 2 { 32 * 96 } else { 32 };
        for (found, wanted) in found.chunks(2 * run).zip(wanted.chunks(run)) {
            assert_eq!(&found[..run], wanted, "{id:?}");
            assert!(found[run..].iter().all(|w| *w == 0.0), "{id:?}");
        }
    }
}

fn refused(change: impl FnOnce(&mut GgufFile)) -> String {
    let mut file = golden_gemma4("moe4", Float::Bf16);
    change(&mut file);
    bad_input(open(&file).map(drop))
}

#[test]
fn wrong_experts_in_gguf_files_are_refused_by_name() {
    let with = |key: &str, n: u32| refused(|f| f.set(&format!("gemma4.{key}"), Value::u32(n)));
    for (key, n, said) in [
        ("expert_count", 257, "from 1 to 256"),
        ("expert_used_count", 0, "from 1 to 8"),
        ("expert_used_count", 9, "from 1 to 8"),
        ("expert_feed_forward_length", 36, "multiple of 8"),
    ] {
        let line = with(key, n);
        assert!(line.contains(key) && line.contains(said), "{key} {n}: {line}");
    }
    let few = refused(|f| {
        f.set("gemma4.expert_count", Value::u32(4));
        f.set("gemma4.expert_used_count", Value::u32(5));
    });
    assert!(few.contains("expert_used_count is 5, and a layer has 4 experts"), "{few}");
    for key in ["expert_used_count", "expert_feed_forward_length"] {
        assert!(refused(|f| f.remove(&format!("gemma4.{key}"))).contains(&format!("has no gemma4.{key}")));
    }
    // The tensors of a model that says it is dense, and of another number or width of experts.
    assert!(with("expert_count", 0).contains("is none of Gemma 4's"));
    assert!(with("expert_count", 4).contains("blk.0.ffn_"));
    assert!(with("expert_feed_forward_length", 16).contains("blk.0.ffn_"));
    for name in ["ffn_down_exps.weight", "ffn_down_exps.scale", "ffn_gate_inp.weight", "ffn_gate_inp.scale"] {
        let name = format!("blk.2.{name}");
        let line = refused(|f| f.tensors.retain(|tensor| tensor.name != name));
        assert!(line.contains(&format!("tensor {name} is missing")), "{line}");
    }
    let line = refused(|f| f.tensors.retain(|tensor| tensor.name != format!("blk.2.{MERGED}")));
    assert!(line.contains("tensor blk.2.ffn_gate_exps.weight is missing"), "{line}");
    let line = refused(|f| {
        *f = {
            let mut f = split(f.clone());
            f.tensors.retain(|t| t.name != "blk.2.ffn_up_exps.weight");
            f
        }
    });
    assert!(line.contains("tensor blk.2.ffn_up_exps.weight is missing"), "{line}");
    let line = refused(|f| {
        let split = split(f.clone());
        f.tensors.extend(split.tensors.into_iter().filter(|t| t.name == "blk.2.ffn_up_exps.weight"));
    });
    assert!(line.contains("blk.2.ffn_") && line.contains("in another tensor too"), "{line}");
    // Two dimensions for three, and gate and up stacked in another order of dimensions.
    let line = refused(|f| f.tensor("blk.1.ffn_down_exps.weight").dims = vec![8 * 96, 32]);
    assert!(line.contains("blk.1.ffn_down_exps.weight has shape [768, 32]") && line.contains("[8, 96, 32]"), "{line}");
    // A quantised router.
    let line = refused(|f| {
        let tensor = f.tensor("blk.1.ffn_gate_inp.weight");
        *tensor = Tensor::new("blk.1.ffn_gate_inp.weight", &[8, 96], 8, vec![0; 8 * 3 * 34]);
    });
    assert!(line.contains("blk.1.ffn_gate_inp.weight is Q8_0"), "{line}");
}

#[test]
fn wrong_experts_in_configs_are_refused_by_name() {
    let text = std::fs::read_to_string(golden("moe4/config.json")).unwrap();
    let parse = |changes: Json| {
        let mut config: Json = serde_json::from_str(&text).unwrap();
        changes.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        config::parse(&config.to_string(), None)
    };
    for (changes, key, said) in [
        (json!({"num_experts": 0}), "num_experts", "from 1 to 256"),
        (json!({"num_experts": 257}), "num_experts", "from 1 to 256"),
        (json!({"num_experts": null}), "num_experts", "config.json has no"),
        (json!({"top_k_experts": 9}), "top_k_experts", "from 1 to 8"),
        (json!({"top_k_experts": 5, "num_experts": 4}), "top_k_experts", "a layer has 4 experts"),
        (json!({"moe_intermediate_size": 36}), "moe_intermediate_size", "multiple of 8"),
        (json!({"moe_intermediate_size": null}), "moe_intermediate_size", "config.json has no"),
        (json!({"enable_moe_block": "yes"}), "enable_moe_block", "true or false"),
    ] {
        let line = bad_input(parse(changes).map(drop));
        assert!(line.contains(key) && line.contains(said), "{line}");
    }
    let older = parse(json!({"moe_intermediate_size": null, "expert_intermediate_size": 32})).unwrap();
    assert_eq!(older, parse(json!({})).unwrap());
    assert_eq!(parse(json!({"enable_moe_block": null})).unwrap().experts, None);
    // The 26B's config has a null here.
    assert_eq!(parse(json!({"hidden_size_per_layer_input": null})).unwrap(), older);
    let drafter = std::fs::read_to_string(golden("drafter4/config.json")).unwrap();
    let mut drafter: Json = serde_json::from_str(&drafter).unwrap();
    drafter["text_config"]["enable_moe_block"] = json!(true);
    let line = bad_input(config::parse(&drafter.to_string(), None).map(drop));
    assert!(line.contains("enable_moe_block is true, which Kiln does not compute"), "{line}");
}

#[test]
fn wrong_experts_in_safetensors_files_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut BTreeMap<String, Stored>)| {
        let mut file = File::read(&golden("moe4/model.safetensors"));
        change(&mut file.tensors);
        refusal(dir_with("moe4", &file).path())
    };
    for name in ["experts.gate_up_proj", "experts.down_proj", "router.proj.weight", "router.per_expert_scale"] {
        let name = format!("model.layers.2.{name}");
        let line = refused(&|tensors| drop(tensors.remove(&name)));
        assert!(line.contains(&format!("tensor {name} is missing")), "{line}");
    }
    let line = refused(&|tensors| {
        let tensor = tensors.get_mut("model.layers.2.experts.gate_up_proj").unwrap();
        tensor.shape = vec![8, 96, 64];
    });
    assert!(line.contains("experts.gate_up_proj has shape [8, 96, 64]") && line.contains("[8, 64, 96]"), "{line}");
    let line = refused(&|tensors| {
        let tensor = tensors.get_mut("model.layers.2.router.proj.weight").unwrap();
        *tensor = Stored::new("I8", &[8, 96], vec![0; 8 * 96]);
    });
    assert!(line.contains("router.proj.weight is I8; wanted BF16, F16 or F32"), "{line}");
}

fn quantize_to(src: &Path, dst: &Path, format: WeightFormat) -> kiln::Result<()> {
    let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
    quantize(src, dst, format, &monitor).map(drop)
}

/// In each format, from tensors in one and in two parts: the rows read back as they were read, and INT8 files have the names,
/// shapes and bytes that the golden ones have.
#[test]
fn written_experts_read_back() {
    let place = tempfile::tempdir().unwrap();
    let gguf = place.path().join("split.gguf");
    std::fs::write(&gguf, split(golden_gemma4("moe4", Float::Bf16)).bytes()).unwrap();
    let from = Checkpoint::open(&golden("moe4")).unwrap();
    for format in WeightFormat::MADE {
        for (i, src) in [golden("moe4"), gguf.clone()].into_iter().enumerate() {
            let dst = place.path().join(format!("{}{i}", format.name()));
            quantize_to(&src, &dst, format).unwrap();
            let to = Checkpoint::open(&dst).unwrap();
            assert_eq!(Shape { eos: vec![1], ..to.shape().clone() }, *from.shape());
            for id in TensorId::all(from.shape()) {
                if id.is_vector() {
                    assert_eq!(from.read_vector(id).unwrap(), to.read_vector(id).unwrap(), "{id:?}");
                    continue;
                }
                let format = from.formats(format)(id);
                assert_eq!(to.stored_as(id), SourceFormat::Native(format), "{id:?}");
                let [found, wanted] = [&to, &from].map(|c| read_matrix(c, id, format).unwrap());
                assert!(found == wanted, "{format:?} {id:?}");
            }
        }
    }
    let json: Json = serde_json::from_slice(&std::fs::read(golden("moe4/golden.json")).unwrap()).unwrap();
    let file = File::read(&place.path().join("int80/model.safetensors"));
    for (name, of) in json["int8"].as_object().unwrap() {
        let (q, scales) = (&file.tensors[name], &file.tensors[&format!("{name}_scale")]);
        assert_eq!(json!(q.shape), json["weights"][name]["shape"], "{name}");
        assert_eq!(scales.shape, q.shape[..q.shape.len() - 1], "{name}");
        assert_eq!(
            (sha256(&q.bytes), sha256(&scales.bytes)),
            (of["q_sha256"].as_str().unwrap().into(), of["scale_sha256"].as_str().unwrap().into()),
            "{name}"
        );
    }
    assert_eq!(file.tensors["model.layers.0.router.proj.weight"].dtype, "BF16");
    // Halves of two types have no place in one tensor.
    let mut file = split(golden_gemma4("moe4", Float::Bf16));
    let name = "blk.3.ffn_up_exps.weight";
    *file.tensor(name) = Tensor::new(name, &[8, 32, 96], 2, vec![0; 8 * 32 * 3 * 18]);
    std::fs::write(&gguf, file.bytes()).unwrap();
    let line = bad_input(quantize_to(&gguf, &place.path().join("mixed"), WeightFormat::Int8));
    assert!(line.contains("layers.3.experts.gate_up_proj are INT8 and INT4"), "{line}");
}

/// A forged expert's rows are its own, in every format, and a shape without experts has the rows that it would have beside
/// them.
#[test]
fn forged_experts_differ_and_leave_the_dense_half_alone() {
    let shape = Checkpoint::open(&golden("moe4")).unwrap().shape().clone();
    let dense = Shape { experts: None, ..shape.clone() };
    let place = tempfile::tempdir().unwrap();
    let make = |name: &str, shape: &Shape, format| {
        let dst = place.path().join(name);
        let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
        forge(shape, &dst, format, 7, &monitor).unwrap();
        Checkpoint::open(&dst).unwrap()
    };
    let int8 = make("int8", &shape, WeightFormat::Int8);
    let bf16 = make("bf16", &shape, WeightFormat::Bf16);
    let dense = make("dense", &dense, WeightFormat::Int8);
    assert_eq!((int8.shape(), bf16.shape()), (&shape, &shape));
    for id in TensorId::all(dense.shape()).filter(|id| !id.is_vector()) {
        let [found, wanted] = [&int8, &dense].map(|c| read_matrix(c, id, WeightFormat::Int8).unwrap());
        assert!(found == wanted, "{id:?}");
    }
    let mut rows = std::collections::HashSet::new();
    for id in (0..5).flat_map(matrices) {
        let (data, _) = read_matrix(&int8, id, WeightFormat::Int8).unwrap();
        let cols = id.dims(&shape)[1];
        assert!(data.chunks_exact(cols).all(|row| rows.insert(row.to_vec())), "{id:?} repeats a row");
        let [a, b] = [(&int8, WeightFormat::Int8), (&bf16, WeightFormat::Bf16)].map(|(c, f)| decode_matrix(c, id, f));
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= a.abs() / 256.0), "{id:?}");
    }
    let factors = int8.read_vector(TensorId::Layer(0, Role::ExpertScales)).unwrap();
    assert!(factors.iter().all(|g| (0.89..1.11).contains(g)) && factors[0] != factors[1], "{factors:?}");
}
