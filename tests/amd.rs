//! AMD's compiler on every kernel, without AMD hardware: RADV compiles real machine code for a GPU that it is told of.

mod common;

use kiln::gpu::kernels::{Kernel, Module, Pipelines, constants};
use kiln::gpu::{Choice, Gpu, matrix};
use std::process::Command;
use std::rc::Rc;

/// What the child process is told by.
const CHILD: &str = "KILN_TEST_RADV_CHILD";

#[test]
fn every_kernel_compiles_for_gfx1103() {
    if std::env::var_os(CHILD).is_some() {
        return compile_all();
    }
    let driver = ["x86_64.", ""].map(|a| format!("/usr/share/vulkan/icd.d/radeon_icd.{a}json"));
    let driver = driver.iter().find(|f| std::path::Path::new(f).exists()).expect("mesa-vulkan-drivers is installed");
    // Mesa 22.3 names the family; 25 names the chip.
    let compiled = ["gfx1103_r1", "phoenix"].iter().any(|family| {
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "every_kernel_compiles_for_gfx1103", "--nocapture"])
            .env(CHILD, "1")
            .env("VK_ICD_FILENAMES", driver)
            .env("RADV_FORCE_FAMILY", family)
            .env("MESA_SHADER_CACHE_DISABLE", "1")
            .env("KILN_CACHE_DIR", "/dev/null/none")
            .output()
            .unwrap();
        println!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        out.status.success()
    });
    assert!(compiled, "RADV did not compile every kernel");
}

fn compile_all() {
    let gpu = Rc::new(Gpu::open(Choice::Best).unwrap());
    println!("{}", gpu.caps.name);
    assert!(gpu.caps.name.contains("GFX1103") || gpu.caps.name.contains("PHOENIX"), "{}", gpu.caps.name);
    assert_eq!(gpu.caps.subgroup, 32);
    let mut pipelines = Pipelines::new(&gpu).unwrap();
    for &module in Module::ALL {
        if module.needs_matrix_units() {
            continue;
        }
        for first in [[1, 1, 1], [2, 1, 4], [2, 4, 1], [1, 8, 1]] {
            let workgroup = if module.name().starts_with("linear_tile") { 64 } else { 128 };
            let constants = match module.name().starts_with("attend") {
                true => constants([128, 2, 1, 1, 32]),
                false => constants(first),
            };
            pipelines.get(Kernel { module, workgroup, constants }).unwrap_or_else(|e| panic!("{}: {e}", module.name()));
        }
    }
    let Some(units) = gpu.caps.matrix else {
        println!("the kernels for matrix units: not checked: this driver has none");
        return;
    };
    let linear = matrix::linear_variants(units, 512, 5376, 4096).into_iter().map(|v| v.kernel(units));
    let attend = matrix::attend_variants(units, 32, 16, 128).into_iter().map(|v| v.kernel(units));
    for kernel in linear.chain(attend) {
        pipelines.get(kernel).unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
    }
}
