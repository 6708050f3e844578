//! Sets of semaphores.
//!
//! A call is tried with its set locked: all its operations happen, or none. If they cannot happen yet, the
//! call waits in the set's list. A call that changes the set carries out those that have become possible, the
//! oldest first, and wakes their tasks. So a call that comes later does not take what an older one waits for.
//!
//! The changes to undo when a process ends (`SEM_UNDO`) are kept in the set, by the process's number. The
//! process has a list of the sets.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use abi::Errno;
use abi::ipc::*;
use abi::users::CAP_SYS_ADMIN;
use sync::SpinLock;

use super::table::{BLOCK, Table};
use super::{Id, Object, Owner, READ, WRITE, Wanted, caller, now};
use crate::mm::fallible::{self, Text};
use crate::sched::WaitQueue;

static SETS: Table<Set, { SEMMNI as usize / BLOCK }> = Table::new();

/// A set of semaphores.
pub struct Set {
    id: Id,
    count: usize,
    state: SpinLock<State>,
}

struct State {
    owner: Owner,
    /// Set once it is removed. Then all else is empty.
    is_gone: bool,
    semaphores: Vec<Semaphore>,
    waiting: VecDeque<Waiting>,
    undos: Vec<Undo>,
    operation_time: i64,
    change_time: i64,
}

#[derive(Clone, Copy, Default)]
struct Semaphore {
    value: u16,
    /// The process that changed it last.
    last: u32,
}

/// The changes that are undone when a process ends, for each semaphore.
struct Undo {
    process: u32,
    changes: Vec<i16>,
}

/// A call that waits.
struct Waiting {
    call: Arc<Pending>,
    /// The index of the operation that cannot happen yet.
    blocked_at: usize,
    /// The semaphores that have changed since it was tried.
    missed: Numbers,
}

/// Numbers of semaphores modulo 64, as bits.
type Numbers = u64;

fn numbers<'a>(operations: impl Iterator<Item = &'a Sembuf>) -> Numbers {
    operations.fold(0, |all, operation| all | number_bit(operation.number.into()))
}

fn number_bit(number: usize) -> Numbers {
    1 << (number % Numbers::BITS as usize)
}

/// The operations of a call, and its outcome once that is known.
struct Pending {
    operations: Vec<Sembuf>,
    /// The semaphores of all operations, and of those that change them.
    used: Numbers,
    changed: Numbers,
    process: u32,
    outcome: SpinLock<Option<Result<(), Errno>>>,
    queue: WaitQueue,
}

impl Object for Set {
    fn id(&self) -> &Id {
        &self.id
    }

    fn size(&self) -> u64 {
        self.count as u64
    }
}

impl Pending {
    fn new(operations: Vec<Sembuf>) -> Self {
        let used = numbers(operations.iter());
        let changed = numbers(operations.iter().filter(|operation| operation.change != 0));
        let (outcome, queue) = (SpinLock::new(None), WaitQueue::new());
        Self { operations, used, changed, process: caller(), outcome, queue }
    }

    fn undoes(&self) -> bool {
        self.operations.iter().any(|operation| u32::from(operation.flags) & SEM_UNDO != 0)
    }

    fn finish(&self, outcome: Result<(), Errno>) {
        *self.outcome.lock() = Some(outcome);
        self.queue.wake_all();
    }

    fn outcome(&self) -> Option<Result<(), Errno>> {
        *self.outcome.lock()
    }
}

/// The result of a try.
enum Tried {
    Over(Result<(), Errno>),
    /// The operation at this index cannot happen yet.
    Blocked(usize),
}

impl State {
    fn alive(&self) -> Result<(), Errno> {
        if self.is_gone { Err(Errno::EIDRM) } else { Ok(()) }
    }

    fn changes_of(&mut self, process: u32) -> Option<&mut Vec<i16>> {
        self.undos.iter_mut().find(|undo| undo.process == process).map(|undo| &mut undo.changes)
    }

