//! Messages by the network.

use abi::Errno;

use super::{ADDRESSES, Datagrams, Message, Sender};
use crate::fs::network::{self, MOST_MESSAGE};
use crate::fs::socket::Address;
use crate::mm::fallible;

/// Puts a message that came from the network to where it belongs, or loses it.
pub fn deliver(from: Address, to: &Address, bytes: &[u8]) {
    let Some(inbox) = ADDRESSES.find(to) else { return };
    let from = from.seen_from(&Address::unnamed(inbox.domain));
    let message = fallible::copied(bytes).and_then(|page| {
        let mut pages = fallible::empty(1)?;
        pages.push(page);
        Message::new(pages)
    });
    if let Ok(mut message) = message {
        message.from = from.clone();
        let _lost = inbox.put(&mut Some(message), &Sender::Address(from), false, || false);
    }
}

impl Datagrams {
    /// Sends a message by the network.
    ///
    /// # Errors
    /// EMSGSIZE, EINVAL if it has an address of the loopback, EADDRINUSE, ENOMEM.
    pub(super) fn send_remote(&self, message: &mut Option<Message>, to: &Address) -> Result<(), Errno> {
        let from = self.be_bound(to)?;
        if !from.can_leave() {
            return Err(Errno::EINVAL);
        }
        if message.as_ref().is_some_and(|message| message.len() > MOST_MESSAGE) {
            return Err(Errno::EMSGSIZE);
        }
        if let Some(message) = message.take() {
            network::send_message(&from, to, &message.pages);
        }
        Ok(())
    }
}
