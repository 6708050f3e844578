//! Users and groups of the calling thread.

use alloc::vec::Vec;

use abi::Errno;
use abi::users::{CAP_SETGID, NGROUPS_MAX, NO_ID};
use abi::zerocopy::IntoBytes;
use percore::pin;

use super::{Call, Outcome};
use crate::mm::{fallible, user};
use crate::users::{Credentials, Ids, Kind};

impl Call<'_> {
    /// Replaces the caller's credentials by changed ones, if `change` succeeds. If it counts as another
    /// one then, its memory may hold secrets of the old one.
    pub(super) fn change_credentials(
        &self,
        change: impl FnOnce(&mut Credentials) -> Result<(), Errno>,
    ) -> Outcome {
        let slot = &self.task.thread.credentials;
        let old = slot.get();
        let mut new = old.clone();
        change(&mut new)?;
        let memory = &self.task.shared().memory;
        let is_more = new.is_more_than(&old);
        // First: a thread that finds the new credentials finds this, too.
        let was_dumpable = is_more && memory.hide();
        if is_more {
            self.task.process().relations.forget_death_signal();
        }
        slot.replace(new).map(|()| 0).inspect_err(|_| {
            if was_dumpable {
                memory.set_dumpable(true);
            }
        })
    }

    fn ids(&self, kind: Kind) -> Ids {
        self.task.thread.credentials.peek(&pin()).ids(kind)
    }

    /// Returns argument `index` as the number of a user or a group.
    fn id(&self, index: usize) -> u32 {
        self.arg(index) as u32
    }
}

/// Returns the real user.
pub fn getuid(call: &mut Call<'_>) -> Outcome {
    Ok(call.ids(Kind::User).real.into())
}

/// Returns the effective user.
pub fn geteuid(call: &mut Call<'_>) -> Outcome {
    Ok(call.ids(Kind::User).effective.into())
}

/// Returns the real group.
pub fn getgid(call: &mut Call<'_>) -> Outcome {
    Ok(call.ids(Kind::Group).real.into())
}

/// Returns the effective group.
pub fn getegid(call: &mut Call<'_>) -> Outcome {
    Ok(call.ids(Kind::Group).effective.into())
}

/// Writes the real, the effective and the saved user.
pub fn getresuid(call: &mut Call<'_>) -> Outcome {
    write_three(call, Kind::User)
}

/// Writes the real, the effective and the saved group.
pub fn getresgid(call: &mut Call<'_>) -> Outcome {
    write_three(call, Kind::Group)
}

fn write_three(call: &Call<'_>, kind: Kind) -> Outcome {
    let ids = call.ids(kind);
    user::write(call.arg(0), &ids.real)?;
    user::write(call.arg(1), &ids.effective)?;
    user::write(call.arg(2), &ids.saved)?;
    Ok(0)
}

/// Sets the effective user, and for a privileged caller all users.
pub fn setuid(call: &mut Call<'_>) -> Outcome {
    call.change_credentials(|new| new.set(Kind::User, call.id(0)))
}

/// Sets the effective group, and for a privileged caller all groups.
pub fn setgid(call: &mut Call<'_>) -> Outcome {
    call.change_credentials(|new| new.set(Kind::Group, call.id(0)))
}

/// Sets the real and the effective user.
pub fn setreuid(call: &mut Call<'_>) -> Outcome {
    call.change_credentials(|new| new.set_two(Kind::User, call.id(0), call.id(1)))
}

/// Sets the real and the effective group.
pub fn setregid(call: &mut Call<'_>) -> Outcome {
    call.change_credentials(|new| new.set_two(Kind::Group, call.id(0), call.id(1)))
}

/// Sets the real, the effective and the saved user.
pub fn setresuid(call: &mut Call<'_>) -> Outcome {
    call.change_credentials(|new| new.set_three(Kind::User, [0, 1, 2].map(|index| call.id(index))))
}

/// Sets the real, the effective and the saved group.
pub fn setresgid(call: &mut Call<'_>) -> Outcome {
    call.change_credentials(|new| new.set_three(Kind::Group, [0, 1, 2].map(|index| call.id(index))))
}

/// Sets the user for files if that is allowed, and returns the old one.
pub fn setfsuid(call: &mut Call<'_>) -> Outcome {
    set_fs(call, Kind::User)
}

/// Sets the group for files if that is allowed, and returns the old one.
pub fn setfsgid(call: &mut Call<'_>) -> Outcome {
    set_fs(call, Kind::Group)
}

fn set_fs(call: &Call<'_>, kind: Kind) -> Outcome {
    let old = call.ids(kind).fs;
    call.change_credentials(|new| {
        new.set_fs(kind, call.id(0));
        Ok(())
    })?;
    Ok(old.into())
}

/// Writes the supplementary groups, and returns their number.
pub fn getgroups(call: &mut Call<'_>) -> Outcome {
    let room = usize::try_from(call.int(0)).map_err(|_| Errno::EINVAL)?;
    let credentials = call.task.thread.credentials.get();
    let groups = credentials.supplementary();
    match room {
        0 => {}
        _ if room < groups.len() => return Err(Errno::EINVAL),
        _ => user::copy_out(call.arg(1), groups.as_bytes())?,
    }
    Ok(groups.len() as u64)
}

/// Sets the supplementary groups.
pub fn setgroups(call: &mut Call<'_>) -> Outcome {
    call.task.thread.credentials.peek(&pin()).must(CAP_SETGID)?;
    let count = call.arg(0) as u32 as usize;
    if count > NGROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut groups: Vec<u32> = fallible::empty(count)?;
    groups.resize(count, 0);
    user::copy_in(groups.as_mut_bytes(), call.arg(1))?;
    if groups.contains(&NO_ID) {
        return Err(Errno::EINVAL);
    }
    call.change_credentials(|new| new.set_supplementary(groups))
}
