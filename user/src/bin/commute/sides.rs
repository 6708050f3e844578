//! Two sides, each on a CPU of its own: the leader decides which one performs the next call.
//!
//! They meet at a board in memory that both share. A request is a number, so that one store publishes it. The
//! side that waits spins, because a CPU that idles would be woken by an interrupt.
//!
//! | `asked`, `answered` | the board belongs to |
//! |---|---|
//! | equal | the leader, which writes `request` |
//! | `asked` is one more | the follower, which reads `request` and writes `values` |
//!
//! `asked` is stored with Release by the leader and loaded with Acquire by the follower, `answered` the other
//! way round. All else is Relaxed.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::*};

use commute::call::{Call, OPS};

use crate::execute::Executor;

/// The most values of a call.
const VALUES: usize = 4;
const CLEAN: u64 = 100;
const STOP: u64 = 101;

/// The memory that the two sides share.
#[derive(Default)]
#[repr(align(128))]
pub struct Board {
    asked: AtomicU64,
    answered: AtomicU64,
    request: AtomicU64,
    count: AtomicU64,
    values: [AtomicI64; VALUES],
    /// By side, the numbers of its process and its thread, process first. 0 until it has said them.
    threads: [AtomicU64; 2],
}

impl Board {
    /// Maps a board that children share.
    pub fn map() -> io::Result<&'static Board> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses the place.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Board>(), protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is never removed, starts at a page, and all zero is an empty board.
        Ok(unsafe { &*address.cast::<Board>() })
    }

    /// Says which thread a side is: the calling one.
    pub fn enter(&self, side: usize) {
        // SAFETY: these calls have no conditions.
        let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
        self.threads[side].store(u64::from(process as u32) << 32 | u64::from(thread as u32), Relaxed);
    }

    /// Returns the numbers of the process and the thread of a side. Waits until it has said them.
    pub fn thread(&self, side: usize) -> (usize, usize) {
        loop {
            match self.threads[side].load(Relaxed) {
                0 => spin_loop(),
                both => return ((both >> 32) as usize, (both as u32) as usize),
            }
        }
    }

    /// Performs requests until told to stop.
    pub fn follow(&'static self) {
        let mut executor = Executor::new(self, 1);
        for number in 1.. {
            while self.asked.load(Acquire) != number {
                spin_loop();
            }
            let values = match self.request.load(Relaxed) {
                STOP => return self.answered.store(number, Release),
                CLEAN => {
                    executor.clean();
                    Vec::new()
                }
                request => {
                    let (call, is_marked) = unpack(request);
                    executor.execute(call, is_marked)
                }
            };
            self.values.iter().zip(&values).for_each(|(place, value)| place.store(*value, Relaxed));
            self.count.store(values.len() as u64, Relaxed);
            self.answered.store(number, Release);
        }
    }

    fn ask(&self, request: u64) -> Vec<i64> {
        let number = self.asked.load(Relaxed) + 1;
        self.request.store(request, Relaxed);
        self.asked.store(number, Release);
        while self.answered.load(Acquire) != number {
            spin_loop();
        }
        self.values[..self.count.load(Relaxed) as usize].iter().map(|value| value.load(Relaxed)).collect()
    }

    /// Makes the follower perform a call.
    pub fn execute(&self, call: Call, is_marked: bool) -> Vec<i64> {
        self.ask(pack(call, is_marked))
    }

    /// Makes the follower clean its process.
    pub fn clean(&self) {
        self.ask(CLEAN);
    }

    /// Ends the follower.
    pub fn stop(&self) {
        self.ask(STOP);
    }
}

fn pack(call: Call, is_marked: bool) -> u64 {
    let [first, second, third] = call.args;
    u64::from_le_bytes([call.op as u8, first, second, third, is_marked.into(), 0, 0, 0])
}

fn unpack(request: u64) -> (Call, bool) {
    let [op, first, second, third, is_marked, ..] = request.to_le_bytes();
    (OPS[op as usize].0.with(&[first, second, third]), is_marked == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_and_are_no_commands() {
        for (op, ..) in OPS {
            let call = op.with(&[1, 2, 3]);
            assert_eq!(unpack(pack(call, true)), (call, true));
            assert!(![CLEAN, STOP].contains(&pack(op.with(&[]), false)));
        }
    }

    #[test]
    fn a_follower_performs_calls_until_it_is_stopped() {
        let board = Board::map().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| board.follow());
            assert_eq!(board.execute("close.255".parse().unwrap(), false), [-9]);
            assert_eq!(board.execute("pread.200.0".parse().unwrap(), true), [-9]);
            board.stop();
        });
    }
}
