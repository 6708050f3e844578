//! Callbacks for the translation of a block. They choose the instructions that get callbacks.

use std::ffi::c_void;

use super::execute::{
    on_access, on_block, on_cr3_load, on_entry, on_event, on_interrupt_return, on_iteration_access,
    on_marker, on_repeat, on_syscall,
};
use super::qemu::*;
use super::{meter, on_run};
use crate::counts::Kind;
use crate::cpu::Privilege;
use crate::data;
use crate::decode::{self, Marker, Special};

/// Handles a block before the program starts. Only RUN matters.
pub unsafe extern "C" fn on_early_translation(first: u64, second: u64) {
    let block = argument(first, second) as *mut Block;
    // SAFETY: QEMU's block, good during the call.
    for (_, instruction) in unsafe { instructions(block) } {
        // SAFETY: an instruction of it.
        if decode::marker(unsafe { Code::of(instruction) }.bytes()) == Some(Marker::Run) {
            // SAFETY: as above.
            unsafe { on_each(instruction, on_run, 0) };
        }
    }
}

/// Handles a block while the program runs. Every instruction and access matters.
pub unsafe extern "C" fn on_translation(first: u64, second: u64) {
    let block = argument(first, second) as *mut Block;
    // SAFETY: QEMU's block, good during the call.
    let instructions: Vec<_> = unsafe { instructions(block) }.collect();
    let Some((first, _)) = instructions.first().copied() else { return };
    // SAFETY: instructions of that block.
    let special = |(_, i): &(u64, *mut Instruction)| decode::special(unsafe { Code::of(*i) }.bytes());
    let specials: Vec<_> = instructions.iter().map(special).collect();
    let repeats = matches!(specials[0], Some(Special::Repeat(_)));
    // SAFETY: as above.
    unsafe {
        qemu_plugin_register_vcpu_tb_exec_cb(
            block,
            on_block,
            NO_REGISTERS,
            data::pack_block(first, instructions.len(), repeats) as *mut c_void,
        )
    };
    for (index, (pc, instruction)) in instructions.iter().copied().enumerate() {
        let repeats = matches!(specials[index], Some(Special::Repeat(_)));
        // SAFETY: as above, and the address goes with the callback.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(
                instruction,
                if repeats { on_iteration_access } else { on_access },
                NO_REGISTERS,
                LOADS_AND_STORES,
                pc as *mut c_void,
            )
        };
        let ahead = instructions.len() - 1 - index;
        // SAFETY: as above.
        specials[index].iter().for_each(|special| unsafe { on_special(instruction, *special, pc, ahead) });
        let kinds = meter().options.events.iter().filter(|(address, _)| *address == pc);
        // SAFETY: as above.
        kinds.for_each(|(_, kind)| unsafe { on_each(instruction, on_event, data::pack_event(*kind, pc)) });
        // SAFETY: as above.
        unsafe { on_site(&instructions[..=index], specials[index]) };
    }
    if meter().sites.is_some() && Privilege::of(first) == Privilege::User {
        // SAFETY: as above.
        unsafe { record_code(&instructions) };
    }
}

/// Registers the callbacks of the sites for the last of these instructions, if they are wanted.
///
/// # Safety
/// The instructions are the first ones of the block that is being translated.
unsafe fn on_site(until: &[(u64, *mut Instruction)], special: Option<Special>) {
    let (Some(sites), Some((pc, instruction))) = (&meter().sites, until.last().copied()) else { return };
    let events = meter().options.events.iter().enumerate().filter(|(_, (address, _))| *address == pc);
    // SAFETY: the caller's promise.
    events.for_each(|(index, _)| unsafe { on_each(instruction, on_entry, index as u64) });
    // SAFETY: as above.
    unsafe {
        match special {
            Some(Special::Syscall) => on_each(instruction, on_syscall, sites.syscall(pc, &bytes(until))),
            Some(Special::InterruptReturn) => on_each(instruction, on_interrupt_return, 0),
            Some(Special::Cr3Load) => on_each(instruction, on_cr3_load, 0),
            _ => {}
        }
    }
}

/// Returns the bytes of instructions.
///
/// # Safety
/// They are of the block that is being translated.
unsafe fn bytes(instructions: &[(u64, *mut Instruction)]) -> Vec<u8> {
    // SAFETY: the caller's promise.
    instructions.iter().flat_map(|(_, one)| unsafe { Code::of(*one) }.bytes().to_vec()).collect()
}

/// Shows the code of a block of the program to the sites.
///
/// # Safety
/// The instructions are of the block that is being translated.
unsafe fn record_code(instructions: &[(u64, *mut Instruction)]) {
    let (at, last) = (instructions[0].0, instructions.len() - 1);
    // SAFETY: the caller's promise.
    let (bytes, ending) = unsafe { (bytes(instructions), bytes(&instructions[last..])) };
    let return_to = decode::is_call(&ending).then(|| instructions[last].0 + ending.len() as u64);
    meter().sites.iter().for_each(|sites| sites.code(at, &bytes, return_to));
}

/// # Safety
/// `instruction` is of the block that is being translated.
unsafe fn on_special(instruction: *mut Instruction, special: Special, pc: u64, ahead: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match special {
            Special::Marker(marker) => {
                if matches!(marker, Marker::Begin(_)) {
                    meter().begins_at(pc);
                }
                on_each(instruction, on_marker, data::pack_marker(marker, pc, ahead));
            }
            Special::Repeat(accesses) => on_each(instruction, on_repeat, data::pack_repeat(pc, accesses)),
            Special::Port => on_each(instruction, on_event, data::pack_event(Kind::Io, pc)),
            Special::Invlpg => on_each(instruction, on_event, data::pack_event(Kind::Invlpg, pc)),
            Special::Cr3Load => on_each(instruction, on_event, data::pack_event(Kind::Cr3Loads, pc)),
            Special::Syscall | Special::InterruptReturn => {}
        }
    }
}

/// # Safety
/// `instruction` is of the block that is being translated.
unsafe fn on_each(instruction: *mut Instruction, callback: OnExecution, data: u64) {
    // SAFETY: the caller's promise, and the data are a number, not an address.
    unsafe {
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, callback, NO_REGISTERS, data as *mut c_void)
    };
}

/// # Safety
/// `block` is being translated.
unsafe fn instructions(block: *mut Block) -> impl Iterator<Item = (u64, *mut Instruction)> {
    // SAFETY: the caller's promise, and indices below the number are good.
    let instruction = move |index| unsafe { qemu_plugin_tb_get_insn(block, index) };
    // SAFETY: as above.
    let count = unsafe { qemu_plugin_tb_n_insns(block) };
    // SAFETY: as above.
    (0..count)
        .map(instruction)
        .map(|instruction| (unsafe { qemu_plugin_insn_vaddr(instruction) }, instruction))
}
