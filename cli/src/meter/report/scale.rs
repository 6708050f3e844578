//! The scale of a chart: from values to places on the paper.

/// The width of the paper.
pub const WIDTH: f64 = 640.0;
/// The height of the paper.
pub const HEIGHT: f64 = 400.0;
/// Room for labels at the left.
pub const LEFT: f64 = 72.0;
/// Room for half a label at the right.
pub const RIGHT: f64 = 16.0;
/// Room at the top.
pub const TOP: f64 = 16.0;
/// Room for labels at the bottom.
pub const BOTTOM: f64 = 40.0;

/// An axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Values from 0.
    Linear,
    /// Powers: of ten on the vertical axis, of two on the horizontal one.
    Logarithmic,
}

/// The scale of both axes.
pub struct Scale {
    /// The kind of horizontal axis.
    pub across: Axis,
    /// The kind of vertical axis.
    pub axis: Axis,
    /// The value at the right end.
    pub right: f64,
    /// The value at the bottom.
    pub low: f64,
    /// The value at the top.
    pub high: f64,
    /// The place of the top.
    pub top: f64,
    /// Set if the horizontal axis has only whole numbers.
    pub whole: bool,
}

impl Scale {
    /// Returns the place of a value, from the left.
    pub fn x(&self, value: f64) -> f64 {
        let part = match self.across {
            Axis::Linear => value / self.right,
            Axis::Logarithmic => value.log2() / self.right.log2().max(1.0),
        };
        LEFT + (WIDTH - LEFT - RIGHT) * part
    }

    /// Returns the place of a value, from above.
    pub fn y(&self, value: f64) -> f64 {
        let part = match self.axis {
            Axis::Linear => (value - self.low) / (self.high - self.low),
            Axis::Logarithmic => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - self.top) * part.clamp(0.0, 1.0)
    }

    fn place(&self, (x, y): (f64, f64)) -> String {
        format!("{:.1},{:.1}", self.x(x), self.y(y))
    }

    /// Formats places as the points of a line.
    pub fn places(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        points.map(|point| self.place(point)).collect::<Vec<_>>().join(" ")
    }

    /// Returns the values that are named below the chart.
    pub fn marks(&self) -> Vec<f64> {
        let marks = match self.across {
            Axis::Linear => (0..=8).map(|part| self.step() * f64::from(part)).collect::<Vec<_>>(),
            Axis::Logarithmic => (0..8).map(|power| f64::from(1 << power)).collect(),
        };
        marks.into_iter().filter(|value| *value <= self.right).collect()
    }

    /// Returns the distance from one mark to the next.
    fn step(&self) -> f64 {
        let step = nice(self.right / 8.0);
        if self.whole { step.max(1.0).ceil() } else { step }
    }

    /// Returns the values that have a line across the chart.
    pub fn ticks(&self) -> Vec<f64> {
        match self.axis {
            Axis::Linear => (0..=4).map(|part| self.high * f64::from(part) / 4.0).collect(),
            Axis::Logarithmic => {
                let powers = self.low.log10().round() as i32..=self.high.log10().round() as i32;
                powers.map(|power| 10f64.powi(power)).collect()
            }
        }
    }
}

/// Returns the next of 1, 2, 4, 5, 8, 10, 20, ... times a power of ten that is not below `value`.
pub fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 5.0, 8.0, 10.0]
        .map(|step| step * power)
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

/// Returns the powers of ten around these values.
pub fn powers_around(least: f64, high: f64) -> (f64, f64) {
    if high <= 0.0 {
        return (1.0, 10.0);
    }
    let (low, high) = (least.log10().floor(), high.log10().ceil());
    (10f64.powf(low), 10f64.powf(high.max(low + 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mark_lies_between_two_cores() {
        for right in [1.0, 2.0, 5.0, 11.0, 20.0, 80.0, 128.0] {
            let scale = Scale {
                across: Axis::Linear,
                axis: Axis::Linear,
                right,
                low: 0.0,
                high: 1.0,
                top: 0.0,
                whole: true,
            };
            let marks = scale.marks();
            assert!(marks.len() > 1 && marks.iter().all(|mark| mark.fract() == 0.0), "{right}: {marks:?}");
        }
    }
}
