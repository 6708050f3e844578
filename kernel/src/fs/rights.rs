//! The rights of the running thread to files, as in `path_resolution(7)`.
//!
//! A check first looks whether all users have the right, which is so on nearly every way to a file: it reads
//! the node only. Otherwise it looks at the thread's credentials.
//!
//! `chmod`, `chown` and a write that clears set-id bits hold the node's lock from their check to their
//! change. So no permissions that one owner chose come to another. `execve` takes it, too, if a program has
//! set-id bits: the user that it gets is the one that set them.

use abi::Errno;
use abi::file::S_IFREG;
use abi::users::{CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, NO_ID};

use super::node::{Node, Owner};
use crate::sched;
use crate::users::{Credentials, SetIds};

/// The right to read a file or to list a directory, as in the permissions of other users.
pub const READ: u32 = 4;
/// The right to write a file, or to change the names in a directory.
pub const WRITE: u32 = 2;
/// The right to execute a file, or to search a directory.
pub const EXECUTE: u32 = 1;

/// The bit of a program that runs with its owner's rights.
pub const SET_USER: u32 = 0o4000;
/// The bit of a program that runs with its group's rights, and of a directory whose files get its group.
pub const SET_GROUP: u32 = 0o2000;
/// The bit of a directory in which only owners remove names.
const STICKY: u32 = 0o1000;
/// The right of the group to execute.
const GROUP_EXECUTE: u32 = 0o010;

/// Returns an error unless the running thread has all rights in `wanted`.
///
/// # Errors
/// EACCES.
#[inline(always)]
pub fn permit(node: &Node, wanted: u32) -> Result<(), Errno> {
    let of_all = wanted * 0o111;
    if node.permissions() & of_all == of_all { Ok(()) } else { look_closer(node, wanted) }
}

#[inline(never)]
fn look_closer(node: &Node, wanted: u32) -> Result<(), Errno> {
    if sched::with_credentials(|of| may(of, node, wanted)) { Ok(()) } else { Err(Errno::EACCES) }
}

/// Returns whether a thread with these credentials has all rights in `wanted`.
fn may(of: &Credentials, node: &Node, wanted: u32) -> bool {
    let (permissions, owner) = (node.permissions(), node.owner());
    let granted = match owner {
        owner if owner.user == of.users.fs => permissions >> 6,
        owner if of.is_in(owner.group) => permissions >> 3,
        _ => permissions,
    };
    if granted & wanted == wanted {
        return true;
    }
    let reads = wanted & WRITE == 0 && of.can(CAP_DAC_READ_SEARCH);
    match node.is_directory() {
        true => of.can(CAP_DAC_OVERRIDE) || reads,
        false => {
            let is_program = permissions & 0o111 != 0;
            of.can(CAP_DAC_OVERRIDE) && (wanted & EXECUTE == 0 || is_program)
                || reads && wanted & EXECUTE == 0
        }
    }
}

/// Returns the owner of a file that the running thread makes, or root if no thread runs.
pub fn owner_of_new() -> Owner {
    sched::with_credentials(|of| Owner { user: of.users.fs, group: of.groups.fs })
}

/// Gives a node that is new in `directory` what it has from there.
pub fn inherit(directory: &Node, node: &Node) {
    if directory.permissions() & SET_GROUP == 0 {
        return;
    }
    node.set_owner(Owner { group: directory.owner().group, ..node.owner() });
    let (permissions, group) = (node.permissions(), node.owner().group);
    let is_program = permissions & (SET_GROUP | GROUP_EXECUTE) == SET_GROUP | GROUP_EXECUTE;
    if node.is_directory() {
        node.set_permissions(permissions | SET_GROUP);
    } else if is_program && !sched::with_credentials(|of| of.is_in(group) || of.can(CAP_FSETID)) {
        node.set_permissions(permissions & !SET_GROUP);
    }
}

/// Returns whether the running thread may do what only the owner may.
pub fn is_owner(node: &Node) -> bool {
    sched::with_credentials(|of| of.users.fs == node.owner().user || of.can(CAP_FOWNER))
}

