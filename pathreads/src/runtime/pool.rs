//! The pool: small anonymous private mappings without the kernel.
//!
//! `mmap` of 4 KiB to 1 MiB that names no address gets a block of a chunk, and `munmap` of exactly
//! that block gives it back. Both touch only the chunk and the counters of a CPU. All else goes to the
//! kernel. So do mappings of more than 256 KiB that stay, because the kernel may make huge pages of
//! neighbours: there is one chunk of such blocks for each that the program has unmapped
//! ([`LARGE_UNMAPPED`]). A call that names pool memory in any other way first makes the blocks in its range
//! the kernel's ([`settle`]): then the kernel's mappings are what the program was promised, and the call
//! does to them what it always does.
//!
//! Freed blocks stay accessible for a while. For each CPU these are at most [`LAZY_BYTES`]. A call of
//! the pool that finds more, or finds that some have been for [`LAZY_CYCLES`], revokes them all at
//! once. With `--strict` they are inaccessible when `munmap` returns, and keep only their frames within
//! this bound.
//!
//! Mappings without rights are served by [`reservations`], within the same bound.

pub mod reservations;
pub mod views;

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use pathreads::chunk::{Chunk, Content, MOST_PAGES, SIZE, STRIDE};
use pathreads::reservation::CLASSES;
use pathreads::{PAGE, page_end, page_start};

use crate::sys::{
    self, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, NO_FILE, PROT_READ, PROT_WRITE, harmless, nr,
};
use crate::{boot, patch, user};

/// The most bytes of freed blocks of a CPU that are still accessible.
const LAZY_BYTES: u64 = 4 << 20;

/// How long they may be, in cycles of the time stamp counter: a tenth of a second or so.
const LAZY_CYCLES: u64 = 1 << 28;

/// The most chunks. When there are no more, mappings are the kernel's.
const CHUNKS: usize = 4096;

/// CPUs with lists of their own. Others share them.
const CPUS: usize = 256;

/// The most chunks that are looked through for a free block.
const LOOKED_AT: usize = 8;

/// The most pages of a block that is cleared whole. Of a larger one only the pages that are in memory.
const CLEARED_WHOLE: u64 = 4;

static CHUNK: [Chunk; CHUNKS] = [const { Chunk::new() }; CHUNKS];

/// The number of chunks in use.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The first chunk's address. 0 before the pool is used, 1 while the memory is being reserved.
static BASE: AtomicU64 = AtomicU64::new(0);

/// The small mappings that the kernel makes before the pool is used. A program that starts and ends at once
/// has fewer, and does not pay for chunks.
const EARLY_MAPPINGS: u32 = 16;

/// The number of these, and of all that were asked for before the pool had addresses.
static EARLY: AtomicU32 = AtomicU32::new(0);

/// The most pages of a block that the pool has whatever the program does. Larger ones are for programs that
/// unmap such memory and map it again.
const SMALL: u64 = 64;

/// The number of larger mappings that the program has unmapped, less the chunks of larger blocks.
static LARGE_UNMAPPED: AtomicU32 = AtomicU32::new(0);

/// Whether mappings may come from the pool.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// The lists and counters of a CPU.
#[repr(align(128))]
struct Cpu {
    /// The first chunk of each size, plus one.
    first: [AtomicU32; MOST_PAGES as usize + 1],
    /// The first reservation of each class, plus one.
    reservations: [AtomicU32; CLASSES],
    /// The bytes of its blocks and reservations that are accessible, and not promised to the program.
    lazy: AtomicU64,
    /// When the first of them became so.
    since: AtomicU64,
    /// Mappings from the pool.
    hits: AtomicU64,
    /// Revocations of all its free blocks, and the cycles that they took.
    revocations: AtomicU64,
    revoking: AtomicU64,
}

