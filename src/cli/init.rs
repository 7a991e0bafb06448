//! Kiln as the first process of a machine, so that a kernel with this one file is a whole system.
//!
//! The first process mounts the kernel's file systems, inserts modules, brings the network up, runs the command as a
//! child, reaps, and ends the machine when the command ends. Its settings stand in the kernel's command line: words after
//! `--` are the command's arguments, and a word NAME=VALUE that the kernel does not know is a variable.

use super::{face, note};
use crate::sys::network::Interface;
use crate::sys::{DriverResult, Failure};
use crate::{Error, Result};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, sync};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Variable of the network's address, as the kernel's parameter has it. A kernel with IP_PNP takes the parameter itself
/// and leaves no variable.
const NETWORK: &str = "ip";
/// Variable of the machine's end: `poweroff` (the default) or `reboot`.
const END: &str = "KILN_END";
/// A file with the names of modules in the order to insert them in. Each lies in /lib, as NAME.ko.
const MODULES: &str = "/modules";
/// The longest wait for a network interface, whose driver may take a while to find it.
const PATIENCE: Duration = Duration::from_secs(10);

/// True if this is the first process of a machine. A container's first process has /proc already, and does not count.
pub(super) fn is_first() -> bool {
    getpid() == Pid::from_raw(1) && !Path::new("/proc/self").exists()
}

/// Runs the command that `arguments` name, and ends the machine. Returns where the kernel refuses that.
pub(super) fn run(arguments: &[OsString]) -> ExitCode {
    let mode = end_of(std::env::var_os(END));
    let done = mode.clone().and_then(|_| prepare()).and_then(|()| run_command(arguments));
    match done {
        Ok(how) => note(&format!("kiln: init: the command ended with {how}")),
        Err(e) => note(&format!("kiln: init: {}", face::line(&e))),
    }
    sync();
    let Err(e) = reboot(mode.unwrap_or(RebootMode::RB_POWER_OFF));
    note(&format!("kiln: init: the kernel does not end the machine: {e}"));
    ExitCode::FAILURE
}

fn end_of(word: Option<OsString>) -> Result<RebootMode> {
    match word.as_deref().map(|word| word.to_string_lossy()).as_deref() {
        None | Some("poweroff") => Ok(RebootMode::RB_POWER_OFF),
        Some("reboot") => Ok(RebootMode::RB_AUTOBOOT),
        Some(other) => Err(Error::input(format!("{END}={other} is no end of a machine"), "use poweroff or reboot")),
    }
}

/// Makes what a command expects of a machine: file systems, drivers, the network.
///
/// # Errors
/// Input: the network's settings or the list of modules are wrong. Device: the kernel refuses.
fn prepare() -> Result<()> {
    let network = std::env::var_os(NETWORK).map(|text| text.to_string_lossy().parse::<Network>()).transpose()?;
    for (kind, folder) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount_kernels(kind, folder).map_err(refused)?;
    }
    fs::create_dir_all("/tmp").map_err(|e| Error::unwritable(Path::new("/tmp"), &e))?;
    let modules = match fs::read_to_string(MODULES) {
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(|e| Error::unreadable(Path::new(MODULES), &e))?,
    };
    for module in modules.split_whitespace() {
        // One driver less is no reason to leave the others out: the command says what it lacks.
        if let Err(e) = insert(module) {
            note(&format!("kiln: init: {e}"));
        }
    }
    Interface::new("lo").and_then(|lo| lo.bring_up()).map_err(refused)?;
    network.map_or(Ok(()), |network| network.bring_up())
}

/// Mounts a file system of the kernel's, unless it is mounted.
fn mount_kernels(kind: &str, folder: &str) -> DriverResult<()> {
    let what = format!("mount {folder}");
    // A folder that is there stays, even where the root is read-only.
    if !Path::new(folder).is_dir() {
        fs::create_dir(folder).map_err(|e| Failure::from_io(&what, &e))?;
    }
    match mount(Some(kind), folder, Some(kind), MsFlags::MS_NOSUID, None::<&str>) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(e) => Err(Failure::new(what, e)),
    }
}

fn insert(module: &str) -> DriverResult<()> {
    let what = format!("insert the module {module}");
    let file = File::open(format!("/lib/{module}.ko")).map_err(|e| Failure::from_io(&what, &e))?;
    finit_module(file, c"", ModuleInitFlags::empty()).map_err(|e| Failure::new(what, e))
}

fn refused(e: Failure) -> Error {
    Error::device(format!("the kernel failed to {e}"), "see its messages above, and boot a kernel that can")
}

/// The IPv4 settings of the machine's network interface.
#[derive(Debug, PartialEq, Eq)]
struct Network {
    address: Ipv4Addr,
    gateway: Option<Ipv4Addr>,
    netmask: Ipv4Addr,
    /// The interface's name; `None` for the first that there is.
    device: Option<String>,
}

