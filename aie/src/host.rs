//! The table of programs that the executable embeds: `src/npu/programs/mod.rs` of the runtime.

use crate::pack::Design;

/// The file's text. Its types are those of the runtime's `npu::program`.
pub fn write(designs: &[Design]) -> String {
    let mut text = String::from(
        "//! The programs that the executable carries. `aie/` makes this file and those beside it from its kernels: see\n\
         //! aie/src/main.rs.\n\n\
         use super::program::Program;\n",
    );
    for design in designs {
        let name = design.name;
        text += &format!("\n/// aie/kernels/{}.rs\n", design.source);
        text += &format!("pub const {}: Program = Program {{\n    name: \"{name}\",\n", name.to_uppercase());
        let bytes: Vec<u32> = design.arguments.iter().map(|argument| argument.bytes).collect();
        text += &format!("    columns: {},\n    arguments: &{bytes:?},\n", design.columns);
        for (field, extension) in [("image", "pdi"), ("sequence", "txn"), ("container", "xclbin")] {
            text += &format!("    {field}: include_bytes!(\"{name}.{extension}\"),\n");
        }
        text += "};\n";
    }
    text
}
