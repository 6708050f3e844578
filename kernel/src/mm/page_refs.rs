//! The reference counts of frames that have several holders: a `PageRef` for each frame of the machine.
//!
//! | state | the frame belongs to | its `PageRef` |
//! |---|---|---|
//! | owned alone | one page, or the pool | means nothing |
//! | counted | all that hold a reference: pages, a file | a header of the Refcache domain |
//! | counted by a [baseline](super::baseline_refs) | a file and pages that show it | the baseline; the header is the file's hold on it |
//!
//! ```text
//!   owned alone ──share──▶ counted, one reference ──adjust──▶ counted ──the last one goes──▶ this core's magazine
//!        ▲                                                       │
//!        └────────────────────────unshare────────────────────────┘
//! ```
//!
//! 1. Only the owner shares a frame, and it passes references on by synchronisation (the lock of a slot), so
//!    each holder sees the header.
//! 2. A frame of a file is never unshared: the file holds a reference, and a core that finds a page there may
//!    add one without holding any (`page_tree.rs`). For other frames, only a holder adds references: see
//!    [`Header::is_sole`].
//! 3. The `PageRef` of a frame owned alone is never read: `share` writes it.
//! 4. Only a file's frame may have a baseline. A forked frame has no owner that could ask whether it is still
//!    used, and its last holder must know that it is the last, which only Refcache can tell.
//! 5. Baselines free a frame as soon as it has no holder, but a core that finds a page through its file has
//!    no reference yet. So when the file drops its reference, the header delays that for some epochs, until
//!    all cores that found the page have unpinned. Only then the baseline is told ([`release_of_file`]).
//! 6. Reads may count themselves apart from all other holders ([`read_refs`]). When the header of a file's
//!    frame dies, it comes back every few epochs until no read holds the frame. Then 5 goes on, or the frame
//!    is freed.

use alloc::boxed::Box;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::config::Refs;
use abi::reads;
use baselines::{Asked, SharedPart};
use percore::Pinned;
use refcache::{Header, Refcache, Release};
use vm::FrameNum;

use super::baseline_refs::BaselineRefs;
use super::epoch;
use super::frames;
use super::read_counters::Mark;
use super::read_refs;
use crate::arch::{phys_to_virt, virt_to_phys};
use crate::options;

/// The count of a frame. It has a cache line of its own, so that frames do not disturb each other.
#[repr(C, align(64))]
struct PageRef {
    header: Header,
    /// Counts the pages instead of the header. From a `Box`.
    baseline: Option<NonNull<BaselineRefs>>,
    /// Reads that hold a file's frame, as far as they are counted here (`read_refs.rs`).
    readers: SharedPart,
    mark: Mark,
}

/// Bytes for each frame.
pub(super) const SIZE: u64 = size_of::<PageRef>() as u64;
const _: () = assert!(
    size_of::<PageRef>() == reads::DESCRIPTOR
        && size_of::<SharedPart>() == reads::WORD
        && size_of::<Mark>() == reads::MARK
);

/// The physical address of the `PageRef` of frame 0. Relaxed: written once, before other cores start.
static START: AtomicU64 = AtomicU64::new(0);

/// Sets where the array of `PageRef`s begins, without writing to it. Called once, at boot.
pub(super) fn init(start: u64) {
    START.store(start, Ordering::Relaxed);
}

/// Returns the physical range of the array.
pub(super) fn range() -> (u64, u64) {
    let start = START.load(Ordering::Relaxed);
    (start, start + frames::end() * SIZE)
}

/// Makes a frame that the caller owns alone counted, with one reference: the caller's. Its last holder can
/// find out that it is the last ([`unshare`]).
pub fn share(_pin: &Pinned, frame: FrameNum) {
    write(frame, Header::with_sole(1, release), None);
}

/// Does the same for a file's frame: the file stays one of the holders until it [drops its reference](leave).
///
/// # Errors
/// ENOMEM if the frame is counted by a baseline and there is no memory for it.
pub fn share_of_file(_pin: &Pinned, frame: FrameNum) -> Result<(), Errno> {
    let baseline = BaselineRefs::new(options::get().refs)?;
    let release = match baseline {
        Some(_) => release_of_file,
        None if read_refs::is_asked() => release_unread,
        None => release,
    };
    write(frame, Header::new(1, None, release), baseline.map(|baseline| NonNull::from(Box::leak(baseline))));
    Ok(())
}

/// Makes a frame that the kernel keeps for ever counted, so that pages can hold references of it.
pub fn share_for_ever(frame: FrameNum) {
    write(frame, Header::new(1, None, release), None);
}