impl FromStr for Network {
    type Err = Error;

    /// Reads `ADDRESS:SERVER:GATEWAY:NETMASK:HOST:DEVICE…`, as in the kernel's documentation of nfsroot. Fields may be
    /// empty, but for ADDRESS and NETMASK; the others than these are not used.
    fn from_str(text: &str) -> Result<Network> {
        let fields: Vec<&str> = text.split(':').collect();
        let field = |at: usize| fields.get(at).copied().filter(|field| !field.is_empty());
        let address = |at| field(at).map(Ipv4Addr::from_str).transpose();
        match (address(0), address(2), address(3)) {
            (Ok(Some(address)), Ok(gateway), Ok(Some(netmask))) => {
                Ok(Network { address, gateway, netmask, device: field(5).map(str::to_owned) })
            }
            _ => Err(Error::input(
                format!("{NETWORK}={text} has no address and netmask"),
                format!("boot with {NETWORK}=ADDRESS::GATEWAY:NETMASK; DHCP takes a kernel with IP_PNP_DHCP"),
            )),
        }
    }
}

impl Network {
    /// Sets the interface's address and the gateway.
    ///
    /// # Errors
    /// Device: there is no interface, or the kernel refuses.
    fn bring_up(&self) -> Result<()> {
        let name = self.interface()?;
        let set = Interface::new(&name).and_then(|interface| {
            interface.set_address(self.address, self.netmask)?;
            interface.bring_up()?;
            self.gateway.map_or(Ok(()), |gateway| interface.set_gateway(gateway))
        });
        set.map_err(refused)
    }

    /// The interface's name, once it is there.
    fn interface(&self) -> Result<String> {
        let start = Instant::now();
        loop {
            let found = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
            let names = found.filter_map(|entry| entry.file_name().into_string().ok());
            let wanted = |name: &String| self.device.as_ref().map_or(name != "lo", |device| name == device);
            match names.filter(wanted).min() {
                Some(name) => return Ok(name),
                None if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
                None => {
                    let device = self.device.as_deref().unwrap_or("any");
                    let cause = format!("there is no network interface ({NETWORK}= wants {device})");
                    return Err(Error::device(
                        cause,
                        format!("add its driver to {MODULES} and /lib, or use another kernel"),
                    ));
                }
            }
        }
    }
}

/// Runs the command as a child, and reaps until it ends. Returns how it ended.
///
/// # Errors
/// Failed: it cannot be started.
fn run_command(arguments: &[OsString]) -> Result<String> {
    let failed = |e: &dyn std::fmt::Display| Error::failed(format!("the command cannot be run: {e}"), "report this");
    let (name, arguments) = arguments.split_first().ok_or_else(|| failed(&"it has no name"))?;
    let child = Command::new("/proc/self/exe").arg0(name).args(arguments).spawn().map_err(|e| failed(&e))?;
    loop {
        // Orphans become children of the first process.
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == child.id().cast_signed() => {
                return Ok(format!("exit code {code}"));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == child.id().cast_signed() => {
                return Ok(format!("signal {}", signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(failed(&e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_networks_address_is_read_as_the_kernel_has_it() {
        let of = |text: &str| text.parse::<Network>();
        let [address, gateway, netmask] = [[10, 0, 2, 15], [10, 0, 2, 2], [255, 255, 255, 0]].map(Ipv4Addr::from);
        let whole = Network { address, gateway: Some(gateway), netmask, device: Some("eth0".into()) };
        assert_eq!(of("10.0.2.15:10.0.2.3:10.0.2.2:255.255.255.0:box:eth0:off"), Ok(whole));
        let least = Network { address, gateway: None, netmask, device: None };
        assert_eq!(of("10.0.2.15:::255.255.255.0"), Ok(least));
        for wrong in
            ["", "dhcp", "on", "10.0.2.15", "10.0.2.15::10.0.2.2", "10.0.2.15::x:255.255.255.0", ":::255.0.0.0"]
        {
            let e = of(wrong).unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains("ip=ADDRESS::GATEWAY:NETMASK"), "{wrong}: {e}");
        }
    }

    #[test]
    fn a_machine_powers_off_or_boots_again() {
        let of = |word: &str| end_of(Some(word.into()));
        assert_eq!(end_of(None), Ok(RebootMode::RB_POWER_OFF));
        assert_eq!((of("poweroff"), of("reboot")), (Ok(RebootMode::RB_POWER_OFF), Ok(RebootMode::RB_AUTOBOOT)));
        assert!(of("halt").unwrap_err().to_string().contains("use poweroff or reboot"));
    }

    #[test]
    fn a_process_of_a_running_system_is_not_its_first() {
        assert!(!is_first());
    }
}
