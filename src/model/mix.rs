//! The mixes of types in GGUF files: the type that llama.cpp's quantiser gives each tensor, to predict a file's size
//! and speed.
//!
//! Source: `llama_tensor_get_type_impl` and `tensor_type_fallback` of llama.cpp (007dbbf), without an importance
//! matrix. The mixes `q2_k_l`, `q3_k_xl`, `q4_k_l`, `q5_k_l` and `q6_k_l` are not llama.cpp's but publishers': another
//! mix with the embedding in Q8_0.

use crate::model::format::SourceFormat;
use crate::model::shape::Shape;
use crate::model::tensor::{Role, TensorId};
use crate::model::{BlockFormat, WeightFormat};

use BlockFormat::*;

/// Bytes of a file beside its tensors: Gemma 3's tokens, with their scores and kinds, and the padding of tensors.
const BESIDE: u64 = 6_550_000;
/// Fewest query heads per KV head for which some mixes spend more bits on values.
const MANY_QUERIES: usize = 4;

/// A mix of quantisation types by which a GGUF file is made, such as `q4_k_m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMix {
    /// The mix's name, such as `q4_k_m`.
    pub name: &'static str,
    /// The type of matrices to which no rule applies.
    base: SourceFormat,
    rules: &'static [Rule],
    /// True if the embedding is in Q8_0, whatever the base type.
    wide_table: bool,
}

/// The type of some matrices of a layer. The first rule that applies is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    role: Role,
    when: When,
    of: BlockFormat,
}

/// The layers to which a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// The first layers, as many as this number.
    First(usize),
    /// The first of so many equal parts of the layers.
    Part(usize),
    /// The first eighth, the last, and each third between them.
    Spread,
    /// All, in a model with many query heads per KV head.
    ManyQueries,
}

const fn rule(role: Role, when: When, of: BlockFormat) -> Rule {
    Rule { role, when, of }
}

const fn mix(name: &'static str, base: BlockFormat, rules: &'static [Rule]) -> FileMix {
    FileMix { name, base: SourceFormat::Blocks(base), rules, wide_table: false }
}

const fn wide(name: &'static str, of: FileMix) -> FileMix {
    FileMix { name, wide_table: true, ..of }
}

const Q2_K: FileMix = mix(
    "q2_k",
    Q2K,
    &[
        rule(Role::V, When::ManyQueries, Q4K),
        rule(Role::V, When::Always, Q3K),
        rule(Role::Down, When::Always, Q3K),
        rule(Role::O, When::Always, Q3K),
    ],
);
const Q2_K_S: FileMix =
    mix("q2_k_s", Q2K, &[rule(Role::V, When::ManyQueries, Q4K), rule(Role::Down, When::Part(8), Q4K)]);
const Q3_K_M: FileMix = mix(
    "q3_k_m",
    Q3K,
    &[
        rule(Role::V, When::First(2), Q5K),
        rule(Role::V, When::Always, Q4K),
        rule(Role::Down, When::Part(16), Q5K),
        rule(Role::Down, When::Always, Q4K),
        rule(Role::O, When::Always, Q4K),
    ],
);
const Q3_K_L: FileMix = mix(
    "q3_k_l",
    Q3K,
    &[rule(Role::V, When::Always, Q5K), rule(Role::Down, When::Always, Q5K), rule(Role::O, When::Always, Q5K)],
);
const Q4_K_S: FileMix = mix("q4_k_s", Q4K, &[rule(Role::V, When::First(4), Q5K), rule(Role::Down, When::Part(8), Q5K)]);
const SPREAD: &[Rule] = &[rule(Role::V, When::Spread, Q6K), rule(Role::Down, When::Spread, Q6K)];
const Q4_K_M: FileMix = mix("q4_k_m", Q4K, SPREAD);
const Q5_K_M: FileMix = mix("q5_k_m", Q5K, SPREAD);
const Q6_K: FileMix = mix("q6_k", Q6K, &[]);
const IQ4: &[Rule] = &[rule(Role::V, When::ManyQueries, Q5K), rule(Role::Down, When::Part(8), Q5K)];

