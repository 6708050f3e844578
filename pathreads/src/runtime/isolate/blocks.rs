//! Blocks of this member: small mappings that are made and unmapped by one call of Linux each, without the
//! lock of the record. `pathreads::block` has the states and who may change them.
//!
//! A block is recorded as any mapping is, once. When its member unmaps it, it is made zero and inaccessible
//! and keeps its frames, so no thread can touch it when `munmap` returns. The next mapping of this size makes
//! it accessible again. A call that names its memory in another way makes it ordinary first ([`settle`]), and
//! so does a member that lacks it ([`is_open`]). The same holds for [`reservations`], which these functions
//! are for, too.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use pathreads::block::{self, Block, MOST_PAGES, SIZES, SLOTS, START, State, part, size_number};
use pathreads::kept::Kept;
use pathreads::record::{MOST_MEMBERS, Record, Region};
use pathreads::{PAGE, member_reservation, page_end};

use super::{control, locked, me, memory, protect_here, reservations, signal_stack};
use crate::dispatch;
use crate::entry::Frame;
use crate::sys::{self, PROT_READ, PROT_WRITE, Result, harmless, nr};
use crate::user;

/// The most bytes of blocks that a member keeps, and of reservations.
pub const KEPT_MOST: u64 = 4 << 20;

/// The most pages of a block that is cleared whole. Of a larger one only the pages that are in memory.
const CLEARED_WHOLE: u64 = 4;

/// The slots that are looked at for a new block.
const LOOKED_AT: usize = 4;

/// The blocks that this member has kept.
static KEPT: Kept = Kept::new();

/// The slot of each size to look at next for a new block.
static NEXT: [AtomicU32; SIZES] = [const { AtomicU32::new(0) }; SIZES];

/// The counts of used blocks of all members when this one had everything mapped.
static SEEN: [AtomicU32; MOST_MEMBERS] = [const { AtomicU32::new(0) }; MOST_MEMBERS];

/// Begins a member or a process, whose maker's blocks are not its own.
pub fn begin() {
    KEPT.forget();
    IS_ASKED.store(false, Ordering::Relaxed);
    reservations::forget_kept();
}

/// Serves a call that maps or unmaps a block or a reservation of this member. Returns its result.
#[inline(always)]
pub fn serve(frame: &Frame) -> Option<u64> {
    let [_, a, b, c, ..] = frame.call;
    match frame.call[0] {
        nr::MMAP if c == 0 => reservations::map(frame),
        nr::MMAP if a == 0 => map(frame),
        nr::MMAP => reservations::map_file(frame),
        nr::MPROTECT => reservations::open(a, b, c),
        // A thread may unmap its own stack, and stands on it still.
        // Signals of the runtime need another stack from then on.
        nr::MUNMAP if signal_stack::is_unmapped(frame.rsp, a, b) => {
            signal_stack::begin_stack();
            None
        }
        nr::MUNMAP if frame.rsp.wrapping_sub(a) > b && (unmap(a, b) || reservations::unmap(a, b)) => Some(0),
        _ => None,
    }
}

/// Returns whether this member may have memory that is not ordinary: memory is not limited.
pub fn are_possible() -> bool {
    !super::fork::is_sharing()
        && control().data_limit.load(Ordering::Relaxed) == u64::MAX
        && !control().pages_are_held.load(Ordering::Relaxed)
}

/// Returns the number of the size of a block for a mapping, if it is small and plain, and memory is not
/// limited.
fn size_for([address, length, rights, flags, _, offset]: [u64; 6]) -> Option<usize> {
    let is_plain = dispatch::is_for_pool(address, rights, flags, offset);
    let is_small = (1..=MOST_PAGES * PAGE).contains(&length);
    (is_plain && are_possible() && is_small).then(|| size_number(page_end(length) / PAGE))?
}

