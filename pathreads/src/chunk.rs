//! A chunk of the pool: blocks of one size, and what each is.
//!
//! | state of a block | `free` | `used` | who may use the memory | goes to |
//! |---|---|---|---|---|
//! | free | 1 | 0 | no thread; lazily the program still can ([`Content`]) | taken, by `take` or `claim` |
//! | taken | 0 | 0 | the thread that took it | used, free, or the kernel's |
//! | used | 0 | 1 | the program | taken, by `end_use` |
//! | the kernel's | 0 | 0, but `kernels` | as the kernel's mappings say | taken, by `end_kernels`, when all of it is unmapped in one call |
//!
//! Every change of state is one atomic instruction on a bit, and the thread that clears a bit owns the block.
//! So there are no locks: a signal's handler may come between any two instructions and use the pool,
//! and a child of `fork` finds every block in one of these states, whatever the threads that it does
//! not have were doing. A block that was taken at that moment stays so in the child: the pool does not
//! use it again, and calls that name it are the kernel's.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::PAGE;

/// The distance from chunk to chunk.
pub const STRIDE: u64 = 2 << 20;

/// The bytes of a chunk. The page that is left out keeps the kernel from making huge pages of blocks: small
/// mappings of a program have none either.
pub const SIZE: u64 = STRIDE - PAGE;

/// The most pages of a block.
pub const MOST_PAGES: u64 = 256;

const WORDS: usize = if cfg!(loom) { 1 } else { 8 };

/// The memory of a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Mapped, with what the program left in it.
    Dirty,
    /// Mapped, and zero.
    Clean,
    /// Not accessible. When it is again, it is zero.
    Gone,
}

/// A bit for each block.
type Bits = [AtomicU64; WORDS];

sync::const_unless_loom! {
    fn no_bits() -> Bits {
        atomics![AtomicU64::new(0); WORDS]
    }
}

/// The states of a chunk's blocks. It has cache lines of its own, in pairs as the CPU fetches them: chunks of
/// different CPUs lie side by side.
#[repr(align(128))]
pub struct Chunk {
    /// The pages of a block.
    pages: AtomicU32,
    /// The CPU in whose list the chunk is.
    cpu: AtomicU32,
    /// The number of the next chunk of that list, plus one.
    pub next: AtomicU32,
    free: Bits,
    used: Bits,
    kernels: Bits,
    // Of free blocks. Only the owner of a block changes these.
    clean: Bits,
    gone: Bits,
}

impl Chunk {
    sync::const_unless_loom! {
        /// Makes a chunk without blocks.
        pub fn new() -> Self {
            Chunk {
                pages: AtomicU32::new(0),
                cpu: AtomicU32::new(0),
                next: AtomicU32::new(0),
                free: no_bits(),
                used: no_bits(),
                kernels: no_bits(),
                clean: no_bits(),
                gone: no_bits(),
            }
        }
    }

    /// Divides the chunk into blocks of zeroes. No other thread may know it yet.
    pub fn begin(&self, cpu: u32, pages: u64) {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.pages.store(pages as u32, Ordering::Relaxed);
        for (word, first) in (0..self.blocks()).step_by(64).enumerate() {
            let bits = u64::MAX >> (64 - (self.blocks() - first).min(64));
            self.clean[word].store(bits, Ordering::Relaxed);
            // Release pairs with the acquire in `claim`.
            self.free[word].store(bits, Ordering::Release);
        }
    }

    /// Returns the CPU in whose list the chunk is.
    pub fn cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed) as usize
    }

    /// Returns the pages of a block, 0 before [`begin`](Self::begin).
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed).into()
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        match self.pages() {
            0 => 0,
            pages => (SIZE / (pages * PAGE)) as usize,
        }
    }

    /// Returns the block that is exactly this part of the chunk.
    pub fn block_at(&self, offset: u64, length: u64) -> Option<usize> {
        let size = self.pages() * PAGE;
        let is_one = length == size && size > 0 && offset.is_multiple_of(size) && offset + length <= SIZE;
        is_one.then(|| (offset / size) as usize)
    }

    /// Returns the blocks that this part of the chunk touches.
    pub fn blocks_in(&self, from: u64, to: u64) -> core::ops::Range<usize> {
        match self.pages() * PAGE {
            0 => 0..0,
            size => {
                let end = (to.div_ceil(size) as usize).min(self.blocks());
                ((from / size) as usize).min(end)..end
            }
        }
    }

    /// Takes a free block.
    pub fn take(&self) -> Option<(usize, Content)> {
        (0..WORDS).find_map(|word| {
            let mut bits = self.free[word].load(Ordering::Relaxed);
            while bits != 0 {
                let block = word * 64 + bits.trailing_zeros() as usize;
                match self.claim(block) {
                    Some(content) => return Some((block, content)),
                    None => bits &= bits - 1,
                }
            }
            None
        })
    }

    /// Takes this block if it is free.
    pub fn claim(&self, block: usize) -> Option<Content> {
        // Acquire pairs with the release in `give`: its content is known.
        if !clear(&self.free, block, Ordering::Acquire) {
            return None;
        }
        Some(match () {
            () if is_set(&self.gone, block) => Content::Gone,
            () if is_set(&self.clean, block) => Content::Clean,
            () => Content::Dirty,
        })
    }

    /// Makes a block that the caller owns free.
    pub fn give(&self, block: usize, content: Content) {
        put(&self.gone, block, content == Content::Gone);
        put(&self.clean, block, content == Content::Clean);
        // Release pairs with the acquire in `claim`.
        set(&self.free, block, Ordering::Release);
    }

    /// Makes a block that the caller took the program's.
    pub fn begin_use(&self, block: usize) {
        // Relaxed: the program passes the address on in its own way.
        set(&self.used, block, Ordering::Relaxed);
    }

    /// Takes a block from the program. Returns whether it had it.
    pub fn end_use(&self, block: usize) -> bool {
        clear(&self.used, block, Ordering::Relaxed)
    }

    /// Returns whether the program has a block.
    pub fn is_used(&self, block: usize) -> bool {
        is_set(&self.used, block)
    }

    /// Makes a block that the caller took the kernel's.
    pub fn begin_kernels(&self, block: usize) {
        set(&self.kernels, block, Ordering::Relaxed);
    }

    /// Takes a block from the kernel. Returns whether it was the kernel's.
    pub fn end_kernels(&self, block: usize) -> bool {
        clear(&self.kernels, block, Ordering::Relaxed)
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self::new()
    }
}