    /// Makes place for the changes to undo of a process.
    fn open_undo(&mut self, process: u32) -> Result<(), Errno> {
        if self.changes_of(process).is_none() {
            let mut changes = fallible::empty(self.semaphores.len())?;
            changes.resize(self.semaphores.len(), 0);
            fallible::push(&mut self.undos, Undo { process, changes })?;
        }
        Ok(())
    }

    /// Carries out all operations of a call, or none.
    fn attempt(&mut self, call: &Pending) -> Tried {
        for (index, operation) in call.operations.iter().enumerate() {
            if let Err(tried) = self.apply(call.process, operation, index) {
                self.revert(call.process, call.operations.get(..index).unwrap_or_default());
                return tried;
            }
        }
        for operation in &call.operations {
            if let Some(semaphore) = self.semaphores.get_mut(usize::from(operation.number)) {
                semaphore.last = call.process;
            }
        }
        self.operation_time = now();
        Tried::Over(Ok(()))
    }

    fn apply(&mut self, process: u32, operation: &Sembuf, index: usize) -> Result<(), Tried> {
        let at = usize::from(operation.number);
        let semaphore = self.semaphores.get(at).ok_or(Tried::Over(Err(Errno::EFBIG)))?;
        let (old, change) = (i32::from(semaphore.value), i32::from(operation.change));
        let new = old + change;
        if new < 0 || change == 0 && old != 0 {
            let fails = u32::from(operation.flags) & IPC_NOWAIT != 0;
            return Err(if fails { Tried::Over(Err(Errno::EAGAIN)) } else { Tried::Blocked(index) });
        }
        if new > SEMVMX {
            return Err(Tried::Over(Err(Errno::ERANGE)));
        }
        if u32::from(operation.flags) & SEM_UNDO != 0 {
            let undo = self.changes_of(process).and_then(|changes| changes.get_mut(at));
            let undo = undo.ok_or(Tried::Over(Err(Errno::ENOMEM)))?;
            let sum = i32::from(*undo) - change;
            if !(-SEMAEM - 1..=SEMAEM).contains(&sum) {
                return Err(Tried::Over(Err(Errno::ERANGE)));
            }
            *undo = sum as i16;
        }
        if let Some(semaphore) = self.semaphores.get_mut(at) {
            semaphore.value = new as u16;
        }
        Ok(())
    }

    /// Reverts operations that happened in this try.
    fn revert(&mut self, process: u32, done: &[Sembuf]) {
        for operation in done {
            let at = usize::from(operation.number);
            if let Some(semaphore) = self.semaphores.get_mut(at) {
                semaphore.value = semaphore.value.wrapping_sub(operation.change as u16);
            }
            if u32::from(operation.flags) & SEM_UNDO != 0
                && let Some(undo) = self.changes_of(process).and_then(|changes| changes.get_mut(at))
            {
                *undo = undo.wrapping_add(operation.change);
            }
        }
    }

    /// Finishes the calls that have become possible by a change of semaphores, the oldest first. Calls that
    /// use none of these are not tried.
    fn serve(&mut self, changed: Numbers) {
        self.note(changed);
        let mut at = 0;
        while let Some(waiting) = self.waiting.get_mut(at) {
            if core::mem::take(&mut waiting.missed) & waiting.call.used == 0 {
                at += 1;
                continue;
            }
            let call = waiting.call.clone();
            match self.attempt(&call) {
                Tried::Blocked(blocked_at) => {
                    self.waiting.iter_mut().skip(at).take(1).for_each(|it| it.blocked_at = blocked_at);
                    at += 1;
                }
                Tried::Over(outcome) => {
                    self.waiting.remove(at);
                    call.finish(outcome);
                    // Older calls may be possible now.
                    if outcome.is_ok() && call.changed != 0 {
                        self.note(call.changed);
                        at = 0;
                    }
                }
            }
        }
    }

