//! Paging out: pages that have not been touched for a turn of the clock hand are compressed (option
//! `compress`). This runs when memory is short and nothing that can be made again is left. One hand goes
//! through the memory of all processes, and each space does its own steps (`AddressSpace::page_out`).
//!
//! Cores that page out at once start at the same place and do not disturb each other: slots are locked, and
//! the hand is only a hint.

use percore::pin;
use sync::SpinLock;
use vm::PageNum;

use super::{Process, pid};
use crate::mm::{compressed, epoch, frames};

/// The pages that the first try compresses. Each further try of a call takes twice as many as the one before.
const WANTED: u64 = 512;
/// The fraction of all memory that one try compresses at most.
const PART: u64 = 8;
/// The turns after which there are no more pages: part of one, one that makes pages idle, and one that
/// compresses them.
const TURNS: usize = 3;

/// The position of the next step.
#[derive(Clone, Copy)]
struct Hand {
    pid: u32,
    page: PageNum,
}

impl Hand {
    const fn at(pid: u32) -> Self {
        Self { pid, page: PageNum::new(0) }
    }

    /// Goes on through the memory of `process`, the next one, until its end or until `wanted` pages are
    /// compressed. Returns how many were compressed.
    fn go_on(&mut self, process: &Process, wanted: u64) -> u64 {
        if process.pid() != self.pid {
            *self = Self::at(process.pid());
        }
        let mut gone = 0;
        while gone < wanted {
            let step = process.memory().and_then(|memory| memory.space.page_out(&pin(), self.page));
            let Some((pages, next)) = step else {
                *self = Self::at(self.pid + 1);
                break;
            };
            gone += pages;
            self.page = next;
        }
        gone
    }
}

static HAND: SpinLock<Hand> = SpinLock::new(Hand::at(0));

/// Compresses some pages, if the option allows it: twice as many for each of the `tried` tries that came
/// before. Returns whether memory was found that is worth a retry: frames, or the reserve that pages of
/// programs leave to the kernel as long as many can be compressed. The caller holds no lock, or has said so
/// (`epoch::without_reclaim`).
pub fn page_out(tried: usize) -> bool {
    if !epoch::may_reclaim() {
        return false;
    }
    let wanted = (WANTED << tried).min(frames::total() / PART).max(WANTED);
    let enough = compressed::has_room() && take_turns(wanted) >= epoch::WORTH_A_RETRY;
    let was_left = frames::reserve(enough && !frames::is_low());
    enough || was_left
}

/// Moves the hand until `wanted` pages are compressed, and returns how many were.
fn take_turns(wanted: u64) -> u64 {
    let mut hand = *HAND.lock();
    let (mut gone, mut turns) = (0, 0);
    while gone < wanted && turns < TURNS {
        match pid::next_process(hand.pid) {
            Some(process) => gone += hand.go_on(&process, wanted - gone),
            None => (hand, turns) = (Hand::at(0), turns + 1),
        }
    }
    *HAND.lock() = hand;
    frames::give_back(&pin());
    gone
}
