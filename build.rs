//! With the feature `shaders`: compiles shaders/*.comp to shaders/spv/*.spv with the pinned glslang. With the feature
//! `bindgen`: makes ffi/bindings.rs from ffi/drivers.h. Without them what is checked in is used, so that a build needs no
//! shader compiler, no libclang and no kernel headers. With the feature `vulkan` the executable holds shaders/spv deflated,
//! a third of its size. With the feature `xrt`, and libxrt's headers and a C++ compiler, the bridge to it is built in; where
//! not, it is left out, and `kiln probe` says why.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    version::tell();
    println!("cargo:rustc-check-cfg=cfg(kiln_xrt)");
    #[cfg(feature = "xrt")]
    bridge::build();
    #[cfg(feature = "shaders")]
    shaders::compile_all();
    #[cfg(feature = "vulkan")]
    spirv::deflate_all();
    #[cfg(feature = "bindgen")]
    bindings::generate();
}

#[cfg(feature = "xrt")]
#[path = "ffi/xrt/compile.rs"]
mod compile;

#[cfg(feature = "xrt")]
mod bridge {
    use crate::compile;
    use std::env;
    use std::path::Path;

    /// Where libxrt is looked for: as Debian installs it, as AMD's own packages do, and where tools/fetch-xrt puts it.
    const ROOTS: [&str; 3] = ["/usr", "/opt/xilinx/xrt", "target/xrt"];

    /// Sets `kiln_xrt` and KILN_XRT_BRIDGE, the bridge's path, or KILN_XRT_LACKS, why there is none.
    pub fn build() {
        println!("cargo:rerun-if-changed=ffi/xrt");
        println!("cargo:rerun-if-env-changed=KILN_XRT_ROOT");
        println!("cargo:rerun-if-env-changed=CXX");
        // Set and empty: none.
        let roots = env::var("KILN_XRT_ROOT").map_or(ROOTS.map(String::from).to_vec(), |root| vec![root]);
        let Some(installed) = roots.iter().filter(|r| !r.is_empty()).find_map(|r| compile::find(Path::new(r))) else {
            return lacks("libxrt's headers were not there (package libxrt-dev, 2.25 or newer)");
        };
        println!("cargo:rerun-if-changed={}", installed.include.join("xrt/xrt_hw_context.h").display());
        println!("cargo:rerun-if-changed={}", installed.library.display());
        let bridge = Path::new(&env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("kiln_xrt.so");
        match compile::compile_bridge(Path::new("ffi/xrt/kiln_xrt.cpp"), &installed, &bridge) {
            Ok(()) => {
                println!("cargo:rustc-cfg=kiln_xrt");
                println!("cargo:rustc-env=KILN_XRT_BRIDGE={}", bridge.display());
            }
            Err(why) => {
                println!("cargo:warning=libxrt's headers are there, but the bridge to it is left out: {why}");
                lacks(&format!("the bridge to libxrt did not compile: {why}"));
            }
        }
    }

    fn lacks(why: &str) {
        println!("cargo:rustc-env=KILN_XRT_LACKS={}", why.replace(['\n', '\r'], " "));
    }
}

mod version {
    use std::env;
    use std::path::Path;
    use std::process::Command;

    /// Sets KILN_FEATURES, and KILN_COMMIT where it is known: as the environment says, for sources that were unpacked from an
    /// archive, else as git does. A debug build has none, since each commit would compile it anew.
    pub fn tell() {
        let features = ["cli", "init", "serve", "npu", "pull", "vulkan", "amdgpu", "testing", "shaders", "bindgen"];
        let is_on = |name: &&str| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some();
        let on: Vec<&str> = features.into_iter().filter(is_on).collect();
        println!("cargo:rustc-env=KILN_FEATURES={}", on.join(" "));
        println!("cargo:rerun-if-env-changed=KILN_COMMIT");
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        let is_given = env::var_os("KILN_COMMIT").is_some();
        if let Some(commit) = (is_release && !is_given).then(commit).flatten() {
            println!("cargo:rustc-env=KILN_COMMIT={commit}");
        }
    }