static CPU: [Cpu; CPUS] = [const {
    Cpu {
        first: [const { AtomicU32::new(0) }; MOST_PAGES as usize + 1],
        reservations: [const { AtomicU32::new(0) }; CLASSES],
        lazy: AtomicU64::new(0),
        since: AtomicU64::new(0),
        hits: AtomicU64::new(0),
        revocations: AtomicU64::new(0),
        revoking: AtomicU64::new(0),
    }
}; CPUS];

/// Lets mappings come from the pool.
pub fn switch_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Lets no more mappings come from the pool, and gives the kernel all addresses that the program does
/// not have.
pub fn switch_off() {
    // SeqCst, as in `reservations::reserve`.
    if !IS_ON.swap(false, Ordering::SeqCst) {
        return;
    }
    let base = BASE.load(Ordering::Relaxed);
    if base > 1 {
        // A thread that begins a chunk now finds that there are no more.
        let used = u64::from(COUNT.swap(CHUNKS as u32, Ordering::Relaxed)) * STRIDE;
        // SAFETY: there are no chunks behind these.
        unsafe { sys::munmap(base + used, CHUNKS as u64 * STRIDE - used) };
    }
    (0..CPUS).for_each(|cpu| revoke_all(cpu, true));
    reservations::end();
}

/// Whether the program's memory was found not to be limited.
static HAS_NO_LIMIT: AtomicBool = AtomicBool::new(false);

/// Returns whether the pool may have addresses. If the program's memory is limited, every mapping has to be
/// counted by the kernel, and the pool is off from now on. Programs that end at once do not come here. A
/// limit that is set later switches the pool off itself. Not inlined, as some others here, because Go makes
/// calls with little stack.
#[inline(never)]
fn may_begin() -> bool {
    if !HAS_NO_LIMIT.load(Ordering::Relaxed) && has_limit() {
        IS_ON.store(false, Ordering::Relaxed);
    } else {
        HAS_NO_LIMIT.store(true, Ordering::Relaxed);
    }
    IS_ON.load(Ordering::Relaxed)
}

#[inline(never)]
fn has_limit() -> bool {
    [sys::RLIMIT_DATA, sys::RLIMIT_AS].into_iter().any(|kind| {
        let mut limits = [u64::MAX; 2];
        let asked = harmless!(nr::PRLIMIT64, 0, kind, 0, limits.as_mut_ptr() as u64);
        asked.is_err() || limits[0] != u64::MAX
    })
}

/// Returns the number of the CPU that runs this thread, or ran it a moment ago.
fn current_cpu() -> usize {
    let mut limit = 0_u32;
    // SAFETY: Linux keeps the number in the limit of this segment, for `getcpu` without a call. Without the
    // segment the register keeps its value.
    unsafe { asm!("lsl {0:e}, {1:e}", inout(reg) limit, in(reg) 0x7b, options(nomem, nostack)) };
    (limit & 0xfff) as usize % CPUS
}

