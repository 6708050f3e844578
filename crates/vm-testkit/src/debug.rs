//! `Debug` for what a test holds: its place in the machine, not the contents of thousands of frames.

use std::fmt;

use crate::world::Kept;
use crate::{Attended, FileStore, FrameStore, Machine, SimMmu, Trial, World};

macro_rules! opaque {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

opaque!(Attended, FileStore, Kept, SimMmu, Trial);

impl fmt::Debug for FrameStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameStore").field("used", &self.used()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("cores", &self.cores())
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("machine", &self.machine).finish_non_exhaustive()
    }
}
