//! The purpose of each frame: a byte, which the pool notes when it hands a block out or takes it back.
//!
//! Above the pool, frames that change hands between a core's magazine, the program and its page tables all
//! have the same note, so that no fault and no free pays for it. `owners.rs` tells them apart. A caller that
//! keeps a frame for ever notes its purpose without the pool's lock: only the owner of the block writes the
//! note.

use core::fmt::{self, Display};
use core::sync::atomic::{AtomicU8, Ordering};

/// The purpose of a frame, or of the block that starts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Owner(u8);

const FREE: u8 = 1;
const HELD: u8 = 0x20;
const SLAB: u8 = 0x40;
const ORDER: u8 = 0x1f;

impl Owner {
    /// Never the pool's: firmware, the boot image, the pool's own list, the physmap's
    /// tables. Its value is 0, with which notes begin.
    pub const RESERVED: Self = Self(0);
    /// A page of a kernel stack.
    pub const STACK: Self = Self(0x60);
    /// A page table of the kernel's half.
    pub const KERNEL_TABLE: Self = Self(0x61);
    /// A page table of a program.
    pub const TABLE: Self = Self(0x62);
    /// A page of a program.
    pub const FRAME: Self = Self(0x63);
    /// The kernel's own code and data.
    pub const IMAGE: Self = Self(0x65);
    /// A radix node's slots, or second words.
    pub const NODE: Self = Self(0x64);

    /// Returns the note of a free block of 2^`order` frames that starts here.
    pub const fn free(order: usize) -> Self {
        Self(FREE + order as u8)
    }

    /// Returns the note of a block of 2^`order` frames that the pool handed out and that starts here.
    pub const fn held(order: usize) -> Self {
        Self(HELD | order as u8)
    }

    /// Returns the note of heap objects of 2^`log` bytes.
    pub const fn slab(log: u32) -> Self {
        Self(SLAB | log as u8)
    }

    fn is_free(self) -> bool {
        (FREE..HELD).contains(&self.0)
    }

    /// Returns the number of frames that the note is about.
    pub fn frames(self) -> u64 {
        match self.0 {
            _ if self.is_free() => 1 << (self.0 - FREE),
            HELD..SLAB => 1 << (self.0 & ORDER),
            _ => 1,
        }
    }

    /// Returns the note for each frame of the block, which is the same for all free ones.
    pub fn of_each(self) -> Self {
        if self.is_free() { Self::free(0) } else { self }
    }
}

impl Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RESERVED => f.write_str("reserved"),
            Self::STACK => f.write_str("stack"),
            Self::KERNEL_TABLE => f.write_str("kernel-table"),
            Self::TABLE => f.write_str("table"),
            Self::FRAME => f.write_str("frame"),
            Self::NODE => f.write_str("node"),
            Self::IMAGE => f.write_str("image"),
            free if free.is_free() => f.write_str("free"),
            Self(HELD) => f.write_str("single"),
            block if block == Self::held(1) => f.write_str("pair"),
            Self(slab @ SLAB..) => write!(f, "slab:{}", 1u32 << (slab & ORDER)),
            block => write!(f, "block:{}", block.frames() * super::FRAME),
        }
    }
}

/// A note for each frame of the machine. Relaxed: a core reads another's note only to learn whether the block
/// is free, and that changes under the pool's lock only.
#[derive(Clone, Copy)]
pub struct Notes(&'static [AtomicU8]);

impl Notes {
    /// Notes on no frames.
    pub const NONE: Self = Self(&[]);

    /// Creates the notes from bytes that are all zero, so that all frames are [`Owner::RESERVED`].
    pub fn new(notes: &'static [AtomicU8]) -> Self {
        Self(notes)
    }

    /// Notes the purpose of a block that the caller has.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn set(self, block: u64, owner: Owner) {
        self.0[block as usize].store(owner.0, Ordering::Relaxed);
    }

    /// Returns the purpose of the block.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn get(self, block: u64) -> Owner {
        Owner(self.0[block as usize].load(Ordering::Relaxed))
    }

    /// Returns the number of notes: one past the last frame.
    pub fn end(self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the address of the notes.
    pub fn start(self) -> *const AtomicU8 {
        self.0.as_ptr()
    }

    /// Calls `visit` with the owner of every frame, in order.
    pub fn each(self, mut visit: impl FnMut(Owner)) {
        let mut at = 0;
        while at < self.end() {
            let owner = self.get(at);
            let end = (at + owner.frames()).min(self.end());
            (at..end).for_each(|_| visit(owner.of_each()));
            at = end;
        }
    }
}
