//! The signals that end a run: SIGINT, SIGTERM, SIGHUP.
//!
//! They are caught once for the whole process. While a guest runs they go to its session, which ends it and
//! reports. At any other time they end the process with the status that a shell expects.

use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::terminal;

type Action = Box<dyn Fn(i32) + Send>;

static WATCHING: Mutex<Option<Action>> = Mutex::new(None);

/// Catches the signals. Called once, by `main`.
pub fn install() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot install signal handlers")?;
    thread::spawn(move || signals.forever().for_each(deliver));
    Ok(())
}

fn deliver(signal: i32) {
    match &*WATCHING.lock().expect("no action panics") {
        Some(act) => act(signal),
        None => {
            terminal::restore();
            std::process::exit(128 + signal)
        }
    }
}

/// A watch for signals. While it lives, signals go to its action.
pub struct Watch(());

impl Watch {
    /// Sends every signal to `act`.
    pub fn new(act: impl Fn(i32) + Send + 'static) -> Self {
        *WATCHING.lock().expect("no action panics") = Some(Box::new(act));
        Watch(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *WATCHING.lock().expect("no action panics") = None;
    }
}
