//! Segments of shared memory: files in memory without a name, which processes attach.
//!
//! A segment that is removed loses its key at once, and its number with the last detach.

use alloc::sync::Arc;
use core::fmt::{self, Write};

use abi::Errno;
use abi::file::{O_LARGEFILE, O_RDWR};
use abi::ipc::*;
use abi::users::{CAP_IPC_LOCK, CAP_SYS_ADMIN};
use sync::SpinLock;
use vm::PAGE_SIZE;

use super::table::{BLOCK, Table};
use super::{Id, Object, Owner, Wanted, caller, now};
use crate::fs::OpenFile;
use crate::fs::memory_file::MemoryFile;
use crate::fs::node::Node;
use crate::mm::fallible::Text;
use crate::mm::static_or_arc::StaticOrArc;
use crate::mm::{frames, page_tree};

static SEGMENTS: Table<Segment, { SHMMNI as usize / BLOCK }> = Table::new();

/// A segment.
pub struct Segment {
    id: Id,
    file: StaticOrArc<OpenFile>,
    bytes: u64,
    maker: u32,
    state: SpinLock<State>,
}

struct State {
    owner: Owner,
    /// The parts of spaces that show it.
    attached: u64,
    /// Set once it has no number any more.
    is_gone: bool,
    attach_time: i64,
    detach_time: i64,
    change_time: i64,
    last: u32,
}

impl Object for Segment {
    fn id(&self) -> &Id {
        &self.id
    }

    fn size(&self) -> u64 {
        self.pages()
    }
}

impl Segment {
    fn new(wanted: Wanted, bytes: u64) -> Result<Self, Errno> {
        let mut name = Text::default();
        write!(name, "SYSV{:08x}", wanted.key).map_err(|_| Errno::ENOMEM)?;
        let content = MemoryFile::anonymous(false)?;
        let node = Node::nameless(wanted.flags & S_IRWXUGO, content)?;
        let file = OpenFile::called(node, name.0, O_RDWR | O_LARGEFILE)?;
        file.content()?.set_len(bytes)?;
        let state = State {
            owner: Owner::new(wanted),
            attached: 0,
            is_gone: false,
            attach_time: 0,
            detach_time: 0,
            change_time: now(),
            last: 0,
        };
        Ok(Self { id: Id::default(), file, bytes, maker: caller(), state: SpinLock::new(state) })
    }

    /// Returns its identifier.
    pub fn number(&self) -> u32 {
        self.id.get()
    }

    /// Returns its file.
    pub fn file(&self) -> &StaticOrArc<OpenFile> {
        &self.file
    }

    /// Returns the number of its pages.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE_SIZE)
    }

    /// Describes it to a thread with the rights `wanted`.
    ///
    /// # Errors
    /// EACCES, EIDRM if it is removed.
    pub fn describe(&self, wanted: u32) -> Result<ShmidDs, Errno> {
        let state = self.state.lock();
        state.owner.permit(wanted)?;
        state.alive()?;
        Ok(ShmidDs {
            perm: state.owner.describe(&self.id),
            segsz: self.bytes,
            atime: state.attach_time,
            dtime: state.detach_time,
            ctime: state.change_time,
            cpid: self.maker,
            lpid: state.last,
            nattch: state.attached,
            ..ShmidDs::default()
        })
    }

    /// Sets its owner and rights.
    ///
    /// # Errors
    /// EIDRM if it is removed.
    pub fn set(&self, new: &IpcPerm) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.alive()?;
        state.owner.set(new)?;
        state.change_time = now();
        Ok(())
    }

    /// Notes that it is locked in memory, or not. Its pages are never swapped out.
    ///
    /// # Errors
    /// EPERM, EIDRM if it is removed.
    pub fn lock(&self, is_locked: bool) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.owner.must_be_mine(CAP_IPC_LOCK)?;
        state.alive()?;
        let rest = state.owner.mode & !SHM_LOCKED;
        state.owner.mode = rest | if is_locked { SHM_LOCKED } else { 0 };
        Ok(())
    }

    /// Removes it, once it is attached no more.
    ///
    /// # Errors
    /// EPERM, EIDRM if it is removed.
    pub fn remove(&self) -> Result<(), Errno> {
        self.end(|owner| owner.must_be_mine(CAP_SYS_ADMIN))
    }

    fn end(&self, permit: impl FnOnce(&Owner) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        permit(&state.owner)?;
        state.alive()?;
        state.owner.mode |= SHM_DEST;
        let key = core::mem::replace(&mut state.owner.key, IPC_PRIVATE);
        let is_gone = state.end_if_unused();
        drop(state);
        SEGMENTS.forget_key(self, key);
        if is_gone {
            SEGMENTS.remove(self);
        }
        Ok(())
    }

    /// Returns an error unless the running thread has all rights in `wanted`.
    ///
    /// # Errors
    /// EACCES.
    pub fn permit(&self, wanted: u32) -> Result<(), Errno> {
        self.state.lock().owner.permit(wanted)
    }

    /// Counts a part that is about to be shown.
    ///
    /// # Errors
    /// EIDRM if it is removed.
    pub(super) fn count(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.alive()?;
        state.attached += 1;
        Ok(())
    }

    /// Notes that a part that was counted is shown.
    pub(super) fn note_shown(&self) {
        let mut state = self.state.lock();
        (state.attach_time, state.last) = (now(), caller());
    }

    /// Counts a part no more. `shown` tells whether it was shown.
    pub(super) fn discount(&self, shown: bool) {
        let mut state = self.state.lock();
        if shown {
            (state.detach_time, state.last) = (now(), caller());
        }
        state.attached -= 1;
        let is_gone = state.end_if_unused();
        drop(state);
        if is_gone {
            SEGMENTS.remove(self);
        }
    }
}