fn cycles() -> u64 {
    // SAFETY: the instruction reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Maps memory, if the pool has some.
pub fn map(length: u64) -> Option<u64> {
    if !IS_ON.load(Ordering::Relaxed) || !(1..=MOST_PAGES * PAGE).contains(&length) {
        return None;
    }
    if BASE.load(Ordering::Relaxed) == 0 && is_early() {
        return None;
    }
    let pages = page_end(length) / PAGE;
    // Threads that protect single pages wait for each other, as those that map them do, and also clear them.
    if pages == 1 && boot::is_strict() && patch::has_threads() {
        return None;
    }
    let cpu = current_cpu();
    let (number, block, content) = find(cpu, pages).or_else(|| grow(cpu, pages))?;
    let chunk = &CHUNK[number];
    let at = address(number) + block as u64 * pages * PAGE;
    if content == Content::Dirty {
        forget_lazy(chunk.cpu(), pages * PAGE);
        if boot::is_strict() && protect(at, pages * PAGE, PROT_READ | PROT_WRITE).is_err() {
            CPU[chunk.cpu()].lazy.fetch_add(pages * PAGE, Ordering::Relaxed);
            chunk.give(block, content);
            return None;
        }
        if !clear(at, pages) {
            // Whatever is there now is not the pool's.
            chunk.begin_kernels(block);
            return None;
        }
    } else if content == Content::Gone && map_zeroes(at, pages * PAGE).is_err() {
        chunk.give(block, content);
        return None;
    }
    chunk.begin_use(block);
    CPU[cpu].hits.fetch_add(1, Ordering::Relaxed);
    Some(at)
}

/// Returns whether this is one of the first mappings, which are the kernel's.
fn is_early() -> bool {
    EARLY.fetch_add(1, Ordering::Relaxed) < EARLY_MAPPINGS
}

/// Finds a free block among the first chunks of a list.
fn find(cpu: usize, pages: u64) -> Option<(usize, usize, Content)> {
    let mut next = CPU[cpu].first[pages as usize].load(Ordering::Acquire);
    for _ in 0..LOOKED_AT {
        let number = next.checked_sub(1)? as usize;
        if let Some((block, content)) = CHUNK[number].take() {
            return Some((number, block, content));
        }
        next = CHUNK[number].next.load(Ordering::Relaxed);
    }
    None
}

/// Begins a chunk, and takes its first block.
#[inline(never)]
fn grow(cpu: usize, pages: u64) -> Option<(usize, usize, Content)> {
    if pages > SMALL {
        let less = |count: u32| count.checked_sub(1);
        LARGE_UNMAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
    }
    let base = reserve()?;
    let number = COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
        ((count as usize) < CHUNKS).then_some(count + 1)
    });
    let number = number.ok()? as usize;
    map_zeroes(base + number as u64 * STRIDE, SIZE).ok()?;
    let chunk = &CHUNK[number];
    chunk.begin(cpu as u32, pages);
    let (block, content) = chunk.take()?;
    let first = &CPU[cpu].first[pages as usize];
    // Release pairs with the acquire in `find`: the chunk has its blocks.
    let _ = first.fetch_update(Ordering::Release, Ordering::Relaxed, |next| {
        chunk.next.store(next, Ordering::Relaxed);
        Some(number as u32 + 1)
    });
    Some((number, block, content))
}

