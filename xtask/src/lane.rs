//! Lines of output of suites that run at the same time.

use std::mem;
use std::sync::Mutex;

/// The output of suites that run one after the other. It is shown at once, or held as long as another lane's
/// is shown.
pub struct Lane {
    /// The lines that are held, or none if the lane is shown.
    held: Mutex<Option<Vec<String>>>,
}

impl Lane {
    /// Returns a lane that shows each line at once.
    pub fn shown() -> Self {
        Lane { held: Mutex::new(None) }
    }

    /// Returns a lane that holds its lines.
    pub fn held() -> Self {
        Lane { held: Mutex::new(Some(Vec::new())) }
    }

    /// Shows a line, or holds it.
    pub fn say(&self, line: &str) {
        match &mut *self.held.lock().expect("no holder panics") {
            Some(lines) => lines.push(line.to_owned()),
            None => println!("{line}"),
        }
    }

    /// Shows the lines that are held, and each line to come at once.
    pub fn show(&self) {
        let mut held = self.held.lock().expect("no holder panics");
        held.take().into_iter().flatten().for_each(|line| println!("{line}"));
    }

    /// Takes the lines that are held.
    pub fn take(&self) -> Vec<String> {
        self.held.lock().expect("no holder panics").as_mut().map(mem::take).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_held_until_the_lane_is_shown() {
        let lane = Lane::held();
        lane.say("one");
        lane.say("two");
        assert_eq!(lane.take(), ["one", "two"]);
        lane.say("three");
        lane.show();
        lane.say("four");
        assert!(lane.take().is_empty());
    }
}
