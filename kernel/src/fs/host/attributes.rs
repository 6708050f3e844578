//! Owners and permissions of the host's files.
//!
//! The host knows no users of the guest. A file that such a user makes, or is given, belongs to another user
//! on the host, in most cases to the user who runs the guest. The next run takes that one for root. So the
//! host gets the set-id bits of a file only if the file has the same owner there. In the guest the file keeps
//! them.

use abi::ninep::Attributes;

use crate::fs::content::Content;
use crate::fs::node::{Node, Owner};
use crate::fs::rights::{SET_GROUP, SET_USER};
use crate::options;

/// Gives a node what the host says of its file.
pub fn apply(attributes: &Attributes, node: &Node) {
    node.set_permissions(attributes.mode);
    node.set_owner(owner(attributes));
    node.set_changed(attributes.changed_ns);
    if !node.is_directory() {
        node.set_links(attributes.links);
    }
    if let Some(pages) = node.content().and_then(Content::pages) {
        pages.set_host_len(attributes.size);
    }
}

/// Returns the owner of a file of the host. The user who runs the guest, and its group, are root here.
pub fn owner(attributes: &Attributes) -> Owner {
    let (own_user, own_group) = options::get().host_user;
    let or_root = |id: u32, own: u32| if id == own { 0 } else { id };
    Owner { user: or_root(attributes.uid, own_user), group: or_root(attributes.gid, own_group) }
}

/// Returns the permissions without the set-id bits that `owner` may not give a file which has the owner
/// `there` on the host.
pub fn without_set_ids_of(permissions: u32, owner: Owner, there: Owner) -> u32 {
    let of_user = if owner.user == there.user { 0 } else { SET_USER };
    let of_group = if owner.group == there.group { 0 } else { SET_GROUP };
    permissions & !(of_user | of_group)
}
