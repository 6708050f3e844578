//! `/proc/PID` and its contents.

use alloc::sync::{Arc, Weak};
use core::fmt;

use abi::Errno;
use abi::file::{S_IFDIR, S_IFLNK, S_IFREG};
use percore::pin;
use vm::Detail;

use super::descriptors::Descriptors;
use super::listing::Listing;
use super::maps::{self, PageMap};
use super::memory_file::MemoryFile;
use super::{mounts, texts};
use crate::fs::content::Content;
use crate::fs::folder::{self, DOTS, Folder, Show, list_names, list_numbers};
use crate::fs::node::{Body, Node, NodeRef, Owner, Volume};
use crate::fs::path;
use crate::mm::fallible::{Text, boxed};
use crate::process::{Memory, Process, pid, remote};
use crate::sched::{self, Task};
use crate::users::Basis;

/// The names in the directory of a process, each with its `S_IF*`.
const NAMES: [(&[u8], u32); 20] = [
    (b"auxv", S_IFREG),
    (b"cmdline", S_IFREG),
    (b"comm", S_IFREG),
    (b"cwd", S_IFLNK),
    (b"environ", S_IFREG),
    (b"exe", S_IFLNK),
    (b"fd", S_IFDIR),
    (b"limits", S_IFREG),
    (b"maps", S_IFREG),
    (b"mem", S_IFREG),
    (b"mounts", S_IFREG),
    (b"pagemap", S_IFREG),
    (b"personality", S_IFREG),
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
    let node = folder::node(ProcessFolder { process: Arc::downgrade(process) })?;
    node.set_owner(owner(process, true));
    Ok(node)
}

impl Folder for ProcessFolder {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let process = self.process.upgrade().ok_or(Errno::ESRCH)?;
        let node = entry(&process, name)?;
        let is_own = sched::with_current(|task| Arc::ptr_eq(task.process(), &process));
        // Its own descriptors are open to a process that has just changed its user.
        let is_always_users = is_own && name == b"fd" || name == b"task";
        node.set_owner(owner(&process, is_always_users));
        Ok(node)
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let _all = list_names(&NAMES, position, show);
    }

    fn parent(&self) -> Option<NodeRef> {
        crate::fs::root().lookup(b"proc").ok()
    }
}

/// Returns the owner of a file about a process: its effective user and group. It is root once the process has
/// ended, and if the process hides itself from its user, unless the file `is_always_users`.
fn owner(process: &Arc<Process>, is_always_users: bool) -> Owner {
    let of_task = |task: &Task| {
        let pin = pin();
        let of = task.thread.credentials.peek(&pin);
        let is_open = is_always_users || task.shared().memory.is_dumpable();
        let owner = Owner { user: of.users.effective, group: of.groups.effective };
        if is_open { owner } else { Owner::ROOT }
    };
    // Without a lock and a count for the usual one, `/proc/self` of a main thread.
    let is_it = |task: &Task| Arc::ptr_eq(task.process(), process) && task.tid() == process.pid();
    let own = sched::with_current(|task| is_it(task).then(|| of_task(task)));
    own.or_else(|| process.any_thread().map(|task| of_task(&task))).unwrap_or(Owner::ROOT)
}

/// Returns an error unless the running thread may look into a process.
///
/// # Errors
/// EACCES.
fn permit(process: &Process) -> Result<(), Errno> {
    remote::permit(process, Basis::Files).map_err(|_| Errno::EACCES)
}

/// Returns the memory that a process has, if the running thread may look into it, or none if the process has
/// ended.
///
/// # Errors
/// EACCES.
fn memory_of(process: &Process) -> Result<Option<Arc<Memory>>, Errno> {
    let Some(thread) = process.any_thread() else { return Ok(None) };
    remote::memory_of(&thread, Basis::Files).map(Some).map_err(|_| Errno::EACCES)
}

/// Returns the node called `name` in the directory of a process.
///
/// A file about the memory of a program is bound to that memory when it is opened, by a thread that may look
/// into it then: after an `execve` there is nothing to read. Descriptors are asked for anew at each look-up.
fn entry(process: &Arc<Process>, name: &[u8]) -> Result<NodeRef, Errno> {
    match name {
        b"fd" => {
            let node = folder::node(Descriptors::of(process))?;
            node.set_permissions(0o500);
            Ok(node)
        }
        b"task" => folder::node(Tasks { process: Arc::downgrade(process) }),
        b"exe" => program(process),
        b"cwd" => {
            let task = process.any_thread().ok_or(Errno::ENOENT)?;
            let directory = task.fs_context().directory();
            // Afterwards, and of a thread that is there: a program that the process executes meanwhile has
            // the same context, and a process that has ended permits all.
            let now = process.any_thread().ok_or(Errno::ENOENT)?;
            remote::permit_thread(&now, Basis::Files).map_err(|_| Errno::EACCES)?;
            link(&path::of(&directory)?)
        }
        b"maps" => of_memory(process, 0o444, |memory| Listing::of(memory, Detail::Mappings, maps::maps_line)),
        b"smaps" => {
            of_memory(process, 0o444, |memory| Listing::of(memory, Detail::Resident, maps::smaps_paragraph))
        }
        b"smaps_rollup" => text_of_memory(process, 0o444, maps::smaps_rollup),
        b"pagemap" => of_memory(process, 0o400, PageMap::of),
        b"mem" => of_memory(process, 0o600, MemoryFile::of),
        b"root" => {
            permit(process)?;
            link(b"/")
        }
        b"auxv" => text_of_memory(process, 0o400, texts::auxv),
        b"environ" => text_of_memory(process, 0o400, texts::environ),
        b"personality" => personality(process),
        _ => file(process, name),
    }
}

