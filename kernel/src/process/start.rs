//! Starting the first program.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;

use percore::CoreSet;
use sync::SpinLock;

use super::arguments::Strings;
use super::exec::name_of;
use super::load::{LoadError, Manner, load};
use super::signal::{Inherited, ProcessSignals};
use super::thread::{NewThread, Shared};
use super::{
    EndingCell, Groups, Limits, NAME_BYTES, Pid, Process, Relations, Stop, Undoing, ptrace, terminal,
};
use crate::arch::{self, FpuState, TrapFrame};
use crate::fs::{self, FdTable, FsContext};
use crate::mm::fallible;
use crate::sched;
use crate::users::{Credentials, Slot};

/// Returns the directory and the umask that the boot image names, or those of a process that chose none.
fn context() -> Result<Arc<FsContext>, Errno> {
    let text = |name| fs::boot_file(name).unwrap_or_default();
    let umask =
        str::from_utf8(text(".radixvm/umask")).ok().and_then(|text| u32::from_str_radix(text, 8).ok());
    FsContext::new(text(".radixvm/directory"), umask.unwrap_or(0o022) & 0o777)
}

/// Starts the program that the boot image names. This core must be in the epochs, and files and address
/// spaces must work.
///
/// # Errors
/// ENOEXEC, ENOENT, ENOMEM, E2BIG: nothing was started.
pub fn start_first() -> Result<(), LoadError> {
    let path = fs::boot_file(".radixvm/program")?;
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    let strings = |name| fs::boot_file(name).and_then(fallible::copied);
    let strings = Strings::new(strings(".radixvm/argv")?, strings(".radixvm/envp")?);
    let loaded = load(
        &fs::program(path)?,
        path,
        strings,
        Credentials::root(),
        Manner { is_secure: false, is_random: true },
    )?;
    let number = Pid::new()?;
    let pid = number.get();
    let process = fallible::arc(Process {
        number,
        relations: Relations::new(0),
        groups: Groups::new(pid, pid),
        signals: ProcessSignals::new()?,
        stop: Stop::new(),
        limits: Limits::new(),
        threads: SpinLock::new(Vec::new()),
        ending: EndingCell::new(),
        executor: Default::default(),
        executed: Default::default(),
        main_status: Default::default(),
        last_name: SpinLock::new([0; NAME_BYTES]),
        last_user: Default::default(),
        past: Default::default(),
        children_usage: Default::default(),
        traced: Default::default(),
        main_tracee: ptrace::Place::new(None),
        timers: Default::default(),
        undoing: Undoing::new(),
    })?;
    let terminal = terminal::begin(&process);
    let main = NewThread {
        number: None,
        shared: Shared { memory: loaded.memory, files: FdTable::new_stdio(terminal)?, fs: context()? },
        name: name_of(path),
        frame: TrapFrame::user(loaded.entry, loaded.sp),
        fpu: fallible::boxed(FpuState::new())?,
        fs_base: 0,
        affinity: CoreSet::first(arch::cores()),
        signals: Inherited::NOTHING,
        clear_tid: 0,
        set_tid: 0,
        latch: None,
        credentials: Slot::root(),
        personality: 0,
    };
    let main = main.make(&process)?;
    process.add_thread(&main)?;
    process.number.publish(&process, true);
    arch::marker::run();
    sched::enqueue(main);
    Ok(())
}
