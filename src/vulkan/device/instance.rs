//! The loader and the Vulkan instance, with the validation layer if the environment asks for it.

use crate::error::{Setting, text};
use crate::vulkan::device::failure::failure;
use crate::{Error, Result, display};
use ash::vk;
use nix::sys::resource::{Resource, getrlimit};
use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Environment variable that enables the Khronos validation layer. The layer's reports are logged and counted.
pub const VALIDATION_VARIABLE: &str = "KILN_VALIDATION";
const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

static VALIDATION_MESSAGES: AtomicU64 = AtomicU64::new(0);

/// Warnings and errors that the validation layer has reported to this process.
#[cfg(feature = "testing")]
pub fn validation_messages() -> u64 {
    VALIDATION_MESSAGES.load(Ordering::Relaxed)
}

/// True if the environment variable for Vulkan's validation layer is 1.
pub fn validation_wanted() -> bool {
    std::env::var_os(VALIDATION_VARIABLE).is_some_and(|v| v == "1")
}

type Messenger = (ash::ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT);

/// A Vulkan instance. All objects made from it must be dropped first.
pub(crate) struct Instance {
    /// The functions of the Vulkan loader.
    pub(crate) entry: ash::Entry,
    /// The functions of the Vulkan instance.
    pub(crate) functions: ash::Instance,
    messenger: Option<Messenger>,
    abandoned: Cell<bool>,
}

impl Instance {
    /// Loads Vulkan and makes an instance.
    ///
    /// # Errors
    /// Device: no loader, no driver, or the validation layer is enabled but missing.
    pub(crate) fn new() -> Result<Instance> {
        let entry = load_entry()?;
        let validate = validation_wanted();
        let app = vk::ApplicationInfo::default().application_name(c"kiln").api_version(vk::API_VERSION_1_3);
        let mut layers: Vec<*const c_char> = Vec::new();
        let mut extensions: Vec<*const c_char> = Vec::new();
        if validate {
            layers.push(VALIDATION_LAYER.as_ptr());
            extensions.push(ash::ext::debug_utils::NAME.as_ptr());
        }
        let info = vk::InstanceCreateInfo::default()
            .application_info(&app)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&extensions);
        // SAFETY: the structures and the strings that they point to live through the call.
        let functions = unsafe { entry.create_instance(&info, None) }.map_err(|r| match r {
            vk::Result::ERROR_LAYER_NOT_PRESENT => Error::device(
                format!("{VALIDATION_VARIABLE}=1 asks for the Vulkan validation layer, which is not installed"),
                "install vulkan-validationlayers or unset the variable",
            ),
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => Error::device(
                "the Vulkan loader finds no driver",
                text!("install one (mesa-vulkan-drivers on Debian), or use ", Setting::Cpu),
            ),
            r => failure("create an instance")(r),
        })?;
        let mut instance = Instance { entry, functions, messenger: None, abandoned: Cell::new(false) };
        if validate {
            instance.messenger = Some(create_messenger(&instance.entry, &instance.functions)?);
        }
        Ok(instance)
    }

    /// The devices that the loader lists.
    ///
    /// # Errors
    /// Device: the loader or a driver fails.
    pub(crate) fn devices(&self) -> Result<Vec<vk::PhysicalDevice>> {
        // SAFETY: the instance is alive.
        unsafe { self.functions.enumerate_physical_devices() }.map_err(failure("list devices"))
    }

    /// Leaves the instance open until the process ends, because a device made from it hangs.
    pub(crate) fn abandon(&self) {
        self.abandoned.set(true);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.abandoned.get() {
            return;
        }
        // SAFETY: no object made from the instance is alive: see the type.
        unsafe {
            if let Some((utils, messenger)) = &self.messenger {
                utils.destroy_debug_utils_messenger(*messenger, None);
            }
            // NVIDIA's driver (580) can be loaded only about thirty times in a process. Drivers stay loaded while an
            // instance exists, so the first instance is kept until the process ends.
            static KEPT: AtomicBool = AtomicBool::new(false);
            if KEPT.swap(true, Ordering::Relaxed) {
                self.functions.destroy_instance(None);
            }
        }
    }
}

/// Bytes of address space below which a driver crashes while it is loaded, without an error: lavapipe 22.3 does at 0.5
/// GB, and no longer at 1 GB.
const LEAST_ADDRESSES: u64 = 1_000_000_000;

/// Refuses to load drivers if the process may have too little address space.
fn check_addresses() -> Result<()> {
    // An unknown limit is no reason to refuse.
    let (limit, _) = getrlimit(Resource::RLIMIT_AS).unwrap_or((u64::MAX, u64::MAX));
    if limit >= LEAST_ADDRESSES {
        return Ok(());
    }
    Err(Error::refused(
        format!("this process may have {} of addresses, too few for a Vulkan driver", display::bytes(limit)),
        text!("raise the limit (`ulimit -v`), or use ", Setting::Cpu),
    ))
}

fn load_entry() -> Result<ash::Entry> {
    static LOADED: OnceLock<ash::Entry> = OnceLock::new();
    if let Some(entry) = LOADED.get() {
        return Ok(entry.clone());
    }
    check_addresses()?;
    // SAFETY: loading libvulkan runs its initialisers; it is the system's own loader.
    let entry = unsafe { ash::Entry::load() }.map_err(|e| {
        Error::device(
            format!("no Vulkan loader: {e}"),
            text!("install libvulkan1 and a driver (mesa-vulkan-drivers on Debian), or use ", Setting::Cpu),
        )
    })?;
    Ok(LOADED.get_or_init(|| entry).clone())
}

fn create_messenger(entry: &ash::Entry, instance: &ash::Instance) -> Result<Messenger> {
    let utils = ash::ext::debug_utils::Instance::new(entry, instance);
    let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::WARNING | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
        .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE)
        .pfn_user_callback(Some(on_message));
    // SAFETY: the callback has the required signature and touches only statics.
    let messenger = unsafe { utils.create_debug_utils_messenger(&info, None) }
        .map_err(failure("listen to the validation layer"))?;
    Ok((utils, messenger))
}

unsafe extern "system" fn on_message(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _types: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _user: *mut std::ffi::c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a valid structure whose message is null or a C string.
    let message = unsafe { data.as_ref().and_then(|d| d.message_as_c_str()) };
    VALIDATION_MESSAGES.fetch_add(1, Ordering::Relaxed);
    let text = message.map(CStr::to_string_lossy).unwrap_or_default();
    log::error!("Vulkan validation ({severity:?}): {text}");
    vk::FALSE
}