/// Maps memory, if it is plain and this member has kept a block of this size.
#[inline(never)]
fn map(frame: &Frame) -> Option<u64> {
    let size = size_for(frame.arguments())?;
    while let Some(block) = take(size) {
        let blocks = &control().blocks;
        if !blocks.change(block, State::Kept, State::Busy) {
            continue;
        }
        if protect(block, PROT_READ | PROT_WRITE).is_err() {
            if blocks.change(block, State::Busy, State::Kept) {
                keep(block);
            }
            return None;
        }
        if blocks.change(block, State::Busy, State::Used) {
            return Some(block.start());
        }
        restore(block.start(), block.end());
    }
    None
}

/// Notes a call after which the kernel may still read memory that the program unmaps: of a socket that sends
/// pages. From then on no block is kept, because its frames would be made zero.
pub fn note_call([number, _, level, option, ..]: [u64; 7]) {
    const SOL_SOCKET: u64 = 1;
    const SO_ZEROCOPY: u64 = 60;
    if (number, level, option) == (nr::SETSOCKOPT, SOL_SOCKET, SO_ZEROCOPY) {
        control().pages_are_held.store(true, Ordering::Relaxed);
    }
}

/// Unmaps exactly a block of this member. Returns whether it did.
#[inline(never)]
fn unmap(at: u64, length: u64) -> bool {
    let block = Block::exactly(at, page_end(length)).filter(|block| block.member == me());
    let is_held = control().pages_are_held.load(Ordering::Relaxed);
    let may_keep = |block: &Block| !is_held && KEPT.bytes() + block.length() <= KEPT_MOST;
    block.filter(may_keep).is_some_and(|block| closing(at, || close(block)))
}

/// Makes a block zero and inaccessible, which the program unmaps. Returns `false` if it is to be unmapped as
/// ordinary memory.
fn close(block: Block) -> bool {
    let blocks = &control().blocks;
    if !blocks.change(block, State::Used, State::Busy) {
        return false;
    }
    if !clear(block.start(), block.length()) || protect(block, 0).is_err() {
        // Then it is unmapped as ordinary memory.
        return !blocks.change(block, State::Busy, State::Used);
    }
    if blocks.change(block, State::Busy, State::Kept) {
        keep(block);
    } else {
        restore(block.start(), block.end());
    }
    true
}

/// The places that this member is making zero and inaccessible: more than one if handlers do so, too.
static CLOSING: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Runs `f`, which makes a place zero and inaccessible. If a handler comes between, and the place is made
/// ordinary and unmapped, the handler does not get it for a new mapping. Returns `false` if there are too
/// many.
pub fn closing(at: u64, f: impl FnOnce() -> bool) -> bool {
    let take =
        |place: &&AtomicU64| place.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    CLOSING.iter().find(take).is_some_and(|place| {
        let result = f();
        place.store(0, Ordering::Relaxed);
        result
    })
}

/// Returns whether this member is closing a place.
pub fn is_closing(at: u64) -> bool {
    CLOSING.iter().any(|place| place.load(Ordering::Relaxed) == at)
}

/// Notes a block that is kept.
fn keep(block: Block) {
    KEPT.add(block.size, block.slot);
}

/// Takes a block of those that are kept.
fn take(size: usize) -> Option<Block> {
    KEPT.take(size).map(|slot| Block { member: me(), size, slot })
}

#[inline(never)]
fn protect(block: Block, rights: u64) -> Result {
    // SAFETY: the memory is a block that this member has made busy.
    unsafe { sys::call(nr::MPROTECT, [block.start(), block.length(), rights]) }
}

/// Gives memory here the rights that are recorded, after another member has made it ordinary.
#[inline(never)]
pub fn restore(start: u64, end: u64) {
    super::prepare_stack();
    locked(|record| {
        for region in record.touched(start, end).filter(|region| region.holders.has(me())) {
            // A handler may have begun another reservation here, or kept one.
            let rights = if is_closed(region) { 0 } else { region.rights };
            let _ = protect_here(&Region { rights, ..*region });
        }
    });
}