fn write(frame: FrameNum, header: Header, baseline: Option<NonNull<BaselineRefs>>) {
    let new = PageRef { header, baseline, readers: SharedPart::new(), mark: Mark::new() };
    // SAFETY: each frame has a descriptor, and no one but the owner of an uncounted frame uses it.
    unsafe { descriptor(frame).write(new) };
}

/// Adds `by` references to a counted frame of which the caller holds one, or drops some. The last one frees
/// the frame, some epochs later.
#[inline]
pub fn adjust(pin: &Pinned, frame: FrameNum, by: i64) {
    match baseline(frame) {
        None => adjust_header(pin, frame, by),
        Some(baseline) => adjust_baseline(pin, frame, baseline, by),
    }
}

/// Adds a reference to a file's frame, which the pinned caller found in its tree. A file's frame is never
/// unshared, so the count need not be read, which all cores that show the page write.
#[inline]
pub fn show(pin: &Pinned, frame: FrameNum) {
    match baseline(frame) {
        None => join(pin, frame),
        Some(baseline) => adjust_baseline(pin, frame, baseline, 1),
    }
}

/// Adds a reference of a file or a read to the header of a file's frame, which the pinned caller found in its
/// tree, or a page's to that of a frame that is kept for ever.
#[inline]
pub fn join(pin: &Pinned, frame: FrameNum) {
    // SAFETY: the frame lives as long as the caller is pinned, and its header is not one of a sole holder.
    unsafe { epoch::domain().adjust(pin, descriptor(frame).cast(), 1) }
}

/// Drops the file's reference to a page that is out of its tree, or a read's.
pub fn leave(pin: &Pinned, frame: FrameNum) {
    adjust_header(pin, frame, -1);
}

/// Returns the reads that are counted in the descriptor of a file's frame.
pub(super) fn readers<'r>(frame: FrameNum) -> &'r SharedPart {
    // SAFETY: the frame is counted, so its descriptor has been written, and the array stays for ever.
    &unsafe { descriptor(frame).as_ref() }.readers
}

/// Returns the mark beside them, in the same line.
pub(super) fn mark<'r>(frame: FrameNum) -> &'r Mark {
    // SAFETY: as for `readers`.
    &unsafe { descriptor(frame).as_ref() }.mark
}

#[inline]
fn adjust_header(pin: &Pinned, frame: FrameNum, by: i64) {
    let (domain, header) = (epoch::domain(), descriptor(frame).cast());
    // SAFETY: the frame lives as long as the caller's reference, and the header begins the descriptor.
    unsafe {
        match u32::try_from(by) {
            Ok(more) => domain.add_references(pin, header, more),
            Err(_) => domain.adjust(pin, header, by),
        }
    }
}

#[cold]
fn adjust_baseline(pin: &Pinned, frame: FrameNum, baseline: NonNull<BaselineRefs>, by: i64) {
    for _ in 0..by.unsigned_abs() {
        // SAFETY: the caller's reference keeps the count, and the last one dropped is the last one read.
        let baseline = unsafe { baseline.as_ref() };
        if by > 0 {
            baseline.inc(pin);
        } else if baseline.dec(pin) {
            free_of_file(pin, frame);
        }
    }
}

/// Returns the baseline of a counted frame, if Refcache does not count it. If Refcache counts all frames, the
/// descriptor is not read.
#[inline]
fn baseline(frame: FrameNum) -> Option<NonNull<BaselineRefs>> {
    match options::get().refs {
        Refs::Refcache => None,
        // SAFETY: the frame is counted, so its descriptor has been written.
        _ => unsafe { descriptor(frame).as_ref() }.baseline,
    }
}

/// Makes a counted frame the caller's alone if the caller's reference is known to be the only one, and
/// returns whether it did. It may be the only one without being known to be. A file's frame is never the
/// caller's alone.
pub fn unshare(_pin: &Pinned, frame: FrameNum) -> bool {
    // SAFETY: the frame is counted, so its descriptor has been written.
    unsafe { descriptor(frame).as_ref() }.header.is_sole()
}

/// Returns a word for the owner of a frame that is owned alone. It has any value at first.
pub(super) fn word_of_owner(frame: FrameNum) -> &'static AtomicU64 {
    let descriptor = descriptor(frame).as_ptr();
    // SAFETY: the physmap shows all descriptors, they are never freed, and any bytes are a number.
    unsafe { &(*descriptor).readers }.word()
}

fn descriptor(frame: FrameNum) -> NonNull<PageRef> {
    let at = phys_to_virt::<PageRef>(START.load(Ordering::Relaxed) + frame.get() * SIZE);
    // SAFETY: no address in the physmap is null.
    unsafe { NonNull::new_unchecked(at) }
}

