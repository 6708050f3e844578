//! Memory for an index: one arena per thread, as in section 5.1 of the paper.
//!
//! Memory is mapped in blocks of a fixed size, free lists belong to one thread, and nothing is ever given
//! back to the kernel. So an arena's memory is `'static`, and threads read each other's results without
//! regard to lifetimes.
//!
//! Pieces are powers of two, at least 16 bytes. A freed piece keeps the address of the next one in its first
//! word. The rest of a block when the next one is mapped goes to the free lists too.

use crate::memory::{self, PAGE, READ_WRITE};
use crate::require;
use std::mem::{MaybeUninit, size_of};
use std::ops::Deref;
use std::slice::{from_raw_parts, from_raw_parts_mut};

const SMALLEST: usize = 16;

/// The memory of one thread.
pub struct Arena {
    block: usize,
    next: usize,
    end: usize,
    free: [usize; 64],
    mmaps: u64,
}

impl Arena {
    /// Creates an arena that maps `block` bytes at a time (rounded up to pages).
    pub fn new(block: usize) -> Arena {
        Arena { block: block.next_multiple_of(PAGE), next: 0, end: 0, free: [0; 64], mmaps: 0 }
    }

    /// Returns how often it has mapped memory.
    pub fn mmaps(&self) -> u64 {
        self.mmaps
    }

    /// Returns the address of a piece of `size` bytes, a power of two.
    fn take(&mut self, size: usize) -> usize {
        let class = size.ilog2() as usize;
        if self.free[class] != 0 {
            return self.unlink(class);
        }
        if self.end - self.next < size {
            self.refill(size);
        }
        self.next += size;
        self.next - size
    }

    fn give(&mut self, piece: usize, size: usize) {
        let class = size.ilog2() as usize;
        // SAFETY: the piece is unused, and a class has room for a word.
        unsafe { (piece as *mut usize).write(self.free[class]) };
        self.free[class] = piece;
    }

    fn unlink(&mut self, class: usize) -> usize {
        let piece = self.free[class];
        // SAFETY: `give` wrote the word, and no other thread touches free pieces.
        self.free[class] = unsafe { (piece as *const usize).read() };
        piece
    }

    fn refill(&mut self, size: usize) {
        while self.end - self.next >= SMALLEST {
            let rest = 1 << (self.end - self.next).ilog2();
            self.give(self.next, rest);
            self.next += rest;
        }
        let length = size.next_multiple_of(self.block);
        self.next = require(memory::map(length, READ_WRITE), "mmap of a block");
        self.end = self.next + length;
        self.mmaps += 1;
    }
}

/// A growable array in an arena. Elements are moved, never dropped.
pub struct List<T: 'static> {
    room: &'static mut [MaybeUninit<T>],
    length: usize,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { room: &mut [], length: 0 }
    }
}

impl<T: Copy> List<T> {
    /// Returns a list of these elements.
    pub fn copy_of(elements: &[T], arena: &mut Arena) -> List<T> {
        let mut elements = elements.iter().copied();
        List::filled(elements.len(), arena, || elements.next().expect("as many as there are"))
    }
}

impl<T> List<T> {
    const FITS: () = assert!(size_of::<T>() > 0 && align_of::<T>() <= SMALLEST);

    /// Returns an empty list with room for at least `count` elements.
    pub fn with_room(count: usize, arena: &mut Arena) -> List<T> {
        let () = Self::FITS;
        let size = (count * size_of::<T>()).next_power_of_two().max(SMALLEST);
        let piece = arena.take(size) as *mut MaybeUninit<T>;
        // SAFETY: the piece is `size` bytes that nothing else refers to and that stay mapped for ever, it is
        // aligned to 16 bytes, and its elements may hold anything.
        let room = unsafe { from_raw_parts_mut(piece, size / size_of::<T>()) };
        List { room, length: 0 }
    }

    /// Returns a list of `count` elements made by `make`.
    pub fn filled(count: usize, arena: &mut Arena, mut make: impl FnMut() -> T) -> List<T> {
        let mut list = List::with_room(count, arena);
        list.room[..count].iter_mut().for_each(|place| _ = place.write(make()));
        list.length = count;
        list
    }

    /// Adds an element, doubling the room when it is full.
    pub fn push(&mut self, element: T, arena: &mut Arena) {
        if self.length == self.room.len() {
            self.grow(arena);
        }
        self.room[self.length].write(element);
        self.length += 1;
    }

    /// Returns the elements, which stay valid for ever.
    pub fn freeze(self) -> &'static [T] {
        // SAFETY: the first `length` elements are initialised, and nothing can write to them any more.
        unsafe { from_raw_parts(self.room.as_ptr().cast(), self.length) }
    }

    /// Returns the memory to the thread's own arena, even if the piece came from another one.
    pub fn free(self, arena: &mut Arena) {
        if !self.room.is_empty() {
            let size = size_of_val(self.room).next_power_of_two();
            arena.give(self.room.as_mut_ptr() as usize, size);
        }
    }

    /// Returns the elements, to be changed.
    pub fn elements(&mut self) -> &mut [T] {
        // SAFETY: the first `length` elements are initialised.
        unsafe { from_raw_parts_mut(self.room.as_mut_ptr().cast(), self.length) }
    }

    fn grow(&mut self, arena: &mut Arena) {
        let mut larger = List::with_room((2 * self.length).max(1), arena);
        // SAFETY: there is room for twice as many elements, and the old ones are never read again.
        unsafe { larger.room.as_mut_ptr().copy_from_nonoverlapping(self.room.as_ptr(), self.length) };
        larger.length = self.length;
        std::mem::replace(self, larger).free(arena);
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `length` elements are initialised.
        unsafe { from_raw_parts(self.room.as_ptr().cast(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_elements_while_it_grows() {
        let mut arena = Arena::new(PAGE);
        let mut list = List::default();
        (0..10_000u64).for_each(|number| list.push(number, &mut arena));
        assert!(list.iter().copied().eq(0..10_000));
        assert_eq!(list.freeze().len(), 10_000);
    }

    #[test]
    fn a_copy_holds_the_elements() {
        let copy = List::copy_of(&[3, 1, 4], &mut Arena::new(PAGE));
        assert_eq!(copy.freeze(), [3, 1, 4]);
    }

    #[test]
    fn elements_of_odd_size_fit_and_their_memory_comes_back() {
        let mut arena = Arena::new(1 << 16);
        let list = List::filled(5, &mut arena, || [7u8; 24]);
        let place = list.as_ptr() as usize;
        assert_eq!(list[4], [7; 24]);
        list.free(&mut arena);
        let list: List<u64> = List::with_room(16, &mut arena);
        assert_eq!(list.as_ptr() as usize, place);
    }

    #[test]
    fn blocks_are_mapped_whole_and_their_rest_is_used() {
        let mut arena = Arena::new(1 << 16);
        arena.take(1 << 15);
        assert_eq!(arena.mmaps(), 1);
        arena.take(1 << 16);
        assert_eq!(arena.mmaps(), 2);
        arena.take(1 << 15);
        assert_eq!(arena.mmaps(), 2, "the rest of the first block");
        arena.take(1 << 20);
        assert_eq!((arena.mmaps(), arena.next), (3, arena.end), "sixteen blocks in one call");
    }
}
