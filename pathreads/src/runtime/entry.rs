//! The ways into the runtime and out of it, in assembly.
//!
//! | from | with | to |
//! |---|---|---|
//! | the kernel, at the start | the arguments on the stack | `boot` |
//! | a slot | `RESERVED` bytes of stack taken, the place to go back to on top | `slow_entry` |
//! | the handler of SIGSYS | the same, but the place to go back to in rcx | `trap_entry` |
//! | a new thread or process, after `clone` | its [`Frame`] | `spawn::in_child` |
//! | a signal of the program, at a stub | the handler's arguments | `context::show_program`, then the handler |
//!
//! `slow_entry` saves the registers in a [`Frame`] on the program's stack and calls `dispatch::handle`.
//! That sets the result, or leaves a call to be performed, or has the slot make the program's own. The
//! call is performed here and not in Rust, so that a signal that interrupts it is shown the program's
//! registers (`context`). Under `--isolate` the frame of a Go program lies on a stack of the runtime
//! (`stack`).
//!
//! Faults that were sent while Rust code ran are sent again here, on the way out (`isolate::faults`).

use core::arch::global_asm;
use core::mem::offset_of;

use pathreads::RUNTIME_BASE;
use pathreads::slot::{NUMBERS, RESERVED};

use crate::dispatch::{OF_INTEREST, Then};

/// The program's registers at a call, and what the runtime needs until it returns. It lies on the
/// program's stack.
#[repr(C)]
#[derive(Clone)]
pub struct Frame {
    pub rbx: u64,
    pub rbp: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub r10: u64,
    pub r8: u64,
    pub r9: u64,
    /// The number of the call, then its result. EINTR or [`RESTARTED`] when a request has interrupted it.
    pub rax: u64,
    /// Where the program goes on.
    pub rip: u64,
    pub rsp: u64,
    /// The `syscall` instruction of the slot, or 0 if the call was dispatched.
    pub pass: u64,
    /// The signals that are blocked when the program goes on after a `clone`.
    pub mask: u64,
    /// The call to perform: its number and arguments.
    pub call: [u64; 7],
    /// Memory for what these arguments point to.
    pub scratch: [u64; 7],
    /// The number of a call to handle again when the one that is performed has returned, or 0.
    pub again: u64,
}

/// The size of a frame. It keeps the stack aligned.
pub const FRAME: u64 = size_of::<Frame>() as u64;
const _: () = assert!(FRAME.is_multiple_of(16));

/// Stands for the result of a call that a request interrupted, and that the kernel would make again.
pub const RESTARTED: u64 = -512_i64 as u64;

/// The first six bytes of a path into `/proc`, in the upper bytes of a word.
static PROC: u64 = u64::from_le_bytes([0, 0, b'/', b'p', b'r', b'o', b'c', b'/']);

/// The flag of a signal's frame that has the vector registers as `xsave` stores them.
const UC_FP_XSTATE: u32 = 1;

/// Where such a frame says which parts of the registers it has.
const XSTATE_FEATURES: u64 = 472;

/// The flag of an alternate stack that is switched off while it is used.
const SS_AUTODISARM: u32 = 1 << 31;

/// The number of stubs for handlers of signals.
pub const STUBS: usize = 512;
/// The bytes of a stub.
pub const STUB: u64 = 16;

impl Frame {
    /// Returns the arguments of the call.
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }
}

