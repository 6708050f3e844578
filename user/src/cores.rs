//! The CPUs this process may use, and pinning a thread to one of them.

use std::io;

/// Linux CPU masks hold 1024 CPUs.
const MASK_WORDS: usize = 16;
type Mask = [u64; MASK_WORDS];

/// Returns the CPUs this process may run on, in ascending order. The list is never empty.
pub fn allowed() -> io::Result<Vec<usize>> {
    let mut mask: Mask = [0; MASK_WORDS];
    // SAFETY: the pointer and the length describe `mask`, which the call fills.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), (&raw mut mask).cast()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..MASK_WORDS * 64).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1).collect())
}

/// Keeps the calling thread on `cpu` from now on.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut mask: Mask = [0; MASK_WORDS];
    mask[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: the pointer and the length describe `mask`, which the call only reads.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), (&raw const mask).cast()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the cycle counter.
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and it has no effect on memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_runs_where_it_was_put() {
        let last = *allowed().unwrap().last().unwrap();
        std::thread::spawn(move || {
            pin(last).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
        })
        .join()
        .unwrap();
    }
}
