//! The places in the program that make the kernel work, and what the kernel did for each.
//!
//! A program needs no markers for this. The kernel is entered by a system call, a page fault or an interrupt,
//! and everything that it counts until it returns to the program, or switches to another task, belongs to
//! that entry. A task that was switched away is found again by its kernel stack, on any CPU.
//!
//! | event | a CPU's entry |
//! |---|---|
//! | `syscall` in the program | its number in a list is noted |
//! | entry point `syscall` | a call begins |
//! | entry point `fault`, from the program | a fault begins |
//! | entry point `ipi` or `tick` | an interrupt begins, inside of the entry if there is one |
//! | `iret` | that interrupt ends |
//! | entry point `schedule` | the entry goes to the shelf, under its stack; the other task's comes back |
//! | a block of the program | the entry ends |
//!
//! The number of the call, the stack pointer and the frame pointer come from the registers that the kernel
//! saves first, and the program's stack from the guest's memory. A word on the stack that is the address
//! after a call instruction of the program is taken for a return address. Entries with the same cause,
//! instruction and return addresses are one *site*. A copy of the stack of one of them goes into the results,
//! so that a reader with the program's unwind tables can do better.

mod entry;
mod ram;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use crate::blame::Mixer;
use crate::directory::Transfer;
use entry::Context;
pub use entry::{Entry, KernelAccess};
pub use ram::Ram;

/// Return addresses that tell one site from another.
const PATH: usize = 6;
/// Words of the stack that are searched for them.
const SEARCHED: usize = 128;
/// Words of the stack in the results.
const KEPT: usize = 256;
/// Sites that are told apart. The counts of further ones go to one without a place.
const SITES: usize = 16_384;
/// Bytes of code that are kept of each page of the program.
const SAMPLE: usize = 64;
/// Bytes that are kept of the code before a system call.
const ENDING: usize = 16;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// The cause of an entry into the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The system call of this number.
    Call(u64),
    /// A page fault of the program.
    Fault,
    /// An interrupt from another CPU or the timer.
    Interrupt,
    /// None that is known: kernel threads, idle CPUs, devices.
    #[default]
    Other,
}

/// A site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// The cause.
    pub cause: Cause,
    /// The instruction of the program, or 0.
    pub pc: u64,
    /// The number of a `syscall` instruction, or 0. Two programs may have two at one address.
    code: u64,
    /// Its callers, as far as the stack shows them, and zeros.
    path: [u64; PATH],
}

impl Key {
    /// Returns the addresses to which the callers return, the innermost first. Old words on the stack may be
    /// among them.
    pub fn callers(&self) -> impl Iterator<Item = u64> {
        self.path.into_iter().take_while(|caller| *caller != 0)
    }
}

/// The registers and the stack of the program at an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The stack pointer.
    pub rsp: u64,
    /// The frame pointer, if the program uses one.
    pub rbp: u64,
    /// The words from the stack pointer upwards.
    pub words: Vec<u64>,
}

/// The kernel's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries.
    pub entries: u64,
    /// Instructions of the kernel.
    pub instructions: u64,
    /// Lines that the CPU took from another one.
    pub transfers: u64,
    /// Copies of other CPUs that it removed.
    pub invalidations: u64,
    /// Interrupts sent to CPUs.
    pub sent: u64,
    /// Transfers by the instruction of the kernel that made them.
    pub code: BTreeMap<u64, u64>,
    /// The stack of one entry.
    pub stack: Option<Stack>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.instructions += other.instructions;
        self.transfers += other.transfers;
        self.invalidations += other.invalidations;
        self.sent += other.sent;
        other.code.into_iter().for_each(|(pc, count)| *self.code.entry(pc).or_default() += count);
        self.stack = self.stack.take().or(other.stack);
    }

    fn moved(&mut self, transfer: &Transfer, pc: u64) {
        self.transfers += 1;
        self.invalidations += transfer.invalidations;
        *self.code.entry(pc).or_default() += 1;
    }
}

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// The sites of a machine.
#[derive(Debug, Default)]
pub struct Sites {
    /// The distance of the saved frame pointer from the saved instruction pointer above it.
    frame_pointer: u64,
    ram: OnceLock<Ram>,
    /// Set while counts matter.
    open: AtomicBool,
    table: Mutex<Map<Key, Tally>>,
    /// The entries of tasks that do not run, by kernel stack.
    shelf: Mutex<Map<u64, Context>>,
    /// The addresses after the call instructions of the program.
    returns: RwLock<HashSet<u64, BuildHasherDefault<Mixer>>>,
    /// The `syscall` instructions: address, and code that ends with them.
    syscalls: RwLock<Vec<(u64, Vec<u8>)>>,
    /// Pieces of the program's code, one of each page: address and bytes.
    pages: Mutex<BTreeMap<u64, (u64, Vec<u8>)>>,
}

