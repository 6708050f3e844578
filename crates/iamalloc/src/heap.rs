//! Sub-heaps: each thread allocates from its own and frees blocks of all.
//!
//! ```text
//!   owner:   take ◀── run's list ◀── give          runs, segments: the owner's alone, no atomic
//!                         ▲
//!                         │ collect: when a class has no block left
//!   others:  push ──▶ freed[class]                 one line per class, which others write
//! ```
//!
//! | sub-heap | by | next |
//! |---|---|---|
//! | used by a thread | [`Heaps::leave`] at its end | idle |
//! | idle | [`Heaps::claim`] of a new thread | used |
//!
//! 1. Only the thread that has claimed a sub-heap touches its runs and the `own` parts of its segments.
//!    Release in `leave` and Acquire in `claim` pass them on.
//! 2. The head of a segment, and the kind of a run, do not change while it has a block that is not free. So
//!    the holder of a block may read them.
//! 3. A block in `freed` counts as used in its run. So its run, and its segment, stay.
//! 4. A sub-heap is never freed. A block may outlive the thread that allocated it.
//! 5. Nothing waits: a thread that stops anywhere, also by `fork` in another one, holds up no other.

use core::cell::Cell;
use core::fmt;
use core::ptr::{self, NonNull};

use sync::CachePadded;
use sync::atomic::{AtomicPtr, Ordering};

use crate::classes::{self, CLASSES, Kind};
use crate::segment::{
    ALL_RUNS, Head, LISTS, MAX_RUNS, RUN, Run, SEGMENT, Segment, list_of, mask, neighbours,
};
use crate::source::Source;
use crate::stack::{Block, Stack};

/// The class of blocks that have whole runs.
const WHOLE: usize = CLASSES;

/// The most free runs of a thread that keep their memory, beside as many as are used.
const MOST_DIRTY: usize = 256;

/// The most times in a row that runs are freed while more keep their memory, unless twice as many do. A
/// program that exchanges large blocks is over the limit for a moment, again and again.
const MOST_OVER: usize = 16;

/// The most free runs that keep their memory when a thread ends.
const MOST_LEFT: usize = 16;

/// The most segments without a block that a thread keeps.
const MOST_EMPTY: usize = 8;

/// The mappings of huge blocks that a thread keeps, and the largest of them.
const KEPT: usize = 2;
const MOST_KEPT: usize = 16 << 20;

/// The start of a huge block in its mapping, unless it has a larger alignment.
const HUGE_START: usize = 4 << 10;

/// The memory of one thread.
pub struct SubHeap {
    /// Blocks that other threads have freed, by class.
    freed: [CachePadded<Stack>; CLASSES + 1],
    own: CachePadded<Own>,
}

/// The part of a sub-heap that only its thread touches.
struct Own {
    /// Per class, the first run with blocks that can be taken, unless it has just lost its last one.
    runs: [Cell<*const Run>; CLASSES],
    /// The segments with free runs, in lists as [`list_of`] says.
    segments: [Cell<Option<Segment>>; LISTS],
    /// The segments without a block.
    empty: Cell<usize>,
    /// The runs that are used.
    used_runs: Cell<usize>,
    /// The free runs that keep their memory.
    dirty_runs: Cell<usize>,
    /// The times in a row that runs were freed while more of them keep their memory than should.
    over: Cell<usize>,
    /// Those of them that the source refused to take back the last time.
    refused_runs: Cell<usize>,
    /// Mappings of huge blocks that were freed, for the next ones, and the slot for the next one.
    kept: [Cell<Option<Mapping>>; KEPT],
    next_kept: Cell<usize>,
    /// The next idle sub-heap, while this one is idle.
    next: Cell<*mut SubHeap>,
}

/// The start of a mapping, and its bytes.
type Mapping = (NonNull<u8>, usize);

/// All sub-heaps, and the source of their memory.
pub struct Heaps<S> {
    source: S,
    idle: AtomicPtr<SubHeap>,
}

