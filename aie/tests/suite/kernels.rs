//! The kernels: what is checked in is what their sources make, and it can be read back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kiln_aie::disassemble::{decode, disassemble};
use kiln_aie::isa::Isa;
use kiln_aie::{Program, assemble, assemble_all, designs, listing};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Each kernel's name and program.
pub fn kernels(isa: &Isa) -> Vec<(String, Program)> {
    let read = |source: &&str| {
        let file = format!("kernels/{source}.s");
        let text = std::fs::read_to_string(root().join(&file)).expect("a source");
        (file, text)
    };
    let named = designs::KERNELS.iter().map(|(name, sources)| {
        let sources: Vec<(String, String)> = sources.iter().map(read).collect();
        let program =
            assemble_all(isa, &format!("kernels/{name}.s"), &sources).unwrap_or_else(|errors| panic!("{errors:?}"));
        (name.to_string(), program)
    });
    named.collect()
}

#[test]
fn outputs_are_current() {
    let isa = Isa::aie2();
    for (name, program) in kernels(&isa) {
        let read = |extension| std::fs::read(root().join("out").join(&name).with_extension(extension));
        assert_eq!(read("bin").expect("an output"), program.code, "{name}.bin is stale: run kiln-aie");
        let listing = listing::write(&isa, &program).into_bytes();
        assert_eq!(read("lst").expect("an output"), listing, "{name}.lst is stale: run kiln-aie");
    }
}

#[test]
fn packed_outputs_are_current() {
    let programs: BTreeMap<String, Program> = kernels(&Isa::aie2()).into_iter().collect();
    let designs = designs::all();
    let sources: BTreeSet<&str> = designs.iter().map(|design| design.source).collect();
    assert!(sources.into_iter().eq(programs.keys().map(String::as_str)), "a design for each kernel");
    for design in designs {
        let packed = design.pack(|kernel| Some(programs.get(kernel)?.code.clone()));
        let packed = packed.unwrap_or_else(|error| panic!("{error}"));
        let (out, host) = ("out", "../src/npu/programs");
        let outputs = [
            (out, "map", packed.listing.into_bytes()),
            (host, "pdi", packed.image),
            (host, "txn", packed.sequence),
            (host, "xclbin", packed.container),
        ];
        for (folder, extension, bytes) in outputs {
            let held = std::fs::read(root().join(folder).join(design.name).with_extension(extension));
            assert_eq!(held.expect("an output"), bytes, "{}.{extension} is stale: run kiln-aie", design.name);
        }
    }
}

#[test]
fn kernels_round_trip_through_bytes_and_text() {
    let isa = Isa::aie2();
    for (name, program) in kernels(&isa) {
        let decoded = decode(&isa, &program.code).expect("a program");
        let placed: Vec<_> = program.bundles.iter().map(|placed| (placed.address, placed.bundle.clone())).collect();
        assert_eq!(decoded, placed, "{name}");
        let text = disassemble(&isa, &program.code).expect("a program");
        let again = assemble(&isa, &name, &text).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(again.code, program.code, "{name}");
    }
}

#[test]
fn product_is_near_the_peak_over_its_whole_loop() {
    let isa = Isa::aie2();
    let (_, program) = kernels(&isa).into_iter().find(|(name, _)| name == "matmul_bf16").expect("the product");
    let listing = listing::write(&isa, &program);
    // A block is 16 accumulators by 16 tiles of k: 256 products of tiles, 64 x 128 x 64 / 16 / 128.
    let block = listing.lines().find(|line| line.starts_with("// loop block")).expect("the loop over blocks");
    assert!(block.contains("32768 bf16 MACs"), "{block}");
    let share: f64 =
        block.split(", ").last().and_then(|rest| rest.split(' ').next()).expect("a share").parse().expect("%");
    assert!(share >= 90.0, "{block}");
}

#[test]
fn late_load_of_a_kernel_is_caught_in_the_next_pass() {
    // The last load of a pass, moved to the third bundle of the pass: it is read five cycles later.
    let text = std::fs::read_to_string(root().join("kernels/matmul_bf16.s")).expect("a source");
    let late = text.replacen("x3, x11, r0 ; vlda wl11, [p2], m2", "x3, x11, r0 ; nopa", 1).replacen(
        "x0, x6, r1\n",
        "x0, x6, r1 ; vlda wl11, [p2], m2\n",
        1,
    );
    let errors = assemble(&Isa::aie2(), "late.s", &late).err().unwrap_or_default();
    assert!(errors.iter().any(|error| error.message.contains("reads wl11 2 cycles too early")), "{errors:?}");
}

#[test]
fn bytes_that_are_no_program_are_refused_with_their_address() {
    let isa = Isa::aie2();
    let cases: [(&[u8], &str); 4] = [
        (&[0x01, 0x00, 0x19, 0x00, 0x00, 0x20], "0x0002: no such bundle"),
        (&[0x19, 0x00], "0x0000: a bundle of 4 bytes is cut off"),
        // A move of a register that there is none of.
        (&[0x99, 0x06, 0xf0, 0x18], "0x0000: no mv instruction"),
        (&[0x00], "0x0000: a bundle of 16 bytes is cut off"),
    ];
    for (code, message) in cases {
        let error = disassemble(&isa, code).expect_err("no program");
        assert!(error.starts_with(message), "{error}");
    }
    // Whatever the bytes, decoding ends.
    let mut state = 1u32;
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..16)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        if let Ok(bundle) = isa.decode_bundle(&bytes) {
            let text = isa.write_bundle(&bundle);
            let again = kiln_aie::assemble::bundle(&isa, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(again, bundle, "{text}");
        }
    }
}
