//! The Vulkan driver. Each module uses those above it.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`device`] | opens a Vulkan device and queries its capabilities |
//! | [`memory`] | heaps, buffers, and memory that other drivers share |
//! | [`pipelines`] | pipelines of kernels, made by [`compiler`] on several threads |
//! | [`driver`] | implements [`crate::replay::driver::Driver`]: records lists, submits them, waits |
//! | [`fence`] | fences between the device's queue and other drivers |
//!
//! Every Vulkan call is unsafe. Three rules keep them sound. Handles are owned by types that destroy them. Those types
//! keep the device alive. The code that submits waits before it reads, frees or resubmits.

pub mod compiler;
pub mod device;
pub mod driver;
// Until attention runs on the NPU, only tests exchange fences.
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
pub mod fence;
#[cfg(feature = "testing")]
pub mod inspect;
pub mod memory;
pub mod pipelines;
mod record;
pub mod stamps;

pub use device::{DeviceChoice, Gpu};
pub use driver::Vulkan;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path, all: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, all);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                all.push((path, text));
            }
        }
    }

    /// Lowering, replay and measurements run on any driver.
    #[test]
    fn only_its_driver_names_vulkans_interface() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut all = Vec::new();
        sources(&src, &mut all);
        let names = |path: &Path, text: &str| {
            let knows_no_driver = ["lower", "replay"].iter().any(|room| path.starts_with(src.join(room)));
            ["vk::", "use ash::", "&ash::"].iter().any(|name| text.contains(name))
                || knows_no_driver && text.contains("crate::vulkan")
        };
        let named = all.iter().filter(|(path, text)| names(path, text)).map(|(path, _)| path);
        let (inside, outside): (Vec<_>, Vec<_>) = named.partition(|path| path.starts_with(src.join("vulkan")));
        assert!(!inside.is_empty() && outside.is_empty(), "{outside:?}");
    }
}
