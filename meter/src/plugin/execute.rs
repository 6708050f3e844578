//! Callbacks for the execution of a block, an instruction or an access.

use std::ffi::c_void;

use super::qemu::*;
use super::{meter, write};
use crate::cpu::Privilege;
use crate::data;
use crate::directory::parts;
use crate::meter::Touch;

/// Handles a block that is about to run.
pub unsafe extern "C" fn on_block(cpu: u32, data: *mut c_void) {
    let (privilege, instructions, repeats) = data::block(data as u64);
    meter().block(cpu as usize, privilege, instructions, repeats);
}

/// Handles a counted instruction that is about to run.
pub unsafe extern "C" fn on_event(cpu: u32, data: *mut c_void) {
    let (privilege, kind) = data::event(data as u64);
    meter().cpus[cpu as usize].counts(privilege).add(kind, 1);
}

/// Handles an entry point of the kernel that is about to run, by its place in the list of events.
pub unsafe extern "C" fn on_entry(cpu: u32, data: *mut c_void) {
    let (pc, kind) = meter().options.events[data as usize];
    meter().enters(cpu as usize, kind, pc);
}

/// Handles a system call of the program that is about to run.
pub unsafe extern "C" fn on_syscall(cpu: u32, number: *mut c_void) {
    meter().cpus[cpu as usize].entry.syscall(number as u64);
}

/// Handles the end of an interrupt or a fault.
pub unsafe extern "C" fn on_interrupt_return(cpu: u32, _data: *mut c_void) {
    meter().interrupt_returns(cpu as usize);
}

/// Handles a change of the table of pages that is about to happen.
pub unsafe extern "C" fn on_cr3_load(cpu: u32, _data: *mut c_void) {
    meter().cpus[cpu as usize].entry.forget_pages();
}

/// Handles a marker of the guest.
pub unsafe extern "C" fn on_marker(cpu: u32, data: *mut c_void) {
    let (privilege, marker, ahead) = data::marker(data as u64);
    if meter().marker(cpu as usize, marker, privilege, ahead) {
        // The results are written early, so that a user who needs no more than counts can end QEMU, and again
        // at the end.
        write(meter());
    }
}

/// Handles the start of a repeated string instruction, or its next start before it is done.
pub unsafe extern "C" fn on_repeat(cpu: u32, data: *mut c_void) {
    let (pc, accesses) = data::repeat(data as u64);
    meter().cpus[cpu as usize].repeat(pc, accesses);
}

/// Handles a finished access of a repeated string instruction.
pub unsafe extern "C" fn on_iteration_access(cpu: u32, info: MemoryInfo, address: u64, pc: *mut c_void) {
    meter().cpus[cpu as usize].iteration_access(Privilege::of(pc as u64));
    // SAFETY: the caller's promise, which is the same.
    unsafe { on_access(cpu, info, address, pc) };
}

/// Handles a finished load, store, or both in one.
pub unsafe extern "C" fn on_access(cpu: u32, info: MemoryInfo, address: u64, pc: *mut c_void) {
    let (meter, cpu, pc) = (meter(), cpu as usize, pc as u64);
    if !meter.is_live() {
        return;
    }
    // SAFETY: in a memory callback, with its own `info`.
    let (store, size) = unsafe { (qemu_plugin_mem_is_store(info), 1 << qemu_plugin_mem_size_shift(info)) };
    meter.count_access(cpu, store, pc);
    for (offset, bytes) in parts(address, size) {
        // SAFETY: as above, and the second part of an access is as accessible as the first.
        match unsafe { physical(info, address + offset) } {
            Some(Physical::Memory(physical)) => {
                meter.touch(cpu, &Touch { physical, address: address + offset, bytes, store, pc });
            }
            Some(Physical::Device(physical)) => meter.device(cpu, physical, store, pc),
            None => {}
        }
    }
}

enum Physical {
    Memory(u64),
    Device(u64),
}

/// # Safety
/// The call must be inside a memory callback with that `info`.
unsafe fn physical(info: MemoryInfo, address: u64) -> Option<Physical> {
    // SAFETY: the caller's promise, and the handle is used before the callback returns.
    unsafe {
        let hardware = qemu_plugin_get_hwaddr(info, address);
        if hardware.is_null() {
            return None;
        }
        let physical = qemu_plugin_hwaddr_phys_addr(hardware);
        Some(if qemu_plugin_hwaddr_is_io(hardware) {
            Physical::Device(physical)
        } else {
            Physical::Memory(physical)
        })
    }
}
