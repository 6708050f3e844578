//! The capabilities of a thread, and their changes.

use abi::Errno;
use abi::users::*;

use super::{Credentials, Ids};

/// All capabilities.
const ALL: u64 = (1 << (CAP_LAST_CAP + 1)) - 1;
/// The ones that follow the user for files.
const OF_FILES: u64 = 1 << CAP_CHOWN
    | 1 << CAP_DAC_OVERRIDE
    | 1 << CAP_DAC_READ_SEARCH
    | 1 << CAP_FOWNER
    | 1 << CAP_FSETID
    | 1 << CAP_LINUX_IMMUTABLE
    | 1 << CAP_MKNOD
    | 1 << CAP_MAC_OVERRIDE;

/// Returns whether there is a capability with this number.
pub fn is_capability(number: u64) -> bool {
    number <= CAP_LAST_CAP.into()
}

/// Returns whether all capabilities of `part` are in `whole`.
fn is_part(part: u64, whole: u64) -> bool {
    part & !whole == 0
}

/// Sets of capabilities, one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The ones that may become effective.
    pub permitted: u64,
    /// The ones that checks find.
    pub effective: u64,
    /// The ones that a program may get from its file if that says so.
    pub inheritable: u64,
    /// The ones that a program may get.
    pub bounding: u64,
    /// The ones that a program without privileges of its own keeps.
    pub ambient: u64,
}

/// A change of the ambient set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ambient {
    /// Add one.
    Raise,
    /// Remove one.
    Lower,
}

impl Capabilities {
    /// Root's usual ones.
    pub const ROOT: Self = Self { permitted: ALL, effective: ALL, inheritable: 0, bounding: ALL, ambient: 0 };
}

impl Credentials {
    /// Changes the sets after the users have changed from `old`.
    pub(super) fn after_users(&mut self, old: Ids) {
        if self.securebits & SECBIT_NO_SETUID_FIXUP != 0 {
            return;
        }
        let (new, sets) = (self.users, &mut self.capabilities);
        if old.has(0) && !new.has(0) {
            if self.securebits & SECBIT_KEEP_CAPS == 0 {
                (sets.permitted, sets.effective) = (0, 0);
            }
            sets.ambient = 0;
        }
        match (old.effective, new.effective) {
            (0, 1..) => sets.effective = 0,
            (1.., 0) => sets.effective = sets.permitted,
            _ => {}
        }
    }

    /// Changes the effective set after the user for files has changed from `old`.
    pub(super) fn after_fs_user(&mut self, old: u32) {
        if self.securebits & SECBIT_NO_SETUID_FIXUP != 0 {
            return;
        }
        let sets = &mut self.capabilities;
        match (old, self.users.fs) {
            (0, 1..) => sets.effective &= !OF_FILES,
            (1.., 0) => sets.effective |= sets.permitted & OF_FILES,
            _ => {}
        }
    }

    /// Sets the first three sets, as `capset` does.
    ///
    /// # Errors
    /// EPERM.
    pub fn set_capabilities(
        &mut self,
        effective: u64,
        permitted: u64,
        inheritable: u64,
    ) -> Result<(), Errno> {
        let old = self.capabilities;
        let [effective, permitted, inheritable] = [effective, permitted, inheritable].map(|set| set & ALL);
        let may_inherit = self.can(CAP_SETPCAP) || is_part(inheritable, old.inheritable | old.permitted);
        let is_allowed = may_inherit
            && is_part(inheritable, old.inheritable | old.bounding)
            && is_part(permitted, old.permitted)
            && is_part(effective, permitted);
        if !is_allowed {
            return Err(Errno::EPERM);
        }
        let ambient = old.ambient & permitted & inheritable;
        self.capabilities = Capabilities { permitted, effective, inheritable, ambient, ..old };
        Ok(())
    }

    /// Removes a capability from the bounding set.
    ///
    /// # Errors
    /// EPERM, EINVAL if there is no such capability.
    pub fn drop_bounding(&mut self, capability: u64) -> Result<(), Errno> {
        self.must(CAP_SETPCAP)?;
        if !is_capability(capability) {
            return Err(Errno::EINVAL);
        }
        self.capabilities.bounding &= !(1 << capability);
        Ok(())
    }

    /// Changes the ambient set. The capability exists.
    ///
    /// # Errors
    /// EPERM.
    pub fn change_ambient(&mut self, change: Ambient, capability: u64) -> Result<(), Errno> {
        let (bit, sets) = (1 << capability, &mut self.capabilities);
        let may_raise = self.securebits & SECBIT_NO_CAP_AMBIENT_RAISE == 0
            && is_part(bit, sets.permitted & sets.inheritable);
        match change {
            Ambient::Raise if !may_raise => return Err(Errno::EPERM),
            Ambient::Raise => sets.ambient |= bit,
            Ambient::Lower => sets.ambient &= !bit,
        }
        Ok(())
    }

    /// Sets the secure bits.
    ///
    /// # Errors
    /// EPERM.
    pub fn set_securebits(&mut self, new: u64) -> Result<(), Errno> {
        let old = self.securebits;
        let bits = u32::try_from(new).map_err(|_| Errno::EPERM)?;
        let changes_locked = (old & SECURE_ALL_LOCKS) >> 1 & (old ^ bits) != 0;
        let unlocks = old & SECURE_ALL_LOCKS & !bits != 0;
        if changes_locked || unlocks || bits & !(SECURE_ALL_BITS | SECURE_ALL_LOCKS) != 0 {
            return Err(Errno::EPERM);
        }
        self.must(CAP_SETPCAP)?;
        self.securebits = bits;
        Ok(())
    }

    /// Sets whether the permitted capabilities stay when all users stop being root.
    ///
    /// # Errors
    /// EPERM if that is locked.
    pub fn keep_capabilities(&mut self, keep: bool) -> Result<(), Errno> {
        if self.securebits & SECBIT_KEEP_CAPS_LOCKED != 0 {
            return Err(Errno::EPERM);
        }
        match keep {
            true => self.securebits |= SECBIT_KEEP_CAPS,
            false => self.securebits &= !SECBIT_KEEP_CAPS,
        }
        Ok(())
    }
}
