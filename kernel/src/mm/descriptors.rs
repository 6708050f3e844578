//! Frames that have several holders: a descriptor for each frame of the machine, with its reference count.
//!
//! | state | the frame belongs to | its descriptor |
//! |---|---|---|
//! | owned alone | one page, or the pool | means nothing |
//! | counted | all that hold a reference: pages, a file | a header of the Refcache domain |
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
//! 3. Nobody needs descriptors of frames owned alone: they are written by `share`, and never read before.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use percore::Pinned;
use refcache::{Header, Refcache};
use vm::FrameNum;

use super::epoch;
use super::frames;
use super::memory_map::MemoryMap;
use crate::arch::{phys_to_virt, virt_to_phys};

/// What is kept for a counted frame. A line of its own, so that frames do not disturb each other.
#[repr(C, align(64))]
struct Descriptor(Header);

const SIZE: u64 = size_of::<Descriptor>() as u64;
const _: () = assert!(SIZE == 64);

/// Where the descriptor of frame 0 is, in physical memory. Relaxed: written once, before other cores start.
static START: AtomicU64 = AtomicU64::new(0);

/// Takes the memory for the descriptors out of the map; nothing is written there yet. Once, at boot.
pub(super) fn init(map: &mut MemoryMap) {
    let start = map.carve(map.end_frame() * SIZE, u64::MAX);
    START.store(start, Ordering::Relaxed);
}

/// The frame, which the caller owns alone, is counted from now on, with one reference: the caller's. Its last holder will
/// want to know that ([`unshare`]).
pub fn share(_pin: &Pinned, frame: FrameNum) {
    write(frame, Header::with_sole(1, release));
}

/// The same for a file's frame: the file stays one of the holders.
pub fn share_of_file(_pin: &Pinned, frame: FrameNum) {
    write(frame, Header::new(1, None, release));
}

fn write(frame: FrameNum, header: Header) {
    // SAFETY: each frame has a descriptor, and no one but the owner of an uncounted frame uses it.
    unsafe { descriptor(frame).write(Descriptor(header)) };
}

/// Adds references to a counted frame of which the caller holds one, or gives some up. The last one frees it, some
/// epochs later.
#[inline]
pub fn adjust(pin: &Pinned, frame: FrameNum, by: i64) {
    let (domain, header) = (epoch::domain(), descriptor(frame).cast());
    // SAFETY: the frame lives as long as the caller's reference, and the header begins the descriptor.
    unsafe {
        match u32::try_from(by) {
            Ok(more) => domain.add_references(pin, header, more),
            Err(_) => domain.adjust(pin, header, by),
        }
    }
}

/// Makes a counted frame the caller's alone, if the caller's reference is known to be the only one. It may be the only
/// one and not known to be.
pub fn unshare(_pin: &Pinned, frame: FrameNum) -> bool {
    // SAFETY: the frame is counted, so its descriptor has been written.
    unsafe { descriptor(frame).as_ref() }.0.is_sole()
}

fn descriptor(frame: FrameNum) -> NonNull<Descriptor> {
    let at = phys_to_virt::<Descriptor>(START.load(Ordering::Relaxed) + frame.get() * SIZE);
    // SAFETY: no address in the physmap is null.
    unsafe { NonNull::new_unchecked(at) }
}

/// The last reference is gone: the frame goes to this core's magazine.
///
/// # Safety
/// Called once, by the domain, with the header of a descriptor.
unsafe fn release(_: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    let offset = virt_to_phys(header.as_ptr()) - START.load(Ordering::Relaxed);
    frames::free(pin, FrameNum::new(offset / SIZE));
}
