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
//! 1. Only the owner shares a frame, and hands references on by synchronisation (the lock of a slot): whoever holds one
//!    sees the header.
//! 2. A frame of a file is never unshared: the file holds a reference, and who finds a page there may add one without
//!    holding any (`page_tree.rs`). For the others, only a holder adds references: see [`Header::is_sole`].
//! 3. The `PageRef` of a frame owned alone is never read: `share` writes it.
//! 4. Only a file's frame may have a baseline. A forked frame has no owner who could ask whether it is still used, and its
//!    last holder wants to know that it is the last: only Refcache can tell.
//! 5. Baselines free a frame the moment it is nobody's, and who finds a page through its file has no reference yet. So when
//!    the file lets go, that waits some epochs in the header, until all who found the page have unpinned; only then the
//!    baseline hears of it ([`release_of_file`]).

use alloc::boxed::Box;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::config::Refs;
use percore::Pinned;
use refcache::{Header, Refcache};
use vm::FrameNum;

use super::baseline_refs::BaselineRefs;
use super::epoch;
use super::frames;
use crate::arch::{phys_to_virt, virt_to_phys};
use crate::options;

/// The count of a frame. It has a cache line of its own, so that frames do not disturb each other.
#[repr(C, align(64))]
struct PageRef {
    header: Header,
    /// From a `Box`: counts the pages, instead of the header.
    baseline: Option<NonNull<BaselineRefs>>,
}

/// Bytes for each frame.
pub(super) const SIZE: u64 = size_of::<PageRef>() as u64;
const _: () = assert!(SIZE == 64);

/// The physical address of the `PageRef` of frame 0. Relaxed: written once, before other cores start.
static START: AtomicU64 = AtomicU64::new(0);

/// Sets where the array of `PageRef`s begins. Nothing is written there yet. To be called once, at boot.
pub(super) fn init(start: u64) {
    START.store(start, Ordering::Relaxed);
}

/// Counts the frame, which the caller owns alone, from now on, with one reference: the caller's. Its last
/// holder will want to know that it is the last ([`unshare`]).
pub fn share(_pin: &Pinned, frame: FrameNum) {
    write(frame, PageRef { header: Header::with_sole(1, release), baseline: None });
}

/// The same for a file's frame: the file stays one of the holders, until it [lets go](leave).
///
/// # Errors
/// ENOMEM, if it is counted by a baseline.
pub fn share_of_file(_pin: &Pinned, frame: FrameNum) -> Result<(), Errno> {
    let baseline = BaselineRefs::new(options::get().refs)?;
    let release = if baseline.is_some() { release_of_file } else { release };
    let baseline = baseline.map(|baseline| NonNull::from(Box::leak(baseline)));
    write(frame, PageRef { header: Header::new(1, None, release), baseline });
    Ok(())
}

fn write(frame: FrameNum, new: PageRef) {
    // SAFETY: each frame has a descriptor, and no one but the owner of an uncounted frame uses it.
    unsafe { descriptor(frame).write(new) };
}

/// Adds references to a counted frame of which the caller holds one, or gives some up. The last one frees it, some
/// epochs later.
#[inline]
pub fn adjust(pin: &Pinned, frame: FrameNum, by: i64) {
    match baseline(frame) {
        None => adjust_header(pin, frame, by),
        Some(baseline) => adjust_baseline(pin, frame, baseline, by),
    }
}

/// Adds a reference to a file's frame, which the caller, pinned, found in its tree. It is never unshared, so the count need not
/// be looked at, which all who show the page write.
#[inline]
pub fn show(pin: &Pinned, frame: FrameNum) {
    match baseline(frame) {
        // SAFETY: the frame lives as long as the caller is pinned, and its header is not one of a sole holder.
        None => unsafe { epoch::domain().adjust(pin, descriptor(frame).cast(), 1) },
        Some(baseline) => adjust_baseline(pin, frame, baseline, 1),
    }
}

/// A file's page is out of its tree: the file's reference is given up.
pub fn leave(pin: &Pinned, frame: FrameNum) {
    adjust_header(pin, frame, -1);
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
        // SAFETY: the caller's reference keeps the count; the last one to be given up is the last to be looked at.
        let baseline = unsafe { baseline.as_ref() };
        if by > 0 {
            baseline.inc(pin);
        } else if baseline.dec(pin) {
            free_of_file(pin, frame);
        }
    }
}

/// What counts a counted frame, if not Refcache. Where that counts all, the descriptor is not looked at.
#[inline]
fn baseline(frame: FrameNum) -> Option<NonNull<BaselineRefs>> {
    match options::get().refs {
        Refs::Refcache => None,
        // SAFETY: the frame is counted, so its descriptor has been written.
        _ => unsafe { descriptor(frame).as_ref() }.baseline,
    }
}

/// Makes a counted frame the caller's alone, if the caller's reference is known to be the only one. It may be the only
/// one and not known to be; a file's never is.
pub fn unshare(_pin: &Pinned, frame: FrameNum) -> bool {
    // SAFETY: the frame is counted, so its descriptor has been written.
    unsafe { descriptor(frame).as_ref() }.header.is_sole()
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

/// The last reference is gone: the frame goes to this core's magazine.
///
/// # Safety
/// Called once, by the domain, with the header of a descriptor.
unsafe fn release(_: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    frames::free(pin, frame_of(header));
}

/// The file has let go, and so has everybody who found the page there without a reference. From now on only those count
/// that the baseline counts.
///
/// # Safety
/// Called once, by the domain, with the header of a descriptor that has a baseline.
unsafe fn release_of_file(domain: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    // SAFETY: the descriptor has a baseline, and the file's reference, which ends here, has kept it.
    let baseline = unsafe { baseline_of(header) };
    let (asked, last) = (baseline.is_asked(), baseline.dec_of_file(pin));
    if last {
        free_of_file(pin, frame_of(header));
    } else if asked {
        // SAFETY: as here; a baseline that is asked stays until the answer.
        unsafe { ask(domain, pin, header) }
    }
}

/// Asks the baseline whether the frame is nobody's, now and every few epochs until it is.
///
/// # Safety
/// Called once for each header, by the domain or on its behalf, for a baseline that [is asked](BaselineRefs::is_asked).
unsafe fn ask(domain: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    // SAFETY: the baseline stays until it says yes, here.
    if unsafe { baseline_of(header) }.settle(pin) {
        return free_of_file(pin, frame_of(header));
    }
    // SAFETY: the domain has forgotten the header; it comes back as that of an object with one reference, which is given
    // up at once.
    unsafe {
        header.write(Header::new(1, None, ask));
        domain.adjust(pin, header, -1);
    }
}

/// # Safety
/// The header of a descriptor that has a baseline, which lives for `'r`.
unsafe fn baseline_of<'r>(header: NonNull<Header>) -> &'r BaselineRefs {
    // SAFETY: the caller's promise; the header begins the descriptor.
    unsafe { header.cast::<PageRef>().as_ref().baseline.expect("only baselines are heard").as_ref() }
}

/// A file's frame is nobody's any more: neither the tree's nor a page's.
pub fn free_of_file(pin: &Pinned, frame: FrameNum) {
    if let Some(baseline) = baseline(frame) {
        // SAFETY: it came from a box in `share_of_file`, and nobody is left who counts by it.
        drop(unsafe { Box::from_raw(baseline.as_ptr()) });
    }
    frames::free(pin, frame);
}