    fn note(&mut self, changed: Numbers) {
        self.waiting.iter_mut().for_each(|waiting| waiting.missed |= changed);
    }

    /// Counts the calls that wait for semaphore `number` to become 0, or to rise.
    fn count_waiting(&self, number: usize, for_zero: bool) -> u64 {
        let waits = |waiting: &&Waiting| {
            let blocked = waiting.call.operations.get(waiting.blocked_at);
            blocked.is_some_and(|operation| {
                usize::from(operation.number) == number && (operation.change == 0) == for_zero
            })
        };
        self.waiting.iter().filter(waits).count() as u64
    }

    /// Sets semaphore `number`, for the running process. Nothing is undone for it any more.
    fn set(&mut self, number: usize, value: u16) {
        if let Some(semaphore) = self.semaphores.get_mut(number) {
            *semaphore = Semaphore { value, last: caller() };
        }
        for undo in &mut self.undos {
            undo.changes.iter_mut().skip(number).take(1).for_each(|change| *change = 0);
        }
        self.change_time = now();
    }
}

impl Set {
    fn new(wanted: Wanted, count: usize) -> Result<Self, Errno> {
        let mut semaphores = fallible::empty(count)?;
        semaphores.resize(count, Semaphore::default());
        let state = State {
            owner: Owner::new(wanted),
            is_gone: false,
            semaphores,
            waiting: VecDeque::new(),
            undos: Vec::new(),
            operation_time: 0,
            change_time: now(),
        };
        Ok(Self { id: Id::default(), count, state: SpinLock::new(state) })
    }

    /// Returns its identifier.
    pub fn number(&self) -> u32 {
        self.id.get()
    }

    /// Returns the number of its semaphores.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Carries out `operations`, and waits until they can happen, at most until `deadline` (nanoseconds since
    /// boot). `undoing` is the list of the process's sets with changes to undo.
    ///
    /// # Errors
    /// EFBIG, ERANGE, EAGAIN, EINTR, EIDRM as in Linux, ENOMEM.
    pub fn operate(
        self: &Arc<Self>,
        operations: Vec<Sembuf>,
        deadline: Option<u64>,
        undoing: &Undoing,
    ) -> Result<(), Errno> {
        if operations.iter().any(|operation| usize::from(operation.number) >= self.count) {
            return Err(Errno::EFBIG);
        }
        let call = fallible::arc(Pending::new(operations))?;
        if call.undoes() {
            undoing.add(self)?;
        }
        {
            let mut state = self.state.lock();
            state.owner.permit(if call.changed == 0 { READ } else { WRITE })?;
            state.alive()?;
            if call.undoes() {
                state.open_undo(call.process)?;
            }
            match state.attempt(&call) {
                Tried::Over(outcome) => {
                    if outcome.is_ok() {
                        state.serve(call.changed);
                    }
                    return outcome;
                }
                Tried::Blocked(blocked_at) => {
                    state.waiting.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                    state.waiting.push_back(Waiting { call: call.clone(), blocked_at, missed: 0 });
                }
            }
        }
        let waited = call.queue.wait_once(deadline, || call.outcome());
        if let Ok(Some(outcome)) = waited {
            return outcome;
        }
        let mut state = self.state.lock();
        // Another task may have finished it meanwhile.
        if let Some(outcome) = call.outcome() {
            return outcome;
        }
        state.waiting.retain(|waiting| !Arc::ptr_eq(&waiting.call, &call));
        waited.and(Err(Errno::EAGAIN))
    }

    /// Describes it to a thread with the rights `wanted`.
    ///
    /// # Errors
    /// EACCES, EIDRM if it is removed.
    pub fn describe(&self, wanted: u32) -> Result<SemidDs, Errno> {
        let state = self.state.lock();
        state.owner.permit(wanted)?;
        state.alive()?;
        Ok(SemidDs {
            perm: state.owner.describe(&self.id),
            otime: state.operation_time,
            ctime: state.change_time,
            nsems: self.count as u64,
            ..SemidDs::default()
        })
    }