fn frame_of(header: NonNull<Header>) -> FrameNum {
    let offset = virt_to_phys(header.as_ptr()) - START.load(Ordering::Relaxed);
    FrameNum::new(offset / SIZE)
}

/// Puts the frame into this core's magazine when its last reference is gone.
///
/// # Safety
/// Called once, by the domain, with the header of a descriptor.
unsafe fn release(_: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    frames::free(pin, frame_of(header));
}

/// Frees a file's frame that has no other reference, once no read holds it.
///
/// # Safety
/// Called once for each header, by the domain, with the header of a descriptor.
unsafe fn release_unread(domain: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    // SAFETY: the caller's promise.
    if !unsafe { stays_while_read(domain, pin, header, release_unread) } {
        frames::free(pin, frame_of(header));
    }
}

/// Makes the domain call `release` again if a read holds a file's frame, or may hold it. Returns whether it
/// did. No core can find the frame any more.
///
/// # Safety
/// As for [`stay`].
unsafe fn stays_while_read(
    domain: &Refcache,
    pin: &Pinned,
    header: NonNull<Header>,
    release: Release,
) -> bool {
    let asked = read_refs::ask(pin, frame_of(header));
    match asked {
        Asked::Free => {}
        // SAFETY: the caller's promise.
        Asked::Held(_) => unsafe { stay(domain, pin, header, release) },
        // SAFETY: as above.
        Asked::Unfinished(_) => unsafe { come_back(domain, pin, header, release) },
    }
    asked != Asked::Free
}

/// Makes the domain call `release` of a frame's header, or another's, some epochs later. It does not count as
/// released until then, so a core that drains the domain does not take it for progress.
///
/// # Safety
/// The domain has forgotten the header.
pub(super) unsafe fn stay(domain: &Refcache, pin: &Pinned, header: NonNull<Header>, release: Release) {
    // SAFETY: the caller's promise.
    unsafe { come_back(domain, pin, header, release) };
    domain.note_kept(pin);
}

/// Does the same after a step towards the end, which counts as the release of one object: a core that drains
/// the domain goes on.
///
/// # Safety
/// As for [`stay`].
unsafe fn come_back(domain: &Refcache, pin: &Pinned, header: NonNull<Header>, release: Release) {
    // SAFETY: the caller's promise. The header becomes that of an object with one reference, which is dropped
    // at once.
    unsafe {
        header.write(Header::new(1, None, release));
        domain.adjust(pin, header, -1);
    }
}

/// Tells the baseline that the file has dropped its reference. All cores that found the page there without a
/// reference have unpinned, so only references that the baseline counts are left.
///
/// # Safety
/// Called once for each header, by the domain, with the header of a descriptor that has a baseline.
unsafe fn release_of_file(domain: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    // SAFETY: the caller's promise.
    if unsafe { stays_while_read(domain, pin, header, release_of_file) } {
        return;
    }
    // SAFETY: the descriptor has a baseline, and the file's reference, which ends here, has kept it.
    let baseline = unsafe { baseline_of(header) };
    let (asked, last) = (baseline.is_asked(), baseline.dec_of_file(pin));
    if last {
        free_of_file(pin, frame_of(header));
    } else if asked {
        // SAFETY: as for this function, and a baseline that is asked stays until the answer.
        unsafe { ask(domain, pin, header) }
    }
}

/// Asks the baseline whether the frame has no holder, now and every few epochs until it has none.
///
/// # Safety
/// Called once for each header, by the domain or on its behalf, for a baseline that [is
/// asked](BaselineRefs::is_asked).
unsafe fn ask(domain: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    // SAFETY: the baseline stays until it says yes, here.
    if unsafe { baseline_of(header) }.settle(pin) {
        return free_of_file(pin, frame_of(header));
    }
    // SAFETY: the caller's promise.
    unsafe { stay(domain, pin, header, ask) }
}

/// # Safety
/// The header of a descriptor that has a baseline, which lives for `'r`.
unsafe fn baseline_of<'r>(header: NonNull<Header>) -> &'r BaselineRefs {
    // SAFETY: the caller's promise, and the header begins the descriptor.
    unsafe { header.cast::<PageRef>().as_ref().baseline.expect("the page has a baseline").as_ref() }
}

/// Frees a file's frame to which neither the tree nor a page refers any more.
pub fn free_of_file(pin: &Pinned, frame: FrameNum) {
    if let Some(baseline) = baseline(frame) {
        // SAFETY: it came from a box in `share_of_file`, and no holder is left that counts with it.
        drop(unsafe { Box::from_raw(baseline.as_ptr()) });
    }
    frames::free(pin, frame);
}
