//! The report for the contention meter (option `meter`): the purpose of each part of physical memory, when
//! the program has ended and its memory is still there. The report is made once, from existing data, and
//! costs the running program nothing.
//!
//! | kind | what |
//! |---|---|
//! | `percpu:N` `idle-stack:N` | core N's block and its boot and idle stack |
//! | `process` `space` `tables` | the objects of the program that are there once |
//! | `image` | the kernel's own code and data: its symbols say more |
//! | `pool` | the pool's note for each frame |
//! | `page-counts` | the count of each frame |
//! | `frame` `table` | pages of the program and its page tables, as they are mapped now |
//! | `stack` `kernel-table` | kernel stacks of threads; page tables of the kernel's half that were made after boot |
//! | `slab:BYTES` | heap objects of this size |
//! | `node` | radix nodes of the program's space: slots, and second words |
//! | `pair` | two frames: a heap object of 8 KiB |
//! | `block:BYTES` | a larger heap object |
//! | `single` | one frame in some core's magazine or depot (the last use was `frame`, `table` or `node`), or a heap object of 4 KiB |
//! | `free` | in the pool |
//! | `reserved` | never in the pool: firmware, boot image, the physmap's tables |
//!
//! Ranges are half open, and a range may lie inside a later one: the first that holds an address names it.

use alloc::vec::Vec;
use core::fmt::Display;

use percore::CoreId;

use super::FRAME;
use super::frames;
use super::owner::Owner;
use super::page_refs;
use super::space::{self, SpaceHandle};
use crate::{arch, control};

/// A physical range, in bytes.
pub type Range = (u64, u64);
/// A function that takes a range and its kind.
type Say<'a> = &'a mut dyn FnMut(Range, &dyn Display);

/// Reports the owner of each range. The program of `space` has ended. `objects` are others that the caller
/// knows.
pub fn report(space: &SpaceHandle, objects: &[(&str, Range)]) {
    space::settle(space);
    let Some(notes) = notes(space) else { return control::warn("no memory for the report of memory owners") };
    control::owners(|say| {
        objects.iter().for_each(|(kind, range)| say(*range, kind));
        space.objects().iter().for_each(|(kind, range)| say(*range, kind));
        cores(say);
        say(frames::pool_notes(), &"pool");
        say(page_refs::range(), &"page-counts");
        runs(&notes, say);
    });
}

fn cores(say: Say<'_>) {
    for core in 0..arch::cores() {
        if let Some(block) = arch::core_block(CoreId::new(core)) {
            say(block, &format_args!("percpu:{core}"));
        }
        if let Some(stack) = arch::idle_stack(CoreId::new(core)) {
            say(stack, &format_args!("idle-stack:{core}"));
        }
    }
}

/// Returns the owner of every frame as the pool noted it, refined by the frames of the program's tables.
fn notes(space: &SpaceHandle) -> Option<Vec<Owner>> {
    let mut notes = Vec::new();
    notes.try_reserve_exact(frames::end() as usize).ok()?;
    frames::each_owner(|owner| notes.push(owner));
    space.each_frame(&mut |frame, owner| {
        if let Some(note) = notes.get_mut(frame as usize) {
            *note = owner;
        }
    });
    Some(notes)
}

/// Reports the ranges: adjacent frames with one owner are one range.
fn runs(notes: &[Owner], say: Say<'_>) {
    let mut start = 0;
    for run in notes.chunk_by(|a, b| a == b) {
        let end = start + run.len() as u64 * FRAME;
        run.first().into_iter().for_each(|owner| say((start, end), owner));
        start = end;
    }
}