impl<S: Source> Heaps<S> {
    sync::const_unless_loom! {
        /// Creates an allocator without memory.
        pub fn new(source: S) -> Self {
            Heaps { source, idle: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Returns the source of memory.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns a sub-heap for the calling thread, or `None` if there is no memory. It is the thread's until
    /// [`Self::leave`].
    pub fn claim(&self) -> Option<NonNull<SubHeap>> {
        // Acquire: the changes of its last thread. Pairs with the Release in `leave`.
        let first = NonNull::new(self.idle.swap(ptr::null_mut(), Ordering::Acquire));
        let Some(first) = first else { return self.create() };
        // SAFETY: the whole list is this thread's.
        let rest = unsafe { first.as_ref() }.own.next.replace(ptr::null_mut());
        self.put_back(rest);
        Some(first)
    }

    /// Puts a list of idle sub-heaps back.
    fn put_back(&self, mut rest: *mut SubHeap) {
        if rest.is_null() {
            return;
        }
        // Release: the changes of their last threads, which this thread has acquired. Pairs with the Acquire
        // in `claim`.
        let put = self.idle.compare_exchange(ptr::null_mut(), rest, Ordering::Release, Ordering::Relaxed);
        // Others have become idle meanwhile, which is rare.
        while put.is_err() && !rest.is_null() {
            // SAFETY: the list is this thread's.
            let next = unsafe { &*rest }.own.next.get();
            self.push(rest);
            rest = next;
        }
    }

    fn push(&self, heap: *mut SubHeap) {
        let mut top = self.idle.load(Ordering::Relaxed);
        loop {
            // SAFETY: the sub-heap is this thread's until the exchange succeeds.
            unsafe { &*heap }.own.next.set(top);
            // Release: pairs with the Acquire in `claim`. No sub-heap leaves except with all others.
            match self.idle.compare_exchange_weak(top, heap, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    fn create(&self) -> Option<NonNull<SubHeap>> {
        let heap = self.source.map(size_of::<SubHeap>().next_multiple_of(4096), 4096)?.cast();
        // SAFETY: the memory is new, large enough and aligned to a page.
        unsafe { heap.write(SubHeap::new()) };
        Some(heap)
    }

    /// Leaves a sub-heap to the next thread, and gives back the memory that is free, except for 1 MiB.
    ///
    /// # Safety
    /// The calling thread has claimed it, and does not use it any more.
    pub unsafe fn leave(&self, heap: NonNull<SubHeap>) {
        // SAFETY: by this function's contract.
        let own = unsafe { heap.as_ref() };
        own.collect_all(&self.source);
        own.give_runs_without_blocks(&self.source);
        own.unmap_kept(&self.source);
        if own.own.dirty_runs.get() > MOST_LEFT {
            own.give_back(0, &self.source);
        }
        self.push(heap.as_ptr());
    }

    /// Allocates `size` bytes, aligned to `align`, a power of two. Returns the block, or null if there is no
    /// memory, and whether it is known to be zero.
    ///
    /// # Safety
    /// The calling thread has claimed `mine`.
    #[inline(always)]
    pub unsafe fn alloc(&self, mine: NonNull<SubHeap>, size: usize, align: usize) -> (*mut u8, bool) {
        // SAFETY: by this function's contract.
        let own = unsafe { mine.as_ref() };
        match classes::quick_class(size, align) {
            Some(class) => (own.alloc_small(class, self), false),
            None => self.alloc_any(own, size, align),
        }
    }

    #[inline(never)]
    fn alloc_any(&self, own: &SubHeap, size: usize, align: usize) -> (*mut u8, bool) {
        match classes::kind(size, align) {
            Some(Kind::Small(class)) => (own.alloc_small(class, self), false),
            Some(Kind::Runs(runs)) => own.alloc_runs(runs, self),
            Some(Kind::Huge) => self.alloc_huge(own, size, align),
            None => (ptr::null_mut(), false),
        }
    }

    /// Returns a block, and whether it is known to be zero.
    #[cold]
    fn alloc_huge(&self, own: &SubHeap, size: usize, align: usize) -> (*mut u8, bool) {
        let start = align.max(HUGE_START);
        let bytes = (start + size).next_multiple_of(4096);
        let kept = own.take_kept(bytes);
        let (memory, bytes) = match kept {
            Some(kept) => kept,
            None => match self.source.map(bytes, SEGMENT) {
                Some(memory) => (memory, bytes),
                None => return (ptr::null_mut(), false),
            },
        };
        // SAFETY: the memory is this thread's, and longer than the head and the block.
        let block = unsafe {
            memory.cast().write(Head { owner: ptr::null(), huge: bytes });
            memory.as_ptr().add(start)
        };
        (block, kept.is_none())
    }

    /// Changes the size of a huge block, which stays one, if the source can do that. The block may move.
    ///
    /// # Safety
    /// It was allocated here and not freed. If the result is another address, nothing refers to the block.
    pub unsafe fn resize_huge(&self, block: *mut u8, size: usize) -> Option<*mut u8> {
        // SAFETY: the block is used, so its mapping is there, and only its holder touches the head.
        unsafe {
            let mapping = Segment::of(block);
            let Head { owner, huge } = *mapping.head();
            if !owner.is_null()
                || size > isize::MAX as usize / 2
                || classes::kind(size, 1) != Some(Kind::Huge)
            {
                return None;
            }
            let start = block.addr() - mapping.start().addr().get();
            let bytes = (start + size).next_multiple_of(4096);
            let memory = self.source.resize(mapping.start(), huge, bytes, SEGMENT)?;
            memory.cast().write(Head { owner, huge: bytes });
            Some(memory.as_ptr().add(start))
        }
    }

    /// Takes back what others have freed in some sub-heaps that are idle, before new memory is mapped. Their
    /// next threads may never come. Other ones have their turn the next time.
    fn clean_idle(&self) {
        const FEW: usize = 8;
        // Acquire: as in `claim`.
        let first = self.idle.swap(ptr::null_mut(), Ordering::Acquire);
        let (mut last, mut rest) = (ptr::null_mut(), first);
        for _ in 0..FEW {
            // SAFETY: the whole list is this thread's, here and below.
            let Some(heap) = (unsafe { rest.as_ref() }) else { break };
            heap.give_all_back(&self.source);
            (last, rest) = (rest, heap.own.next.get());
        }
        if rest.is_null() {
            return self.put_back(first);
        }
        // SAFETY: as above. `last` is one of the list, because `rest` is not the first.
        unsafe {
            let mut tail = &*rest;
            while let Some(next) = tail.own.next.get().as_ref() {
                tail = next;
            }
            tail.own.next.set(first);
            let last: &SubHeap = &*last;
            last.own.next.set(ptr::null_mut());
        }
        self.put_back(rest);
    }

    /// Frees a block of any thread.
    ///
    /// # Safety
    /// It was allocated here and not freed, and nothing refers to it. The calling thread has claimed `mine`,
    /// or it is null.
    #[inline]
    pub unsafe fn free(&self, mine: *const SubHeap, block: *mut u8) {
        // SAFETY: the block is used, so its segment and the sub-heap are there.
        unsafe {
            let segment = Segment::of(block);
            let Head { owner, huge } = *segment.head();
            if owner.is_null() {
                return self.free_huge(mine, segment, huge);
            }
            let owner: *const SubHeap = owner.cast();
            let heap = &*owner;
            if owner == mine {
                heap.free(segment, block, &self.source);
            } else {
                let (header, index) = (segment.header(), segment.index(block));
                let is_whole = header.runs.firsts[index].get() == 0;
                let class = if is_whole { WHOLE } else { header.runs.kinds[index].get().into() };
                heap.freed[class].push(block);
            }
        }
    }

    /// Frees the mapping of a huge block, or keeps it for the next one.
    ///
    /// # Safety
    /// As for [`Self::free`].
    #[cold]
    unsafe fn free_huge(&self, mine: *const SubHeap, mapping: Segment, bytes: usize) {
        // SAFETY: the thread has claimed it, or it is null.
        let mine = unsafe { mine.as_ref() };
        let left = mine.map_or(Some((mapping.start(), bytes)), |mine| mine.keep(mapping.start(), bytes));
        if let Some((start, bytes)) = left {
            // SAFETY: the mapping has no block any more.
            unsafe { self.source.unmap(start, bytes) };
        }
    }

    /// Returns the bytes that a block has, at least those that were asked for.
    ///
    /// # Safety
    /// It was allocated here and not freed.
    pub unsafe fn usable(&self, block: *mut u8) -> usize {
        // SAFETY: the block is used, so its segment is there.
        unsafe {
            let segment = Segment::of(block);
            let Head { owner, huge } = *segment.head();
            if owner.is_null() {
                return huge - (block.addr() - segment.start().addr().get());
            }
            let (header, index) = (segment.header(), segment.index(block));
            match (header.runs.firsts[index].get(), header.runs.kinds[index].get().into()) {
                (0, runs) => runs * RUN,
                (_, class) => classes::size(class),
            }
        }
    }
}

impl SubHeap {
    fn new() -> Self {
        SubHeap {
            freed: core::array::from_fn(|_| CachePadded::new(Stack::new())),
            own: CachePadded::new(Own {
                runs: [const { Cell::new(ptr::null()) }; CLASSES],
                segments: [const { Cell::new(None) }; LISTS],
                empty: Cell::new(0),
                used_runs: Cell::new(0),
                dirty_runs: Cell::new(0),
                over: Cell::new(0),
                refused_runs: Cell::new(0),
                kept: [const { Cell::new(None) }; KEPT],
                next_kept: Cell::new(0),
                next: Cell::new(ptr::null_mut()),
            }),
        }
    }

    #[inline(always)]
    fn alloc_small(&self, class: usize, heaps: &Heaps<impl Source>) -> *mut u8 {
        // SAFETY: runs in the list have a segment of this sub-heap.
        if let Some(run) = unsafe { self.own.runs[class].get().as_ref() } {
            let block = run.take(&heaps.source);
            if !block.is_null() {
                return block;
            }
        }
        self.alloc_slowly(class, heaps)
    }

    /// Takes a block of another run, of those that others have freed, or of a new run.
    #[cold]
    fn alloc_slowly(&self, class: usize, heaps: &Heaps<impl Source>) -> *mut u8 {
        let mut is_collected = false;
        loop {
            // SAFETY: as in `alloc_small`.
            if let Some(run) = unsafe { self.own.runs[class].get().as_ref() } {
                let block = run.take(&heaps.source);
                if !block.is_null() {
                    return block;
                }
                self.unlist(class, run);
            } else if !is_collected {
                is_collected = true;
                self.collect(class, &heaps.source);
            } else if !self.add_run(class, heaps) {
                return ptr::null_mut();
            }
        }
    }

    /// Adds a run of blocks of a class. Returns false if there is no memory.
    fn add_run(&self, class: usize, heaps: &Heaps<impl Source>) -> bool {
        let count = classes::runs(class);
        let Some((segment, first, was_used)) = self.take_runs(count, heaps) else { return false };
        // SAFETY: the segment is this sub-heap's.
        let header = unsafe { segment.header() };
        for index in first..first + count {
            header.runs.firsts[index].set(first as u8);
            header.runs.kinds[index].set(class as u8);
        }
        let run = header.run(first);
        run.begin(segment.run_start(first), count * RUN, classes::size(class), was_used);
        self.list(class, run);
        true
    }

    fn alloc_runs(&self, runs: usize, heaps: &Heaps<impl Source>) -> (*mut u8, bool) {
        debug_assert!((1..=MAX_RUNS).contains(&runs));
        match self.take_runs(runs, heaps) {
            Some((segment, index, was_used)) => {
                // SAFETY: the segment is this sub-heap's.
                let header = unsafe { segment.header() };
                header.runs.firsts[index].set(0);
                header.runs.kinds[index].set(runs as u8);
                (segment.run_start(index).as_ptr(), !was_used)
            }
            None => (ptr::null_mut(), false),
        }
    }

    /// Takes neighbouring free runs. Returns their segment, the first of them, and whether their memory may
    /// not be zero.
    fn take_runs(&self, count: usize, heaps: &Heaps<impl Source>) -> Option<(Segment, usize, bool)> {
        let found = self.find_runs(count).or_else(|| {
            self.collect_all(&heaps.source);
            self.find_runs(count)
        });
        let (segment, first) = match found {
            Some(found) => found,
            None => (self.add_segment(heaps)?, 1),
        };
        // SAFETY: the segment is this sub-heap's.
        let own = unsafe { &segment.header().own };
        let (free, taken) = (own.free.get(), mask(first, count));
        if free == ALL_RUNS {
            self.own.empty.set(self.own.empty.get() - 1);
        }
        let was_dirty = own.dirty.get() & taken;
        own.dirty.set(own.dirty.get() & !taken);
        self.own.dirty_runs.set(self.own.dirty_runs.get() - was_dirty.count_ones() as usize);
        self.own.used_runs.set(self.own.used_runs.get() + count);
        self.set_free(segment, free & !taken);
        Some((segment, first, was_dirty != 0))
    }

    /// Finds neighbouring free runs. Each segment of a list from `enough` on has as many, and those of the
    /// list before it may have. Of these it looks at a few.
    fn find_runs(&self, count: usize) -> Option<(Segment, usize)> {
        const FEW: usize = 8;
        let enough = count.next_power_of_two().ilog2() as usize;
        (enough.saturating_sub(1)..LISTS).find_map(|list| {
            self.listed(list).take(FEW).find_map(|segment| {
                // SAFETY: the segment is this sub-heap's.
                let free = unsafe { segment.header() }.own.free.get();
                Some((segment, neighbours(free, count)?))
            })
        })
    }

    fn add_segment(&self, heaps: &Heaps<impl Source>) -> Option<Segment> {
        heaps.clean_idle();
        let memory = heaps.source.map(SEGMENT, SEGMENT)?;
        // SAFETY: the memory is new, and as large and aligned as asked for.
        let segment = unsafe { Segment::create(memory, ptr::from_ref(self).cast()) };
        self.own.empty.set(self.own.empty.get() + 1);
        self.link(segment);
        Some(segment)
    }

    /// Frees a block of this sub-heap.
    ///
    /// # Safety
    /// The calling thread has claimed it. The block lies in `segment`, which is this sub-heap's, is used, and
    /// nothing refers to it.
    #[inline]
    unsafe fn free(&self, segment: Segment, block: *mut u8, source: &impl Source) {
        let index = segment.index(block);
        // SAFETY: the segment is this sub-heap's.
        let header = unsafe { segment.header() };
        let first = usize::from(header.runs.firsts[index].get());
        if first == 0 {
            return self.give_runs(segment, index, header.runs.kinds[index].get().into(), source);
        }
        let run = header.run(first);
        // SAFETY: by this function's contract.
        unsafe { run.give(block) };
        if run.used.get() == 0 || !run.is_listed.get() {
            // SAFETY: the run is this sub-heap's.
            unsafe { self.note_freed(header.runs.kinds[first].get().into(), run, source) };
        }
    }

    /// Lists a run that was full, and gives one back that has no used block, unless it is the only one that
    /// is listed: the next block of the class would need it again.
    ///
    /// # Safety
    /// As for [`Self::give_run`], except that the run may have used blocks.
    #[cold]
    unsafe fn note_freed(&self, class: usize, place: *const Run, source: &impl Source) {
        // SAFETY: the run is there, until it is given back.
        let run = unsafe { &*place };
        if !run.is_listed.get() {
            self.list(class, run);
        }
        let is_alone = run.next.get().is_null() && run.previous.get().is_null();
        if run.used.get() == 0 && !is_alone {
            // SAFETY: by this function's contract, and it has no used block.
            unsafe { self.give_run(class, place, source) };
        }
    }

    /// Gives back a run, or a group, without a used block. Its segment may be unmapped, so it is no
    /// reference.
    ///
    /// # Safety
    /// It is a listed run of this sub-heap, and the caller does not use it any more.
    unsafe fn give_run(&self, class: usize, place: *const Run, source: &impl Source) {
        // SAFETY: the run is there, until it is given back.
        let run = unsafe { &*place };
        self.unlist(class, run);
        let start = run.start.get();
        // SAFETY: the run lies in a segment of this sub-heap.
        let segment = unsafe { Segment::of(start) };
        self.give_runs(segment, segment.index(start), classes::runs(class), source);
    }

    /// Gives runs back to their segment.
    fn give_runs(&self, segment: Segment, first: usize, count: usize, source: &impl Source) {
        // SAFETY: the segment is this sub-heap's.
        let own = unsafe { &segment.header().own };
        let (free, given) = (own.free.get(), mask(first, count));
        debug_assert!(free & given == 0, "runs are freed twice");
        own.dirty.set(own.dirty.get() | given);
        self.set_free(segment, free | given);
        self.own.used_runs.set(self.own.used_runs.get() - count);
        self.own.dirty_runs.set(self.own.dirty_runs.get() + count);
        if own.free.get() == ALL_RUNS {
            self.own.empty.set(self.own.empty.get() + 1);
            if self.own.empty.get() > MOST_EMPTY {
                return self.remove_segment(segment, source);
            }
        }
        let most = MOST_DIRTY + self.own.used_runs.get() + 2 * self.own.refused_runs.get();
        let (dirty, was_over) = (self.own.dirty_runs.get(), self.own.over.get());
        self.own.over.set(if dirty > most { was_over + 1 } else { 0 });
        if dirty > 2 * most || self.own.over.get() > MOST_OVER {
            self.own.over.set(0);
            self.give_back(most / 2, source);
        }
    }

    /// Gives back the runs that are kept for the next block of their class.
    fn give_runs_without_blocks(&self, source: &impl Source) {
        for class in 0..CLASSES {
            let mut place = self.own.runs[class].get();
            // SAFETY: as in `alloc_small`.
            while let Some(run) = unsafe { place.as_ref() } {
                place = run.next.get();
                if run.used.get() == 0 {
                    // SAFETY: the run is listed, and used no more.
                    unsafe { self.give_run(class, run, source) };
                }
            }
        }
    }

    /// Unmaps a segment without a block.
    fn remove_segment(&self, segment: Segment, source: &impl Source) {
        self.unlink(segment);
        self.own.empty.set(self.own.empty.get() - 1);
        // SAFETY: the segment is this sub-heap's.
        let dirty = unsafe { segment.header() }.own.dirty.get();
        self.own.dirty_runs.set(self.own.dirty_runs.get() - dirty.count_ones() as usize);
        // SAFETY: none of its runs is used, so no block and no list refers to it.
        unsafe { source.unmap(segment.start(), SEGMENT) };
    }

    /// Gives back all memory without a block, as far as it is not needed for the next one.
    fn give_all_back(&self, source: &impl Source) {
        self.collect_all(source);
        self.give_runs_without_blocks(source);
        self.give_back(0, source);
    }

    /// Gives back the memory of free runs, until `left` keep theirs, and first that of segments without a
    /// block. The runs stay mapped. If the source refuses some, the next try comes when that many more are
    /// free.
    fn give_back(&self, left: usize, source: &impl Source) {
        let mut refused = 0;
        for segment in (0..LISTS).rev().flat_map(|list| self.listed(list)) {
            // SAFETY: the segment is this sub-heap's.
            let dirty = unsafe { &segment.header().own.dirty };
            let mut rest = dirty.get();
            while rest != 0 && self.own.dirty_runs.get() > left {
                let first = rest.trailing_zeros() as usize;
                let count = (rest >> first).trailing_ones() as usize;
                rest &= !mask(first, count);
                // SAFETY: the runs are free.
                if unsafe { source.discard(segment.run_start(first), count * RUN) } {
                    dirty.set(dirty.get() & !mask(first, count));
                    self.own.dirty_runs.set(self.own.dirty_runs.get() - count);
                } else {
                    refused += count;
                }
            }
        }
        self.own.refused_runs.set(refused);
    }

    /// Takes a mapping that was kept, if one has `bytes` and at most half as many more.
    fn take_kept(&self, bytes: usize) -> Option<Mapping> {
        let fits = |kept: &Cell<Option<Mapping>>| {
            kept.get().is_some_and(|(_, has)| has >= bytes && has <= bytes + bytes / 2)
        };
        self.own.kept.iter().find(|kept| fits(kept))?.take()
    }

    /// Keeps a mapping. Returns one that is not kept any more: itself, if it is too large, or another one.
    fn keep(&self, start: NonNull<u8>, bytes: usize) -> Option<Mapping> {
        if bytes > MOST_KEPT {
            return Some((start, bytes));
        }
        let slot = self.own.next_kept.get();
        self.own.next_kept.set((slot + 1) % KEPT);
        self.own.kept[slot].replace(Some((start, bytes)))
    }

    fn unmap_kept(&self, source: &impl Source) {
        for (start, bytes) in self.own.kept.iter().filter_map(Cell::take) {
            // SAFETY: the mapping has no block.
            unsafe { source.unmap(start, bytes) };
        }
    }

    /// Takes back the blocks of a class that others have freed.
    fn collect(&self, class: usize, source: &impl Source) {
        let mut block = self.freed[class].take();
        while !block.is_null() {
            // SAFETY: the block was pushed when it was freed, and is this thread's now. It lies in a segment
            // of this sub-heap.
            unsafe {
                let next = Block::next(block);
                self.free(Segment::of(block.cast()), block.cast(), source);
                block = next;
            }
        }
    }

    fn collect_all(&self, source: &impl Source) {
        (0..=CLASSES).for_each(|class| self.collect(class, source));
    }

    fn list(&self, class: usize, run: &Run) {
        let first = &self.own.runs[class];
        run.previous.set(ptr::null());
        run.next.set(first.get());
        // SAFETY: runs in the list have a segment of this sub-heap.
        if let Some(next) = unsafe { first.get().as_ref() } {
            next.previous.set(run);
        }
        first.set(run);
        run.is_listed.set(true);
    }

    fn unlist(&self, class: usize, run: &Run) {
        let (next, previous) = (run.next.get(), run.previous.replace(ptr::null()));
        // SAFETY: as in `list`.
        match unsafe { previous.as_ref() } {
            Some(previous) => previous.next.set(next),
            None => self.own.runs[class].set(next),
        }
        // SAFETY: as in `list`.
        if let Some(next) = unsafe { next.as_ref() } {
            next.previous.set(previous);
        }
        run.next.set(ptr::null());
        run.is_listed.set(false);
    }

    /// Sets the free runs of a segment, and puts it into the list where it belongs.
    fn set_free(&self, segment: Segment, free: u64) {
        // SAFETY: the segment is this sub-heap's.
        let own = unsafe { &segment.header().own };
        let was = own.free.replace(free);
        let is_there = was != 0 && free != 0 && list_of(free) == own.list.get();
        if was != 0 && !is_there {
            self.unlink(segment);
        }
        if free != 0 && !is_there {
            self.link(segment);
        }
    }

    /// Puts a segment into its list.
    fn link(&self, segment: Segment) {
        // SAFETY: segments in the lists are this sub-heap's, as is the new one.
        let own = unsafe { &segment.header().own };
        own.list.set(list_of(own.free.get()));
        let first = &self.own.segments[own.list.get()];
        own.previous.set(None);
        own.next.set(first.get());
        if let Some(next) = first.get() {
            // SAFETY: as above.
            unsafe { next.header() }.own.previous.set(Some(segment));
        }
        first.set(Some(segment));
    }

    fn unlink(&self, segment: Segment) {
        // SAFETY: as in `link`.
        let own = unsafe { &segment.header().own };
        let (next, previous) = (own.next.take(), own.previous.take());
        match previous {
            // SAFETY: as in `link`.
            Some(previous) => unsafe { previous.header() }.own.next.set(next),
            None => self.own.segments[own.list.get()].set(next),
        }
        if let Some(next) = next {
            // SAFETY: as in `link`.
            unsafe { next.header() }.own.previous.set(previous);
        }
    }

    /// Returns the segments of a list.
    fn listed(&self, list: usize) -> impl Iterator<Item = Segment> {
        let first = self.own.segments[list].get();
        // SAFETY: segments in the lists are this sub-heap's.
        core::iter::successors(first, |segment| unsafe { segment.header() }.own.next.get())
    }
}

impl fmt::Debug for SubHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubHeap").finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Heaps<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heaps").finish_non_exhaustive()
    }
}
