//! What a waiting person sees: a spinner on a terminal, a line per step otherwise. Always on stderr.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::termios::isatty;

use crate::terminal;

/// Whether stderr is a terminal.
pub fn on_terminal() -> bool {
    isatty(rustix::stdio::stderr())
}

/// One step of something long.
pub struct Step {
    bar: Option<ProgressBar>,
}

impl Step {
    /// A step that is shown from the start.
    pub fn new(text: &str) -> Self {
        let step = Step::quiet(text);
        step.announce(text);
        step
    }

    /// A step that only a terminal sees until [`announce`](Self::announce): it may turn out to be nothing.
    pub fn quiet(text: &str) -> Self {
        let bar = on_terminal().then(|| {
            let bar = ProgressBar::new_spinner().with_style(style()).with_message(terminal::name(text));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Step { bar }
    }

    /// Says in a log what is being done.
    pub fn announce(&self, text: &str) {
        if self.bar.is_none() {
            terminal::message(text);
        }
    }

    /// Changes what the spinner says.
    pub fn tell(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(terminal::name(text));
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}").expect("a valid template")
}