unsafe extern "C" {
    pub safe static runtime_text_end: [u8; 0];
    pub safe static tables_begin: [u8; 0];
    pub safe static tables_end: [u8; 0];
    pub safe static ways_begin: [u8; 0];
    pub safe static ways_end: [u8; 0];
    pub safe static slow_entry: [u8; 0];
    pub safe static trap_call: [u8; 0];
    pub safe static trap_called: [u8; 0];
    pub safe static before_perform: [u8; 0];
    pub safe static perform_restarted: [u8; 0];
    pub safe static perform_prepared_again: [u8; 0];
    pub safe static perform_checked: [u8; 0];
    pub safe static perform_call: [u8; 0];
    pub safe static performed: [u8; 0];
    pub safe static stored: [u8; 0];
    pub safe static finish: [u8; 0];
    pub safe static last_jump: [u8; 0];
    pub safe static sent_at_finish: [u8; 0];
    pub safe static sigsys_handler: [u8; 0];
    pub safe static restorer: [u8; 0];
    pub safe static signal_stubs: [u8; 0];
    pub safe static deliver_taken: [u8; 0];
    pub safe static user_copying: [u8; 0];
    pub safe static user_copied: [u8; 0];
    pub safe static user_clearing: [u8; 0];
    pub safe static user_cleared: [u8; 0];
    pub safe static user_touching: [u8; 0];
    pub safe static user_touched: [u8; 0];
    pub safe static peek_first: [u8; 0];
    pub safe static peek_second: [u8; 0];
    pub safe static peeked: [u8; 0];
    /// Copies bytes, and returns the number of those that are left when one of them is not accessible.
    pub fn user_copy(to: u64, from: u64, length: usize) -> usize;
    /// Writes zeroes, and returns the number of bytes that are left when one of them is not accessible here.
    pub fn user_clear(to: u64, length: u64) -> u64;
    /// Writes to a byte without changing it, at once for all threads. A byte that is not accessible ends it.
    pub fn user_touch(at: u64);
    /// Enters the program with this stack.
    pub fn launch(stack: u64, entry: u64) -> !;
    /// Makes a call that makes a child, which goes on with `frame`. Returns the result in the parent.
    pub fn spawn_child(frame: *mut Frame, call: *const [u64; 7]) -> u64;
    /// Does the same on the stack that ends at `frame`, for a child that shares memory and stack. The
    /// parent goes on in `spawn::in_parent`.
    pub fn spawn_sharing(frame: *mut Frame, call: *const [u64; 7]) -> !;
    /// Goes on with the program by a frame, which is the stack, as a child does.
    pub fn resume_child(frame: *mut Frame) -> !;
    /// Makes a thread that calls a function, on the stack that ends here. Returns the result of `clone`.
    pub fn spawn_helper(flags: u64, stack: u64, f: extern "C" fn() -> !) -> u64;
    /// Calls a function on the stack that ends here.
    pub fn call_on(stack: u64, f: extern "C" fn(&mut Frame) -> Then, frame: &mut Frame) -> Then;
    /// Goes on with the program by a frame that lies on the program's stack, after unmapping memory.
    pub fn leave_page(frame: *mut Frame, page: u64, length: u64) -> !;
}

/// Returns whether code at an address is the runtime's, and not on the way into a call of the program or out
/// of it.
pub fn is_inside(place: u64) -> bool {
    (RUNTIME_BASE..address(&runtime_text_end)).contains(&place)
        && !(address(&ways_begin)..address(&ways_end)).contains(&place)
}

/// Returns the address of a symbol.
pub fn address(symbol: &[u8; 0]) -> u64 {
    symbol.as_ptr() as u64
}

