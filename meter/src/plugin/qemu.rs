//! QEMU's plugin interface, version 1, as far as the meter uses it: declared by hand from its documentation.
//!
//! QEMU 7.2 to 8.2 load version 1. The functions are found in the program that loads the plugin.

use std::ffi::{c_char, c_int, c_void};

/// The interface that this plugin is made for.
pub const VERSION: c_int = 1;

/// A callback neither reads nor writes registers.
pub const NO_REGISTERS: c_int = 0;
/// A memory callback is for loads and stores.
pub const LOADS_AND_STORES: c_int = 3;

/// What QEMU calls this plugin.
pub type Id = u64;
/// What an access was: asked with `qemu_plugin_mem_*`.
pub type MemoryInfo = u32;

/// A translation block while it is being translated.
#[repr(C)]
pub struct Block([u8; 0]);
/// One of its instructions.
#[repr(C)]
pub struct Instruction([u8; 0]);
/// Where an access went; good until the callback returns.
#[repr(C)]
pub struct Hardware([u8; 0]);

/// What QEMU says about itself when it loads the plugin.
#[repr(C)]
pub struct Info {
    /// The guest's architecture.
    pub target_name: *const c_char,
    /// The least version of the interface that QEMU speaks.
    pub version_min: c_int,
    /// The current one.
    pub version_now: c_int,
    /// Whether a machine is emulated, not a process.
    pub system_emulation: bool,
    /// CPUs at first.
    pub cpus: c_int,
    /// CPUs at most.
    pub max_cpus: c_int,
}

/// A callback without arguments but the plugin's name.
pub type Simple = unsafe extern "C" fn(Id);
/// A callback for a CPU.
pub type OnCpu = unsafe extern "C" fn(Id, u32);
/// A callback for a new translation block.
pub type OnTranslation = unsafe extern "C" fn(Id, *mut Block);
/// A callback for an execution.
pub type OnExecution = unsafe extern "C" fn(u32, *mut c_void);
/// A callback for an access.
pub type OnAccess = unsafe extern "C" fn(u32, MemoryInfo, u64, *mut c_void);
/// A callback at the end.
pub type AtExit = unsafe extern "C" fn(Id, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_reset(id: Id, then: Simple);
    pub fn qemu_plugin_register_vcpu_idle_cb(id: Id, callback: OnCpu);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: OnTranslation);
    pub fn qemu_plugin_register_atexit_cb(id: Id, callback: AtExit, data: *mut c_void);
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
    pub fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_mem_size_shift(info: MemoryInfo) -> u32;
    pub fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    pub fn qemu_plugin_get_hwaddr(info: MemoryInfo, address: u64) -> *mut Hardware;
    pub fn qemu_plugin_hwaddr_is_io(hardware: *const Hardware) -> bool;
    pub fn qemu_plugin_hwaddr_phys_addr(hardware: *const Hardware) -> u64;
}