/// Makes memory zero that this member is about to keep. If there is more of it, only the pages in memory are
/// written to. Those that are not may have been swapped out, so they are dropped, as all are of much memory.
/// Returns whether it is zero: another member may have made it ordinary meanwhile, and have mapped other
/// memory there, which this one has not mapped.
#[inline(never)]
pub fn clear(at: u64, length: u64) -> bool {
    if length <= CLEARED_WHOLE * PAGE {
        return user::clear(at, length);
    }
    // It is taken already if a handler came between.
    if length > MOST_PAGES * PAGE || IS_ASKED.swap(true, Ordering::Relaxed) {
        return drop_pages(at, length);
    }
    let is_known = harmless!(nr::MINCORE, at, length, PRESENT.as_ptr() as u64).is_ok();
    let is_clear = is_known && clear_present(at, length / PAGE);
    IS_ASKED.store(false, Ordering::Relaxed);
    is_clear
}

/// The answer of `mincore`. It is not on the program's stack, because Go makes calls with little stack.
static PRESENT: [AtomicU8; MOST_PAGES as usize] = [const { AtomicU8::new(0) }; MOST_PAGES as usize];

/// Whether it is in use.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Clears the pages that are in memory, and drops the others.
fn clear_present(start: u64, pages: u64) -> bool {
    let is_present = |page: u64| PRESENT[page as usize].load(Ordering::Relaxed) & 1 != 0;
    let (mut page, mut is_clear) = (0, true);
    while is_clear && page < pages {
        let run = (page..pages).take_while(|next| is_present(*next) == is_present(page)).count() as u64;
        let at = start + page * PAGE;
        is_clear = match is_present(page) {
            true => user::clear(at, run * PAGE),
            false => drop_pages(at, run * PAGE),
        };
        page += run;
    }
    is_clear
}

/// Drops pages through this member's own mapping, so nothing is dropped that another has mapped there.
fn drop_pages(at: u64, length: u64) -> bool {
    const REMOVE: u64 = 9;
    // SAFETY: the memory is one that this member has made busy.
    unsafe { sys::call(nr::MADVISE, [at, length, REMOVE]) }.is_ok()
}

/// Finds a place for a new block, for a mapping of plain memory.
pub fn place(record: &Record, arguments: [u64; 6]) -> Option<Block> {
    let found = find(record, arguments);
    look_further(arguments);
    found
}

/// Returns whether [`place`] finds one. If not, the next look is at other slots.
pub fn has_place(record: &Record, arguments: [u64; 6]) -> bool {
    let is_found = find(record, arguments).is_some();
    if !is_found {
        look_further(arguments);
    }
    is_found
}

fn look_further(arguments: [u64; 6]) {
    if let Some(size) = size_for(arguments) {
        let next = &NEXT[size];
        next.store((next.load(Ordering::Relaxed) + 1) % SLOTS as u32, Ordering::Relaxed);
    }
}

fn find(record: &Record, arguments: [u64; 6]) -> Option<Block> {
    let size = size_for(arguments)?;
    let first = NEXT[size].load(Ordering::Relaxed) as usize;
    let mut slots = (first..first + LOOKED_AT).map(|slot| Block { member: me(), size, slot: slot % SLOTS });
    // The page behind may be a mapping that the program has placed.
    let is_free = |block: &Block| record.is_free(block.start() - PAGE, block.end() + PAGE);
    slots.find(|block| is_free(block) && !is_closing(block.start()))
}

/// Begins the use of a block that was recorded and mapped here as ordinary memory.
pub fn begin_use(block: Block) {
    control().blocks.change(block, State::Ordinary, State::Used);
}

/// Returns the block that a region is, unless that is ordinary.
fn block_of(region: &Region) -> Option<Block> {
    Block::at(region.start).filter(|block| control().blocks.state(*block) != State::Ordinary)
}

/// Returns whether a region is the program's. A block that is used becomes ordinary, so that this member can
/// map it, and does so at once. Others that had everything mapped lack it from then on. The lock is held.
pub fn is_open(region: &Region) -> bool {
    region.start < START || open(region.start) && reservations::open_for_all(region)
}

/// Opens the block at an address, if it is the program's. Not inlined, as some others here, because Go makes
/// calls with little stack.
#[inline(never)]
fn open(start: u64) -> bool {
    Block::at(start).is_none_or(|block| {
        let blocks = &control().blocks;
        if blocks.state(block) == State::Used {
            // Before the state changes: see `touch`.
            super::announce();
            blocks.change(block, State::Used, State::Ordinary);
        }
        blocks.state(block) == State::Ordinary
    })
}