/// Reserves the addresses of all chunks. Returns `None` while another thread does.
fn reserve() -> Option<u64> {
    let base = BASE.load(Ordering::Relaxed);
    if base > 1 {
        return Some(base);
    }
    if !may_begin() {
        return None;
    }
    BASE.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
    let (length, flags) = ((CHUNKS as u64 + 1) * STRIDE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    // SAFETY: the kernel chooses a free address.
    let at = unsafe { sys::mmap(0, length, 0, flags, NO_FILE, 0) };
    let Ok(at) = at else {
        IS_ON.store(false, Ordering::Relaxed);
        return None;
    };
    let base = (at + STRIDE - 1) & !(STRIDE - 1);
    BASE.store(base, Ordering::Relaxed);
    Some(base)
}

fn address(number: usize) -> u64 {
    BASE.load(Ordering::Relaxed) + number as u64 * STRIDE
}

/// Maps zeroes over a part of the reservation, with the flags that the program asked for. Should the part
/// become the kernel's, its neighbours merge with it as they would have.
fn map_zeroes(at: u64, length: u64) -> sys::Result {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    // SAFETY: the memory is a block that this thread has taken, or a new chunk.
    unsafe { sys::mmap(at, length, PROT_READ | PROT_WRITE, flags, NO_FILE, 0) }
}

/// Makes memory zero, part by part: the stack is the program's, and may be small. Returns whether it is. Not
/// inlined, so that other calls need less.
#[inline(never)]
fn clear(at: u64, pages: u64) -> bool {
    if pages <= CLEARED_WHOLE {
        return clear_pages(at, pages);
    }
    let mut parts = (0..pages).step_by(ASKED_AT_ONCE);
    parts.all(|first| clear_part(at + first * PAGE, (pages - first).min(ASKED_AT_ONCE as u64)))
}

/// The most pages of which the kernel is asked at once whether they are in memory.
const ASKED_AT_ONCE: usize = 64;

/// Makes a part zero. Only the pages in memory are written to. Those that are not may have been swapped out,
/// so they are dropped.
fn clear_part(at: u64, pages: u64) -> bool {
    let mut present = [0_u8; ASKED_AT_ONCE];
    if harmless!(nr::MINCORE, at, pages * PAGE, present.as_mut_ptr() as u64).is_err() {
        return clear_pages(at, pages);
    }
    let (mut page, mut is_clear) = (0, true);
    while is_clear && page < pages {
        let rest = &present[page as usize..pages as usize];
        let is_present = rest[0] & 1 != 0;
        let run = rest.iter().take_while(|byte| (**byte & 1 != 0) == is_present).count() as u64;
        if is_present || drop_pages(at + page * PAGE, run).is_err() {
            is_clear = clear_pages(at + page * PAGE, run);
        }
        page += run;
    }
    is_clear
}

/// Changes what the program may do with a block.
fn protect(at: u64, length: u64, protection: u64) -> sys::Result {
    // SAFETY: the memory is a block that this thread has taken.
    unsafe { sys::call(nr::MPROTECT, [at, length, protection]) }
}

fn drop_pages(at: u64, pages: u64) -> sys::Result {
    const MADV_DONTNEED: u64 = 4;
    // SAFETY: the memory is a block that this thread has taken. The program has unmapped it.
    unsafe { sys::call(nr::MADVISE, [at, pages * PAGE, MADV_DONTNEED]) }
}

fn clear_pages(at: u64, pages: u64) -> bool {
    user::clear(at, pages * PAGE)
}

/// The way to go on with a `munmap`.
pub enum Unmapped {
    /// Nothing: the pool has the block.
    Done,
    /// Nothing: the pool has what was the kernel's, and may have had code.
    Anew,
    /// It is the kernel's.
    Kernels,
}

/// Unmaps memory, if it is exactly a block of the pool. Otherwise makes all blocks in the range the kernel's.
pub fn unmap(at: u64, length: u64) -> Unmapped {
    let length = page_end(length);
    let Some((number, block)) = block_of(at, length) else {
        match reservations::unmap(at, length) {
            Unmapped::Kernels => {}
            unmapped => return unmapped,
        }
        reservations::note_unmapped(length);
        if IS_ON.load(Ordering::Relaxed) && (SMALL + 1..=MOST_PAGES).contains(&(length / PAGE)) {
            LARGE_UNMAPPED.fetch_add(1, Ordering::Relaxed);
        }
        settle(at, length);
        return Unmapped::Kernels;
    };
    let chunk = &CHUNK[number];
    if chunk.end_use(block) {
        if !IS_ON.load(Ordering::Relaxed) {
            return Unmapped::Kernels;
        }
        if boot::is_strict() && protect(at, length, 0).is_err() {
            chunk.begin_kernels(block);
            return Unmapped::Kernels;
        }
        give_lazily(number, block, length);
        return Unmapped::Done;
    }
    // A block that became the kernel's comes back whole, if all of it is unmapped at once.
    if IS_ON.load(Ordering::Relaxed) && chunk.end_kernels(block) {
        if withdraw(at, length).is_ok() {
            chunk.give(block, Content::Gone);
            return Unmapped::Anew;
        }
        chunk.begin_kernels(block);
    }
    settle(at, length);
    Unmapped::Kernels
}

/// Returns the chunk's number and the block that is exactly this range.
fn block_of(at: u64, length: u64) -> Option<(usize, usize)> {
    let number = number_of(at)?;
    let block = CHUNK[number].block_at(at - address(number), length)?;
    Some((number, block))
}

fn number_of(at: u64) -> Option<usize> {
    let base = BASE.load(Ordering::Relaxed);
    let number = (at.checked_sub(base).filter(|_| base > 1)? / STRIDE) as usize;
    (number < COUNT.load(Ordering::Relaxed) as usize).then_some(number)
}

/// Makes a block free that is still accessible.
fn give_lazily(number: usize, block: usize, length: u64) {
    let chunk = &CHUNK[number];
    note_lazy(chunk.cpu(), length);
    chunk.give(block, Content::Dirty);
    check_bound(chunk.cpu());
}

/// Notes memory that is accessible, and not promised to the program, in a list of a CPU.
fn note_lazy(cpu: usize, length: u64) {
    let Cpu { lazy, since, .. } = &CPU[cpu];
    if lazy.fetch_add(length, Ordering::Relaxed) == 0 {
        since.store(cycles(), Ordering::Relaxed);
    }
}

/// Notes that memory of a CPU is not so any more. In a child of `fork` it may have been counted already.
fn forget_lazy(cpu: usize, length: u64) {
    let less = |lazy: u64| Some(lazy.saturating_sub(length));
    let _ = CPU[cpu].lazy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Revokes such memory of a CPU, if there is more than the bound, or has been for longer.
fn check_bound(cpu: usize) {
    let Cpu { lazy, since, revocations, revoking, .. } = &CPU[cpu];
    let (bytes, now) = (lazy.load(Ordering::Relaxed), cycles());
    let is_long = now.wrapping_sub(since.load(Ordering::Relaxed)) > LAZY_CYCLES;
    if bytes > LAZY_BYTES || bytes > 0 && is_long {
        since.store(now, Ordering::Relaxed);
        revocations.fetch_add(1, Ordering::Relaxed);
        revoke_all(cpu, false);
        revoking.fetch_add(cycles().wrapping_sub(now), Ordering::Relaxed);
    }
}

/// Revokes all free blocks of a CPU that are accessible. `unmap` gives their addresses back to the kernel.
fn revoke_all(cpu: usize, unmap: bool) {
    for first in &CPU[cpu].first {
        let mut next = first.load(Ordering::Acquire);
        while let Some(number) = next.checked_sub(1) {
            revoke_chunk(number as usize, unmap);
            next = CHUNK[number as usize].next.load(Ordering::Relaxed);
        }
    }
    reservations::revoke_all(cpu);
}

/// Revokes the free blocks of a chunk, neighbours in one call.
fn revoke_chunk(number: usize, unmap: bool) {
    let chunk = &CHUNK[number];
    let size = chunk.pages() * PAGE;
    let mut block = 0;
    while block < chunk.blocks() {
        let first = block;
        while block < chunk.blocks() && claim(chunk, block, size, unmap) {
            block += 1;
        }
        if first < block {
            let (at, length) = (address(number) + first as u64 * size, (block - first) as u64 * size);
            if unmap {
                // SAFETY: the blocks are taken.
                unsafe { sys::munmap(at, length) };
                (first..block).for_each(|block| chunk.begin_kernels(block));
            } else {
                let content = if withdraw(at, length).is_ok() { Content::Gone } else { Content::Dirty };
                (first..block).for_each(|block| give_back(chunk, block, content, size));
            }
        }
        block += 1;
    }
}

fn give_back(chunk: &Chunk, block: usize, content: Content, size: u64) {
    if content == Content::Dirty {
        CPU[chunk.cpu()].lazy.fetch_add(size, Ordering::Relaxed);
    }
    chunk.give(block, content);
}

/// Takes a block if it is free, and either accessible to the program's stale pointers, or `any` will do.
fn claim(chunk: &Chunk, block: usize, size: u64, any: bool) -> bool {
    match chunk.claim(block) {
        Some(Content::Dirty) => {
            forget_lazy(chunk.cpu(), size);
            true
        }
        Some(_) if any => true,
        Some(other) => {
            chunk.give(block, other);
            false
        }
        None => false,
    }
}

/// Makes memory inaccessible and gives its frames back. The addresses stay reserved.
fn withdraw(at: u64, length: u64) -> sys::Result {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: the memory is blocks that this thread has taken, or that the program unmaps.
    unsafe { sys::mmap(at, length, 0, flags, NO_FILE, 0) }
}

/// Makes all mappings in a range the kernel's. If addresses for chunks to come are in it, none will come.
pub fn settle(at: u64, length: u64) {
    let base = BASE.load(Ordering::Relaxed);
    let used = base + u64::from(COUNT.load(Ordering::Relaxed)) * STRIDE;
    if base > 1 && at < base + CHUNKS as u64 * STRIDE && used < page_end(at.saturating_add(length)) {
        switch_off();
    }
    settle_blocks(at, length);
}

/// Makes all blocks and reservations in a range the kernel's: those that the program has stay mapped, and
/// those that it has not, are unmapped.
pub fn settle_blocks(at: u64, length: u64) {
    reservations::settle(at, length);
    let base = BASE.load(Ordering::Relaxed);
    let end = base + u64::from(COUNT.load(Ordering::Relaxed)) * STRIDE;
    let (from, to) = (page_start(at).max(base), page_end(at.saturating_add(length)).min(end));
    if base <= 1 || from >= to {
        return;
    }
    for number in (from - base) / STRIDE..=(to - 1 - base) / STRIDE {
        let start = base + number * STRIDE;
        settle_chunk(
            &CHUNK[number as usize],
            start,
            from.saturating_sub(start),
            to.min(start + STRIDE) - start,
        );
    }
}

fn settle_chunk(chunk: &Chunk, start: u64, from: u64, to: u64) {
    let size = chunk.pages() * PAGE;
    for block in chunk.blocks_in(from, to) {
        if chunk.end_use(block) {
            chunk.begin_kernels(block);
        } else if let Some(content) = chunk.claim(block) {
            if content == Content::Dirty {
                forget_lazy(chunk.cpu(), size);
            }
            // SAFETY: the block is taken, and the program does not have it.
            unsafe { sys::munmap(start + block as u64 * size, size) };
            chunk.begin_kernels(block);
        }
    }
}

/// Returns whether the program has all of this memory from the pool, readable and writable.
pub fn is_used(at: u64, length: u64) -> bool {
    let Some(number) = number_of(at) else { return reservations::is_open(at, length) };
    let (chunk, from) = (&CHUNK[number], at - address(number));
    let mut blocks = chunk.blocks_in(from, from.saturating_add(length).min(STRIDE));
    length < STRIDE && !blocks.is_empty() && blocks.all(|block| chunk.is_used(block))
}

/// Revokes the accessible blocks of all CPUs, before the program looks at its mappings.
pub fn revoke() {
    if BASE.load(Ordering::Relaxed) > 1 || reservations::are_there() {
        (0..CPUS).for_each(|cpu| revoke_all(cpu, false));
    }
}

/// Prints the counters.
pub fn print_counters() {
    let sum = |counter: fn(&Cpu) -> &AtomicU64| {
        CPU.iter().map(|cpu| counter(cpu).load(Ordering::Relaxed)).sum::<u64>()
    };
    let mut buffer = [[0; 20]; 6];
    let [a, b, c, cycles, d, e] = &mut buffer;
    sys::say(&[
        b"pathreads: ",
        sys::decimal(sum(|cpu| &cpu.hits), a),
        b" mappings from the pool, ",
        sys::decimal(CHUNK.iter().filter(|chunk| chunk.pages() > 0).count() as u64, b),
        b" chunks of 2 MiB, ",
        sys::decimal(sum(|cpu| &cpu.revocations), c),
        b" revocations in ",
        sys::decimal(sum(|cpu| &cpu.revoking), cycles),
        b" cycles; ",
        sys::decimal(sum(|cpu| &cpu.lazy), d),
        b" bytes unmapped and still accessible, at most ",
        sys::decimal(LAZY_BYTES, e),
        b" for each CPU\n",
    ]);
}
