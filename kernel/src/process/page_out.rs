//! Memory is short, and what can be made again is gone: pages that nobody has touched for a turn of the clock are compressed
//! (option `compress`). One hand goes round the memory of all processes; what a step does is the space's affair.
//!
//! Cores that look at once start at the same place and disturb nobody: slots are locked, and the hand is a hint.

use percore::pin;
use sync::SpinLock;
use vm::PageNum;

use super::{Process, pid};
use crate::mm::{compressed, epoch, frames};

/// Pages at the first time: what was tried before was in vain, and is tried before the next.
const WANTED: u64 = 512;
/// The part of all memory that goes at a time at most.
const PART: u64 = 8;
/// Turns after which there is nothing: part of one, one that makes pages idle, and one that takes them.
const TURNS: usize = 3;

/// Where the next step begins.
#[derive(Clone, Copy)]
struct Hand {
    pid: u32,
    page: PageNum,
}

impl Hand {
    const fn at(pid: u32) -> Self {
        Self { pid, page: PageNum::new(0) }
    }

    /// Goes on through the memory of `process`, the next one, to its end or until `wanted` pages have gone: how many have.
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

/// Compresses some pages, if the user of the kernel wants that; twice as many as the time before if that was not enough, which it
/// was `tried` times. Whether that found enough to try again: memory, or what pages of programs left to the kernel as long as
/// many could be compressed. The caller holds no lock, or has said so (`epoch::without_reclaim`).
pub fn page_out(tried: usize) -> bool {
    if !epoch::may_reclaim() {
        return false;
    }
    let wanted = (WANTED << tried).min(frames::total() / PART).max(WANTED);
    let enough = compressed::has_room() && take_turns(wanted) >= epoch::WORTH_A_RETRY;
    let was_left = frames::reserve(enough && !frames::is_low());
    enough || was_left
}

/// Goes on until `wanted` pages have gone: how many have.
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