global_asm!(
    ".globl start, slow_entry, trap_entry, trap_call, trap_called, before_perform, perform_call, performed, stored, finish",
    ".globl perform_restarted, perform_prepared_again, perform_checked",
    ".globl last_jump, sent_at_finish, ways_begin, ways_end",
    ".globl sigsys_handler, restorer, signal_stubs, deliver_taken, launch, spawn_child, resume_child, spawn_sharing, spawn_helper, leave_page",
    ".globl user_copy, user_copying, user_copied, user_clear, user_clearing, user_cleared, user_touch, user_touching, user_touched, call_on, peek_first, peek_second, peeked",

    // rt_sigprocmask(SIG_SETMASK, &SET_BEFORE, 0, 8): faults that were sent again come right after it.
    ".macro let_faults_come",
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [{set_before}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    ".endm",

    "ways_begin:",
    // The boot has a stack of its own, so that it may write the program's.
    "start:",
    "mov rdi, rsp",
    "lea rsp, [{boot_stack} + {boot_stack_size}]",
    "xor ebp, ebp",
    "call {boot}",
    "ud2",

    "launch:",
    "mov rsp, rdi",
    "mov rcx, rsi",
    "xor eax, eax", "xor ebx, ebx", "xor edx, edx", "xor esi, esi", "xor edi, edi", "xor ebp, ebp",
    "xor r8d, r8d", "xor r9d, r9d", "xor r10d, r10d", "xor r11d, r11d",
    "xor r12d, r12d", "xor r13d, r13d", "xor r14d, r14d", "xor r15d, r15d",
    "jmp rcx",

    // A call that was not rewritten. rsp is RESERVED below the program's, and rcx is the place to go back to.
    "trap_entry:",
    "mov [rsp], rcx",
    "cmp eax, {numbers}",
    "jae trap_call",
    "mov ecx, eax",
    "cmp byte ptr [rcx + {table}], 0",
    "mov ecx, 0",
    "jne slow_entry",
    "trap_call:",
    "syscall",
    "trap_called:",
    "ret {reserved} - 8",

    // The same for a call after which code is to be rewritten.
    "trap_slow:",
    "mov [rsp], rcx",
    "xor ecx, ecx",
    "jmp slow_entry",

    // A call of the 32-bit interface.
    "trap_int80:",
    "mov [rsp], rcx",
    "int 0x80",
    "ret {reserved} - 8",

    // rcx is the slot's call, or 0. Files are opened all the time, and only those of /proc are of interest. A
    // wrong address is the kernel's affair. A path that ends with a page is looked at with more care.
    "slow_entry:",
    "cmp byte ptr [{isolated}], 0",
    "jne 2f",
    "cmp eax, 257",
    "je 3f",
    "cmp eax, 2",
    "jne 2f",
    "lea r11, [rdi + 8]",
    "and r11d, {in_page}",
    "cmp r11d, 8",
    "jb 2f",
    "peek_first:",
    "mov r11, [rdi]",
    "jmp 1f",
    "3: lea r11, [rsi + 8]",
    "and r11d, {in_page}",
    "cmp r11d, 8",
    "jb 2f",
    "peek_second:",
    "mov r11, [rsi]",
    "1: shl r11, 16",
    "cmp r11, [{proc}]",
    "je 2f",
    "peeked:",
    "test rcx, rcx",
    "jz trap_call",
    "lea rsp, [rsp + {reserved}]",
    "jmp rcx",

    // Calls of a program with small stacks are handled on a stack of their own, unless a handler makes them.
    "2: cmp byte ptr [{has_call_stack}], 0",
    "je 4f",
    "cmp rsp, [{of_signals}]",
    "jbe 1f",
    "cmp rsp, [{of_signals} + 8]",
    "jbe 4f",
    "1: lea r11, [{call_stack}]",
    "cmp rsp, r11",
    "jb 3f",
    "lea r11, [{call_stack} + {call_stack_size}]",
    "cmp rsp, r11",
    "jbe 4f",
    "3: mov r11, rsp",
    "lea rsp, [{call_stack} + {call_stack_size}]",
    "jmp 5f",
    "4: mov r11, rsp",
    "5: lea rsp, [rsp - {frame}]",
    "and rsp, -16",
    "mov [rsp + {rbx}], rbx", "mov [rsp + {rbp}], rbp", "mov [rsp + {r12}], r12", "mov [rsp + {r13}], r13",
    "mov [rsp + {r14}], r14", "mov [rsp + {r15}], r15", "mov [rsp + {rdi}], rdi", "mov [rsp + {rsi}], rsi",
    "mov [rsp + {rdx}], rdx", "mov [rsp + {r10}], r10", "mov [rsp + {r8}], r8", "mov [rsp + {r9}], r9",
    "mov [rsp + {rax}], rax", "mov [rsp + {pass}], rcx",
    "mov rcx, [r11]",
    "mov [rsp + {rip}], rcx",
    "lea rcx, [r11 + {reserved}]",
    "mov [rsp + {rsp}], rcx",
    "cld",
    "handle_again:",
    "mov qword ptr [rsp + {again}], 0",
    "mov rdi, rsp",
    "call {handle}",
    "test eax, eax",
    "jz finish",
    "cmp eax, 2",
    "jne perform",
    // A call of the program's as it is, made in the slot: after it nothing needs the stack, which may
    // have gone.
    "mov rcx, [rsp + {pass}]",
    "test rcx, rcx",
    "jnz resume",
    "jmp perform",
    // A fault that is sent again is shown the program before the call.
    "before_perform:",
    "call {send_again}",
    "let_faults_come",
    "jmp 6f",
    // A wait at a futex has not slept.
    "perform_afresh:",
    "mov qword ptr [rsp + {rax}], {futex}",
    "jmp perform_prepared_again",
    // A request interrupted the call, and the kernel would make it again.
    "perform_restarted:",
    "mov qword ptr [rsp + {rax}], {restarted}",
    // A request has come since the call was prepared, and may have taken away what it names. A handler that
    // comes finds the mark, as in the first preparation.
    "perform_prepared_again:",
    "mov [{prepared}], rsp",
    "mov rdi, rsp",
    "call {prepare_again}",
    "perform:",
    "cmp dword ptr [{held}], 0",
    "jne before_perform",
    // From here on a handler finds the frame by the place: `context::show`.
    "6: cmp qword ptr [{prepared}], 0",
    "je 1f",
    "mov qword ptr [{prepared}], 0",
    "1:",
    "mov rax, [rsp + {call}]", "mov rdi, [rsp + {call} + 8]", "mov rsi, [rsp + {call} + 16]",
    "mov rdx, [rsp + {call} + 24]", "mov r10, [rsp + {call} + 32]", "mov r8, [rsp + {call} + 40]",
    "mov r9, [rsp + {call} + 48]",
    "cmp dword ptr [{is_asked}], 0",
    // A request that comes from here on goes to one of the two above: `context::prepare_again`.
    "perform_checked:",
    "jne perform_prepared_again",
    "perform_call:",
    "syscall",
    "performed:",
    "mov [rsp + {rax}], rax",
    "stored:",
    // A handler of the program goes on elsewhere. So a request of another member interrupted the call. After
    // `close` the descriptor is closed all the same, and its number may be another file's.
    "cmp rax, -4",
    "jne 4f",
    "cmp byte ptr [{isolated}], 0",
    "je finish",
    "cmp dword ptr [rsp + {call}], {close}",
    "jne perform_prepared_again",
    "jmp 5f",
    // The memory was another one for a moment, since a request has come: `poll` also writes when it is
    // interrupted.
    "4: cmp rax, -14",
    "jne 3f",
    "cmp dword ptr [{is_asked}], 0",
    "je 5f",
    "cmp dword ptr [rsp + {call}], {futex}",
    "jne perform_restarted",
    "jmp perform_afresh",
    // A wait at a futex that is made again was woken, if it finds another value than before it slept:
    // `isolate::calls::result_after_sleep`.
    "3: cmp rax, -11",
    "jne 5f",
    "cmp dword ptr [rsp + {call}], {futex}",
    "jne 5f",
    "cmp byte ptr [{isolated}], 0",
    "je 5f",
    "cmp qword ptr [rsp + {slept}], 0",
    "je 5f",
    "mov qword ptr [rsp + {rax}], 0",
    "5: cmp byte ptr [{waits}], 0",
    "jne 9f",
    // rax stays what a handler that comes here sees: `context::result_of`.
    "12: mov rcx, [rsp + {again}]",
    "test rcx, rcx",
    "jz finish",
    "mov [rsp + {rax}], rcx",
    "jmp handle_again",
    // The call had a set of signals of its own: `isolate::signals`.
    // rt_sigprocmask(SIG_BLOCK, &MOST, &frame.mask, 8)
    "9: mov eax, 14",
    "xor edi, edi",
    "lea rsi, [{most}]",
    "lea rdx, [rsp + {mask}]",
    "mov r10d, 8",
    "syscall",
    "mov rdi, rsp",
    "call {end_wait}",
    // rt_sigprocmask(SIG_SETMASK, &frame.mask, 0, 8)
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rsp + {mask}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "jmp 12b",

    // Goes on with the program by the frame at rsp.
    "finish:",
    "cmp dword ptr [{held}], 0",
    "jne 8f",
    "7: mov rcx, [rsp + {rip}]",
    "resume:",
    "mov rbx, [rsp + {rbx}]", "mov rbp, [rsp + {rbp}]", "mov r12, [rsp + {r12}]", "mov r13, [rsp + {r13}]",
    "mov r14, [rsp + {r14}]", "mov r15, [rsp + {r15}]", "mov rdi, [rsp + {rdi}]", "mov rsi, [rsp + {rsi}]",
    "mov rdx, [rsp + {rdx}]", "mov r10, [rsp + {r10}]", "mov r8, [rsp + {r8}]", "mov r9, [rsp + {r9}]",
    "mov rax, [rsp + {rax}]",
    "mov rsp, [rsp + {rsp}]",
    "last_jump:",
    "jmp rcx",
    "8: call {send_again}",
    "let_faults_come",
    "sent_at_finish:",
    "jmp 7b",

    // SIGSYS: rsi is the siginfo, rdx the ucontext. Only a dispatched call (si_code 2) is ours.
    "sigsys_handler:",
    "cmp dword ptr [rsi + 8], 2",
    "jne 9f",
    "cmp byte ptr [{in_start}], 0",
    "jne 7f",
    "6:",
    "cmp dword ptr [rsi + 28], 0x40000003",
    "je 2f",
    "cmp dword ptr [rdx + 144], 15",
    "je 3f",
    "lea rax, [trap_entry]",
    "inc dword ptr [{dispatched}]",
    "cmp dword ptr [{dispatched}], {patience}",
    "jne 1f",
    "lea rax, [trap_slow]",
    "1: mov rcx, [rdx + 168]",
    "mov r11, [rdx + 160]",
    "lea r11, [r11 - {reserved}]",
    // Go has given its stack away when it ends a thread.
    "cmp dword ptr [rdx + 144], {exit}",
    "jne 4f",
    "cmp byte ptr [{has_call_stack}], 0",
    "je 4f",
    "lea r11, [{call_stack} + {call_stack_size} - {reserved}]",
    "4: test dword ptr [rdx + 24], {disarms}",
    "jnz 5f",
    "test dword ptr [rdx], {has_xstate}",
    "jz 5f",
    // The kernel has changed the vector registers, those below and rsp, and no set of signals. So the way
    // back needs no call. The vector registers lie right below the program's red zone, so nothing is written
    // there before the frame is read. The flags choose the way, because all registers are the program's then.
    "mov r8, rax",
    "mov rdi, [rdx + 224]",
    "mov rsi, rdx",
    // The parts that the frame has. Processors may touch the room of others, which ends behind the stack.
    "mov eax, [rdi + {features}]",
    "mov edx, [rdi + {features} + 4]",
    "xrstor64 [rdi]",
    "mov rdx, rsi",
    "lea rsi, [trap_slow]",
    "cmp r8, rsi",
    "mov r8, [rdx + 40]",
    "mov rdi, [rdx + 104]", "mov rsi, [rdx + 112]", "mov rax, [rdx + 144]", "mov rdx, [rdx + 136]",
    "mov rsp, r11",
    "je trap_slow",
    "jb trap_entry",
    "jmp trap_int80",
    // The kernel has switched off the alternate stack, and switches it on again by `rt_sigreturn`.
    "5: mov [rdx + 152], rcx",
    "mov [rdx + 160], r11",
    "mov [rdx + 168], rax",
    "ret",
    "2: lea rax, [trap_int80]",
    "jmp 1b",
    // The first call that is not the dynamic linker's. One that the runtime makes, in a handler, is made
    // again. All registers but those that the kernel sets for a handler are still the program's.
    "7: push rdi", "push rsi", "push rdx", "push r8", "push r9", "push r10",
    "lea rsp, [rsp - 8]",
    "call {end_start}",
    "lea rsp, [rsp + 8]",
    "pop r10", "pop r9", "pop r8", "pop rdx", "pop rsi", "pop rdi",
    "mov rax, [rdx + 168]",
    "cmp rax, {runtime}",
    "jb 6b",
    "lea rcx, [runtime_text_end]",
    "cmp rax, rcx",
    "jae 6b",
    "sub qword ptr [rdx + 168], 2",
    "ret",
    "9: lea rsp, [rsp - 8]",
    "call {foreign_sigsys}",
    "cmp dword ptr [{held}], 0",
    "je 1f",
    "call {send_again}",
    "1: lea rsp, [rsp + 8]",
    "ret",
    // rt_sigreturn restores all registers from the frame at the program's rsp. This handler's own frame
    // is dropped. The handler may have changed the set of signals in its frame, and must not block SIGSYS, or
    // under `--isolate` those that members work by. It lets those faults come that it has deferred.
    "3: mov rsp, [rdx + 160]",
    "and dword ptr [rsp + 296], {all_but_sigsys}",
    "cmp byte ptr [{isolated}], 0",
    "je restorer",
    // A handler's calls have forgotten the requests that came before them.
    "mov dword ptr [{is_asked}], 1",
    "mov eax, [rsp + 296]",
    "and [{deferred}], eax",
    "and dword ptr [rsp + 296], {all_but_members}",
    "mov rbx, rsp",
    "cmp byte ptr [{has_courier}], 0",
    "je 6f",
    "mov rdi, [rsp + 296]",
    "and rsp, -16",
    "call {end_handler}",
    "mov rsp, rbx",
    "6: cmp dword ptr [{held}], 0",
    "je restorer",
    "and rsp, -16",
    "call {send_again}",
    "mov rsp, rbx",
    "restorer:",
    "mov eax, 15",
    "syscall",

    // A stub for each handler that the program may install. Stubs never change what they stand for.
    ".balign 16",
    "signal_stubs:",
    ".set index, 0",
    ".rept {stubs}",
    ".balign 16",
    "mov eax, index",
    "jmp deliver",
    ".set index, index + 1",
    ".endr",
    ".balign 16",
    "deliver:",
    "push rax", "push rdi", "push rsi", "push rdx",
    "lea rsp, [rsp - 8]",
    "mov rdi, rdx",
    // Until here rdx is the context, and from here on the mark is taken: `context::end_preparation`.
    "xor ecx, ecx",
    "xchg rcx, [{prepared}]",
    "deliver_taken:",
    "mov rdx, rcx",
    "call {show_program}",
    // A handler may use all registers. If none is called, the context unblocks what is blocked here.
    "mov ebx, eax",
    "cmp ebx, {is_fault}",
    "je 3f",
    "cmp ebx, {is_fault} | {is_programs}",
    "je 1f",
    "cmp dword ptr [{held}], 0",
    "je 3f",
    "1: call {send_again}",
    "test ebx, {is_programs}",
    "jz 3f",
    "let_faults_come",
    "3: lea rsp, [rsp + 8]",
    "pop rdx", "pop rsi", "pop rdi", "pop rax",
    "test ebx, {is_programs}",
    "jz 4f",
    "jmp qword ptr [{handlers} + rax * 8]",
    // Past the address of the program's way back. This one is not dispatched.
    "4: lea rsp, [rsp + 8]",
    "jmp restorer",
    "ways_end:",

    "call_on:",
    "push rbp",
    "mov rbp, rsp",
    "mov rsp, rdi",
    // The place on the stack before, for `stack::left_at`, and room.
    "push rbp", "push rbp",
    "mov rdi, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    "ret",

    "user_copy:",
    "mov rcx, rdx",
    "user_copying:",
    "rep movsb",
    "user_copied:",
    "mov rax, rcx",
    "ret",

    "user_clear:",
    "mov rcx, rsi",
    "xor eax, eax",
    "user_clearing:",
    "rep stosb",
    "user_cleared:",
    "mov rax, rcx",
    "ret",

    "user_touch:",
    "user_touching:",
    "lock or byte ptr [rdi], 0",
    "user_touched:",
    "ret",

    "spawn_child:",
    "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
    "mov rbx, rdi",
    "mov rax, [rsi]", "mov rdi, [rsi + 8]", "mov rdx, [rsi + 24]", "mov r10, [rsi + 32]",
    "mov r8, [rsi + 40]", "mov r9, [rsi + 48]", "mov rsi, [rsi + 16]",
    "syscall",
    "test rax, rax",
    "jz child",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
    "ret",

    "spawn_sharing:",
    "mov rsp, rdi",
    "mov rbx, rdi",
    "mov rax, [rsi]", "mov rdi, [rsi + 8]", "mov rdx, [rsi + 24]", "mov r10, [rsi + 32]",
    "mov r8, [rsi + 40]", "mov r9, [rsi + 48]", "mov rsi, [rsi + 16]",
    "syscall",
    "test rax, rax",
    "jz child",
    "mov rdi, rbx",
    "mov rsi, rax",
    "call {in_parent}",
    "ud2",

    // clone(rdi, rsi), and the function in the child.
    "spawn_helper:",
    "mov eax, 56",
    "mov r9, rdx",
    "xor edx, edx", "xor r10d, r10d", "xor r8d, r8d",
    "syscall",
    "test rax, rax",
    "jz 1f",
    "ret",
    "1: xor ebp, ebp",
    "call r9",
    "ud2",

    "resume_child:",
    "mov rsp, rdi",
    "mov qword ptr [rsp + {rax}], 0",
    "jmp unblock",

    "child:",
    "mov rsp, rbx",
    "mov rdi, rbx",
    "call {in_child}",
    "jmp unblock",

    // munmap(rsi, rdx), with the stack already on the program's.
    "leave_page:",
    "mov rsp, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov eax, 11",
    "syscall",
    // rt_sigprocmask(SIG_SETMASK, &frame.mask, 0, 8)
    "unblock:",
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rsp + {mask}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "jmp finish",

    boot_stack = sym crate::boot::STACK,
    boot_stack_size = const crate::boot::STACK_SIZE,
    boot = sym crate::boot::boot,
    in_page = const pathreads::PAGE - 1,
    proc = sym PROC,
    numbers = const NUMBERS,
    dispatched = sym crate::patch::DISPATCHED,
    patience = const crate::patch::DISPATCHED_FIRST,
    has_call_stack = sym crate::stack::IS_FOR_CALLS,
    call_stack = sym crate::stack::FOR_CALLS,
    call_stack_size = const crate::stack::FOR_CALLS_SIZE,
    of_signals = sym crate::isolate::OF_SIGNALS,
    table = sym OF_INTEREST,
    reserved = const RESERVED,
    has_xstate = const UC_FP_XSTATE,
    features = const XSTATE_FEATURES,
    disarms = const SS_AUTODISARM as i32,
    all_but_sigsys = const !(crate::sys::SIGSYS_BIT as u32) as i32,
    all_but_members = const !(crate::isolate::NEVER_BLOCKED as u32) as i32,
    set_before = sym crate::isolate::faults::SET_BEFORE,
    held = sym crate::isolate::faults::HELD,
    deferred = sym crate::isolate::faults::DEFERRED,
    send_again = sym crate::isolate::faults::send_again,
    waits = sym crate::isolate::signals::WAITS,
    has_courier = sym crate::isolate::signals::HAS_COURIER,
    most = sym crate::isolate::signals::MOST,
    end_wait = sym crate::isolate::signals::end_wait,
    end_handler = sym crate::isolate::signals::end_handler,
    is_programs = const crate::context::IS_PROGRAMS,
    is_fault = const crate::context::IS_FAULT,
    close = const crate::sys::nr::CLOSE,
    futex = const crate::sys::nr::FUTEX,
    slept = const offset_of!(Frame, scratch) + crate::isolate::calls::SLEPT_AT,
    exit = const crate::sys::nr::EXIT,
    frame = const FRAME,
    handle = sym crate::dispatch::handle,
    foreign_sigsys = sym crate::sigaction::foreign_sigsys,
    stubs = const STUBS,
    show_program = sym crate::context::show_program,
    prepared = sym crate::isolate::calls::PREPARED,
    prepare_again = sym crate::isolate::calls::prepare_again,
    is_asked = sym crate::isolate::calls::IS_ASKED,
    restarted = const RESTARTED as i64 as i32,
    handlers = sym crate::sigaction::HANDLERS,
    isolated = sym crate::isolate::IS_ON,
    in_child = sym crate::spawn::in_child,
    in_start = sym crate::spawn::IN_START,
    end_start = sym crate::spawn::end_start,
    runtime = const RUNTIME_BASE as i32,
    in_parent = sym crate::spawn::in_parent,
    rbx = const offset_of!(Frame, rbx),
    rbp = const offset_of!(Frame, rbp),
    r12 = const offset_of!(Frame, r12),
    r13 = const offset_of!(Frame, r13),
    r14 = const offset_of!(Frame, r14),
    r15 = const offset_of!(Frame, r15),
    rdi = const offset_of!(Frame, rdi),
    rsi = const offset_of!(Frame, rsi),
    rdx = const offset_of!(Frame, rdx),
    r10 = const offset_of!(Frame, r10),
    r8 = const offset_of!(Frame, r8),
    r9 = const offset_of!(Frame, r9),
    rax = const offset_of!(Frame, rax),
    rip = const offset_of!(Frame, rip),
    rsp = const offset_of!(Frame, rsp),
    mask = const offset_of!(Frame, mask),
    pass = const offset_of!(Frame, pass),
    call = const offset_of!(Frame, call),
    again = const offset_of!(Frame, again),
);
