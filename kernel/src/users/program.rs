//! The credentials of a program that a thread executes.

use abi::users::{CAP_SETUID, SECBIT_KEEP_CAPS, SECBIT_NOROOT};

use super::{Capabilities, Credentials, Ids};

/// The credentials of a program that is about to be executed.
pub struct OfProgram {
    /// Those that it gets.
    pub credentials: Credentials,
    /// Whether it must be careful (AT_SECURE).
    pub is_secure: bool,
    /// Those without the rights that it gets by its set-id bits or as root, if it gets some.
    pub plain: Option<Credentials>,
}

/// The user and the group that a program's set-id bits name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetIds {
    /// The owner of a set-user-id program.
    pub user: Option<u32>,
    /// The group of a set-group-id program.
    pub group: Option<u32>,
}

impl Credentials {
    /// Returns whether a program that gets these hides its memory from processes of its user, if a thread
    /// with the `old` ones executes it.
    pub fn hides_program(&self, old: &Self) -> bool {
        let is_set_id = |ids: Ids| ids.effective != ids.real;
        is_set_id(old.users) || is_set_id(old.groups) || self.is_more_than(old)
    }

    /// Returns the credentials after an `execve` of a program with these set-id bits. Files have no
    /// capabilities.
    pub fn of_program(&self, ids: SetIds) -> OfProgram {
        let (credentials, is_secure, gains) = self.executing(ids, false);
        let plain = gains.then(|| self.executing(ids, true).0);
        OfProgram { credentials, is_secure, plain }
    }

    /// Returns the credentials after the `execve`, whether the program must be careful, and whether it gets
    /// rights that the thread did not have. A thread that is `restricted` gets none.
    fn executing(&self, ids: SetIds, restricted: bool) -> (Self, bool, bool) {
        let mut new = self.clone();
        if !self.no_new_privs {
            new.users.effective = ids.user.unwrap_or(new.users.effective);
            new.groups.effective = ids.group.unwrap_or(new.groups.effective);
        }
        let counts = self.securebits & SECBIT_NOROOT == 0;
        let is_root = counts && (new.users.real == 0 || new.users.effective == 0);
        let is_effective = counts && new.users.effective == 0;
        let own = self.capabilities;
        let mut permitted = if is_root { own.bounding | own.inheritable } else { 0 };
        let is_set_id = new.users.effective != self.users.real || new.groups.effective != self.groups.real;
        let gains = is_set_id || permitted & !own.permitted != 0;
        if gains && (restricted || self.no_new_privs) {
            if self.no_new_privs || !self.can(CAP_SETUID) {
                (new.users.effective, new.groups.effective) = (new.users.real, new.groups.real);
            }
            permitted &= own.permitted;
        }
        (new.users.saved, new.users.fs) = (new.users.effective, new.users.effective);
        (new.groups.saved, new.groups.fs) = (new.groups.effective, new.groups.effective);
        let ambient = if is_set_id { 0 } else { own.ambient };
        permitted |= ambient;
        let effective = if is_effective { permitted } else { ambient };
        new.capabilities = Capabilities { permitted, effective, ambient, ..own };
        new.securebits &= !SECBIT_KEEP_CAPS;
        let is_secure = is_set_id || new.users.real != 0 && (is_effective || permitted & !ambient != 0);
        (new, is_secure, gains && !restricted && !self.no_new_privs)
    }
}