impl Sites {
    /// Creates the sites of a machine whose kernel saves the frame pointer that far below the instruction
    /// pointer.
    pub fn new(frame_pointer: u64) -> Self {
        Self { frame_pointer, ..Self::default() }
    }

    /// Sets the guest's memory, without which calls have no number.
    pub fn set_ram(&self, ram: Ram) {
        // There is one machine.
        let _ = self.ram.set(ram);
    }

    /// Begins to count, from zero.
    pub fn start(&self) {
        lock(&self.table).clear();
        self.open.store(true, Relaxed);
    }

    /// Adds what is still unfinished, and counts no more.
    pub fn finish<'a>(&self, entries: impl Iterator<Item = &'a Entry>) {
        entries.for_each(|entry| entry.finish(self));
        let shelf = std::mem::take(&mut *lock(&self.shelf));
        shelf.into_values().for_each(|context| self.take(context));
        self.open.store(false, Relaxed);
    }

    /// Returns the sites, those with most transfers first, at most `most` of them. Further ones of a cause
    /// are one without a place.
    pub fn sorted(&self, most: usize) -> Vec<(Key, Tally)> {
        let mut sites: Vec<_> = lock(&self.table).iter().map(|(key, tally)| (*key, tally.clone())).collect();
        let rank = |(key, tally): &(Key, Tally)| {
            (std::cmp::Reverse((tally.transfers, tally.sent, tally.instructions)), key.cause, key.pc)
        };
        sites.sort_by_key(rank);
        let mut rest: BTreeMap<Cause, Tally> = BTreeMap::new();
        for (key, tally) in sites.drain(most.min(sites.len())..) {
            rest.entry(key.cause).or_default().add(Tally { stack: None, ..tally });
        }
        sites.extend(rest.into_iter().map(|(cause, tally)| (Key { cause, ..Key::default() }, tally)));
        sites
    }

    /// Records code of the program, and the address after it if a call returns there.
    pub fn code(&self, at: u64, bytes: &[u8], return_to: Option<u64>) {
        if let Some(address) = return_to {
            self.returns.write().unwrap_or_else(PoisonError::into_inner).insert(address);
        }
        let mut pages = lock(&self.pages);
        let known = pages.entry(at / PAGE).or_default();
        if known.1.len() < bytes.len().min(SAMPLE) {
            *known = (at, bytes[..bytes.len().min(SAMPLE)].to_vec());
        }
    }

    /// Returns the number of the `syscall` instruction at `pc`, with which `bytes` end.
    pub fn syscall(&self, pc: u64, bytes: &[u8]) -> u64 {
        let bytes = &bytes[bytes.len().saturating_sub(ENDING)..];
        let mut syscalls = self.syscalls.write().unwrap_or_else(PoisonError::into_inner);
        let known = syscalls.iter().position(|(at, code)| *at == pc && code == bytes);
        let place = known.unwrap_or_else(|| {
            syscalls.push((pc, bytes.to_vec()));
            syscalls.len() - 1
        });
        place as u64 + 1
    }

    /// Returns the code that ends with a site's `syscall` instruction, if it has one.
    pub fn ending(&self, key: &Key) -> Option<Vec<u8>> {
        self.numbered(key.code).map(|(_, bytes)| bytes)
    }

    fn numbered(&self, number: u64) -> Option<(u64, Vec<u8>)> {
        let syscalls = self.syscalls.read().unwrap_or_else(PoisonError::into_inner);
        syscalls.get(usize::try_from(number).ok()?.checked_sub(1)?).cloned()
    }

    /// Returns the pieces of code: addresses and bytes.
    pub fn pieces(&self) -> Vec<(u64, Vec<u8>)> {
        lock(&self.pages).values().cloned().collect()
    }

    /// Returns a word of the guest's memory.
    fn word(&self, physical: u64) -> Option<u64> {
        self.ram.get()?.word(physical)
    }

    /// Returns the return addresses on a stack.
    fn path(&self, words: &[u64]) -> [u64; PATH] {
        let returns = self.returns.read().unwrap_or_else(PoisonError::into_inner);
        let mut path = [0; PATH];
        let found = words.iter().take(SEARCHED).filter(|word| returns.contains(word));
        path.iter_mut().zip(found).for_each(|(place, word)| *place = *word);
        path
    }

    /// Adds the counts of an entry, or of a part of one, to its site.
    fn take(&self, context: Context) {
        let (key, tally) = context.into_parts();
        if !self.open.load(Relaxed) || (tally.entries, tally.instructions, tally.transfers) == (0, 0, 0) {
            return;
        }
        let mut table = lock(&self.table);
        let is_full = table.len() >= SITES && !table.contains_key(&key);
        let key = if is_full { Key { cause: key.cause, ..Key::default() } } else { key };
        table.entry(key).or_default().add(tally);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
