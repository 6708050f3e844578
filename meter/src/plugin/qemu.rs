//! QEMU's plugin interface, as far as the meter uses it, declared by hand from its documentation.
//!
//! | QEMU | versions | difference for the meter |
//! |---|---|---|
//! | 7.2 to 8.2 | 0 to 1 | |
//! | 9.0 | 2 | |
//! | 9.1 to 10 | 2 to 3 or more | `qemu_plugin_insn_data` copies into a buffer |
//! | 11 and later | 7 | callbacks get user data, which comes last, and not the plugin's name, which came first |
//!
//! QEMU reads [`qemu_plugin_version`] after it has loaded the library and before it calls anything in it,
//! and refuses a version that it does not support. A function of the library that runs while it is loaded
//! therefore chooses the version: 2 if QEMU has a function that came with 2, and 7 if it has one that came
//! with 6. (QEMU 11.1 has both; a QEMU whose latest version is 6 would refuse the plugin.) The signatures
//! of functions and callbacks follow the latest version that QEMU supports, not the version that the plugin
//! names. The functions are found in the program that loads the plugin.
//!
//! Functions that register a callback have no user data before version 7. The meter passes some in any case:
//! in the calling convention of x86-64 a function does not look at an argument that it does not have.

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::host;

/// The version of the interface that QEMU finds in this plugin. Relaxed everywhere: the loader's thread
/// writes and reads it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is QEMU's")]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// The function that the loader calls before any other in the library.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    if host::has_function(c"qemu_plugin_get_registers") {
        qemu_plugin_version.store(2, Relaxed);
    }
    if host::has_function(c"qemu_plugin_set_pc") {
        qemu_plugin_version.store(7, Relaxed);
    }
}

/// The latest version that QEMU supports, from [`Info`]. Relaxed: written in `qemu_plugin_install`, before
/// any callback.
static LATEST: AtomicI32 = AtomicI32::new(1);

/// Records the latest version that QEMU supports.
pub fn set_latest(version: c_int) {
    LATEST.store(version, Relaxed);
}

/// Returns the argument of a callback that is neither the plugin's name nor user data, out of both arguments.
pub fn argument(first: u64, second: u64) -> u64 {
    if LATEST.load(Relaxed) >= 7 { first } else { second }
}

/// The longest instruction of x86, in bytes (Intel's manual, volume 2, 2.3.11).
pub const LONGEST: usize = 15;

/// The bytes of one instruction.
pub struct Code {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Code {
    /// Copies the bytes of an instruction.
    ///
    /// # Safety
    /// `instruction` is of the block that is being translated.
    pub unsafe fn of(instruction: *const Instruction) -> Self {
        // SAFETY: the caller's promise.
        let length = unsafe { qemu_plugin_insn_size(instruction) }.min(LONGEST);
        let mut bytes = [0; LONGEST];
        let function: unsafe extern "C" fn(*const Instruction) -> *const c_void = qemu_plugin_insn_data;
        if LATEST.load(Relaxed) >= 3 {
            type Copy = unsafe extern "C" fn(*const Instruction, *mut c_void, usize) -> usize;
            // SAFETY: this is the function's type from version 3 on. It writes `length` bytes at most, and
            // the array has room for them.
            unsafe {
                let copy = mem::transmute::<unsafe extern "C" fn(*const Instruction) -> *const c_void, Copy>(
                    function,
                );
                copy(instruction, bytes.as_mut_ptr().cast(), length);
            }
        } else {
            // SAFETY: QEMU keeps that many bytes until the translation is done.
            unsafe { function(instruction).cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), length) };
        }
        Self { bytes, length }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A callback neither reads nor writes registers.
pub const NO_REGISTERS: c_int = 0;
/// A memory callback is for loads and stores.
pub const LOADS_AND_STORES: c_int = 3;

/// QEMU's number for this plugin.
pub type Id = u64;
/// The kind of an access, which `qemu_plugin_mem_*` decode.
pub type MemoryInfo = u32;

/// A translation block while it is being translated.
#[repr(C)]
pub struct Block([u8; 0]);
/// One of its instructions.
#[repr(C)]
pub struct Instruction([u8; 0]);
/// The place that an access reached. It is valid until the callback returns.
#[repr(C)]
pub struct Hardware([u8; 0]);

/// QEMU's description of itself when it loads the plugin.
#[repr(C)]
pub struct Info {
    /// The guest's architecture.
    pub target_name: *const c_char,
    /// The least version of the interface that QEMU speaks.
    pub version_min: c_int,
    /// The current one.
    pub version_now: c_int,
    /// Set if a machine is emulated, not a process.
    pub system_emulation: bool,
    /// CPUs at first.
    pub cpus: c_int,
    /// CPUs at most.
    pub max_cpus: c_int,
}

/// A callback whose arguments the meter does not need.
pub type Simple = unsafe extern "C" fn();
/// A callback with one argument and the plugin's name or user data: see [`argument`].
pub type WithArgument = unsafe extern "C" fn(u64, u64);
/// A callback for an execution.
pub type OnExecution = unsafe extern "C" fn(u32, *mut c_void);
/// A callback for an access.
pub type OnAccess = unsafe extern "C" fn(u32, MemoryInfo, u64, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_reset(id: Id, then: Simple, data: *mut c_void);
    pub fn qemu_plugin_register_vcpu_idle_cb(id: Id, callback: WithArgument, data: *mut c_void);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: WithArgument, data: *mut c_void);
    pub fn qemu_plugin_register_atexit_cb(id: Id, callback: Simple, data: *mut c_void);
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: OnAccess,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    /// Returns the address of the bytes before version 3. From version 3 on it copies them (see
    /// [`Code::of`]).
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_mem_size_shift(info: MemoryInfo) -> u32;
    pub fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    pub fn qemu_plugin_get_hwaddr(info: MemoryInfo, address: u64) -> *mut Hardware;
    pub fn qemu_plugin_hwaddr_is_io(hardware: *const Hardware) -> bool;
    pub fn qemu_plugin_hwaddr_phys_addr(hardware: *const Hardware) -> u64;
}
