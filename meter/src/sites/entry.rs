//! The entry into the kernel in which a CPU is.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{Cause, KEPT, Key, PAGE, PATH, Sites, Stack, Tally, lock};
use crate::counts::Kind;
use crate::directory::Transfer;

/// Accesses of the kernel in which it saves the program's registers, after the instruction pointer.
const SAVING: u32 = 24;
/// Accesses of the kernel within which it saves the instruction pointer.
const BEFORE: u32 = 40;
/// Bytes of the code that switches stacks.
const SWITCH_CODE: u64 = 0x80;
/// Bytes of a kernel stack, and its alignment, on either kernel.
const KERNEL_STACK: u64 = 16 << 10;
/// Bytes of the `syscall` instruction.
const SYSCALL: u64 = 2;
/// Pages of the program whose frames a CPU remembers.
const PAGES: usize = 64;

/// An access of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct KernelAccess {
    /// Guest-virtual address.
    pub address: u64,
    /// Guest-physical address.
    pub physical: u64,
    /// Set for a store.
    pub store: bool,
    /// The address of the instruction.
    pub pc: u64,
}

/// The counts of an entry, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Context {
    cause: Cause,
    pc: u64,
    code: u64,
    path: [u64; PATH],
    /// The physical address of the saved instruction pointer, until the registers were read.
    frame: Option<u64>,
    tally: Tally,
}

impl Context {
    fn new(cause: Cause, pc: u64) -> Self {
        Self { cause, pc, tally: Tally { entries: 1, ..Tally::default() }, ..Self::default() }
    }

    pub(super) fn into_parts(self) -> (Key, Tally) {
        (Key { cause: self.cause, pc: self.pc, code: self.code, path: self.path }, self.tally)
    }
}

/// The information that the next accesses of the kernel have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watch {
    #[default]
    Nothing,
    /// After a fault. The first store is right below what the CPU has pushed.
    Fault,
    /// After a call. One of the first stores saves this instruction pointer.
    Call { rip: u64, left: u32 },
    /// The other registers are being saved.
    Saving { left: u32 },
    /// The code from `pc` switches stacks. `from` is the old one.
    Switch { pc: u64, from: Option<u64> },
}

#[derive(Debug, Default)]
struct State {
    watch: Watch,
    current: Context,
    /// An interrupt inside of it.
    interrupt: Option<Context>,
    /// The kernel's instructions that are already charged.
    charged: u64,
}

impl State {
    /// Charges the kernel's instructions so far.
    fn charge(&mut self, instructions: u64) {
        self.target().tally.instructions += instructions.saturating_sub(self.charged);
        self.charged = instructions;
    }

    fn target(&mut self) -> &mut Context {
        self.interrupt.as_mut().unwrap_or(&mut self.current)
    }
}

/// The entry of one CPU. Its own thread writes it, and at the end another one takes it.
#[derive(Debug)]
pub struct Entry {
    /// Set if a block of the program ends something. Relaxed, as all here: only the CPU's thread uses it.
    inside: AtomicBool,
    /// Set if accesses of the kernel tell something.
    watching: AtomicBool,
    /// The number of the last `syscall` instruction of the program.
    syscall: AtomicU64,
    /// Pages of the program that this CPU has touched, each beside its frame.
    pages: [[AtomicU64; 2]; PAGES],
    state: Mutex<State>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            inside: AtomicBool::new(false),
            watching: AtomicBool::new(false),
            syscall: AtomicU64::new(0),
            pages: std::array::from_fn(|_| Default::default()),
            state: Mutex::default(),
        }
    }
}

impl Entry {
    /// Handles the `syscall` instruction of the program with this number.
    pub fn syscall(&self, number: u64) {
        self.syscall.store(number, Relaxed);
    }

    /// Handles an access of the program.
    #[inline]
    pub fn user_access(&self, address: u64, physical: u64) {
        let [page, frame] = &self.pages[(address / PAGE) as usize % PAGES];
        page.store(address / PAGE, Relaxed);
        frame.store(physical / PAGE, Relaxed);
    }

    /// Forgets the frames of the program's pages, since the CPU may have changed to another program.
    pub fn forget_pages(&self) {
        self.pages.iter().for_each(|[page, _]| page.store(u64::MAX, Relaxed));
    }

