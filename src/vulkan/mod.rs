//! The driver by Vulkan, in the order in which one part uses another.
//!
//! | room | what it does |
//! | --- | --- |
//! | [`device`] | opens a Vulkan device and says what it can do |
//! | [`memory`] | heaps, buffers, and memory that other drivers share |
//! | [`pipelines`] | pipelines of kernels, made by [`compiler`] on several threads |
//! | [`driver`] | implements [`crate::replay::driver::Driver`]: records lists, submits them, waits |
//! | [`fence`] | fences between the device's queue and other drivers |
//!
//! Every Vulkan call is unsafe. Three rules keep them sound. Handles are owned by types that destroy them. Those types
//! keep the device alive. Who submits waits before it reads, frees or resubmits.

pub mod compiler;
pub mod device;
pub mod driver;
// Until attention runs on the NPU, tests alone exchange fences.
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
pub mod fence;
#[cfg(feature = "testing")]
pub mod inspect;
pub mod memory;
pub mod pipelines;
mod record;
pub mod stamps;

pub use device::{Choice, Gpu};
pub use driver::Vulkan;

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn sources(folder: &Path, all: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, all),
                false => all.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap_or_default())),
            }
        }
    }

    /// What lowers, replays and measures runs on any driver.
    #[test]
    fn only_its_driver_names_vulkans_interface() {
        let mut all = Vec::new();
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        sources(&src, &mut all);
        let own = src.join("vulkan").display().to_string();
        let names = |text: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != ':')
                .any(|w| ["ash::", "vk::"].iter().any(|n| w.starts_with(n)))
        };
        let (inside, outside): (Vec<_>, Vec<_>) = all.iter().partition(|(path, _)| path.starts_with(&own));
        assert!(inside.iter().any(|(_, text)| names(text)), "the search finds nothing");
        let wrong: Vec<&String> = outside.iter().filter(|(_, text)| names(text)).map(|(path, _)| path).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let drivers = |text: &str| text.contains("crate::vulkan");
        let wrong: Vec<&String> = outside
            .iter()
            .filter(|(path, text)| {
                ["lower", "replay"].iter().any(|room| path.starts_with(&src.join(room).display().to_string()))
                    && drivers(text)
            })
            .map(|(path, _)| path)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
