//! `/proc/PID/fd`.

use alloc::sync::{Arc, Weak};

use abi::Errno;
use abi::file::S_IFLNK;

use crate::fs::FdTable;
use crate::fs::folder::{self, DOTS, Folder, Show, list_numbers};
use crate::fs::node::{Body, Node, NodeRef, Volume};
use crate::process::Process;

/// The directory of a process's descriptors.
pub struct Descriptors(Weak<Process>);

impl Descriptors {
    /// Creates the directory for `process`.
    pub fn of(process: &Arc<Process>) -> Self {
        Self(Arc::downgrade(process))
    }

    fn table(&self) -> Option<Arc<FdTable>> {
        Some(self.0.upgrade()?.any_thread()?.shared().files.clone())
    }
}

impl Folder for Descriptors {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let fd = folder::number(name).ok_or(Errno::ENOENT)?;
        let table = self.table().ok_or(Errno::ENOENT)?;
        let file = table.get(fd).map_err(|_| Errno::ENOENT)?;
        Node::with_body(Volume::System, 0o700, Body::Descriptor(file))
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let Some(table) = self.table() else { return };
        let next = |from| table.next_open(from as usize).map(|fd| fd as u64);
        let _all = list_numbers(position, (DOTS + 1, S_IFLNK), next, show);
    }

    fn parent(&self) -> Option<NodeRef> {
        super::process::of_process(&self.0.upgrade()?).ok()
    }
}