impl FileMix {
    /// Every mix that Kiln runs, smaller ones first.
    pub const ALL: [FileMix; 23] = [
        Q2_K_S,
        Q2_K,
        wide("q2_k_l", Q2_K),
        mix("q3_k_s", Q3K, &[]),
        Q3_K_M,
        Q3_K_L,
        wide("q3_k_xl", Q3_K_L),
        mix("iq4_xs", Iq4Xs, IQ4),
        mix("iq4_nl", Iq4Nl, IQ4),
        mix("q4_0", Q4_0, &[]),
        mix("q4_1", Q4_1, &[]),
        Q4_K_S,
        Q4_K_M,
        wide("q4_k_l", Q4_K_M),
        mix("q5_0", Q5_0, &[]),
        mix("q5_1", Q5_1, &[]),
        mix("q5_k_s", Q5K, &[]),
        Q5_K_M,
        wide("q5_k_l", Q5_K_M),
        Q6_K,
        wide("q6_k_l", Q6_K),
        mix("q8_0", Q8_0, &[]),
        FileMix { name: "f16", base: SourceFormat::F16, rules: &[], wide_table: false },
    ];

    /// Short names, and the mixes that they stand for.
    pub const SHORT: [(&'static str, &'static str); 4] =
        [("q3_k", "q3_k_m"), ("q4_k", "q4_k_m"), ("q5_k", "q5_k_m"), ("fp16", "f16")];

    /// The mix with this name, in either case.
    pub fn of_name(name: &str) -> Option<FileMix> {
        let name = name.to_ascii_lowercase();
        let name = FileMix::SHORT.iter().find(|(short, _)| *short == name).map_or(name.as_str(), |(_, long)| long);
        FileMix::ALL.into_iter().find(|mix| mix.name == name)
    }

    /// The type of a tensor in a file of this mix. Vectors are in F32.
    pub fn stored(&self, id: TensorId, shape: &Shape) -> SourceFormat {
        if id.is_never_quantized() {
            return SourceFormat::F32;
        }
        let SourceFormat::Blocks(base) = self.base else { return self.base };
        let cols = id.dims(shape)[1];
        let wanted = match id {
            TensorId::Layer(layer, role) => {
                // The quantiser goes by parts of names, which experts share with the dense half.
                let role = if role == Role::ExpertDown { Role::Down } else { role };
                let holds = |rule: &&Rule| rule.role == role && rule.when.holds(layer, shape);
                self.rules.iter().find(holds).map_or(base, |rule| rule.of)
            }
            TensorId::Embedding if !shape.tied => base,
            _ if self.wide_table || base == Q8_0 || !cols.is_multiple_of(base.block()) => Q8_0,
            _ => Q6K,
        };
        fitting(wanted, cols)
    }

    /// The format on a device of a matrix from a file of this mix.
    pub fn kept(&self, id: TensorId, shape: &Shape) -> WeightFormat {
        match self.stored(id, shape) {
            SourceFormat::Blocks(blocks) => blocks.kept_as(),
            SourceFormat::Native(format) => format,
            SourceFormat::F16 | SourceFormat::F32 => WeightFormat::Bf16,
        }
    }

    /// Bytes of a file of this mix, to within a few megabytes, with Gemma 3's tokenizer.
    pub fn file_bytes(&self, shape: &Shape) -> u64 {
        let bytes = |id: TensorId| {
            let [rows, cols] = id.dims(shape);
            let row = match self.stored(id, shape) {
                SourceFormat::F32 => 4 * cols,
                SourceFormat::F16 => 2 * cols,
                SourceFormat::Blocks(blocks) => blocks.row_bytes(cols),
                SourceFormat::Native(format) => format.file_row_bytes(cols),
            };
            rows as u64 * row as u64
        };
        TensorId::all(shape).map(bytes).sum::<u64>() + BESIDE
    }
}

impl When {
    fn holds(self, layer: usize, shape: &Shape) -> bool {
        let layers = shape.layers.len();
        match self {
            When::Always => true,
            When::First(count) => layer < count,
            When::Part(parts) => layer < layers / parts,
            When::Spread => {
                let first = layers / 8;
                layer < first || layer >= 7 * layers / 8 || (layer - first) % 3 == 2
            }
            When::ManyQueries => {
                let attention = shape.attention_of(layer);
                attention.heads >= MANY_QUERIES * attention.kv_heads
            }
        }
    }
}