/// Returns an error unless the running thread may do what only the owner may.
///
/// # Errors
/// EPERM.
pub fn must_own(node: &Node) -> Result<(), Errno> {
    if is_owner(node) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Returns an error unless the running thread may change names in `directory`.
///
/// # Errors
/// EACCES.
pub fn permit_names(directory: &Node) -> Result<(), Errno> {
    permit(directory, WRITE | EXECUTE)
}

/// Returns an error unless the running thread may remove the name of `node` in `directory`.
///
/// # Errors
/// EACCES, EPERM if the directory is sticky and others own both.
pub fn permit_removal(directory: &Node, node: &Node) -> Result<(), Errno> {
    permit_names(directory)?;
    if directory.permissions() & STICKY == 0 || is_owner(node) || is_owner(directory) {
        return Ok(());
    }
    Err(Errno::EPERM)
}

/// Changes the permissions of `node` to `wanted`, as far as the running thread may set them.
///
/// # Errors
/// EPERM, and the host's.
pub fn change_permissions(node: &Node, wanted: u32) -> Result<(), Errno> {
    let _alone = node.lock_attributes();
    must_own(node)?;
    let keeps = wanted & SET_GROUP == 0 || may_set_group(node);
    node.change_permissions(if keeps { wanted } else { wanted & !SET_GROUP })
}

/// Returns whether the running thread may set the set-group-id bit of `node`.
fn may_set_group(node: &Node) -> bool {
    let group = node.owner().group;
    sched::with_credentials(|of| of.is_in(group) || of.can(CAP_FSETID))
}

/// Returns the set-id bits that a change of the owner, or of the contents, removes.
fn dropped_bits(node: &Node) -> u32 {
    let permissions = node.permissions();
    let keeps_group = permissions & GROUP_EXECUTE == 0 && may_set_group(node);
    permissions & if keeps_group { SET_USER } else { SET_USER | SET_GROUP }
}

/// Removes the set-id bits of a regular file, before the running thread changes its contents, unless it may
/// keep them. A file without such bits is only read.
///
/// # Errors
/// The host's.
#[inline(always)]
pub fn drop_set_ids(node: &Node) -> Result<(), Errno> {
    if node.permissions() & (SET_USER | SET_GROUP) == 0 { Ok(()) } else { drop_those_there(node) }
}

#[cold]
fn drop_those_there(node: &Node) -> Result<(), Errno> {
    if node.kind() != S_IFREG || sched::with_credentials(|of| of.can(CAP_FSETID)) {
        return Ok(());
    }
    let _alone = node.lock_attributes();
    match dropped_bits(node) {
        0 => Ok(()),
        dropped => node.change_permissions(node.permissions() & !dropped),
    }
}

/// Changes the owner of `node` to a user and a group, each of which may be none, and removes its set-id bits.
///
/// # Errors
/// EPERM, and the host's.
pub fn change_owner(node: &Node, user: u32, group: u32) -> Result<(), Errno> {
    let _alone = node.lock_attributes();
    let old = node.owner();
    let is_allowed = sched::with_credentials(|of| {
        let is_owner = of.users.fs == old.user;
        let may_give = user == NO_ID || is_owner && user == old.user;
        let may_join = group == NO_ID || is_owner && (group == old.group || of.is_in(group));
        of.can(CAP_CHOWN) || may_give && may_join
    });
    if !is_allowed {
        return Err(Errno::EPERM);
    }
    let or_old = |new, old| if new == NO_ID { old } else { new };
    let dropped = if node.is_directory() { 0 } else { dropped_bits(node) };
    if dropped != 0 {
        if !sched::with_credentials(|of| of.can(CAP_CHOWN)) {
            must_own(node)?;
        }
        node.change_permissions(node.permissions() & !dropped)?;
    }
    node.change_owner(Owner { user: or_old(user, old.user), group: or_old(group, old.group) })
}

/// Returns the user and the group that a program gets by its set-id bits.
pub fn set_ids(node: &Node) -> SetIds {
    if node.permissions() & (SET_USER | SET_GROUP) == 0 {
        return SetIds::default();
    }
    let _alone = node.lock_attributes();
    let (owner, permissions) = (node.owner(), node.permissions());
    let group = SET_GROUP | GROUP_EXECUTE;
    SetIds {
        user: (permissions & SET_USER != 0).then_some(owner.user),
        group: (permissions & group == group).then_some(owner.group),
    }
}