    /// The commit that is checked out here, and whether files differ from it. `None`: this is no work tree of git.
    fn commit() -> Option<String> {
        let root = env::var("CARGO_MANIFEST_DIR").ok()?;
        // Within another project's work tree the commit would be that project's.
        let top = git(&["rev-parse", "--show-toplevel"])?;
        if Path::new(&top).canonicalize().ok()? != Path::new(&root).canonicalize().ok()? {
            return None;
        }
        let (head, log) = (git(&["rev-parse", "--git-path", "HEAD"])?, git(&["rev-parse", "--git-path", "logs/HEAD"])?);
        for changed in [&head, &log, "src", "shaders", "ffi", "Cargo.toml", "Cargo.lock"] {
            if Path::new(changed).exists() {
                println!("cargo:rerun-if-changed={changed}");
            }
        }
        let differs = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
        Some(git(&["rev-parse", "--short=12", "HEAD"])? + if differs { "+changes" } else { "" })
    }

    fn git(arguments: &[&str]) -> Option<String> {
        let ran = Command::new("git").args(arguments).output().ok().filter(|ran| ran.status.success())?;
        Some(String::from_utf8(ran.stdout).ok()?.trim().to_owned())
    }
}

#[cfg(feature = "vulkan")]
mod spirv {
    use std::path::Path;
    use std::{env, fs};

    /// Deflates shaders/spv/*.spv to OUT_DIR/*.spv.deflate.
    pub fn deflate_all() {
        println!("cargo:rerun-if-changed=shaders/spv");
        let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
        for file in fs::read_dir("shaders/spv").expect("shaders/spv is in the repository") {
            let path = file.expect("shaders/spv can be listed").path();
            let name = path.file_name().and_then(|n| n.to_str()).expect("a module's name is UTF-8");
            let code = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let deflated = Path::new(&out).join(format!("{name}.deflate"));
            fs::write(deflated, miniz_oxide::deflate::compress_to_vec(&code, 9)).expect("OUT_DIR is writable");
        }
    }
}

#[cfg(feature = "bindgen")]
mod bindings {
    use std::fs;

    const HEADER: &str = "ffi/drivers.h";
    const BINDINGS: &str = "ffi/bindings.rs";

    /// What is bound: the structures and constants that src/sys uses, and what they are made of.
    const ITEMS: [&str; 12] = [
        "DMA_BUF_SYNC_.*|UDMABUF_FLAGS_CLOEXEC|DRM_COMMAND_BASE|DRM_SYNCOBJ_.*",
        "dma_buf_(sync|export_sync_file|import_sync_file)",
        "dma_heap_allocation_data",
        "udmabuf_create",
        "sync_(merge_data|file_info|fence_info)",
        "drm_(version|prime_handle|gem_close|syncobj_(create|destroy|handle|timeline_wait))",
        "AMDGPU_INFO_(FW|DEV_INFO|MEMORY|.*_USAGE|NUM_EVICTIONS|SENSOR|VRAM_LOST).*|AMDGPU_(GEM_DOMAIN|GEM_CREATE|VRAM_TYPE|IDS_FLAGS_FUSION).*",
        "drm_amdgpu_(info|info_device|memory_info|info_firmware|info_hw_ip|gem_create)|DRM_AMDGPU_(INFO|GEM_CREATE)",
        "drm_amdgpu_(gem_mmap|gem_va|ctx|cs|cs_chunk|cs_chunk_ib|cs_chunk_fence|bo_list_in|bo_list_entry|wait_cs)",
        "DRM_AMDGPU_(GEM_MMAP|GEM_VA|CTX|CS|WAIT_CS)|AMDGPU_(VA_OP|VM_PAGE|CTX_OP|CTX_QUERY2_FLAGS|CHUNK_ID)_.*|AMDGPU_HW_IP_COMPUTE|AMDGPU_INFO_HW_IP_INFO",
        "(AMDXDNA|DRM_AMDXDNA|amdxdna|POWER_MODE).*",
        "KILN_XRT_.*|kiln_xrt_(face|text)",
    ];