/// Returns the file of the personality, which a thread opens that may look into the process.
fn personality(process: &Arc<Process>) -> Result<NodeRef, Errno> {
    let process = Arc::downgrade(process);
    let node = folder::text_for(move |text| {
        // There is nothing to write about a process that has ended.
        let Some(process) = process.upgrade() else { return Ok(()) };
        remote::permit(&process, Basis::Files)?;
        texts::personality(&process, text).map_err(|_| Errno::ENOMEM)
    })?;
    node.set_permissions(0o400);
    Ok(node)
}

/// Returns the link to the program, which leads to the file although it may have another name by now.
///
/// # Errors
/// EACCES, ENOENT if the process has ended.
fn program(process: &Process) -> Result<NodeRef, Errno> {
    let memory = memory_of(process)?.ok_or(Errno::ENOENT)?;
    Node::with_body(Volume::System, 0o777, Body::Descriptor(memory.program.file.clone()))
}

/// Returns a file about the memory that the process has when the file is opened, by a thread that may look
/// into it.
fn of_memory<C: Content + 'static>(
    process: &Arc<Process>,
    permissions: u32,
    make: fn(Weak<Memory>) -> C,
) -> Result<NodeRef, Errno> {
    let process = Arc::downgrade(process);
    let node = folder::generated(move || {
        let process = process.upgrade().ok_or(Errno::ESRCH)?;
        let memory = memory_of(&process)?;
        Ok(boxed(make(memory.as_ref().map_or_else(Weak::new, Arc::downgrade)))?)
    })?;
    node.set_permissions(permissions);
    Ok(node)
}

/// Returns a file whose text `write` makes from the memory that the process has when the file is opened, by a
/// thread that may look into it.
fn text_of_memory(
    process: &Arc<Process>,
    permissions: u32,
    write: fn(&Memory, &mut Text) -> fmt::Result,
) -> Result<NodeRef, Errno> {
    let process = Arc::downgrade(process);
    let node = folder::text_for(move |text| {
        let memory = process.upgrade().map_or(Ok(None), |process| memory_of(&process))?;
        // There is nothing to write about a process that has ended.
        memory.map_or(Ok(()), |memory| write(&memory, text)).map_err(|_| Errno::ENOMEM)
    })?;
    node.set_permissions(permissions);
    Ok(node)
}

fn link(target: &[u8]) -> Result<NodeRef, Errno> {
    Node::link(Volume::System, target)
}

/// Writes a text about a process.
type Writer = fn(&Process, &mut Text) -> fmt::Result;

fn file(process: &Arc<Process>, name: &[u8]) -> Result<NodeRef, Errno> {
    let write: Writer = match name {
        b"cmdline" => texts::cmdline,
        b"comm" => texts::comm,
        b"limits" => texts::limits,
        b"mounts" => |_, text| mounts(text),
        b"stat" => texts::stat,
        b"statm" => texts::statm,
        b"status" => texts::status,
        _ => return Err(Errno::ENOENT),
    };
    let process = Arc::downgrade(process);
    // There is nothing to write about a process that has ended.
    folder::text(move |text| process.upgrade().map_or(Ok(()), |process| write(&process, text)))
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

const TASK_NAMES: [(&[u8], u32); 7] = [
    (b"comm", S_IFREG),
    (b"limits", S_IFREG),
    (b"maps", S_IFREG),
    (b"mem", S_IFREG),
    (b"personality", S_IFREG),
    (b"stat", S_IFREG),
    (b"status", S_IFREG),
];

impl Folder for TaskFolder {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let task = self.task.upgrade().ok_or(Errno::ESRCH)?;
        let node = match name {
            b"comm" => {
                let task = self.task.clone();
                folder::text(move |text| task.upgrade().map_or(Ok(()), |task| texts::name(&task, text)))
            }
            b"task" => Err(Errno::ENOENT),
            _ => entry(task.process(), name),
        }?;
        node.set_owner(owner(task.process(), false));
        Ok(node)
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let _all = list_names(&TASK_NAMES, position, show);
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