    /// Returns whether a block of the program ends something.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.inside.load(Relaxed)
    }

    /// Returns whether accesses of the kernel tell something.
    #[inline]
    pub fn is_watching(&self) -> bool {
        self.watching.load(Relaxed)
    }

    /// Handles an entry point of the kernel: its kind and address. `instructions` are those of the kernel so
    /// far.
    pub fn enter(&self, sites: &Sites, kind: Kind, pc: u64, instructions: u64) {
        let state = &mut *lock(&self.state);
        state.charge(instructions);
        match kind {
            Kind::Syscalls => {
                let code = self.syscall.load(Relaxed);
                let at = sites.numbered(code).map_or(0, |(at, _)| at);
                self.open(sites, state, Context { code, ..Context::new(Cause::Call(u64::MAX), at) });
                self.watch(state, Watch::Call { rip: at + SYSCALL, left: BEFORE });
            }
            Kind::Faults => self.watch(state, Watch::Fault),
            Kind::IpisReceived | Kind::Ticks => {
                state.interrupt.get_or_insert_with(|| Context::new(Cause::Interrupt, 0));
                self.inside.store(true, Relaxed);
            }
            Kind::Schedules => {
                state.interrupt.take().into_iter().for_each(|context| sites.take(context));
                self.watch(state, Watch::Switch { pc, from: None });
            }
            _ => {}
        }
    }

    /// Handles the end of an interrupt.
    pub fn interrupt_returns(&self, sites: &Sites, instructions: u64) {
        let state = &mut *lock(&self.state);
        if state.interrupt.is_some() {
            state.charge(instructions);
            state.interrupt.take().into_iter().for_each(|context| sites.take(context));
        }
    }

    /// Handles the first block of the program after an entry.
    #[cold]
    pub fn leave(&self, sites: &Sites, instructions: u64) {
        let state = &mut *lock(&self.state);
        state.charge(instructions);
        self.read_registers(sites, state);
        state.interrupt.take().into_iter().for_each(|context| sites.take(context));
        sites.take(std::mem::take(&mut state.current));
        self.watch(state, Watch::Nothing);
        self.inside.store(false, Relaxed);
    }

    /// Counts a transfer that the kernel's instruction at `pc` made.
    pub fn moved(&self, transfer: &Transfer, pc: u64) {
        lock(&self.state).target().tally.moved(transfer, pc);
    }

    /// Counts an interrupt that the kernel sent.
    pub fn sent(&self) {
        lock(&self.state).target().tally.sent += 1;
    }

    /// Handles an access of the kernel, if they are watched.
    #[cold]
    pub fn kernel_access(&self, sites: &Sites, access: &KernelAccess) {
        let state = &mut *lock(&self.state);
        match state.watch {
            Watch::Nothing => {}
            Watch::Fault if access.store => self.fault(sites, state, access.physical),
            Watch::Fault => {}
            Watch::Call { rip, .. } if access.store && sites.word(access.physical) == Some(rip) => {
                state.current.frame = Some(access.physical);
                self.watch(state, Watch::Saving { left: SAVING });
            }
            Watch::Call { left: 0, .. } => self.watch(state, Watch::Nothing),
            Watch::Call { rip, left } => state.watch = Watch::Call { rip, left: left - 1 },
            Watch::Saving { left: 0 } => {
                self.read_registers(sites, state);
                self.watch(state, Watch::Nothing);
            }
            Watch::Saving { left } => state.watch = Watch::Saving { left: left - 1 },
            Watch::Switch { pc, from } => self.switch(sites, state, access, pc, from),
        }
    }

    /// Handles the first store after a fault: the error code, the instruction pointer, the code segment, the
    /// flags and the stack pointer lie above it.
    fn fault(&self, sites: &Sites, state: &mut State, store: u64) {
        let frame = store + 16;
        let is_one_page = store % PAGE + 48 <= PAGE;
        let is_user = sites.word(frame + 8).is_some_and(|segment| segment & 3 == 3);
        match sites.word(frame).filter(|_| is_one_page && is_user) {
            Some(pc) => {
                self.open(sites, state, Context { frame: Some(frame), ..Context::new(Cause::Fault, pc) });
                self.watch(state, Watch::Saving { left: SAVING });
            }
            None => self.watch(state, Watch::Nothing),
        }
    }

    fn switch(&self, sites: &Sites, state: &mut State, access: &KernelAccess, pc: u64, from: Option<u64>) {
        let stack = access.address / KERNEL_STACK;
        match (from, access.store) {
            _ if !(pc..pc + SWITCH_CODE).contains(&access.pc) => self.watch(state, Watch::Nothing),
            (None, true) => {
                let context = std::mem::take(&mut state.current);
                match context.cause {
                    Cause::Other => sites.take(context),
                    _ => drop(lock(&sites.shelf).insert(stack, context)),
                }
                state.watch = Watch::Switch { pc, from: Some(stack) };
            }
            (Some(from), false) if from != stack => {
                if let Some(context) = lock(&sites.shelf).remove(&stack) {
                    state.current = context;
                    self.inside.store(true, Relaxed);
                    self.watch(state, Watch::Nothing);
                }
            }
            _ => {}
        }
    }

    /// Reads the registers that the kernel has saved, and the stack that they point to.
    fn read_registers(&self, sites: &Sites, state: &mut State) {
        let context = &mut state.current;
        let Some(frame) = context.frame.take() else { return };
        let word = |physical| sites.word(physical).unwrap_or(0);
        if let Cause::Call(number) = &mut context.cause {
            *number = word(frame - 8);
        }
        let (rsp, rbp) = (word(frame + 24), word(frame - sites.frame_pointer));
        let words: Vec<u64> =
            (0..KEPT as u64).map_while(|index| self.user_word(sites, rsp + 8 * index)).collect();
        context.path = sites.path(&words);
        context.tally.stack = Some(Stack { rsp, rbp, words });
    }

    /// Returns a word of the program, if this CPU has just touched its page.
    fn user_word(&self, sites: &Sites, address: u64) -> Option<u64> {
        let [page, frame] = &self.pages[(address / PAGE) as usize % PAGES];
        let is_known = page.load(Relaxed) == address / PAGE;
        is_known.then(|| sites.word(frame.load(Relaxed) * PAGE + address % PAGE))?
    }

    fn open(&self, sites: &Sites, state: &mut State, context: Context) {
        sites.take(std::mem::replace(&mut state.current, context));
        self.inside.store(true, Relaxed);
    }

    fn watch(&self, state: &mut State, watch: Watch) {
        state.watch = watch;
        self.watching.store(watch != Watch::Nothing, Relaxed);
    }

    /// Ends everything.
    pub(super) fn finish(&self, sites: &Sites) {
        let state = &mut *lock(&self.state);
        self.read_registers(sites, state);
        state.interrupt.take().into_iter().for_each(|context| sites.take(context));
        sites.take(std::mem::take(&mut state.current));
    }
}
