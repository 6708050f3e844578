//! `--gdb PORT`: QEMU's server for gdb, which stops the guest before its first instruction.

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::Path;

use anyhow::{Result, bail};

use super::qemu;
use crate::program::Program;

/// The option for the kernel's command line, after a space: programs lie where gdb is told.
pub const WORD: &str = " norandmaps";

/// The address at which the kernel loads a position-independent program.
const BASE: u64 = 0x5555_5555_4000;

/// A port of this machine where a guest waits for gdb. Programs of other machines do not reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gdb(pub u16);

impl Gdb {
    /// Checks that QEMU can take the port. QEMU takes it a moment later.
    ///
    /// # Errors
    /// If not, with what to give instead.
    pub fn check(self) -> Result<()> {
        TcpListener::bind(self.address()).map(drop).or_else(|error| bail!(self.explain(&error)))
    }

    fn explain(self, error: &Error) -> String {
        let Self(port) = self;
        match error.kind() {
            ErrorKind::AddrInUse => {
                format!("--gdb {port}: this port of this machine is taken: give another one")
            }
            ErrorKind::PermissionDenied => {
                format!(
                    "--gdb {port}: this user cannot have the port: give one from 1024 on, as in --gdb 1234"
                )
            }
            _ => format!("--gdb {port}: {error}"),
        }
    }

    fn address(self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.0)
    }

    /// Returns QEMU's options.
    pub fn options(self) -> [String; 3] {
        ["-gdb".to_owned(), format!("tcp:{}", self.address()), "-S".to_owned()]
    }

    /// Returns a command for a shell that debugs the program, and the option of gdb that adds the kernel's
    /// names.
    pub fn commands(self, program: &Program, kernel: &Path) -> (String, String) {
        let path = program.path.display();
        let file = if program.is_position_independent() {
            format!("add-symbol-file {path} -o {BASE:#x}")
        } else {
            format!("file {path}")
        };
        let gdb = format!("gdb -ex {} -ex 'target remote :{}'", qemu::quote(&file), self.0);
        (gdb, format!("-ex {}", qemu::quote(&format!("add-symbol-file {}", kernel.display()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = Gdb(port).check().unwrap_err().to_string();
        assert_eq!(error, format!("--gdb {port}: this port of this machine is taken: give another one"));
    }

    #[test]
    fn gdb_is_told_where_the_program_lies() {
        let commands = |kind: u8| {
            let mut bytes = vec![0; 64];
            bytes[16] = kind;
            let program = Program { path: "/a b".into(), bytes };
            Gdb(1234).commands(&program, Path::new("/kernel"))
        };
        let kernel = "-ex 'add-symbol-file /kernel'".to_owned();
        let fixed = "gdb -ex 'file /a b' -ex 'target remote :1234'".to_owned();
        assert_eq!(commands(2), (fixed, kernel.clone()));
        let moved = "gdb -ex 'add-symbol-file /a b -o 0x555555554000' -ex 'target remote :1234'".to_owned();
        assert_eq!(commands(3), (moved, kernel));
    }
}
