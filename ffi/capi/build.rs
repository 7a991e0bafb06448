//! Names the shared library as packages install it, and keeps other crates' C symbols out of its exports.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libkiln.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo::rerun-if-changed=build.rs");
}
