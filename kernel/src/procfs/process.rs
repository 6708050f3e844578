//! `/proc/PID` and its contents.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;

use abi::Errno;
use abi::file::{S_IFDIR, S_IFLNK, S_IFREG};
use vm::Detail;

use super::descriptors::Descriptors;
use super::listing::{Listing, Paragraph};
use super::maps::{self, PageMap};
use super::texts;
use crate::fs::folder::{self, DOTS, Folder, Show, list_names, list_numbers};
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::path;
use crate::mm::fallible::{Text, boxed};
use crate::process::{Process, pid};
use crate::sched::Task;

/// The names in the directory of a process, each with its `S_IF*`.
const NAMES: [(&[u8], u32); 15] = [
    (b"cmdline", S_IFREG),
    (b"comm", S_IFREG),
    (b"cwd", S_IFLNK),
    (b"environ", S_IFREG),
    (b"exe", S_IFLNK),
    (b"fd", S_IFDIR),
    (b"maps", S_IFREG),
    (b"pagemap", S_IFREG),
    (b"root", S_IFLNK),
    (b"smaps", S_IFREG),
    (b"smaps_rollup", S_IFREG),
    (b"stat", S_IFREG),
    (b"statm", S_IFREG),
    (b"status", S_IFREG),
    (b"task", S_IFDIR),
];

/// The directory of a process.
struct ProcessFolder {
    process: Weak<Process>,
}

pub fn of_process(process: &Arc<Process>) -> Result<NodeRef, Errno> {
    folder::node(ProcessFolder { process: Arc::downgrade(process) })
}

impl Folder for ProcessFolder {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let process = self.process.upgrade().ok_or(Errno::ESRCH)?;
        match name {
            b"fd" => folder::node(Descriptors::of(&process)),
            b"task" => folder::node(Tasks { process: self.process.clone() }),
            b"exe" => link(&program_path(&process)?),
            b"cwd" => {
                let task = process.any_thread().ok_or(Errno::ENOENT)?;
                link(&path::of(&task.fs_context().directory())?)
            }
            b"maps" => listing(&process, Detail::Mappings, maps::maps_line),
            b"smaps" => listing(&process, Detail::Resident, maps::smaps_paragraph),
            b"pagemap" => Node::file(Volume::System, 0o400, PageMap::of(&process)),
            b"root" => link(b"/"),
            _ => file(&process, name),
        }
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let _all = list_names(&NAMES, position, show);
    }

    fn parent(&self) -> Option<NodeRef> {
        crate::fs::root().lookup(b"proc").ok()
    }
}

fn link(target: &[u8]) -> Result<NodeRef, Errno> {
    Node::link(Volume::System, target)
}

fn program_path(process: &Process) -> Result<Vec<u8>, Errno> {
    let memory = process.memory().ok_or(Errno::ENOENT)?;
    memory.program.file.path()
}

/// Writes a text about a process.
type Writer = fn(&Process, &mut Text) -> fmt::Result;

fn file(process: &Arc<Process>, name: &[u8]) -> Result<NodeRef, Errno> {
    let write: Writer = match name {
        b"cmdline" => texts::cmdline,
        b"environ" => texts::environ,
        b"comm" => texts::comm,
        b"smaps_rollup" => maps::smaps_rollup,
        b"stat" => texts::stat,
        b"statm" => texts::statm,
        b"status" => texts::status,
        _ => return Err(Errno::ENOENT),
    };
    let process = Arc::downgrade(process);
    // There is nothing to write about a process that has ended.
    folder::text(move |text| process.upgrade().map_or(Ok(()), |process| write(&process, text)))
}

fn listing(process: &Arc<Process>, detail: Detail, write: Paragraph) -> Result<NodeRef, Errno> {
    let process = Arc::downgrade(process);
    folder::generated(move || Ok(boxed(Listing::of(process.clone(), detail, write))?))
}

/// `/proc/PID/task`.
struct Tasks {
    process: Weak<Process>,
}

impl Folder for Tasks {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let process = self.process.upgrade().ok_or(Errno::ESRCH)?;
        let task = folder::number(name).and_then(|tid| process.thread(tid)).ok_or(Errno::ENOENT)?;
        folder::node(TaskFolder { task: Arc::downgrade(&task) })
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let Some(process) = self.process.upgrade() else { return };
        let next = |from| process.next_tid(from as u32).map(u64::from);
        let _all = list_numbers(position, (DOTS + 1, S_IFDIR), next, show);
    }

    fn parent(&self) -> Option<NodeRef> {
        of_process(&self.process.upgrade()?).ok()
    }
}

/// `/proc/PID/task/TID`: the files that differ between threads.
struct TaskFolder {
    task: Weak<Task>,
}

impl Folder for TaskFolder {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        match name {
            b"comm" => {
                let task = self.task.clone();
                folder::text(move |text| task.upgrade().map_or(Ok(()), |task| texts::name(&task, text)))
            }
            _ => file(self.task.upgrade().ok_or(Errno::ESRCH)?.process(), name),
        }
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let _all =
            list_names(&[(b"comm", S_IFREG), (b"stat", S_IFREG), (b"status", S_IFREG)], position, show);
    }

    fn parent(&self) -> Option<NodeRef> {
        let process = Arc::downgrade(self.task.upgrade()?.process());
        folder::node(Tasks { process }).ok()
    }
}

/// `/proc`: the processes, and names that are always there.
pub struct Processes {
    /// The names that are always there.
    pub fixed: NodeRef,
}

/// Links that depend on the process that reads them.
const SELF_LINKS: [(&[u8], u32); 2] = [(b"self", S_IFLNK), (b"thread-self", S_IFLNK)];
/// The first position of the numbers: after those links, and before all fixed names, whose positions are
/// large.
const FIRST: u64 = DOTS + SELF_LINKS.len() as u64 + 1;

impl Folder for Processes {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        match (name, folder::number(name)) {
            (b"self", _) => self_link(texts::own_process),
            (b"thread-self", _) => self_link(texts::own_thread),
            (_, Some(pid)) => of_process(&pid::process(pid).ok_or(Errno::ENOENT)?),
            (_, None) => self.fixed.lookup(name),
        }
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let next = |from| pid::next_process(from as u32).map(|process| process.pid().into());
        let rest = FIRST + u64::from(pid::LIMIT);
        if list_names(&SELF_LINKS, position, show)
            && list_numbers(position.max(FIRST), (FIRST, S_IFDIR), next, show)
        {
            // It is a directory.
            let _ = self.fixed.list(position.max(rest), show);
        }
    }

    fn parent(&self) -> Option<NodeRef> {
        Some(crate::fs::root())
    }
}

fn self_link(target: fn(&mut Text) -> fmt::Result) -> Result<NodeRef, Errno> {
    let mut text = Text::default();
    target(&mut text).map_err(|_| Errno::ENOMEM)?;
    link(&text.0)
}