impl State {
    fn alive(&self) -> Result<(), Errno> {
        if self.is_gone { Err(Errno::EIDRM) } else { Ok(()) }
    }

    /// Notes the end of a segment that is removed and not attached, and returns whether it was one.
    fn end_if_unused(&mut self) -> bool {
        let ends = self.attached == 0 && self.owner.mode & SHM_DEST != 0;
        self.is_gone |= ends;
        ends
    }
}

/// Returns the identifier of the segment of at least `bytes` that is wanted. `check_new` may refuse to make
/// it.
///
/// # Errors
/// EINVAL for a bad size, those of `check_new` and of `Table::get_or_make`.
pub fn get(wanted: Wanted, bytes: u64, check_new: impl Fn() -> Result<(), Errno>) -> Result<u32, Errno> {
    let fits =
        |found: &Segment| if found.bytes < bytes { Err(Errno::EINVAL) } else { found.permit(wanted.flags) };
    SEGMENTS.get_or_make(wanted, fits, || {
        // SHMMAX is more, but a file cannot be longer than its offsets.
        if !(SHMMIN..=i64::MAX as u64).contains(&bytes) {
            return Err(Errno::EINVAL);
        }
        check_new()?;
        check_pages(bytes.div_ceil(PAGE_SIZE), wanted)?;
        Segment::new(wanted, bytes)
    })
}

/// Refuses more pages than the machine has, as Linux's heuristic does, and those of huge segments.
fn check_pages(pages: u64, wanted: Wanted) -> Result<(), Errno> {
    let is_reserved = wanted.flags & SHM_NORESERVE == 0;
    let too_many = pages > page_tree::END || is_reserved && pages > frames::stats().total;
    if too_many { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Returns the segment with an identifier.
///
/// # Errors
/// EINVAL if there is none.
pub fn find(id: i32) -> Result<Arc<Segment>, Errno> {
    SEGMENTS.get(id)
}

/// Returns the segment at an index.
///
/// # Errors
/// EINVAL if there is none.
pub fn at(index: i32) -> Result<Arc<Segment>, Errno> {
    SEGMENTS.at_index_of(index)
}

/// Returns the highest index of a segment.
pub fn highest() -> u64 {
    SEGMENTS.highest()
}

/// Returns the limits.
pub fn limits() -> ShmInfo64 {
    ShmInfo64 {
        shmmax: SHMMAX,
        shmmin: SHMMIN,
        shmmni: SHMMNI,
        shmseg: SHMMNI,
        shmall: SHMALL,
        ..ShmInfo64::default()
    }
}

/// Returns the number of segments and of all their pages, and how many of these are in memory.
pub fn totals() -> ShmInfo {
    let (used_ids, shm_tot) = (SEGMENTS.count() as i32, SEGMENTS.sum());
    let mut info = ShmInfo { used_ids, shm_tot, ..ShmInfo::default() };
    SEGMENTS.for_each(|segment| info.shm_rss += segment.resident());
    info
}

impl Segment {
    fn resident(&self) -> u64 {
        self.file.pages().map_or(0, |pages| pages.resident())
    }
}

/// Writes a line for each segment.
pub fn list(text: &mut Text) -> fmt::Result {
    writeln!(
        text,
        "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
         atime      dtime      ctime                   rss                  swap"
    )?;
    let mut outcome = Ok(());
    SEGMENTS.for_each(|segment| {
        outcome = outcome.and_then(|()| segment.describe(0).map_or(Ok(()), |shm| line(segment, &shm, text)));
    });
    outcome
}

fn line(segment: &Segment, shm: &ShmidDs, text: &mut Text) -> fmt::Result {
    let (perm, id) = (&shm.perm, segment.id.get());
    write!(text, "{:10} {id:10}  {:4o} {:21} ", perm.key, perm.mode, shm.segsz)?;
    write!(text, "{:5} {:5}  {:5} ", shm.cpid, shm.lpid, shm.nattch)?;
    write!(text, "{:5} {:5} {:5} {:5} ", perm.uid, perm.gid, perm.cuid, perm.cgid)?;
    write!(text, "{:10} {:10} {:10} ", shm.atime, shm.dtime, shm.ctime)?;
    writeln!(text, "{:21} {:21}", segment.resident() * PAGE_SIZE, 0)
}

/// Removes all segments.
pub(super) fn remove_all() {
    SEGMENTS.for_each(|segment| {
        let _removed_before = segment.end(|_| Ok(()));
    });
}
