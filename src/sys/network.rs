//! A network interface's state, address and route, for a machine whose first process is Kiln.

use super::{DriverResult, Failure};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::ffi::{c_char, c_short, c_ulong, c_ushort, c_void};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// A request with an interface's name and a value of it.
mod request {
    use libc::{SIOCADDRT, SIOCSIFADDR, SIOCSIFFLAGS, SIOCSIFNETMASK, ifreq};

    nix::ioctl_write_ptr_bad!(set_flags, SIOCSIFFLAGS, ifreq);
    nix::ioctl_write_ptr_bad!(set_address, SIOCSIFADDR, ifreq);
    nix::ioctl_write_ptr_bad!(set_netmask, SIOCSIFNETMASK, ifreq);
    nix::ioctl_write_ptr_bad!(add_route, SIOCADDRT, super::RouteEntry);
}

/// The kernel's `struct rtentry` (linux/route.h).
#[repr(C)]
pub(super) struct RouteEntry {
    pad1: c_ulong,
    destination: libc::sockaddr,
    gateway: libc::sockaddr,
    mask: libc::sockaddr,
    flags: c_ushort,
    pad2: c_short,
    pad3: c_ulong,
    pad4: *mut c_void,
    metric: c_short,
    device: *mut c_char,
    mtu: c_ulong,
    window: c_ulong,
    timeout: c_ushort,
}

/// A network interface.
pub struct Interface<'a> {
    socket: OwnedFd,
    name: &'a str,
}

impl<'a> Interface<'a> {
    /// The interface with this name.
    ///
    /// # Errors
    /// The name is longer than the kernel's are, or there is no IPv4.
    pub fn new(name: &'a str) -> DriverResult<Interface<'a>> {
        let fault = |e| Failure::new(format!("use the network interface {name}"), e);
        if name.len() >= libc::IFNAMSIZ {
            return Err(fault(Errno::ENAMETOOLONG));
        }
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).map_err(fault)?;
        Ok(Interface { socket, name })
    }

    /// Brings it up.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bring_up(&self) -> DriverResult<()> {
        let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: (libc::IFF_UP | libc::IFF_RUNNING) as c_short };
        // SAFETY: the request is complete and lives through the call; the kernel reads its name and flags.
        let done = unsafe { request::set_flags(self.socket.as_raw_fd(), &self.request(ifr_ifru)) };
        self.judge("bring up", done)
    }

    /// Gives it an address in a network.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_address(&self, address: Ipv4Addr, netmask: Ipv4Addr) -> DriverResult<()> {
        let request = |ip| self.request(libc::__c_anonymous_ifr_ifru { ifru_addr: socket_address(ip) });
        // SAFETY: the requests are complete and live through the calls; the kernel reads a name and an IPv4 address.
        let done = unsafe {
            request::set_address(self.socket.as_raw_fd(), &request(address))
                .and_then(|_| request::set_netmask(self.socket.as_raw_fd(), &request(netmask)))
        };
        self.judge("set the address of", done)
    }

    /// Sends what is for other networks to `gateway`, through any interface that reaches it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_gateway(&self, gateway: Ipv4Addr) -> DriverResult<()> {
        let any = socket_address(Ipv4Addr::UNSPECIFIED);
        let route = RouteEntry {
            pad1: 0,
            destination: any,
            gateway: socket_address(gateway),
            mask: any,
            flags: libc::RTF_UP | libc::RTF_GATEWAY,
            pad2: 0,
            pad3: 0,
            pad4: std::ptr::null_mut(),
            metric: 0,
            device: std::ptr::null_mut(),
            mtu: 0,
            window: 0,
            timeout: 0,
        };
        // SAFETY: the entry is complete and lives through the call; a null device names none.
        let done = unsafe { request::add_route(self.socket.as_raw_fd(), &route) };
        self.judge("set the gateway of", done)
    }

    fn request(&self, ifr_ifru: libc::__c_anonymous_ifr_ifru) -> libc::ifreq {
        let mut ifr_name = [0; libc::IFNAMSIZ];
        ifr_name.iter_mut().zip(self.name.bytes()).for_each(|(to, from)| *to = from as c_char);
        libc::ifreq { ifr_name, ifr_ifru }
    }

    fn judge(&self, what: &str, done: nix::Result<i32>) -> DriverResult<()> {
        done.map(drop).map_err(|e| Failure::new(format!("{what} the network interface {}", self.name), e))
    }
}

/// An IPv4 address without a port, as the kernel's `struct sockaddr_in`.
fn socket_address(ip: Ipv4Addr) -> libc::sockaddr {
    let mut sa_data = [0; 14];
    // A port of two bytes comes first.
    sa_data[2..6].copy_from_slice(&ip.octets().map(|byte| byte as c_char));
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data }
}