    pub fn generate() {
        println!("cargo:rerun-if-changed=ffi");
        let builder = ITEMS.iter().fold(bindgen::Builder::default().header(HEADER), |b, item| b.allowlist_item(item));
        let bindings = builder
            .derive_default(true)
            .prepend_enum_name(false)
            .generate_comments(false)
            .disable_header_comment()
            .raw_line("// Made from ffi/drivers.h by `cargo check --features bindgen`; not edited by hand.")
            .generate()
            .expect("ffi/drivers.h is parsed: install libclang-dev, linux-libc-dev and libdrm-dev")
            .to_string();
        if fs::read_to_string(BINDINGS).ok().as_deref() != Some(&bindings) {
            fs::write(BINDINGS, bindings).expect("ffi is writable");
        }
    }
}

/// The modules that there are, as the library knows them.
#[cfg(feature = "shaders")]
#[macro_use]
#[path = "src/lower/kernels/table.rs"]
mod table;

#[cfg(feature = "shaders")]
#[path = "shaders/visibility.rs"]
mod visibility;

#[cfg(feature = "shaders")]
mod shaders {
    use super::visibility;
    use glslang::{Compiler, CompilerOptions, GlslProfile, ShaderInput, ShaderMessage, ShaderSource, ShaderStage};
    use glslang::{SourceLanguage, SpirvVersion, Target, VulkanVersion};
    use std::fs;

    /// What shaders may include, in the order in which they do.
    const INCLUDES: [&str; 13] = [
        "common.glsl",
        "reduce.glsl",
        "kv.glsl",
        "choice.glsl",
        "relay.glsl",
        "weights.glsl",
        "experts.glsl",
        "activation_layout.glsl",
        "rope.glsl",
        "bf16.glsl",
        "tiles.glsl",
        "product.glsl",
        "splits.glsl",
    ];

    macro_rules! modules {
        ($(#[doc = $doc:literal] $module:ident {
            name: $name:literal, source: $source:literal, defines: [$($define:literal),*], $($rest:tt)*
        })*) => { &[$(($name, $source, &[$($define),*]),)*] };
    }

    /// Every module: its name, the source it comes from, and what is defined for it.
    const MODULES: &[(&str, &str, &[&str])] = spirv_modules!(modules);

    pub fn compile_all() {
        println!("cargo:rerun-if-changed=shaders");
        let include = |name: &str| fs::read_to_string(format!("shaders/{name}")).expect("a shader's include");
        let includes = INCLUDES.map(|name| (name, include(name)));
        fs::create_dir_all("shaders/spv").expect("shaders/spv");
        for (name, source, defines) in MODULES {
            let body = fs::read_to_string(format!("shaders/{source}.comp")).expect("a shader's source");
            let words = visibility::by_barriers(&compile(name, &preprocess(&includes, &body, defines)));
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let path = format!("shaders/spv/{name}.spv");
            // Untouched when unchanged, so that cargo does not rebuild what includes it.
            if fs::read(&path).ok().as_deref() != Some(&bytes) {
                fs::write(&path, bytes).expect("shaders/spv is writable");
            }
        }
    }

    /// One source text: the defines, then the body with each include in its place.
    fn preprocess(includes: &[(&str, String)], body: &str, defines: &[&str]) -> String {
        let defines: String = defines.iter().map(|d| format!("#define {d}\n")).collect();
        let put = |body: String, (i, (name, text)): (usize, &(&str, String))| {
            let line = format!("#include \"{name}\"");
            match body.find(&line) {
                Some(at) => {
                    let before = body[..at].matches('\n').count();
                    let text = format!("#line 1 {}\n{text}\n#line {} 0", i + 1, before + 2);
                    body.replacen(&line, &text, 1)
                }
                None => body,
            }
        };
        // The last include first, so that line numbers before it still hold.
        let body = includes.iter().enumerate().rev().fold(body.to_owned(), put);
        format!("#version 460\n{defines}#line 1 0\n{body}")
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