    /// Sets its owner and rights.
    ///
    /// # Errors
    /// EIDRM if it is removed.
    pub fn set_owner(&self, new: &IpcPerm) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.alive()?;
        state.owner.set(new)?;
        state.change_time = now();
        Ok(())
    }

    /// Returns the value of a semaphore, its last process, or how many calls wait for it: `command` says.
    ///
    /// # Errors
    /// EINVAL if there is no such semaphore, EIDRM if the set is removed.
    pub fn look(&self, number: i32, command: u32) -> Result<u64, Errno> {
        let state = self.state.lock();
        state.owner.permit(READ)?;
        state.alive()?;
        let number = self.check(number)?;
        let semaphore = state.semaphores.get(number).ok_or(Errno::EINVAL)?;
        Ok(match command {
            GETVAL => semaphore.value.into(),
            GETPID => semaphore.last.into(),
            command => state.count_waiting(number, command == GETZCNT),
        })
    }

    fn check(&self, number: i32) -> Result<usize, Errno> {
        usize::try_from(number).ok().filter(|&number| number < self.count).ok_or(Errno::EINVAL)
    }

    /// Copies all values to `to`, which has room.
    ///
    /// # Errors
    /// EIDRM if it is removed.
    pub fn values(&self, to: &mut [u16]) -> Result<(), Errno> {
        let state = self.state.lock();
        state.owner.permit(READ)?;
        state.alive()?;
        to.iter_mut().zip(&state.semaphores).for_each(|(to, semaphore)| *to = semaphore.value);
        Ok(())
    }

    /// Sets a semaphore.
    ///
    /// # Errors
    /// EINVAL if there is no such semaphore, EIDRM if the set is removed.
    pub fn set_value(&self, number: i32, value: u16) -> Result<(), Errno> {
        let number = self.check(number)?;
        let mut state = self.state.lock();
        state.owner.permit(WRITE)?;
        state.alive()?;
        state.set(number, value);
        state.serve(number_bit(number));
        Ok(())
    }

    /// Sets all semaphores.
    ///
    /// # Errors
    /// EIDRM if it is removed.
    pub fn set_values(&self, values: &[u16]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.owner.permit(WRITE)?;
        state.alive()?;
        values.iter().enumerate().for_each(|(number, &value)| state.set(number, value));
        state.serve(Numbers::MAX);
        Ok(())
    }

    /// Removes it. Calls that wait fail.
    ///
    /// # Errors
    /// EPERM, EIDRM if it is removed already.
    pub fn remove(&self) -> Result<(), Errno> {
        self.end(|owner| owner.must_be_mine(CAP_SYS_ADMIN))
    }

    fn end(&self, permit: impl FnOnce(&Owner) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        permit(&state.owner)?;
        state.alive()?;
        state.is_gone = true;
        let waiting = core::mem::take(&mut state.waiting);
        let rest = (core::mem::take(&mut state.semaphores), core::mem::take(&mut state.undos));
        let key = state.owner.key;
        waiting.iter().for_each(|waiting| waiting.call.finish(Err(Errno::EIDRM)));
        drop(state);
        drop(rest);
        SETS.forget_key(self, key);
        SETS.remove(self);
        Ok(())
    }

    /// Undoes the changes of a process that has ended.
    fn undo(&self, process: u32) {
        let mut state = self.state.lock();
        let Some(at) = state.undos.iter().position(|undo| undo.process == process) else { return };
        let undo = state.undos.swap_remove(at);
        let semaphores = state.semaphores.iter_mut();
        for (semaphore, &change) in semaphores.zip(&undo.changes) {
            if change != 0 {
                let value = i32::from(semaphore.value) + i32::from(change);
                *semaphore = Semaphore { value: value.clamp(0, SEMVMX) as u16, last: process };
            }
        }
        state.operation_time = now();
        state.serve(Numbers::MAX);
    }
}

