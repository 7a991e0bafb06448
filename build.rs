//! With the feature `shaders`: compiles shaders/*.comp to shaders/spv/*.spv with the pinned glslang. Without it: nothing;
//! the checked-in SPIR-V is used, so that a build needs no shader compiler.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "shaders")]
    shaders::compile_all();
}

#[cfg(feature = "shaders")]
mod shaders {
    use glslang::{Compiler, CompilerOptions, GlslProfile, ShaderInput, ShaderMessage, ShaderSource, ShaderStage};
    use glslang::{SourceLanguage, SpirvVersion, Target, VulkanVersion};
    use std::fs;

    /// Every module: its name, the source it comes from, and what is defined for it.
    const MODULES: &[(&str, &str, &[&str])] = &[
        ("embed_int8", "embed", &["WEIGHT_INT8"]),
        ("embed_bf16", "embed", &["WEIGHT_BF16"]),
        ("rms_norm", "norm", &["RMS_NORM"]),
        ("norm_add", "norm", &["NORM_ADD"]),
        ("norm_add_norm", "norm", &["NORM_ADD_NORM"]),
        ("linear_int8", "linear", &["WEIGHT_INT8"]),
        ("linear_bf16", "linear", &["WEIGHT_BF16"]),
        ("linear_gelu_int8", "linear", &["WEIGHT_INT8", "GELU"]),
        ("linear_gelu_bf16", "linear", &["WEIGHT_BF16", "GELU"]),
        ("linear_tile_int8", "linear_tile", &["WEIGHT_INT8"]),
        ("linear_tile_bf16", "linear_tile", &["WEIGHT_BF16"]),
        ("head_prepare_f16", "head_prepare", &["KV_F16"]),
        ("head_prepare_f32", "head_prepare", &["KV_F32"]),
        ("attend_f16", "attend", &["KV_F16"]),
        ("attend_f32", "attend", &["KV_F32"]),
        ("gated_gelu", "gated_gelu", &[]),
        ("argmax", "argmax", &[]),
        ("softcap", "argmax", &["SOFTCAP"]),
        ("read", "read", &[]),
        ("linear_matrix_int8", "linear_matrix", &[]),
        ("attend_matrix_f16", "attend_matrix", &[]),
        ("matrix_rate", "matrix_rate", &[]),
    ];

    pub fn compile_all() {
        println!("cargo:rerun-if-changed=shaders");
        let common = fs::read_to_string("shaders/common.glsl").expect("shaders/common.glsl");
        fs::create_dir_all("shaders/spv").expect("shaders/spv");
        for (name, source, defines) in MODULES {
            let body = fs::read_to_string(format!("shaders/{source}.comp")).expect("a shader's source");
            let words = compile(name, &preprocess(&common, &body, defines));
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let path = format!("shaders/spv/{name}.spv");
            // Untouched when unchanged, so that cargo does not rebuild what includes it.
            if fs::read(&path).ok().as_deref() != Some(&bytes) {
                fs::write(&path, bytes).expect("shaders/spv is writable");
            }
        }
    }

    /// One source text: the defines, common.glsl in place of its include, the body.
    fn preprocess(common: &str, body: &str, defines: &[&str]) -> String {
        let defines: String = defines.iter().map(|d| format!("#define {d}\n")).collect();
        let body = body.replace("#include \"common.glsl\"", &format!("#line 1 1\n{common}\n#line 1 0"));
        format!("#version 460\n{defines}{body}")
    }

    fn compile(name: &str, source: &str) -> Vec<u32> {
        let compiler = Compiler::acquire().expect("glslang starts");
        let options = CompilerOptions {
            source_language: SourceLanguage::GLSL,
            target: Target::Vulkan { version: VulkanVersion::Vulkan1_3, spirv_version: SpirvVersion::SPIRV1_6 },
            version_profile: Some((460, GlslProfile::None)),
            messages: ShaderMessage::DEFAULT,
        };
        let source = ShaderSource::from(source);
        let defines: Option<&[(&str, Option<&str>)]> = None;
        let words = ShaderInput::new(&source, ShaderStage::Compute, &options, defines, None)
            .and_then(|input| compiler.create_shader(input))
            .and_then(|shader| shader.compile());
        match words {
            Ok(words) => words,
            Err(e) => panic!("shader {name}: {e}"),
        }
    }
}
