//! `-p [ADDRESS:]HOST:GUEST[/udp]` and `--net`: the guest's network.

use std::fmt;
use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

use abi::config::{NETWORK, NETWORK_OUT};
use anyhow::{Context, Result, bail, ensure};

/// The guest's address on its network.
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// The name server on its network, by which QEMU asks that of this machine.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

/// A port of this machine that leads to one of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    protocol: Protocol,
    host: SocketAddrV4,
    guest: u16,
}

/// The guest's network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    forwards: Vec<Forward>,
    /// Set if the program can make connections, too.
    goes_out: bool,
}

impl Forward {
    /// Parses `[ADDRESS:]HOST:GUEST[/udp]`. Without ADDRESS only this machine's programs reach the port.
    ///
    /// # Errors
    /// If it has another form.
    fn parse(text: &str) -> Result<Self> {
        let form = || format!("-p {text}: give [ADDRESS:]HOST:GUEST[/udp], as in -p 8080:80");
        let (ports, protocol) = match text.split_once('/') {
            None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some(_) => bail!(form()),
        };
        let (host, guest) = ports.rsplit_once(':').with_context(form)?;
        let (address, host) = match host.rsplit_once(':') {
            Some((address, host)) => (address.parse().ok().with_context(form)?, host),
            None => (Ipv4Addr::LOCALHOST, host),
        };
        let port = |word: &str| word.parse().ok().filter(|port: &u16| *port != 0).with_context(form);
        Ok(Self { protocol, host: SocketAddrV4::new(address, port(host)?), guest: port(guest)? })
    }

    /// Checks that QEMU can take the port.
    ///
    /// # Errors
    /// If not, with what to give instead.
    fn check(&self) -> Result<()> {
        let tried = match self.protocol {
            Protocol::Tcp => TcpListener::bind(self.host).map(drop),
            Protocol::Udp => UdpSocket::bind(self.host).map(drop),
        };
        tried.or_else(|error| bail!("-p {self}: {}", self.explain(&error)))
    }

    fn explain(&self, error: &Error) -> String {
        let (ip, port) = (self.host.ip(), self.host.port());
        // A port that any user can have.
        let other = if port == u16::MAX { port - 1 } else { (port + 1).max(8080) };
        let instead = Self { host: SocketAddrV4::new(*ip, other), ..*self };
        match error.kind() {
            ErrorKind::AddrInUse => {
                format!("port {port} of this machine is taken: give another one, as in -p {instead}")
            }
            ErrorKind::PermissionDenied => {
                format!("this user cannot have port {port}: give one from 1024 on, as in -p {instead}")
            }
            ErrorKind::AddrNotAvailable => format!("this machine does not have the address {ip}"),
            _ => format!("port {port} of this machine: {error}"),
        }
    }

    /// Returns it as QEMU's options say it.
    fn option(&self) -> String {
        let protocol = if self.protocol == Protocol::Tcp { "tcp" } else { "udp" };
        format!("hostfwd={protocol}:{}:{}-{GUEST}:{}", self.host.ip(), self.host.port(), self.guest)
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self.host.ip() != Ipv4Addr::LOCALHOST {
            write!(f, "{}:", self.host.ip())?;
        }
        write!(f, "{}:{}", self.host.port(), self.guest)?;
        f.write_str(if self.protocol == Protocol::Udp { "/udp" } else { "" })
    }
}

impl Network {
    /// Returns the network for these options, or none if there is nothing that it would be for.
    ///
    /// # Errors
    /// If a port has another form, two lead from the same one, or a port of UDP has no answers.
    pub fn parse(ports: &[String], goes_out: bool) -> Result<Option<Self>> {
        let forwards: Vec<Forward> = ports.iter().map(|text| Forward::parse(text)).collect::<Result<_>>()?;
        for (number, one) in forwards.iter().enumerate() {
            let twice = |other: &Forward| (other.protocol, other.host) == (one.protocol, one.host);
            ensure!(
                !forwards[..number].iter().any(twice),
                "-p {one}: this port leads to another one already"
            );
        }
        if let Some(udp) = forwards.iter().find(|one| one.protocol == Protocol::Udp && !goes_out) {
            bail!("-p {udp}: QEMU lets no answers to messages out without --net: give that, too");
        }
        Ok((goes_out || !forwards.is_empty()).then_some(Self { forwards, goes_out }))
    }

