//! Changes of users and groups by the calls of the `setuid` family.

use abi::Errno;
use abi::users::{CAP_SETGID, CAP_SETUID, NO_ID};

use super::Credentials;

/// The users, or the groups, of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The one that started it.
    pub real: u32,
    /// The one that counts.
    pub effective: u32,
    /// One that it may become again.
    pub saved: u32,
    /// The one that counts for files, usually the effective one.
    pub fs: u32,
}

/// Users, or groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A user.
    User,
    /// A group.
    Group,
}

impl Ids {
    /// Root's.
    pub const ROOT: Self = Self { real: 0, effective: 0, saved: 0, fs: 0 };

    /// Returns whether the first three are all `id`.
    pub fn is_all(&self, id: u32) -> bool {
        [self.real, self.effective, self.saved] == [id; 3]
    }

    /// Returns whether one of the first three is `id`.
    pub fn has(&self, id: u32) -> bool {
        [self.real, self.effective, self.saved].contains(&id)
    }
}

/// Returns `new`, or `old` if the caller wants that to stay.
fn or_old(new: u32, old: u32) -> u32 {
    if new == NO_ID { old } else { new }
}

impl Credentials {
    /// Returns its users or its groups.
    pub fn ids(&self, kind: Kind) -> Ids {
        match kind {
            Kind::User => self.users,
            Kind::Group => self.groups,
        }
    }

    /// Sets its users or its groups, and changes the capabilities as `capabilities(7)` says.
    fn set_ids(&mut self, kind: Kind, new: Ids) {
        match kind {
            Kind::User => {
                let old = core::mem::replace(&mut self.users, new);
                self.after_users(old);
            }
            Kind::Group => self.groups = new,
        }
    }

    /// Returns whether it may become any user, or any group.
    fn may_be_any(&self, kind: Kind) -> bool {
        self.can(match kind {
            Kind::User => CAP_SETUID,
            Kind::Group => CAP_SETGID,
        })
    }

    /// Does what `setuid` and `setgid` do.
    ///
    /// # Errors
    /// EINVAL if `id` is none, EPERM.
    pub fn set(&mut self, kind: Kind, id: u32) -> Result<(), Errno> {
        let old = self.ids(kind);
        let new = match self.may_be_any(kind) {
            _ if id == NO_ID => return Err(Errno::EINVAL),
            true => Ids { real: id, effective: id, saved: id, fs: id },
            false if id == old.real || id == old.saved => Ids { effective: id, fs: id, ..old },
            false => return Err(Errno::EPERM),
        };
        self.set_ids(kind, new);
        Ok(())
    }

    /// Does what `setreuid` and `setregid` do.
    ///
    /// # Errors
    /// EPERM.
    pub fn set_two(&mut self, kind: Kind, real: u32, effective: u32) -> Result<(), Errno> {
        let (old, any) = (self.ids(kind), self.may_be_any(kind));
        let may_be_real = real == NO_ID || real == old.real || real == old.effective;
        let may_be_effective = effective == NO_ID || old.has(effective);
        if !(any || may_be_real && may_be_effective) {
            return Err(Errno::EPERM);
        }
        let now = or_old(effective, old.effective);
        let is_saved = real != NO_ID || (effective != NO_ID && effective != old.real);
        let saved = if is_saved { now } else { old.saved };
        self.set_ids(kind, Ids { real: or_old(real, old.real), effective: now, saved, fs: now });
        Ok(())
    }

    /// Does what `setresuid` and `setresgid` do.
    ///
    /// # Errors
    /// EPERM.
    pub fn set_three(&mut self, kind: Kind, [real, effective, saved]: [u32; 3]) -> Result<(), Errno> {
        let old = self.ids(kind);
        let may = |id: u32| id == NO_ID || old.has(id);
        if !(self.may_be_any(kind) || may(real) && may(effective) && may(saved)) {
            return Err(Errno::EPERM);
        }
        let now = or_old(effective, old.effective);
        let new =
            Ids { real: or_old(real, old.real), effective: now, saved: or_old(saved, old.saved), fs: now };
        self.set_ids(kind, new);
        Ok(())
    }

    /// Does what `setfsuid` and `setfsgid` do: it changes nothing if that is not allowed.
    pub fn set_fs(&mut self, kind: Kind, id: u32) {
        let old = self.ids(kind);
        if id == NO_ID || !(old.has(id) || old.fs == id || self.may_be_any(kind)) {
            return;
        }
        let new = Ids { fs: id, ..old };
        match kind {
            Kind::User => {
                self.users = new;
                self.after_fs_user(old.fs);
            }
            Kind::Group => self.groups = new,
        }
    }
}
