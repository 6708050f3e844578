//! `/proc/PID/fd`.

use alloc::sync::{Arc, Weak};

use abi::Errno;
use abi::file::S_IFLNK;

use crate::fs::FdTable;
use crate::fs::folder::{self, DOTS, Folder, Show, list_numbers};
use crate::fs::node::{Body, Node, NodeRef, Volume};
use crate::process::{Process, remote};
use crate::users::Basis;

/// The directory of a process's descriptors.
pub struct Descriptors(Weak<Process>);

impl Descriptors {
    /// Creates the directory for `process`.
    pub fn of(process: &Arc<Process>) -> Self {
        Self(Arc::downgrade(process))
    }

    /// Returns the descriptors that the process has, if the running thread may look into it.
    ///
    /// # Errors
    /// EACCES, ENOENT if it has ended.
    fn table(&self) -> Result<Arc<FdTable>, Errno> {
        let thread = self.0.upgrade().and_then(|process| process.any_thread()).ok_or(Errno::ENOENT)?;
        remote::permit_thread(&thread, Basis::Files).map_err(|_| Errno::EACCES)?;
        Ok(thread.shared().files.clone())
    }
}

impl Folder for Descriptors {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let fd = folder::number(name).ok_or(Errno::ENOENT)?;
        let table = self.table()?;
        let file = table.get(fd).map_err(|_| Errno::ENOENT)?;
        Node::with_body(Volume::System, 0o700, Body::Descriptor(file))
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let Ok(table) = self.table() else { return };
        let next = |from| table.next_open(from as usize).map(|fd| fd as u64);
        let _all = list_numbers(position, (DOTS + 1, S_IFLNK), next, show);
    }

    fn parent(&self) -> Option<NodeRef> {
        super::process::of_process(&self.0.upgrade()?).ok()
    }
}