/// The type of rows of `cols` for a requested type `wanted`: if they are not whole blocks of it, a larger type with
/// blocks of 32.
fn fitting(wanted: BlockFormat, cols: usize) -> SourceFormat {
    if cols.is_multiple_of(wanted.block()) {
        return SourceFormat::Blocks(wanted);
    }
    let larger = match wanted {
        Iq4Xs => Iq4Nl,
        Q2K | Q3K => Q4_0,
        Q4K => Q5_0,
        Q5K => Q5_1,
        _ => Q8_0,
    };
    if cols.is_multiple_of(larger.block()) { SourceFormat::Blocks(larger) } else { SourceFormat::F16 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::presets::preset;

    /// Files with their publishers' sizes, in the published digits: lmstudio-community's of 1B, a 12B file's pointer
    /// and Bartowski's of 12B, stduhpf's of 27B in Q4_0, and README.md's.
    #[test]
    fn a_mix_predicts_the_size_of_published_files() {
        for (model, mix, gigabytes, digit) in [
            ("1b", "q3_k_l", 0.752, 0.001),
            ("1b", "q4_k_m", 0.806, 0.001),
            ("1b", "q6_k", 1.01, 0.01),
            ("1b", "q8_0", 1.07, 0.01),
            ("12b", "q3_k_s", 5.458_315_616, 0.001),
            ("12b", "q4_k_s", 6.94, 0.01),
            ("12b", "q4_k_m", 7.3, 0.1),
            ("27b", "q4_0", 15.6, 0.1),
            ("27b", "q4_k_m", 16.5, 0.1),
            ("27b", "q8_0", 28.7, 0.1),
            ("gemma4-26b-a4b", "q4_0", 14.4, 0.1),
            ("gemma4-26b-a4b", "q4_k_m", 16.8, 0.1),
        ] {
            let bytes = FileMix::of_name(mix).unwrap().file_bytes(&preset(model).unwrap());
            assert!((bytes as f64 / 1e9 - gigabytes).abs() <= digit / 2.0, "{model} {mix}: {bytes}");
        }
    }

    /// The types in the header of Gemma 3 270M as Q4_K_M (sha256 a5fd3b62230aa5ec…), whose rows of 640 are not whole
    /// blocks of 256.
    #[test]
    fn a_mix_predicts_the_types_of_a_real_file() {
        let (shape, mix) = (preset("270m").unwrap(), FileMix::of_name("q4_k_m").unwrap());
        let name = |id: TensorId| mix.stored(id, &shape).name();
        let spread = [0, 1, 4, 7, 10, 13, 15, 16, 17];
        for layer in 0..18 {
            let is_spread = spread.contains(&layer);
            let roles = TensorId::all(&shape).filter_map(|id| match id {
                TensorId::Layer(of, role) => (of == layer).then_some(role),
                _ => None,
            });
            for role in roles {
                let wanted = match role {
                    Role::Q | Role::K | Role::Gate | Role::Up => "q5_0",
                    Role::V => {
                        if is_spread {
                            "q8_0"
                        } else {
                            "q5_0"
                        }
                    }
                    Role::Down => {
                        if is_spread {
                            "q6_k"
                        } else {
                            "q4_k"
                        }
                    }
                    Role::O => "q4_k",
                    _ => "f32",
                };
                assert_eq!(name(TensorId::Layer(layer, role)), wanted, "{layer} {role:?}");
            }
        }
        assert_eq!((name(TensorId::Embedding), name(TensorId::FinalNorm)), ("q8_0", "f32"));
        assert_eq!(mix.file_bytes(&shape) - BESIDE, 253_113_024 - 6_525_120, "the file without its header");
    }

    #[test]
    fn a_mix_has_one_name_and_grows_with_its_place() {
        let shape = preset("27b").unwrap();
        for (i, mix) in FileMix::ALL.iter().enumerate() {
            assert_eq!(FileMix::of_name(&mix.name.to_uppercase()), Some(*mix));
            assert!(FileMix::ALL[..i].iter().all(|other| other.name != mix.name), "{}", mix.name);
            // A rule gives no fewer bits than the base.
            if let SourceFormat::Blocks(base) = mix.base {
                for rule in mix.rules {
                    assert!(rule.of.row_bytes(256) >= base.row_bytes(256), "{}", mix.name);
                }
            }
            assert!(mix.file_bytes(&shape) > 9_000_000_000, "{}", mix.name);
        }
        assert_eq!(FileMix::of_name("Q4_K"), Some(Q4_K_M));
        assert_eq!(FileMix::of_name("iq2_xxs"), None);
    }

    /// By layer and role, for rules that name layers: Gemma 3 27B has 62, of which 7 are an eighth.
    #[test]
    fn rules_hold_in_the_layers_that_they_name() {
        let shape = preset("27b").unwrap();
        let of = |mix: &str, layer: usize, role: Role| {
            FileMix::of_name(mix).unwrap().stored(TensorId::Layer(layer, role), &shape).name()
        };
        let larger = |mix: &str, role: Role| {
            let base = of(mix, 61, Role::Gate);
            (0..62).filter(|&layer| of(mix, layer, role) != base).collect::<Vec<_>>()
        };
        let spread = vec![
            0, 1, 2, 3, 4, 5, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48, 51, 54, 55, 56, 57, 58, 59, 60,
            61,
        ];
        assert_eq!(larger("q4_k_m", Role::V), spread);
        assert_eq!(larger("q5_k_m", Role::Down), spread);
        assert_eq!(larger("q4_k_s", Role::V), [0, 1, 2, 3]);
        assert_eq!(larger("q4_k_s", Role::Down), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(larger("q4_k_m", Role::O), [0; 0]);
        assert_eq!((of("q3_k_m", 1, Role::V), of("q3_k_m", 2, Role::V)), ("q5_k", "q4_k"));
        assert_eq!((of("q3_k_m", 2, Role::Down), of("q3_k_m", 3, Role::Down)), ("q5_k", "q4_k"));
        assert_eq!((of("q2_k", 0, Role::V), of("q2_k", 0, Role::InputNorm)), ("q3_k", "f32"));
        let table = |mix: &str, model: &str| {
            let shape = preset(model).unwrap();
            FileMix::of_name(mix).unwrap().stored(TensorId::Embedding, &shape).name()
        };
        let tables =
            [("q4_k_m", "27b"), ("q4_k_l", "27b"), ("q4_0", "27b"), ("q8_0", "27b"), ("q4_k_m", "270m"), ("f16", "1b")];
        assert_eq!(tables.map(|(mix, model)| table(mix, model)), ["q6_k", "q8_0", "q6_k", "q8_0", "q8_0", "f16"]);
        // 1B has four query heads per key head, and rows of 1,152, which are not whole blocks of 256.
        let small = preset("1b").unwrap();
        let of =
            |mix: &str, role: Role| FileMix::of_name(mix).unwrap().stored(TensorId::Layer(20, role), &small).name();
        assert_eq!((of("q2_k", Role::V), of("q2_k", Role::Q), of("q2_k", Role::Down)), ("q5_0", "q4_0", "q3_k"));
        assert_eq!((of("q4_k_m", Role::Up), of("iq4_xs", Role::Up), of("q6_k", Role::Up)), ("q5_0", "iq4_nl", "q8_0"));
    }

    /// Experts of 704, whose rows are not whole blocks of 256.
    #[test]
    fn experts_have_the_types_of_the_dense_half() {
        let shape = preset("gemma4-26b-a4b").unwrap();
        let of = |mix: &str, layer: usize, role: Role| {
            FileMix::of_name(mix).unwrap().stored(TensorId::Layer(layer, role), &shape).name()
        };
        let down: Vec<_> = (0..30).map(|layer| of("q4_k_m", layer, Role::ExpertDown)).collect();
        assert_eq!(down.iter().filter(|name| **name == "q8_0").count(), 14, "{down:?}");
        assert_eq!(down.iter().filter(|name| **name == "q5_0").count(), 16, "{down:?}");
        let roles = [Role::ExpertGate, Role::ExpertUp, Role::Router, Role::RouterNorm, Role::ExpertScales];
        assert_eq!(roles.map(|role| of("q4_k_m", 7, role)), ["q4_k", "q4_k", "f32", "f32", "f32"]);
        let mixes = ["q4_0", "q5_k_s", "q6_k", "iq4_xs"];
        assert_eq!(mixes.map(|mix| of(mix, 20, Role::ExpertDown)), ["q4_0", "q5_1", "q8_0", "iq4_nl"]);
    }
}
