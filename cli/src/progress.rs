//! Progress on stderr: a spinner on a terminal. In a log there is a line per step, and one every half minute
//! of it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rustix::termios::isatty;

use crate::terminal;

/// The time between reports of a long step in a log.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Returns whether stderr is a terminal.
pub fn on_terminal() -> bool {
    isatty(rustix::stdio::stderr())
}

/// A step of long work.
pub struct Step {
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    Log(Log),
}

impl Step {
    /// Begins a step that is shown from the start.
    pub fn new(text: &str) -> Self {
        let step = Step::quiet(text);
        step.announce(text);
        step
    }

    /// Begins a step that a log shows only when it is [announced](Self::announce) or takes long, because it
    /// may turn out to be nothing.
    pub fn quiet(text: &str) -> Self {
        if !on_terminal() {
            return Step { shown: Shown::Log(Log::start(text, REPORT_EVERY, terminal::message)) };
        }
        let bar = ProgressBar::new_spinner().with_style(style()).with_message(terminal::name(text));
        bar.enable_steady_tick(Duration::from_millis(120));
        Step { shown: Shown::Bar(bar) }
    }

    /// Writes to a log what is being done.
    pub fn announce(&self, text: &str) {
        if let Shown::Log(_) = self.shown {
            terminal::message(text);
        }
    }

    /// Changes the text of the spinner, and of a log's next line.
    pub fn tell(&self, text: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.set_message(terminal::name(text)),
            Shown::Log(log) => log.tell(text),
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}").expect("a valid template")
}

/// A thread that writes from time to time what is being done. It ends with this value.
struct Log {
    texts: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    fn start(text: &str, every: Duration, say: impl Fn(String) + Send + 'static) -> Self {
        let (texts, news) = channel();
        let text = text.to_owned();
        let thread = thread::spawn(move || report(text, &news, every, say));
        Log { texts: Some(texts), thread: Some(thread) }
    }

    fn tell(&self, text: &str) {
        // The thread listens until this value is dropped.
        let _ = self.texts.as_ref().map(|texts| texts.send(text.to_owned()));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.texts = None;
        self.thread.take().map(JoinHandle::join);
    }
}

fn report(mut text: String, news: &Receiver<String>, every: Duration, say: impl Fn(String)) {
    let start = Instant::now();
    let mut next = start + every;
    loop {
        match news.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(newer) => text = newer,
            Err(RecvTimeoutError::Timeout) => {
                say(format!("{} ({} s)", terminal::name(&text), start.elapsed().as_secs()));
                next += every;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_hears_of_what_takes_long() {
        let (said, heard) = channel();
        let log = Log::start("first", Duration::from_millis(1), move |line| drop(said.send(line)));
        assert!(heard.recv().unwrap().starts_with("first ("));
        log.tell("then");
        assert!(heard.iter().any(|line| line.starts_with("then (")));
        drop(log);
        assert!(heard.iter().all(|line| line.starts_with("then (")), "and the thread has ended");
    }

    #[test]
    fn a_log_hears_nothing_of_what_is_short() {
        let (said, heard) = channel();
        drop(Log::start("short", REPORT_EVERY, move |line| drop(said.send(line))));
        assert_eq!(heard.iter().count(), 0);
    }
}