fn is_set(bits: &Bits, block: usize) -> bool {
    bits[block / 64].load(Ordering::Relaxed) & 1 << (block % 64) != 0
}

fn set(bits: &Bits, block: usize, order: Ordering) {
    bits[block / 64].fetch_or(1 << (block % 64), order);
}

/// Returns whether this cleared the bit.
fn clear(bits: &Bits, block: usize, order: Ordering) -> bool {
    let bit = 1 << (block % 64);
    bits[block / 64].fetch_and(!bit, order) & bit != 0
}

fn put(bits: &Bits, block: usize, value: bool) {
    if is_set(bits, block) == value {
        return;
    }
    match value {
        true => set(bits, block, Ordering::Relaxed),
        false => _ = clear(bits, block, Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::vec::Vec;

    #[test]
    fn blocks_fill_the_chunk() {
        for pages in 1..=MOST_PAGES {
            let chunk = Chunk::new();
            chunk.begin(3, pages);
            let mut taken: Vec<usize> = std::iter::from_fn(|| Some(chunk.take()?.0)).collect();
            taken.sort();
            assert_eq!(taken, (0..chunk.blocks()).collect::<Vec<_>>());
            let size = pages * PAGE;
            assert!(chunk.blocks() as u64 * size <= SIZE && (chunk.blocks() + 1) as u64 * size > SIZE);
            assert_eq!((chunk.cpu(), chunk.pages()), (3, pages));
        }
    }

    #[test]
    fn a_block_is_what_was_given() {
        let chunk = Chunk::new();
        chunk.begin(0, 8);
        for content in [Content::Dirty, Content::Gone, Content::Clean, Content::Dirty] {
            chunk.claim(5).unwrap();
            assert!(chunk.claim(5).is_none() && !chunk.is_used(5));
            chunk.give(5, content);
            assert_eq!(chunk.claim(5), Some(content));
            chunk.begin_use(5);
            assert!(chunk.is_used(5) && !chunk.end_kernels(5));
            assert!(chunk.end_use(5) && !chunk.end_use(5));
            chunk.begin_kernels(5);
            assert!(chunk.end_kernels(5) && !chunk.end_kernels(5));
            chunk.give(5, content);
        }
    }

    #[test]
    fn ranges_name_blocks() {
        let chunk = Chunk::new();
        assert_eq!((chunk.block_at(0, 0), chunk.blocks_in(0, SIZE)), (None, 0..0));
        chunk.begin(0, 2);
        let size = 2 * PAGE;
        assert_eq!(chunk.block_at(3 * size, size), Some(3));
        for (offset, length) in [(PAGE, size), (0, PAGE), (0, 2 * size), (SIZE - PAGE, size)] {
            assert_eq!(chunk.block_at(offset, length), None);
        }
        assert_eq!(chunk.blocks_in(size - 1, size + 1), 0..2);
        assert_eq!(chunk.blocks_in(size, 2 * size), 1..2);
        assert_eq!(chunk.blocks_in(0, STRIDE), 0..255);
        assert_eq!(chunk.blocks_in(SIZE - PAGE, STRIDE), 255..255);
    }

    #[test]
    fn a_block_has_one_owner_at_a_time() {
        let chunk = Chunk::new();
        chunk.begin(0, MOST_PAGES);
        let owners: Vec<AtomicUsize> = (0..chunk.blocks()).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (chunk, owners) = (&chunk, &owners);
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let Some((block, _)) = chunk.take() else { continue };
                        assert_eq!(owners[block].fetch_add(1, Ordering::Relaxed), 0);
                        chunk.begin_use(block);
                        let ended = chunk.end_use(block);
                        assert!(ended, "thread {thread} round {round}");
                        owners[block].fetch_sub(1, Ordering::Relaxed);
                        chunk.give(block, Content::Dirty);
                    }
                });
            }
        });
        assert_eq!(std::iter::from_fn(|| chunk.take()).count(), chunk.blocks());
    }
}
