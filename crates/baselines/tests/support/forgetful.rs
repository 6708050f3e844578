//! SNZI for holders that do not remember where their references arrived. All but the first reference arrived
//! at leaves.

use baselines::{OutOfMemory, Scheme, Snzi, SnziCount, Zero};
use percore::Pinned;

pub struct Forgetful;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    First,
    Somewhere,
}

impl<'c> Scheme<'c> for Forgetful {
    type Count = SnziCount;
    type Token = Arrived;

    const NAME: &'static str = "forgetful snzi";
    const ZERO: Zero = Zero::AtOnce;
    const FIRST: Arrived = Arrived::First;

    fn count(cores: usize) -> Result<SnziCount, OutOfMemory> {
        Snzi::count(cores)
    }

    fn object_bytes(cores: usize) -> usize {
        Snzi::object_bytes(cores)
    }

    fn inc(&self, pin: &Pinned, count: &'c SnziCount) -> Arrived {
        Snzi.inc(pin, count);
        Arrived::Somewhere
    }

    fn dec(&self, pin: &Pinned, count: &'c SnziCount, arrived: Arrived) -> bool {
        match arrived {
            Arrived::First => Snzi.dec(pin, count, Snzi::FIRST),
            Arrived::Somewhere => Snzi.dec_anywhere(pin, count),
        }
    }
}