/// The sets in which a process has changes to undo, by rising addresses.
pub struct Undoing(SpinLock<Vec<Arc<Set>>>);

impl Undoing {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }

    fn add(&self, set: &Arc<Set>) -> Result<(), Errno> {
        let place = |sets: &[Arc<Set>]| sets.binary_search_by_key(&Arc::as_ptr(set), Arc::as_ptr);
        let mut sets = self.0.lock();
        if place(&sets).is_ok() {
            return Ok(());
        }
        if sets.len() == sets.capacity() {
            // Sets that are removed have nothing to undo.
            sets.retain(|other| !other.state.lock().is_gone);
        }
        let at = place(&sets).unwrap_or_else(|at| at);
        fallible::insert(&mut sets, at, set.clone())
    }

    /// Undoes all changes of the process with this number, whose last thread has left.
    pub fn undo_all(&self, process: u32) {
        let sets = core::mem::take(&mut *self.0.lock());
        sets.iter().for_each(|set| set.undo(process));
    }
}

/// Returns the identifier of the set of at least `count` semaphores that is wanted.
///
/// # Errors
/// EINVAL for a bad number, and those of `Table::get_or_make`.
pub fn get(wanted: Wanted, count: i32) -> Result<u32, Errno> {
    let count = usize::try_from(count).ok().filter(|&count| count <= SEMMSL as usize).ok_or(Errno::EINVAL)?;
    let fits = |found: &Set| match found.count < count {
        true => Err(Errno::EINVAL),
        false => found.state.lock().owner.permit(wanted.flags),
    };
    SETS.get_or_make(wanted, fits, || if count == 0 { Err(Errno::EINVAL) } else { Set::new(wanted, count) })
}

/// Returns the set with an identifier.
///
/// # Errors
/// EINVAL if there is none.
pub fn find(id: i32) -> Result<Arc<Set>, Errno> {
    SETS.get(id)
}

/// Returns the set at an index.
///
/// # Errors
/// EINVAL if there is none.
pub fn at(index: i32) -> Result<Arc<Set>, Errno> {
    SETS.at_index_of(index)
}

/// Returns the highest index of a set.
pub fn highest() -> u64 {
    SETS.highest()
}

/// Returns the limits, or what is used if `used` says so.
pub fn info(used: bool) -> SemInfo {
    let mut info = SemInfo {
        semmap: SEMMNS,
        semmni: SEMMNI,
        semmns: SEMMNS,
        semmnu: SEMMNS,
        semmsl: SEMMSL,
        semopm: SEMOPM,
        semume: SEMOPM,
        semusz: SEMUSZ,
        semvmx: SEMVMX,
        semaem: SEMAEM,
    };
    if used {
        info.semusz = SETS.count() as i32;
        info.semaem = SETS.sum() as i32;
    }
    info
}

/// Writes a line for each set.
pub fn list(text: &mut Text) -> fmt::Result {
    let heads = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime";
    writeln!(text, "{heads}")?;
    let mut outcome = Ok(());
    SETS.for_each(|set| {
        outcome = outcome.and_then(|()| set.describe(0).map_or(Ok(()), |found| line(set, &found, text)));
    });
    outcome
}

fn line(set: &Set, found: &SemidDs, text: &mut Text) -> fmt::Result {
    let (perm, id) = (&found.perm, set.number());
    write!(text, "{:10} {id:10}  {:4o} {:10} ", perm.key, perm.mode, found.nsems)?;
    write!(text, "{:5} {:5} {:5} {:5} ", perm.uid, perm.gid, perm.cuid, perm.cgid)?;
    writeln!(text, "{:10} {:10}", found.otime, found.ctime)
}

/// Removes all sets.
pub(super) fn remove_all() {
    SETS.for_each(|set| {
        let _removed_before = set.end(|_| Ok(()));
    });
}
