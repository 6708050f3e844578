//! Locks of files.

use abi::Errno;
use abi::file::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLKW, F_RDLCK, F_SETLKW, F_UNLCK, F_WRLCK, Flock, LOCK_EX, LOCK_NB,
    LOCK_SH, LOCK_UN, SEEK_CUR, SEEK_END, SEEK_SET,
};

use super::{Call, Outcome};
use crate::fs::OpenFile;
use crate::fs::content::Content;
use crate::fs::locks::{self, FOREVER, Kind, Lock};
use crate::mm::user;

/// Handles the commands of `fcntl` for POSIX locks and those of open files.
pub fn fcntl(call: &Call<'_>, file: &OpenFile) -> Outcome {
    let (command, at) = (u64::from(call.arg(1) as u32), call.arg(2));
    let wanted: Flock = user::read(at)?;
    let is_posix = matches!(command, F_GETLK..=F_SETLKW);
    if !is_posix && wanted.pid != 0 || file.is_place() {
        return Err(if file.is_place() { Errno::EBADF } else { Errno::EINVAL });
    }
    let range = range(file, &wanted)?;
    let owner = match is_posix {
        true => call.files().locker(call.task.process().pid()),
        false => file.locker(Kind::OpenFile),
    };
    let lock = Lock::new(file.node(), owner, wanted.kind == F_WRLCK, range);
    match (command, wanted.kind) {
        (F_GETLK | F_OFD_GETLK, F_RDLCK | F_WRLCK) => {
            let found =
                locks::find(&lock).map_or(Flock { kind: F_UNLCK, ..wanted }, |found| described(&found));
            user::write(at, &found)?;
        }
        (F_GETLK | F_OFD_GETLK, _) => return Err(Errno::EINVAL),
        (_, F_UNLCK) => locks::remove(&lock)?,
        (_, F_RDLCK) if !file.is_readable() => return Err(Errno::EBADF),
        (_, F_WRLCK) if !file.is_writable() => return Err(Errno::EBADF),
        (_, F_RDLCK | F_WRLCK) => {
            if is_posix {
                call.files().note_locked()
            } else {
                file.note_locked()
            }
            locks::take(file.node(), &lock, matches!(command, F_SETLKW | F_OFD_SETLKW))?;
            // Another thread may have closed the descriptor meanwhile, and its close found no lock.
            locks::order();
            if is_posix && !call.files().borrow(call.int(0)).is_ok_and(|now| core::ptr::eq(&*now, file)) {
                locks::remove(&lock)?;
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Returns the first byte and the end of the range that a program means.
///
/// # Errors
/// EINVAL if it begins before byte 0, EOVERFLOW if it ends beyond what can be said.
fn range(file: &OpenFile, wanted: &Flock) -> Result<(u64, u64), Errno> {
    let from = match u64::from(wanted.whence as u16) {
        SEEK_SET => 0,
        SEEK_CUR => *file.position.lock(),
        SEEK_END => file.node().content().map_or(0, Content::len),
        _ => return Err(Errno::EINVAL),
    };
    let start = i128::from(from) + i128::from(wanted.start);
    let end = start + i128::from(wanted.len);
    let (start, end) = match wanted.len {
        0 => (start, i128::from(FOREVER)),
        1.. => (start, end),
        _ => (end, start),
    };
    if start < 0 {
        return Err(Errno::EINVAL);
    }
    if start >= i128::from(FOREVER) || end > i128::from(FOREVER) {
        return Err(Errno::EOVERFLOW);
    }
    Ok((start as u64, end as u64))
}

/// Returns a lock as programs see it.
fn described(lock: &Lock) -> Flock {
    let len = if lock.end == FOREVER { 0 } else { (lock.end - lock.start) as i64 };
    let pid = if lock.owner.kind == Kind::Posix { lock.owner.pid as i32 } else { -1 };
    let kind = if lock.is_exclusive { F_WRLCK } else { F_RDLCK };
    Flock { kind, whence: SEEK_SET as i16, start: lock.start as i64, len, pid, ..Flock::default() }
}

/// Locks or unlocks a whole file for an open file.
pub fn flock(call: &mut Call<'_>) -> Outcome {
    let (file, operation) = (call.file(0)?, call.arg(1) as u32);
    if file.is_place() {
        return Err(Errno::EBADF);
    }
    let lock = |exclusive| Lock::new(file.node(), file.locker(Kind::Flock), exclusive, (0, FOREVER));
    match operation & !LOCK_NB {
        LOCK_UN => locks::remove(&lock(false))?,
        LOCK_SH | LOCK_EX => {
            file.note_locked();
            locks::take(file.node(), &lock(operation & !LOCK_NB == LOCK_EX), operation & LOCK_NB == 0)?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