/// Returns whether a region is a block, or of a reservation, that is not ordinary.
pub fn is_block(region: &Region) -> bool {
    block_of(region).is_some() || reservations::of(region).is_some()
}

/// Returns whether a region is memory that the program has unmapped.
pub fn is_kept(region: &Region) -> bool {
    block_of(region).is_some_and(|block| control().blocks.state(block) != State::Used)
        || reservations::of(region).is_some_and(|(_, seen)| !seen.is_programs())
}

/// Returns whether a region is recorded with rights that the program has not.
pub fn is_closed(region: &Region) -> bool {
    is_kept(region) || reservations::of(region).is_some_and(|(_, seen)| !seen.is_open())
}

/// Returns whether all of a range is the program's.
pub fn covers(record: &Record, start: u64, end: u64) -> bool {
    record.covers(start, end) && !record.touched(start, end).any(is_kept)
}

/// Makes all blocks and reservations of a range ordinary, and those beside it, so that the record alone says
/// what the program has there. So nothing is ever recorded beside a block that is not ordinary: a region that
/// the two were joined to would not be the block's. The lock is held.
pub fn settle(record: &mut Record, start: u64, end: u64) -> Result<()> {
    let (mut at, end) = (start.saturating_sub(PAGE), end.saturating_add(PAGE));
    while let Some(region) = record.touched(at, end).next().copied() {
        at = region.end;
        if region.start >= block::END {
            at = reservations::settle(record, &region)?;
            continue;
        }
        let Some(block) = block_of(&region) else { continue };
        // Before the state changes: see `touch`. The block's own member has it mapped.
        match block.member == me() {
            true => super::announce(),
            false => _ = super::announce_to_all(),
        }
        if matches!(control().blocks.end(block), State::Kept | State::Busy) {
            memory::remove_kept(record, region.start, region.end)?;
        }
    }
    Ok(())
}

/// Makes all blocks and reservations of this member ordinary: it makes another that has the same mapped, or
/// ends.
pub fn settle_own(record: &mut Record) -> Result<()> {
    for (start, end) in [part(me()), member_reservation::addresses(me())] {
        settle(record, start, end)?;
    }
    KEPT.forget();
    reservations::forget_kept();
    Ok(())
}

/// Returns whether a range may have memory that another member alone has mapped. It is inlined, and its parts
/// are not, because Go makes calls with little stack.
#[inline(always)]
pub fn may_be_others(start: u64, length: u64) -> bool {
    let end = start.saturating_add(length);
    has_others_block(start, end) || reservations::may_be_others(start, end)
}

#[inline(never)]
fn has_others_block(start: u64, end: u64) -> bool {
    let is_others = |block: Block| block.member != me() && control().blocks.state(block) != State::Ordinary;
    Block::touched(start, end).any(is_others)
}

/// Returns whether a range touches a block that its member is about to map or has not unmapped yet, or a
/// reservation of which that is so.
pub fn is_busy(start: u64, end: u64) -> bool {
    Block::touched(start, end).any(|block| control().blocks.state(block) == State::Busy)
        || reservations::is_busy(start, end)
}

/// Returns whether other members have used blocks or reservations since this one had everything mapped.
#[inline(never)]
pub fn are_new() -> bool {
    others().any(|member| uses(member) != SEEN[member].load(Ordering::Relaxed))
}

/// Returns how often memory of a member became the program's without the lock.
fn uses(member: usize) -> u32 {
    control().blocks.uses(member).wrapping_add(control().reservations.uses(member))
}

/// Notes that this member is about to have everything mapped. The lock is held.
pub fn note_seen() {
    others().for_each(|member| SEEN[member].store(uses(member), Ordering::Relaxed));
}

/// Returns the numbers of other members, and some more.
fn others() -> impl Iterator<Item = usize> {
    (0..=control().most.load(Ordering::Relaxed) as usize).filter(|member| *member != me())
}
