//! Statistics over rounds: the median, the tenth and the ninetieth percentile, the mean.

use serde::{Deserialize, Serialize};

/// Percentiles and mean of one count over rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Half of the rounds have at most this.
    pub median: f64,
    /// A tenth of the rounds have at most this.
    pub p10: f64,
    /// Nine tenths of the rounds have at most this.
    pub p90: f64,
    /// All counts divided by the number of rounds. Rare events such as timer ticks and lock convoys raise it.
    pub mean: f64,
}

impl Summary {
    /// Summarises `values`. Everything is 0 if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        if values.is_empty() {
            return Summary::default();
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let [p10, median, p90] = [0.1, 0.5, 0.9].map(|part| rank(&values, part));
        Summary { median, p10, p90, mean }
    }
}

impl Summary {
    /// Returns the same percentiles with another mean.
    pub fn with_mean(self, mean: f64) -> Self {
        Summary { mean, ..self }
    }
}

/// Returns the smallest value that at least this part of the values do not exceed. It is always one of them.
fn rank(sorted: &[f64], part: f64) -> f64 {
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted[place.clamp(1, sorted.len()) - 1]
}

/// Returns the median run by speed. Its numbers belong together, which the medians of single columns would
/// not. Of an even number of runs it is the slower one of the two in the middle.
pub fn median<T>(mut runs: Vec<T>, speed: impl Fn(&T) -> f64) -> Option<T> {
    runs.sort_by(|a, b| speed(a).total_cmp(&speed(b)));
    let middle = runs.len().saturating_sub(1) / 2;
    runs.into_iter().nth(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_values() {
        let summary = Summary::of((1..=10).map(f64::from));
        assert_eq!(summary, Summary { median: 5.0, p10: 1.0, p90: 9.0, mean: 5.5 });
    }

    #[test]
    fn a_rare_event_moves_the_mean_alone() {
        let summary = Summary::of([vec![0.0; 99], vec![500.0]].concat());
        assert_eq!(summary, Summary { median: 0.0, p10: 0.0, p90: 0.0, mean: 5.0 });
    }

    #[test]
    fn one_value_is_everything_and_none_is_nothing() {
        assert_eq!(Summary::of([7.0]), Summary { median: 7.0, p10: 7.0, p90: 7.0, mean: 7.0 });
        assert_eq!(Summary::of([]), Summary::default());
    }

    #[test]
    fn the_median_is_the_run_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0], |speed| *speed), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0], |speed| *speed), Some(2.0));
        assert_eq!(median(Vec::<f64>::new(), |speed| *speed), None);
    }
}
