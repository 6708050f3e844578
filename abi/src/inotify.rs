//! Watches of files (`inotify(7)`).

use crate::{constants, plain};

constants! { u32:
    IN_ACCESS = 0x1, "It was read.";
    IN_MODIFY = 0x2, "It was written.";
    IN_ATTRIB = 0x4, "Its attributes, or the number of its names, have changed.";
    IN_CLOSE_WRITE = 0x8, "It was closed, and had been opened for writing.";
    IN_CLOSE_NOWRITE = 0x10, "It was closed, and had not been opened for writing.";
    IN_OPEN = 0x20, "It was opened.";
    IN_MOVED_FROM = 0x40, "A name left the directory.";
    IN_MOVED_TO = 0x80, "A name came to the directory.";
    IN_CREATE = 0x100, "A name was made in the directory.";
    IN_DELETE = 0x200, "A name was removed from the directory.";
    IN_DELETE_SELF = 0x400, "It has lost its last name and its last user.";
    IN_MOVE_SELF = 0x800, "It was moved.";
    IN_ALL_EVENTS = 0xfff, "All of these.";
    IN_UNMOUNT = 0x2000, "Its volume is gone.";
    IN_Q_OVERFLOW = 0x4000, "Events were lost.";
    IN_IGNORED = 0x8000, "The watch has ended.";
    IN_ONLYDIR = 0x0100_0000, "Only if it is a directory.";
    IN_DONT_FOLLOW = 0x0200_0000, "Of a symbolic link itself.";
    IN_EXCL_UNLINK = 0x0400_0000, "No events of files in the directory that have lost their names.";
    IN_MASK_CREATE = 0x1000_0000, "Only if there is no watch yet.";
    IN_MASK_ADD = 0x2000_0000, "Add to the events of the watch.";
    IN_ISDIR = 0x4000_0000, "The event is of a directory.";
    IN_ONESHOT = 0x8000_0000, "Only one event.";
}

plain! {
    /// An event. Its name follows, padded with zeroes to a multiple of the size of this.
    pub struct InotifyEvent {
        /// The number of the watch, or -1.
        pub watch: i32,
        /// `IN_*`.
        pub mask: u32,
        /// The same number in both events of a move, otherwise 0.
        pub cookie: u32,
        /// The bytes of the name with its padding.
        pub len: u32,
    }
}
