//! Markers for the contention meter (see [`abi::marker`]): they do nothing, everywhere.
//!
//! An argument is part of the instruction, so there is one instruction for each. Every operation is a small
//! function that consists of entries of 8 bytes, the marker and a return, and the argument selects the entry
//! that is called.

use abi::marker::{BEGIN, CALL, END, ITER, PAIR, PHASE, PHASES, RETURN, RUN, STOP, displacement};
use std::arch::{asm, naked_asm};

/// Bytes of a marker and a return.
const ENTRY: usize = 8;

/// Defines a function that is `$count` entries of one operation.
macro_rules! entries {
    ($($name:ident: $operation:ident, $count:expr;)*) => {$(
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                ".set marker_argument, 0",
                ".rept {count}",
                ".byte 0x0f, 0x1f, 0x80",
                ".long {first} + marker_argument",
                "ret",
                ".set marker_argument, marker_argument + 1",
                ".endr",
                count = const $count,
                first = const displacement($operation, 0),
            )
        }
    )*};
}

entries! {
    run_entries: RUN, 1;
    begin_entries: BEGIN, 256;
    iter_entries: ITER, 1;
    end_entries: END, 1;
    phase_entries: PHASE, PHASES;
    stop_entries: STOP, 1;
    call_entries: CALL, 1;
    return_entries: RETURN, 1;
    pair_entries: PAIR, 1;
}

/// Executes the marker of `entries` with this argument, which must exist.
#[inline(always)]
fn say(entries: extern "C" fn(), argument: usize) {
    let entry = entries as usize + argument * ENTRY;
    // SAFETY: an entry is a no-operation and a return. Memory counts as clobbered: nothing moves across a
    // marker.
    unsafe { asm!("call {}", in(reg) entry, options(preserves_flags)) };
}

/// Marks that the program is about to start.
pub fn run() {
    say(run_entries, 0);
}

/// Marks that this thread, one of `threads`, is about to start its first counted round.
pub fn begin(threads: usize) {
    say(begin_entries, u8::try_from(threads).unwrap_or(0).into());
}

/// Marks that this thread has finished a round.
#[inline(always)]
pub fn iter() {
    say(iter_entries, 0);
}

/// Marks that this thread has finished its rounds.
pub fn end() {
    say(end_entries, 0);
}

/// Marks that this thread enters a phase. Phase 0 is the one before all others.
///
/// # Panics
/// If there is no such phase.
pub fn phase(phase: usize) {
    assert!(phase < PHASES, "there are {PHASES} phases");
    say(phase_entries, phase);
}

/// Marks that the program is over.
pub fn stop() {
    say(stop_entries, 0);
}

/// Marks that this CPU begins a call of a test.
#[inline(always)]
pub fn call() {
    say(call_entries, 0);
}

/// Marks that this CPU has finished the call.
#[inline(always)]
pub fn call_returned() {
    say(return_entries, 0);
}

/// Marks that both calls of a test have returned.
pub fn pair() {
    say(pair_entries, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the code of an entry.
    fn code(entries: extern "C" fn(), argument: usize) -> [u8; ENTRY] {
        // SAFETY: the function is code of this program, which can be read, and has this entry.
        unsafe { ((entries as usize + argument * ENTRY) as *const [u8; ENTRY]).read() }
    }

    #[test]
    fn every_entry_is_a_marker_and_a_return() {
        assert_eq!(code(iter_entries, 0), [0x0f, 0x1f, 0x80, 0, 3, 0x56, 0x52, 0xc3]);
        assert_eq!(code(run_entries, 0)[4], RUN);
        assert_eq!(code(end_entries, 0)[4], END);
        assert_eq!(code(stop_entries, 0)[4], STOP);
        assert_eq!(code(call_entries, 0)[4], CALL);
        assert_eq!(code(return_entries, 0)[4], RETURN);
        assert_eq!(code(pair_entries, 0)[4], PAIR);
        for argument in 0..256 {
            assert_eq!(
                code(begin_entries, argument),
                [0x0f, 0x1f, 0x80, argument as u8, 2, 0x56, 0x52, 0xc3]
            );
        }
        for argument in 0..PHASES {
            assert_eq!(
                code(phase_entries, argument),
                [0x0f, 0x1f, 0x80, argument as u8, 5, 0x56, 0x52, 0xc3]
            );
        }
    }

    #[test]
    fn markers_do_nothing() {
        run();
        (0..=300).for_each(begin);
        (0..PHASES).for_each(phase);
        iter();
        call();
        call_returned();
        pair();
        end();
        stop();
    }

    #[test]
    #[should_panic = "8 phases"]
    fn a_phase_too_many_is_refused() {
        phase(PHASES);
    }
}