    /// Checks that the ports of this machine are free. QEMU takes them a moment later.
    ///
    /// # Errors
    /// If one is not, with what to give instead.
    pub fn check(&self) -> Result<()> {
        self.forwards.iter().try_for_each(Forward::check)
    }

    /// Returns whether the program can make connections.
    pub fn goes_out(&self) -> bool {
        self.goes_out
    }

    /// Returns the option for the kernel's command line, after a space.
    pub fn word(&self) -> String {
        format!(" {}", if self.goes_out { NETWORK_OUT } else { NETWORK })
    }

    /// Returns QEMU's options for the network: connections that are not asked for are not made.
    pub fn option(&self) -> String {
        let restrict = if self.goes_out { "off" } else { "on" };
        let forwards = self.forwards.iter().map(|forward| format!(",{}", forward.option()));
        format!("user,id=net,ipv6=off,restrict={restrict}{}", forwards.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(texts: &[&str], goes_out: bool) -> Result<Option<Network>> {
        Network::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), goes_out)
    }

    #[test]
    fn ports_are_this_machines_alone_unless_an_address_is_given() {
        let network = parsed(&["8080:80", "0.0.0.0:5353:53/udp"], true).unwrap().unwrap();
        assert_eq!(
            network.option(),
            "user,id=net,ipv6=off,restrict=off,hostfwd=tcp:127.0.0.1:8080-10.0.2.15:80,\
             hostfwd=udp:0.0.0.0:5353-10.0.2.15:53"
        );
        assert_eq!(
            network.forwards.iter().map(Forward::to_string).collect::<Vec<_>>().join(" "),
            "8080:80 0.0.0.0:5353:53/udp"
        );
        let network = parsed(&["8080:80"], false).unwrap().unwrap();
        assert!(network.option().contains("restrict=on,"), "{}", network.option());
        assert_eq!(network.word(), " network");
    }

    #[test]
    fn nothing_is_there_unless_it_is_asked_for() {
        assert_eq!(parsed(&[], false).unwrap(), None);
        let network = parsed(&[], true).unwrap().unwrap();
        assert_eq!(
            (network.option(), network.word()),
            ("user,id=net,ipv6=off,restrict=off".to_owned(), " network-out".to_owned())
        );
    }

    #[test]
    fn other_forms_are_refused_with_the_right_one() {
        for bad in
            ["80", "80:", ":80", "0:80", "80:0", "x:80", "1.2.3:80:80", "80:80/icmp", "70000:80", "::1:80:80"]
        {
            let error = parsed(&[bad], false).unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("as in -p 8080:80"), "{error}");
        }
        let error = parsed(&["80:80", "81:80", "80:90"], false).unwrap_err().to_string();
        assert!(error.contains("-p 80:90"), "{error}");
        assert!(parsed(&["80:80", "80:80/udp", "127.0.0.2:80:80"], true).is_ok());
        let error = parsed(&["80:80/udp"], false).unwrap_err().to_string();
        assert!(error.contains("-p 80:80/udp") && error.contains("--net"), "{error}");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let network = parsed(&[&format!("{port}:80")], false).unwrap().unwrap();
        let error = network.check().unwrap_err().to_string();
        assert!(
            error.contains(&format!("port {port} of this machine is taken")) && error.contains("as in -p"),
            "{error}"
        );
        let udp = parsed(&[&format!("{port}:80/udp")], true).unwrap().unwrap();
        assert!(udp.check().is_ok());
        let absent = parsed(&["198.51.100.1:8080:80"], false).unwrap().unwrap();
        assert!(absent.check().unwrap_err().to_string().contains("198.51.100.1"));
    }
}
